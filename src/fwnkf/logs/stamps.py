"""Examine the time stamps of a stream, say what is wrong with them, and repair them when asked to.

A spectrum is as good as its time base: skipped samples move every line when the mean rate is used, a nominal rate of a
driver may be wrong by per cents, and stamps in another unit by factors of a thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .clock import LONG, Clocks, clock_counts, compare_clocks, fitted_step, jitters, snap
from .log import Array, Dropout, Stream

BREAK = 1.5
"""Steps above this many median steps end a segment."""
TOLERANCE = 1.0
"""Seconds between a gap and a dropout that the recorder declares."""
INERTIAL = ("imu", "gyro", "accel", "gyro_filtered")
"""Roles of inertial sensors."""
RANGES = {True: (0.5, 50_000.0), False: (0.005, 20_000.0)}
"""Plausible rates (Hz) of inertial sensors, and of all others."""
SLOW = 5.0
"""Hz: an inertial sensor below it whose stamps are whole numbers is not logged in seconds."""
UNITS = {1.0: "s", 1e-3: "ms", 1e-6: "µs", 1e-9: "ns"}
SNAP = 0.02
"""Jitter of an inertial sensor above this share of a step is worth snapping to a clock."""


class Gap(NamedTuple):
    """Missing samples: from the last sample before to the first one after."""

    time: float
    seconds: float
    declared: bool
    """Whether the recorder itself says so."""


@dataclass(frozen=True)
class StampReport:
    """What the time stamps of a stream are like. Times are those of the stream, before any repair."""

    name: str
    samples: int
    seconds: float
    """From the first to the last stamp."""
    rate: float
    """Sampling rate (Hz) of the clock that fits the stamps, missing samples counted."""
    median_rate: float
    mean_rate: float
    """Samples over duration: too low where samples are missing."""
    nominal_rate: float | None
    """As the log states it, where it does."""
    factor: float
    """What the stamps have to be multiplied by to be seconds: 1 where they are plausible."""
    unit: str
    """Unit of the stamps by plausibility; ``s`` where they are right."""
    backwards: int
    """Samples that are earlier than the one before."""
    first_backwards: float | None
    duplicates: int
    """Samples with the stamp of an earlier one."""
    invalid: int
    """Stamps that are not finite."""
    gaps: tuple[Gap, ...]
    """Of ten steps or more."""
    skipped: int
    """Samples missing in shorter ones."""
    jitter: float
    """Standard deviation (s) of the steps between neighbours, missing samples left out."""
    clock: Clocks | None
    """The recorder's clock against the stamps, where it is logged."""

    @property
    def lost(self) -> float:
        """Share of the samples that are missing, gaps included."""
        inside = sum(gap.seconds for gap in self.gaps) * self.rate
        expected = self.samples + self.skipped + inside
        return float((self.skipped + inside) / expected) if expected > 0 else 0.0

    @property
    def undeclared(self) -> tuple[Gap, ...]:
        """Gaps that the recorder did not declare."""
        return tuple(gap for gap in self.gaps if not gap.declared)

    def clock_problems(
        self, *, repeated: float = 0.0, rate: float = 0.005, jitter: float = 0.1, drift: float = 1e-4
    ) -> list[str]:
        """What is wrong with the time base, one clause each with its figures.

        The limits are shares: of samples that repeat a stamp, of the rate that the log states, of a step by which steps
        scatter, and of the recorder's clock.
        """
        lines = []
        if self.factor != 1.0:
            lines.append(
                f"time stamps in {self.unit} instead of s: as seconds they mean {self.rate * self.factor:.3g} Hz, "
                f"as {self.unit} {self.rate:.4g} Hz"
            )
        if self.invalid:
            lines.append(f"{self.invalid:,} time stamps are not finite")
        if self.backwards:
            lines.append(f"{self.backwards:,} time stamps go backwards, the first at {self.first_backwards:.3f} s")
        if self.duplicates > repeated * self.samples:
            lines.append(f"{self.duplicates:,} samples repeat a time stamp")
        if self.nominal_rate and abs(self.nominal_rate / self.rate - 1) > rate:
            lines.append(
                f"the log states {self.nominal_rate:.5g} Hz, its time stamps {self.rate:.5g} Hz "
                f"({100 * (self.nominal_rate / self.rate - 1):+.2g} %)"
            )
        if self.jitter * self.rate > jitter:
            lines.append(
                f"steps scatter by {1e3 * self.jitter:.3g} ms ({100 * self.jitter * self.rate:.0f} % of a step)"
            )
        if self.clock and abs(self.clock.drift) > drift:
            size = abs(self.clock.drift)
            by = f"{1e6 * self.clock.drift:.0f} µs/s" if size < 1e-3 else f"{100 * self.clock.drift:.2g} %"
            lines.append(
                f"the recorder's clock drifts by {by} from that of the stamps, offset {self.clock.offset:.4g} s"
            )
        return lines

    def problems(self) -> list[str]:
        """What is wrong, one clause each with its figures; empty when nothing is."""
        lines = self.clock_problems()
        if self.gaps:
            longest = sorted(self.gaps, key=lambda gap: -gap.seconds)[:3]
            listed = ", ".join(f"{gap.seconds:.3g} s at {gap.time:.2f} s" for gap in longest)
            undeclared = len(self.undeclared)
            lines.append(f"{len(self.gaps)} gap(s), {undeclared} of them not reported by the logger: {listed}")
        if self.skipped > max(2, 0.001 * self.samples):
            lines.append(
                f"{self.skipped:,} skipped samples ({100 * self.lost:.1f} % missing in all): the mean rate is "
                f"{self.mean_rate:.1f} Hz where sampling is at {self.rate:.1f} Hz"
            )
        return lines

    def summary(self) -> str:
        """One line.

        >>> print(examine(Stream("imu", 0.01 * np.arange(500), {})).summary())
        imu: 500 samples in 5.0 s at 100.0 Hz; nothing wrong with the time stamps
        """
        wrong = "; ".join(self.problems()) or "nothing wrong with the time stamps"
        return f"{self.name}: {self.samples:,} samples in {self.seconds:.1f} s at {self.rate:.1f} Hz; {wrong}"


