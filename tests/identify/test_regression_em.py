"""Motions from measurements alone: as good as one that was fitted to the states behind them."""

from __future__ import annotations

import pytest
import torch

import fwnkf
from fwnkf.data import protocols
from fwnkf.errors import DataError
from fwnkf.evaluation.evaluate import estimate
from fwnkf.identify import fit_regression, fit_regression_em
from fwnkf.systems import RegressedMotion, RegressedMotionConfig


def error(system, records):
    found = estimate(fwnkf.EKF(system), records)
    return float(records.layout.boxminus(found.mean, records.truth).square().mean())


def turning(layout, dt):
    """The angle turns with the rate, about which nothing is known."""
    config = RegressedMotionConfig(state_dim=2, layout=layout.describe(), control_dim=1, dt=dt, degree=1)
    start = RegressedMotion(config).double()
    start.W[0, start.terms.names.index("omega")] = dt
    start.Q.assign(torch.tensor([1e-4, 0.05], dtype=torch.float64).diag())
    return start


def tip(std):
    return fwnkf.Sensor(lambda x: torch.stack((x[..., 0].sin(), -x[..., 0].cos()), -1), R=[std**2] * 2, channels=2)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_a_pendulum_whose_rate_was_never_measured_is_found_within_five_percent():
    split = protocols.simulated("pendulum", "paper", train=300, val=1, test=150).split
    train, dt = split.train, float(split.train.dt[0, 1])
    system = train.system
    result = fit_regression_em(
        turning(train.layout, dt),
        {"tip": tip(0.1)},
        train.y,
        train.u,
        train.mask,
        train.dt,
        train.start,
        known=["theta"],
    )
    motion = fit_regression(train.truth, train.u, train.dt, layout=train.layout, degree=1).motion
    known = fwnkf.System(motion, {"tip": tip(0.1)}).double()
    assert result.report.held_out.nis == pytest.approx(1, abs=0.05)
    assert error(result.filter.system, split.test) < 1.05 * error(known, split.test)
    Q = result.filter.system.process_noise(None).diagonal()
    torch.testing.assert_close(Q, system.process_noise(None).diagonal(), rtol=0.3, atol=0)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_noisy_states_do_not_make_the_coefficients_smaller():
    """Regression on the measurements themselves, which are states with errors, loses a part of the decay's slope."""
    generator = torch.Generator().manual_seed(0)
    x = [torch.randn(8, 1, generator=generator, dtype=torch.float64)]
    for _ in range(299):
        x.append(0.9 * x[-1] + 0.3 * torch.randn(8, 1, generator=generator, dtype=torch.float64))
    y = torch.stack(x, 1) + 0.4 * torch.randn(8, 300, 1, generator=generator, dtype=torch.float64)

    def slope(motion):
        return float(
            motion.transition(torch.ones(1, 1).double(), None, None)
            - motion.transition(torch.zeros(1, 1).double(), None, None)
        )

    walk = RegressedMotion(RegressedMotionConfig(degree=1)).double()
    sensor = fwnkf.Sensor(lambda x: x, R=[0.16], channels=1)
    result = fit_regression_em(walk, {"y": sensor}, y, degree=(1, 2))
    assert slope(result.filter.system.motion) == pytest.approx(0.9, abs=0.04)
    assert slope(fit_regression(y, degree=1).motion) < 0.8
    assert result.filter.system.motion.config.learn == ()


def test_a_start_that_cannot_be_smoothed_is_named():
    wild = RegressedMotion(RegressedMotionConfig(degree=2)).double()
    wild.W.fill_(1e300)
    sensor = fwnkf.Sensor(lambda x: x, R=[0.16], channels=1)
    with pytest.raises(DataError, match="smoothing number 1 of the measurements diverged"):
        fit_regression_em(wild, {"y": sensor}, torch.ones(2, 50, 1, dtype=torch.float64))
