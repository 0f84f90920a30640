"""Prediction errors at the end of gaps: against a Kalman filter stepped by hand, and with blocks of samples."""

from __future__ import annotations

import pytest
import torch

import fwnkf
from fwnkf.core.linear import LinearSystem
from fwnkf.errors import ConfigError
from fwnkf.preprocess import LastSample, LastSampleConfig
from tasks.racer.gaps import gap_errors

from ...tolerances import assert_close


def walk(control: int = 1) -> LinearSystem:
    F, H = torch.tensor([[1.0, 0.1], [0.0, 0.9]]).double(), torch.tensor([[1.0, 0.0]]).double()
    B = torch.linspace(-0.2, 0.3, 2 * control).reshape(2, control).double()
    return LinearSystem.of(F=F, B=B, H=H, Q=0.1 * torch.eye(2).double(), R=0.2 * torch.eye(1).double())


def test_errors_and_covariances_are_those_of_matrix_powers(generator) -> None:
    system = walk()
    y, u = (torch.randn(3, 30, 1, generator=generator).double() for _ in range(2))
    found = gap_errors(fwnkf.EKF(system=system), y, u, 20, (1, 4, 10))
    before = fwnkf.EKF(system=system).run(y[:, :20], u[:, :20])
    for number, length in enumerate((1, 4, 10)):
        mean, cov = before.mean[:, -1], before.cov[:, -1]
        for t in range(length):
            mean = mean @ system.F.mT + u[:, 20 + t] @ system.B.mT
            cov = system.F @ cov @ system.F.mT + system.Q()
        assert_close(found.error[:, number], y[:, 19 + length] - mean[:, :1])
        assert_close(found.cov[:, number], cov[:, :1, :1] + system.R())


def test_blocks_of_samples_are_the_filter_on_their_last_samples(generator) -> None:
    model = fwnkf.EKF(system=walk(control=2))
    y, u = (torch.randn(2, 40, 1, generator=generator).double() for _ in range(2))
    expected = gap_errors(model, y[:, 1::2], u.unflatten(1, (20, 2)).flatten(2), 10, (1, 5))
    model.preprocess = LastSample(LastSampleConfig(channels=1, controls=1, block=2), model.system)
    found = gap_errors(model, y, u, 20, (2, 10))
    assert_close(found.error, expected.error)
    assert_close(found.cov, expected.cov)
    with pytest.raises(ConfigError, match="whole steps of 2"):
        gap_errors(model, y, u, 20, (3,))


def test_sizes_that_do_not_fit_the_system_are_named() -> None:
    with pytest.raises(ConfigError, match="2 x 2 control"):
        LastSample(LastSampleConfig(channels=1, controls=2, block=2), walk(control=2))
