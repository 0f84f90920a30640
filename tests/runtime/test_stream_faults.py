"""Calls of a stream that fail or come twice: nothing else may change."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.errors import ConfigError, DataError
from fwnkf.runtime.health import Reason

from ..tolerances import assert_same_bits


def two_sensors(**options) -> fwnkf.Stream:
    system = fwnkf.LinearSystem.of(
        F=torch.tensor([[0.0, 1.0], [0.0, 0.0]]),
        Q=torch.diag(torch.tensor([0.0, 0.5])),
        H=torch.tensor([[1.0, 0.0], [1.0, 0.0]]),
        R=torch.diag(torch.tensor([0.04, 0.25])),
        continuous=True,
        dt=0.1,
        channels=("gps", "beacon"),
    )
    return fwnkf.Stream(fwnkf.EKF(system), **options)


def fixed_step(**options) -> fwnkf.Stream:
    eye = torch.eye(1)
    return fwnkf.Stream(fwnkf.KF(F=eye, H=eye, Q=eye, R=eye), step=0.1, **options)


def assert_same(mine: fwnkf.runtime.estimate.Estimate, theirs: fwnkf.runtime.estimate.Estimate) -> None:
    for name in ("mean", "cov", "innovation"):
        assert_same_bits(torch.as_tensor(getattr(mine, name)), torch.as_tensor(getattr(theirs, name)), name)


def test_a_sample_that_fails_leaves_the_stream_as_it_was():
    disturbed, calm = fixed_step(history=0.5), fixed_step(history=0.5)
    for k in range(10):
        if k in (0, 5):
            with pytest.raises(DataError, match="finite"):
                disturbed.step(1.0, t=math.nan)
        if k == 5:
            with pytest.raises(DataError, match="gap"):
                disturbed.step(1.0, t=1e9)
        assert_same(disturbed.step(float(k), t=0.1 * k), calm.step(float(k), t=0.1 * k))


def test_a_first_call_that_fails_does_not_choose_between_times_and_steps():
    stream = fixed_step()
    with pytest.raises(DataError, match="finite"):
        stream.step(1.0, t=math.nan)
    assert stream.step(1.0).health == "ok"


def test_a_sample_far_before_the_first_is_late():
    """A clock that was not set yet must not become the first time."""
    stream, other = fixed_step(history=0.5), fixed_step(history=0.5)
    stream.step(1.0, t=1e6)
    assert stream.step(5.0, t=0.0).reasons == Reason.LATE
    assert stream.late == 1
    other.step(1.0, t=1e6)
    assert_same(stream.step(2.0, t=1e6 + 0.1), other.step(2.0, t=1e6 + 0.1))


def test_of_a_second_call_at_the_same_time_only_what_is_new_is_used():
    twice, once = two_sensors(), two_sensors()
    for stream in (twice, once):
        stream.step({"gps": 1.0}, t=0.0)
    twice.step({"gps": 1.2}, t=0.1)
    both = twice.step({"gps": 7.0, "beacon": 1.5}, t=0.1)
    assert both.reasons == Reason.DUPLICATE
    assert_same(both, once.step([1.2, 1.5], t=0.1))


def test_a_mask_does_not_make_a_value_of_a_sensor_that_was_not_named():
    masked, plain = two_sensors(), two_sensors()
    for k in range(3):
        for name in ("gps", "beacon"):
            mine = masked.step({name: 1.0 + k}, t=0.1 * k, mask=[True, True])
            theirs = plain.step({name: 1.0 + k}, t=0.1 * k)
        assert mine.reasons == Reason.NONE
        assert_same(mine, theirs)


def test_the_control_is_held_while_the_initial_belief_is_estimated():
    held, given = (fwnkf.Stream(fwnkf.EKF(_started_by_five())) for _ in range(2))
    for k in range(8):
        control = np.array([0.5 if k < 3 else -0.5])
        mine = held.step(0.1 * k, u=control if k in (0, 3) else None)
        assert_same(mine, given.step(0.1 * k, u=control))


def _started_by_five() -> fwnkf.System:
    class Started(fwnkf.LinearSystem):
        initial_steps = 5

        def initial_belief(self, y, weight, u):
            mean = y.mean(1) + u.mean(1)
            return fwnkf.Gaussian(mean, torch.eye(1).expand(len(y), 1, 1))

    eye = torch.eye(1)
    return Started.of(F=eye, B=eye, Q=eye, H=eye, R=eye)


@pytest.mark.parametrize(
    "options",
    [
        {"streams": 0},
        {"step": 0.0},
        {"longest_step": -1.0},
        {"stale_after": -1.0},
        {"history": math.nan},
        pytest.param({"prior_at": "tomorrow"}, marks=pytest.mark.unchecked("the type checker refuses it first")),
        {"prior": np.zeros(2)},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_without_a_meaning_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        two_sensors(**options)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
@pytest.mark.parametrize("outlier", [1e30, 1e20])
def test_a_value_whose_square_overflows_leaves_the_health_as_it_was(outlier: float):
    """In float32 1e20 squared is infinite, and an average with infinity in it judges nothing any more."""
    stream = fwnkf.Stream(fwnkf.KF(F=torch.eye(1), H=torch.eye(1), Q=torch.eye(1), R=torch.eye(1)))
    noise = np.random.default_rng(0).standard_normal(400)
    for k, value in enumerate(noise):
        estimate = stream.step(outlier if k == 50 else value)
    assert estimate.health == "ok"
    monitor = stream._done[-1][0].monitor
    assert all(bool(leaf.isfinite().all()) for leaf in monitor)
    assert float(monitor.averages[0, 0, 0]) == pytest.approx(2.0, rel=0.5)  # the change of white noise of variance 1
