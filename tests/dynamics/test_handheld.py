"""The hand-held sensor: automatic Jacobians, the stationary displacement, and how it grows with the speed."""

from __future__ import annotations

import pytest
import torch

from fwnkf.core import rotation
from fwnkf.core.system import System
from fwnkf.systems import Handheld, HandheldConfig

from ..tolerances import assert_close


def test_jacobians_are_those_of_automatic_differentiation(generator):
    system = Handheld(HandheldConfig()).double()
    x = torch.randn(3, 29, generator=generator, dtype=torch.float64)
    x = torch.cat((x[:, :6], rotation.normalize(x[:, 6:10]), x[:, 10:]), -1)
    u = torch.randn(3, 7, generator=generator, dtype=torch.float64).abs()
    for dt in (None, torch.tensor([0.02, 0.05, 0.1]).double()):
        mean, F = system.linearize_transition(x, u, dt)
        expected, slope = System.linearize_transition(system, x, u, dt)
        assert_close(mean, expected)
        assert_close(F.expand_as(slope), slope)
        assert system.process_noise(dt).shape[-2:] == (28, 28)
    seen, H = system.linearize_observation(x)
    expected, slope = System.linearize_observation(system, x)
    assert_close(seen, expected)
    assert_close(H, slope)


def test_rate_error_and_displacement_keep_their_variance():
    system = Handheld(HandheldConfig()).double()
    F, Q = system.motion.disturbance_matrix(None), system.process_noise(None)[15:27, 15:27]
    P = torch.diag(system.motion.initial_variances()[15:27])
    assert_close(F @ P @ F.mT + Q, P)


def test_the_oscillation_returns_after_one_period():
    config = HandheldConfig(oscillation_hertz=2.0, oscillation_seconds=1e12)
    F = Handheld(config).double().motion.disturbance_matrix(torch.tensor([0.5]).double())[0, 3:9, 3:9]
    assert_close(F, torch.eye(6).double())


def test_a_faster_hand_is_displaced_further():
    system = Handheld(HandheldConfig(speed_exponent=0.5)).double()
    x = system.layout.origin(torch.zeros(()).double())[None]
    for speed, factor in ((0.3, 1.0), (1.2, 2.0), (0.0, 0.05**0.5)):
        u = torch.tensor([[0, 0, 0, 0, 0, 9.81, speed]]).double()
        assert float(system.transition(x, u, None)[0, 28]) == pytest.approx(factor)


def test_the_initial_belief_is_level_and_at_rest(generator):
    system = Handheld(HandheldConfig()).double()
    u = torch.randn(4, 1, 7, generator=generator, dtype=torch.float64)
    y = torch.zeros(4, 1, 9).double()
    belief = system.initial_belief(y, torch.ones_like(y), u)
    up = rotation.to_matrix(belief.mean[:, 6:10]) @ u[:, 0, 3:6, None]
    assert_close(up[:, 2, 0], u[:, 0, 3:6].norm(dim=-1))
    assert not belief.mean[:, [0, 1, 2, 3, 4, 5, *range(10, 29)]].any()
    assert_close(belief.cov[2].diagonal(), system.motion.initial_variances())
