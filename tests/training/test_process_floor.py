"""The floor of the process noise: found where a filter is too sure of itself, absent where it is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import fwnkf
from fwnkf.core.composed import ComposedSystem
from fwnkf.data import protocols
from fwnkf.evaluation.evaluate import estimate
from fwnkf.identify import fit_observation, fit_regression
from fwnkf.metrics.accuracy import summarize
from fwnkf.training.process_floor import record_losses, with_process_floor
from fwnkf.training.setup import step_sizes

pytestmark = pytest.mark.unchecked("filters hundreds of records a dozen times")


@pytest.fixture(scope="module")
def records():
    return protocols.simulated("lorenz", "strict", train=80, val=60, test=1, dtype=torch.float64).split


@pytest.fixture(scope="module")
def system(records):
    train = records.train
    motion = fit_regression(train.truth, train.u, train.dt, layout=train.layout, degree=4).motion
    sensor = fit_observation(train.truth, train.y, train.mask, layout=train.layout)
    return ComposedSystem(motion, {"measured": sensor}).double()


def nees(system, records):
    found = estimate(fwnkf.FWNKF(system), records)
    return float(summarize(records.layout, (found.mean, found.cov), records.truth)["nees"])


def test_a_motion_that_is_stated_too_exactly_gets_a_floor_and_error_bars_that_hold(system, records):
    """Lorenz contracts in one direction, in which a covariance without process noise collapses."""
    sure = ComposedSystem(system.motion, dict(system.sensors)).double()
    sure.motion.Q.assign(1e-6 * sure.motion.Q())
    mended = with_process_floor(sure, records.train, step_sizes(records.train))
    assert nees(sure, records.val) > 5
    assert 0.5 < nees(mended, records.val) < 1.6
    losses = [float(record_losses(one, records.val).mean()) for one in (sure, mended)]
    assert losses[1] < losses[0] - 1


def test_a_filter_that_states_its_errors_well_is_left_as_it_is(records):
    """A pendulum whose process noise is in the records already."""
    train = protocols.simulated("pendulum", "strict", train=40, val=1, test=1, dtype=torch.float64).split.train
    motion = fit_regression(train.truth, train.u, train.dt, layout=train.layout, degree=2).motion
    sensor = fit_observation(train.truth, train.y, train.mask, layout=train.layout)
    fitted = ComposedSystem(motion, {"measured": sensor}).double()
    assert with_process_floor(fitted, train, step_sizes(train)) is fitted


def test_unknown_states_do_not_count(system, records):
    few = records.train.take(range(5))
    truth = few.truth.clone()
    truth[:, 50:] = torch.nan
    found, whole = record_losses(system, replace(few, truth=truth)), record_losses(system, few)
    assert found.isfinite().all()
    assert not torch.allclose(found, whole)
