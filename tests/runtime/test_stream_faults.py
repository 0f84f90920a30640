"""Calls of a stream that fail or come twice: nothing else may change."""

from __future__ import annotations

import copy
import json
import math
import threading
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

import fwnkf
from fwnkf.checkpoint import metadata_of
from fwnkf.errors import CheckpointError, ConcurrencyError, ConfigError, DataError
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
            with pytest.raises(DataError, match="no array of numbers"):
                disturbed.step("one", t=0.1 * k)
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


# ---- stamps of another clock ----------------------------------------------------------------------------------------


def tick(stream: fwnkf.Stream, value: float, t: float) -> fwnkf.runtime.estimate.Estimate:
    return stream.step(np.full(stream.filter.observation_dim, value), t=t)


@pytest.mark.parametrize("wrong", [1.7e9, 1e18, 1e308, 9997.0, 400.0, -1e9, -1e308])
@pytest.mark.parametrize("make", [two_sensors, fixed_step])
def test_wrong_stamps_among_others_change_nothing(make, wrong):
    """Neither the belief nor the time, and each takes less than a second."""
    disturbed, calm = make(history=0.5), make(history=0.5)
    for k, value in enumerate(np.random.default_rng(3).standard_normal(60)):
        mine, theirs = tick(disturbed, value, 0.1 * k), tick(calm, value, 0.1 * k)
        assert_same(mine, theirs)
        assert mine.reasons == theirs.reasons
        for _ in range(9 if k % 10 == 5 else 0):  # one fewer than would be believed, and of one stamp any number
            begin = time.process_time()
            refused = tick(disturbed, 7.0, wrong)
            assert time.process_time() - begin < 1
            assert refused.reasons == theirs.reasons | (Reason.LATE if wrong < 0 else Reason.OFF_CLOCK)
            assert refused.time == theirs.time
            assert_same(refused, theirs)


@pytest.mark.parametrize("start", [1.7e9, 500.0, -1e6])
@pytest.mark.parametrize("make", [two_sensors, fixed_step])
def test_stamps_that_jump_and_stay_start_the_stream_anew(make, start):
    """As a new stream with the same measurements, from the tenth stamp on, also if it is saved in between."""
    stream, new = make(history=0.5, recover_after=10), make(history=0.5)
    for k in range(30):
        tick(stream, 100.0, 0.1 * k)
    for k in range(30):
        stamp = start + 0.125 * k  # exact, so that both streams see the same steps
        mine, theirs = tick(stream, float(k), stamp), tick(new, float(k), stamp)
        if k < 9:
            assert (Reason.LATE if start < 0 else Reason.OFF_CLOCK) in mine.reasons
            assert mine.time == pytest.approx(2.9)
        else:
            assert (Reason.RESTARTED in mine.reasons) == (k == 9)
            assert_same(mine, theirs)
        if k in (4, 12):
            stream = fwnkf.Stream.restore(stream.filter, stream.snapshot())


def test_a_first_stamp_of_another_clock_is_overcome():
    stream = two_sensors(history=0.5)
    tick(stream, 0.0, 1.7e9)
    for k in range(100):
        estimate = tick(stream, 5.0, 0.1 * k)
    assert estimate.time == pytest.approx(9.9)
    assert abs(estimate.mean[0] - 5.0) < 0.1
    assert stream.late == 9


def test_after_a_jump_measurements_in_another_order_end_in_the_same_bits():
    rng = np.random.default_rng(5)
    stamps = np.concatenate([0.125 * np.arange(40), 1e5 + 0.125 * np.arange(60)])
    values = rng.standard_normal(100)
    arrival = np.argsort(stamps + rng.uniform(0, 0.45, 100), kind="stable")
    assert (arrival != np.arange(100)).any()
    in_order, shuffled = two_sensors(history=0.5), two_sensors(history=0.5)
    for k in range(100):
        expected = tick(in_order, values[k], stamps[k])
    for k in arrival:
        estimate = tick(shuffled, values[k], stamps[k])
    assert_same(estimate, expected)


def test_a_longer_gap_may_be_allowed():
    stream, usual = two_sensors(longest_gap=7200.0), two_sensors()
    for one in (stream, usual):
        tick(one, 1.0, 0.0)
    assert tick(stream, 1.0, 3600.0).time == 3600.0
    assert tick(usual, 1.0, 3600.0).time == 0.0
    assert tick(usual, 1.0, 290.0).time == 290.0  # 3,000 steps of 0.1 s


@pytest.mark.unchecked("gives values of other types on purpose")
@pytest.mark.parametrize("stamp", ["1", 10**400, None.__class__, np.datetime64("2024-01-01"), 1j, [1.0, 2.0]])
def test_a_stamp_that_is_no_number_is_named(stamp):
    with pytest.raises(DataError, match="finite number of seconds"):
        two_sensors().step({"gps": 1.0}, t=stamp)


# ---- threads --------------------------------------------------------------------------------------------------------


def test_two_threads_at_once_are_an_error_and_not_a_wrong_result():
    stream, alone = two_sensors(), two_sensors()
    inside, leave = threading.Event(), threading.Event()
    plain = stream._stepper.fast

    def slow(*inputs):
        inside.set()
        assert leave.wait(20)
        return plain(*inputs)

    stream._stepper.fast = slow
    first = threading.Thread(target=tick, args=(stream, 1.0, 0.0))
    first.start()
    assert inside.wait(20)
    for call in (lambda: tick(stream, 2.0, 0.1), stream.snapshot, stream.reset):
        with pytest.raises(ConcurrencyError, match="put a lock"):
            call()
    leave.set()
    first.join()
    stream._stepper.fast = plain
    tick(alone, 1.0, 0.0)
    assert_same(tick(stream, 3.0, 0.1), tick(alone, 3.0, 0.1))
    assert_same(tick(copy.deepcopy(stream), 4.0, 0.2), tick(alone, 4.0, 0.2))


# ---- snapshots ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "facts",
    [
        *({"streams": streams} for streams in (10**9, 0, -1, 2, True, "1", 1.0, [1])),
        *(
            {"base": base}
            for base in ([10**400, 0.0, 0.0], [-1e308, 0.0, 0.0], [0.0, 9.0, 0.0], [0.0, 0.0], None, [None] * 3)
        ),
        *(
            {"samples": samples}
            for samples in ([[math.nan, True, False]], [[1.9, True]], [[1.9, True, True]], [[2.0, 1, 0]] * 99)
        ),
        *(
            {"timed": 1},
            {"late": None},
            {"history": math.inf},
            {"sensors": {"gps": [0, 10**9]}},
            {"sensors": {"gps": [0, math.inf]}},
            {"held": 10**9},
            {"base": [-500.0, -500.0, -500.0]},
        ),
    ],
    ids=repr,
)
def test_a_snapshot_that_states_what_cannot_be_is_refused_at_once(facts):
    stream = two_sensors(history=0.5)
    for k in range(20):
        tick(stream, 1.0, 0.1 * k)
    data = stream.snapshot()
    facts = {**json.loads(metadata_of(data)["facts"]), **facts}
    # format 1 had no checksum: whoever crafts a snapshot can also compute one
    damaged = save(load(data), {"fwnkf_stream": "1", "filter": stream.filter.name, "facts": json.dumps(facts)})
    begin = time.process_time()
    with pytest.raises(CheckpointError):
        fwnkf.Stream.restore(stream.filter, damaged)
    assert time.process_time() - begin < 1
