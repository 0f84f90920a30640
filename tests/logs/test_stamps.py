"""Time stamps with faults of known size."""

from __future__ import annotations

import numpy as np
import pytest

from fwnkf.logs.clock import compare_clocks, fitted_step
from fwnkf.logs.log import Dropout, Stream
from fwnkf.logs.stamps import examine, offset_between, repair, segments

RATE = 200.0


def stream(time: np.ndarray, **options: object) -> Stream:
    return Stream("imu", time, {"x": np.arange(len(time), dtype=float)}, role="imu", **options)  # type: ignore[arg-type]


def steady(seconds: float = 30.0) -> np.ndarray:
    return np.arange(round(seconds * RATE)) / RATE


@pytest.mark.parametrize("seed", range(5))
def test_skipped_samples_do_not_move_the_rate(seed: int) -> None:
    rng = np.random.default_rng(seed)
    present = rng.random(6000) > 0.07
    report = examine(stream(steady()[present]))
    assert report.rate == pytest.approx(RATE, rel=1e-9)
    assert report.mean_rate == pytest.approx(RATE * present.mean(), rel=2e-3)
    inside = present[np.flatnonzero(present)[0] : np.flatnonzero(present)[-1] + 1]
    assert report.skipped == (~inside).sum()
    assert report.lost == pytest.approx((~inside).mean())
    assert any("skipped samples" in line for line in report.problems())


def test_gaps_are_found_with_their_times_and_whether_they_are_declared() -> None:
    time = steady()
    present = ~((time > 5.0) & (time < 11.4)) & ~((time > 20.0) & (time < 20.57))
    report = examine(stream(time[present]), dropouts=[Dropout(20.0, 0.5)])
    assert [gap.declared for gap in report.gaps] == [False, True]
    assert [gap.time for gap in report.gaps] == pytest.approx([5.0, 20.0])
    assert [gap.seconds for gap in report.gaps] == pytest.approx([6.4, 0.57])
    assert [gap.time for gap in report.undeclared] == [report.gaps[0].time]
    assert len(segments(time[present])) == 3


@pytest.mark.parametrize(("factor", "unit"), [(1e3, "ms"), (1e6, "µs"), (1e9, "ns")])
def test_units_are_told_by_the_rate(factor: float, unit: str) -> None:
    faulty = stream(steady() * factor)
    report = examine(faulty)
    assert report.unit == unit
    assert report.rate == pytest.approx(RATE)
    repaired = repair(faulty, report)
    assert np.allclose(repaired.time, steady(), atol=1e-9)
    assert any("scaled" in note for note in repaired.notes)


def test_another_clock_of_the_log_tells_the_unit_where_the_rate_does_not() -> None:
    """One kilohertz in milliseconds would be a plausible 1 Hz."""
    time = np.arange(5000) / 1000
    jittered = 1e3 * time + 0.01 * np.sin(np.arange(5000))
    assert examine(stream(jittered)).factor == 1.0
    assert examine(stream(jittered, received=time + 0.002)).unit == "ms"
    assert examine(stream(jittered, nominal=1e-3)).unit == "ms"


def test_order_and_duplicates_are_counted_and_repaired() -> None:
    time = steady(5.0)
    order = np.arange(len(time))
    order[[100, 101]] = order[[101, 100]]
    order = np.insert(order, 500, order[499])
    faulty = stream(time[order])
    report = examine(faulty)
    assert (report.backwards, report.duplicates) == (1, 1)
    assert report.first_backwards == pytest.approx(time[100])
    repaired = repair(faulty, report)
    assert np.array_equal(repaired.time, time)
    assert repaired.columns["x"][100] == 101.0
    assert examine(repaired).problems() == []


@pytest.mark.parametrize("seed", range(5))
def test_jittered_stamps_return_to_their_clock(seed: int) -> None:
    rng = np.random.default_rng(seed)
    present = rng.random(6000) > 0.02
    time = steady()[present]
    faulty = stream(time + rng.normal(0, 0.1 / RATE, len(time)))
    report = examine(faulty)
    assert report.rate == pytest.approx(RATE, rel=1e-4)
    assert report.jitter == pytest.approx(0.1 * np.sqrt(2) / RATE, rel=0.1)
    repaired = repair(faulty, report)
    assert np.abs(repaired.time - time).max() < 0.02 / RATE


def test_late_stamps_stay_where_they_are() -> None:
    rng = np.random.default_rng(0)
    time = steady()
    late = time + rng.normal(0, 0.05 / RATE, len(time))
    late[1000] += 0.8 / RATE
    faulty = stream(late)
    repaired = repair(faulty, examine(faulty))
    assert repaired.time[1000] == late[1000]
    moved = np.abs(np.delete(repaired.time - time, 1000))
    assert moved.max() < 0.02 / RATE
    irregular = stream(np.sort(rng.uniform(0, 30, 6000)))
    report = examine(irregular)
    assert np.array_equal(repair(irregular, report).time, irregular.time)
    assert report.rate == report.median_rate  # no clock is seen


def test_rounded_stamps_have_the_rate_of_their_clock() -> None:
    """To milliseconds; the median step would say 333.3 and 250 Hz."""
    for rate in (297.0, 256.0):
        time = np.round(np.arange(20_000) / rate, 3)
        assert 1 / fitted_step(time) == pytest.approx(rate, rel=1e-4)


@pytest.mark.parametrize("drift", [0.0, 5e-5, -2e-3])
def test_clocks_are_compared_by_a_robust_line(drift: float) -> None:
    rng = np.random.default_rng(1)
    time = steady()
    received = time * (1 + drift) + 0.25 + rng.exponential(0.002, len(time))
    received[rng.choice(len(time), 300, replace=False)] += 1.0
    clocks = compare_clocks(time, received)
    assert clocks is not None
    assert clocks.drift == pytest.approx(drift, abs=2e-5)
    assert clocks.offset == pytest.approx(0.25 + 0.002 * np.log(2), abs=5e-4)
    assert any("drifts" in line for line in examine(stream(time, received=received)).problems()) == (drift == -2e-3)


def test_offset_between_two_topics() -> None:
    time = steady()
    first = stream(time, received=time + 0.010)
    second = stream(time + 3.0, received=time + 0.010)
    clocks = offset_between(first, second)
    assert clocks is not None
    assert clocks.offset == pytest.approx(3.0)
    apart = offset_between(stream(time), stream(time + 1e9))
    assert apart is not None
    assert apart.offset == pytest.approx(1e9)
    assert offset_between(stream(time), stream(time + 1.0)) is None


def test_a_stated_rate_that_the_stamps_contradict_is_a_problem() -> None:
    lines = examine(stream(steady(), nominal=1 / 212.0)).problems()
    assert lines == ["the log states 212 Hz, its time stamps 200 Hz (+6 %)"]


@pytest.mark.parametrize("time", [[], [1.0], [1.0, 1.0], [np.nan, np.inf], [3.0, 2.0, 1.0]])
def test_hardly_any_stamps(time: list[float]) -> None:
    report = examine(stream(np.array(time)))
    assert report.samples == len(time)
    repaired = repair(stream(np.array(time)), report)
    assert np.all(np.diff(repaired.time) > 0)
    report.summary()