def segments(time: Array) -> list[slice]:
    """Runs of samples without a step above 1.5 median steps or below zero.

    >>> segments(np.array([0.0, 0.1, 0.2, 0.5, 0.6]))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    if len(time) == 0:
        return []
    steps = np.diff(time)
    positive = steps[steps > 0]
    usual = float(np.median(positive)) if len(positive) else 0.0
    # a rounding error of the stamps must not split a sampling interval of exactly 1.5 median steps
    ends = np.flatnonzero(~((steps > 0) & (steps <= BREAK * usual * (1 + 1e-9)))) + 1
    bounds = [0, *ends.tolist(), len(time)]
    return [slice(first, last) for first, last in pairwise(bounds)]


def examine(stream: Stream, *, dropouts: Sequence[Dropout] = ()) -> StampReport:
    """Unit, order, duplicates, gaps, skipped samples, jitter and rates of a stream's time stamps.

    Stamps in milliseconds, one sample repeated:

    >>> time = np.repeat(10.0 * np.arange(300), np.where(np.arange(300) == 7, 2, 1))
    >>> report = examine(Stream("imu", time, {}, role="imu"))
    >>> report.unit, report.duplicates, round(report.rate)
    ('ms', 1, 100)
    """
    finite = stream.time[np.isfinite(stream.time)]
    steps = np.diff(finite)
    ordered = np.unique(finite)
    step = fitted_step(ordered)
    factor = _unit(ordered, step, stream)
    ordered, step = ordered * factor, step * factor
    distances = np.diff(ordered)
    rate = 1 / step if step > 0 else 0.0
    counts = clock_counts(ordered, step) if step > 0 else distances
    long = distances * rate >= LONG
    first = int(np.flatnonzero(steps < 0)[0]) + 1 if (steps < 0).any() else None
    single = distances[~long & (counts == 1)]
    span = float(ordered[-1] - ordered[0]) if len(ordered) else 0.0
    gaps = tuple(
        Gap(float(begin / factor), float(length), _declared(begin, length, dropouts))
        for begin, length in zip(ordered[:-1][long].tolist(), distances[long].tolist(), strict=True)
    )
    positive = distances[distances > 0]
    return StampReport(
        name=stream.name,
        samples=len(stream),
        seconds=span,
        rate=rate,
        median_rate=1 / float(np.median(positive)) if len(positive) else 0.0,
        mean_rate=(len(ordered) - 1) / span if span > 0 else 0.0,
        nominal_rate=1 / stream.nominal if stream.nominal else None,
        factor=factor,
        unit=UNITS.get(factor, f"s/{factor:.0g}"),
        backwards=int((steps < 0).sum()),
        first_backwards=None if first is None else float(finite[first]),
        duplicates=len(finite) - len(ordered),
        invalid=len(stream) - len(finite),
        gaps=gaps,
        skipped=max(int((counts[~long] - 1).sum()), 0),
        jitter=float(single.std()) if len(single) else 0.0,
        clock=None if stream.received is None else compare_clocks(stream.time * factor, stream.received),
    )


def _unit(time: Array, step: float, stream: Stream) -> float:
    """Factor to seconds by plausibility of the rate; 1 when in doubt."""
    if step <= 0 or len(time) < 10:
        return 1.0
    inertial = _inertial(stream)
    low, high = RANGES[inertial]
    rate = 1 / step
    known = [] if stream.nominal is None else [stream.nominal / step]
    if stream.received is not None and np.ptp(time) > 0:
        known.append(float(np.ptp(stream.received[np.isfinite(stream.received)])) / float(np.ptp(time)))
    for ratio in known:  # another clock of the log tells, up to what clocks differ by
        thousands = round(np.log10(ratio) / 3) if 0 < ratio < np.inf else 0
        if thousands and abs(ratio / 10.0 ** (3 * thousands) - 1) < 0.2:
            return float(10.0 ** (3 * thousands))
    whole = bool((time == np.round(time)).all())
    if low <= rate <= high and not (inertial and whole and rate < SLOW):
        return 1.0
    expected = 1 / stream.nominal if stream.nominal else 200.0 if inertial else 20.0
    low = SLOW if inertial else 0.05
    candidates = [factor for factor in (1e-3, 1e-6, 1e-9, 1e3, 1e6, 1e9) if low <= rate / factor <= high]
    return min(candidates, key=lambda factor: abs(np.log(rate / factor / expected))) if candidates else 1.0


def _inertial(stream: Stream) -> bool:
    return stream.role in INERTIAL or stream.name.split("_")[0] in INERTIAL


def _declared(begin: float, length: float, dropouts: Sequence[Dropout]) -> bool:
    return any(
        dropout.time <= begin + length + TOLERANCE and dropout.time + dropout.seconds >= begin - TOLERANCE
        for dropout in dropouts
    )


def offset_between(first: Stream, second: Stream) -> Clocks | None:
    """Clock of ``second`` against that of ``first``, by the recorder's time of both.

    Without it only spans that do not overlap tell: their distance is then the offset. None where nothing tells.
    """
    if first.received is not None and second.received is not None:
        one, two = compare_clocks(first.time, first.received), compare_clocks(second.time, second.received)
        if one is not None and two is not None:
            return Clocks(one.offset - two.offset, one.drift - two.drift, float(np.hypot(one.jitter, two.jitter)))
    if len(first) == 0 or len(second) == 0:
        return None
    begin, end = float(np.nanmin(second.time)), float(np.nanmax(second.time))
    if begin > np.nanmax(first.time) or end < np.nanmin(first.time):
        return Clocks(begin - float(np.nanmin(first.time)), 0.0, 0.0)
    return None


def repair(stream: Stream, report: StampReport) -> Stream:
    """The stream in seconds and in order, without duplicates and, where its stamps jitter, on a fitted clock.

    What was done is added to its notes. Gaps stay gaps.

    >>> time = np.array([0.0, 10.0, 20.0, 20.0, 40.0, 30.0] + [10.0 * i for i in range(5, 50)])
    >>> stream = Stream("imu", time, {"x": np.arange(51.0)}, role="imu")
    >>> repaired = repair(stream, examine(stream))
    >>> repaired.time[:6].round(3).tolist(), repaired.columns["x"][:6].tolist()
    ([0.0, 0.01, 0.02, 0.03, 0.04, 0.05], [0.0, 1.0, 2.0, 5.0, 4.0, 6.0])
    """
    done: list[str] = []
    time = stream.time
    rows: NDArray[np.int64] = np.arange(len(time))
    if report.invalid:
        rows = rows[np.isfinite(time)]
        done.append(f"removed {report.invalid:,} samples without a time stamp")
    if report.factor != 1.0:
        time = time * report.factor
        done.append(f"scaled the time stamps from {report.unit} to s")
    if report.backwards:
        rows = rows[np.argsort(time[rows], kind="stable")]
        done.append(f"sorted the samples by time, {report.backwards:,} went backwards")
    if report.duplicates:
        rows = rows[np.concatenate([[True], np.diff(time[rows]) != 0])] if len(rows) else rows
        done.append(f"removed {report.duplicates:,} samples with a repeated time stamp")
    time = time[rows]
    scatter = report.rate > SLOW and report.jitter * report.rate > SNAP
    # other signals are not sampled by a clock of their own: their stamps are right, however irregular
    if scatter and _inertial(stream) and jitters(time, 1 / report.rate):
        snapped = snap(time, 1 / report.rate)
        moves = np.abs(snapped - time)[snapped != time]
        time = snapped
        if len(moves):
            done.append(
                f"moved the time stamps to a clock of {report.rate:.2f} Hz, by {1e3 * np.median(moves):.3g} ms in the "
                f"median and {1e3 * moves.max():.3g} ms at most"
            )
    return replace(stream.take(rows), time=time, notes=(*stream.notes, *done))
