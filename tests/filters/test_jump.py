"""Innovations beyond a limit as jumps of what is measured: against Huber's function, and one step by hand."""

from __future__ import annotations

import pytest
import torch

import fwnkf
from fwnkf.core.gaussian import DiagonalNoise, FullNoise, condition
from fwnkf.core.jumps import jump_noise
from fwnkf.core.linear import LinearSystem
from fwnkf.errors import ConfigError

from ..tolerances import assert_close

LIMIT = 3.0


def system() -> LinearSystem:
    F = torch.tensor([[1.0, 0.1, 0.0], [0.0, 0.9, 0.2], [0.1, 0.0, 0.8]]).double()
    Q = 0.05 * torch.eye(3).double() + 0.02
    return LinearSystem.of(F=F, H=torch.eye(1, 3).double(), Q=Q, R=0.01 * torch.eye(1).double())


def model(jump: float, **options) -> fwnkf.Filter:
    return fwnkf.FWNKF(system(), jump=jump, **options)


@pytest.mark.parametrize("size", [0.5, 2.9, 3.1, 50.0])
def test_other_states_follow_hubers_function_and_the_measured_one_the_jump(size) -> None:
    P = torch.tensor([[2.0, 0.8, -0.3], [0.8, 1.0, 0.1], [-0.3, 0.1, 0.5]]).double()
    H, noise = torch.eye(1, 3).double(), DiagonalNoise(torch.zeros(1).double())
    innovation = torch.tensor([size * 2.0**0.5]).double()
    added, S = jump_noise(P, innovation, H, noise, LIMIT)
    found = condition(P + added, innovation, H, noise).correction
    assert_close(S, P[:1, :1])
    assert_close(found[:1], innovation)
    assert_close(found[1:], P[1:, 0] / P[0, 0] * innovation.clamp(-LIMIT * 2.0**0.5, LIMIT * 2.0**0.5))


def test_each_channel_has_its_own_limit() -> None:
    P, H = torch.diag(torch.tensor([1.0, 4.0, 1.0])).double(), torch.eye(2, 3).double()
    added, _ = jump_noise(P, torch.tensor([-9.0, 5.0]).double(), H, FullNoise(torch.zeros(2, 2).double()), LIMIT)
    # 9 of one standard deviation is three times the limit, 5 of two is within it
    assert_close(added, torch.diag(torch.tensor([2.0, 0.0, 0.0])).double())


@pytest.mark.parametrize("solve", ["auto", "square_root"])
def test_a_filter_without_jumps_is_the_filter_and_a_collision_does_not_kick_it(solve, generator) -> None:
    y = 0.1 * torch.randn(2, 40, 1, generator=generator).double()
    plain, limited = (model(jump, solve=solve) for jump in (0.0, LIMIT))
    assert_close(limited.run(y).mean, plain.run(y).mean)
    y[:, 30] += 40.0
    kicked, calm = plain.run(y), limited.run(y)
    assert (calm.mean[:, 30, 0] - y[:, 30, 0]).abs().max() < 0.5
    assert (calm.mean[:, 30, 1:] - calm.prior_mean[:, 30, 1:]).norm() < 0.1 * (
        kicked.mean[:, 30, 1:] - kicked.prior_mean[:, 30, 1:]
    ).norm()
    # what is stated before the measurement does not know of it
    assert_close(calm.innovation_cov[:, 30], kicked.innovation_cov[:, 30])
    assert_close(calm.prior_cov[:, 30], kicked.prior_cov[:, 30])


def test_a_missing_sample_is_no_jump() -> None:
    y = torch.zeros(1, 10, 1).double()
    y[0, 5] = 100.0
    mask = torch.ones_like(y, dtype=torch.bool)
    mask[0, 5] = False
    assert_close(model(LIMIT).run(y, mask=mask).cov, model(0.0).run(y, mask=mask).cov)


def test_a_jump_at_the_first_measurement_is_smoothed() -> None:
    """One measurement far from the prior: what is smoothed at the last step is what the filter states there."""
    start = fwnkf.Gaussian(torch.zeros(3).double(), torch.eye(3).double())
    track = model(LIMIT).run(torch.full((1, 1, 1), 40.0).double(), prior=start, smoothing=True)
    assert_close(fwnkf.smooth(model(LIMIT), track).cov, track.cov)


@pytest.mark.parametrize("part", [{"noise": fwnkf.Lines()}, {"phi": fwnkf.Phi()}], ids=str)
def test_coloured_noise_is_refused(part) -> None:
    with pytest.raises(ConfigError, match="jump reads innovations of white noise"):
        fwnkf.FWNKF(system(), **part, jump=5.0)
