"""The clock behind time stamps: its step, its count between samples, and its offset from another clock."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LONG = 10.0
"""Missing samples of at least this many steps are a gap, fewer are skipped samples."""
RATE_TOLERANCE = 0.02
"""Relative difference of two rates up to which they are the same: of recordings, or of samples and a filter."""
BLOCK = 64
"""Samples from which the phase of a clock is taken."""
SEEN = 0.6
"""Length of the mean phase vector from which a clock is seen: jitter of a sixth of a step."""

LATE = 0.01
"""Share of late stamps with which a stretch still has a clock."""

AHEAD = 16
"""Samples after a stamp that say whether it is of their clock."""

NEGATIVE = -0.3
"""Correlation of neighbouring steps below which stamps scatter about a clock; it is -0.5 for independent errors."""


class Clocks(NamedTuple):
    """One clock against another: ``offset`` at the start (s), ``drift`` (s/s) and what is left (s, one sigma)."""

    offset: float
    drift: float
    jitter: float


def fitted_step(time: Array) -> float:
    """Step of the clock behind ascending stamps: time over the number of steps, missing ones counted, gaps left out.

    The median would be that of stamps rounded to milliseconds: 4 ms for 256 Hz. It is the answer where stamps are so
    irregular that no clock is seen behind them.

    >>> round(1 / fitted_step(np.round(np.arange(1000) / 256, 3)), 1)
    256.0
    """
    steps = np.diff(time)
    steps = steps[steps > 0]
    if len(steps) == 0:
        return 0.0
    step = usual = float(np.median(steps))
    for _ in range(8):
        near = steps[steps < LONG * step]
        count = float(np.round(near / step).sum())
        if count == 0:
            break
        step, last = float(near.sum()) / count, step
        if abs(step / last - 1) < 1e-12:
            break
    for _ in range(2):
        counts = clock_counts(time, step)
        close = np.diff(time) < LONG * step
        if counts[close].sum() > 0:
            step = float(np.diff(time)[close].sum() / counts[close].sum())
    seen = [
        coherence for *_, coherence in (_phase(time[a:b], step) for a, b in stretches(time, step) if b - a >= 2 * BLOCK)
    ]
    return step if not seen or float(np.median(seen)) >= SEEN else usual


def clock_counts(time: Array, step: float) -> Array:
    """Steps of the clock between neighbouring stamps, which ascend.

    Rounding every difference would err at jitter of a tenth of a step. The phase of the clock is followed over blocks
    of samples instead, and every stamp is rounded to it. Where no phase is seen, differences are rounded.
    """
    distances = np.diff(time)
    counts = np.round(distances / step)
    for first, last in stretches(time, step):
        if last - first < 2 * BLOCK:
            continue
        cycles, phase, coherence = _phase(time[first:last], step)
        if coherence < SEEN:
            continue
        index = np.round(cycles - phase)
        if (np.diff(index) >= 0).all():
            counts[first : last - 1] = np.diff(index)
    return np.asarray(counts, np.float64)


def ahead(time: Array, window: int = AHEAD) -> NDArray[np.bool_]:
    """Stamps of another clock: later than most of the ``window`` samples after them, and not near those before.

    Without it one wrong stamp would make all samples after it seem to go backwards.

    >>> ahead(np.array([0.0, 1.0, 1.7e9, 2.0, 3.0, 5.0, 4.0, 6.0, 7.0])).tolist()
    [False, False, True, False, False, False, False, False, False]
    >>> ahead(np.array([5.0, 6.0, 7.0, 8.0, 9.0, 0.0, 0.0, 0.0, 0.0])).any().item()  # here the later ones are wrong
    False
    """
    found = np.zeros(len(time), bool)
    if (np.diff(time) > 0).all():
        return found
    padded = np.concatenate([np.full(window, np.nan), time, np.full(window, np.nan)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, window)
    before, after = windows[: len(time)], windows[window + 1 :]
    rows = np.flatnonzero(2 * (after < time[:, None]).sum(1) > np.isfinite(after).sum(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of samples without any before them, or stamps of 1e308
        distances = [np.abs(time[rows] - np.nanmedian(part[rows], 1)) for part in (before, after)]
        found[rows] = ~(distances[0] < distances[1])
    return found


def step_counts(time: Array, rate: float) -> NDArray[np.int64]:
    """Steps of an even grid between samples in the order of time, at least one.

    >>> step_counts(np.array([0.0, 0.01, 0.02, 0.039, 0.04, 0.07]), 100.0).tolist()  # one late, two missing
    [1, 1, 1, 1, 3]
    """
    steps = np.diff(time) * rate
    counts = np.maximum(np.rint(steps), 1).astype(np.int64)
    # a late stamp makes a long step and a short one after it: nothing is missing between them
    late = np.flatnonzero((counts[:-1] > 1) & (steps[1:] < 0.75))
    counts[late] = np.maximum(np.rint(steps[late] + steps[late + 1]).astype(np.int64) - 1, 1)
    return counts


def _phase(time: Array, step: float) -> tuple[Array, Array, float]:
    """Stamps in steps, the phase of the clock at each of them, and how well blocks of stamps agree with a phase."""
    cycles = (time - time[0]) / step
    starts = np.arange(0, len(time) - BLOCK // 2, BLOCK)
    sums = np.add.reduceat(np.exp(2j * np.pi * cycles), starts)
    sizes = np.diff(np.append(starts, len(time)))
    phase = np.unwrap(np.angle(sums)) / (2 * np.pi)
    middle = np.interp(np.arange(len(time)), starts + sizes / 2, phase)
    return cycles, middle, float(np.median(np.abs(sums) / sizes))


def stretches(time: Array, step: float) -> list[tuple[int, int]]:
    """First sample and the one behind the last of every stretch between gaps."""
    return list(pairwise([0, *(np.flatnonzero(np.diff(time) >= LONG * step) + 1).tolist(), len(time)]))


def jitters(time: Array, step: float) -> bool:
    """Whether stamps scatter about a clock: a late one is then followed by a short step.

    Samples that were taken late are followed by a usual step, and their stamps are right.
    """
    rest = np.diff(time) - step * clock_counts(time, step)
    rest = rest[np.abs(rest) < step]
    if len(rest) < BLOCK:
        return False
    rest = rest - rest.mean()
    power = float(rest @ rest)
    return power > 0 and float(rest[1:] @ rest[:-1]) / power < NEGATIVE


def compare_clocks(time: Array, other: Array) -> Clocks | None:
    """A robust line through ``other - time``: medians of twenty blocks, and the median slope between them.

    >>> t = np.arange(2000) * 0.01
    >>> clocks = compare_clocks(t, 1.0001 * t + 0.25)
    >>> round(clocks.offset, 4), round(1e6 * clocks.drift)
    (0.25, 100)
    """
    known = np.isfinite(time) & np.isfinite(other)
    time, difference = time[known], (other - time)[known]
    if len(time) < 40:
        return None
    blocks = np.array_split(np.argsort(time, kind="stable"), 20)
    x = np.array([np.median(time[block]) for block in blocks])
    y = np.array([np.median(difference[block]) for block in blocks])
    first, second = np.triu_indices(len(x), 1)
    apart = x[second] > x[first]
    if not apart.any():
        return None
    drift = float(np.median((y[second] - y[first])[apart] / (x[second] - x[first])[apart]))
    start = float(time.min())
    offset = float(np.median(y - drift * (x - start)))
    rest = difference - offset - drift * (time - start)
    return Clocks(offset, drift, 1.4826 * float(np.median(np.abs(rest - np.median(rest)))))


def snap(time: Array, step: float) -> Array:
    """Stamps on a line over the count of steps, one line for every stretch between gaps in which a line fits.

    A stamp that is off by more than half a step stays: its message was late. A stretch in which more than one of
    a hundred are has no clock and stays as it is, and so does everything where the result is not in order.
    """
    counts = clock_counts(time, step)
    index = np.concatenate([[0.0], np.cumsum(counts)])
    snapped = time.copy()
    pending = stretches(time, step)
    while pending:
        first, last = pending.pop()
        if last - first < 4:
            continue
        count = index[first:last] - index[first:last].mean()
        if not count.any():
            continue
        slope = float(count @ time[first:last]) / float(count @ count)
        line = time[first:last].mean() + slope * count
        rest = time[first:last] - line
        halves = [abs(float(np.median(part))) for part in np.array_split(rest, 4)]
        if max(halves) > 0.5 * step and last - first > 64:
            middle = (first + last) // 2
            pending += [(first, middle), (middle, last)]
            continue
        late = np.abs(rest) > 0.5 * step
        for second in np.flatnonzero(counts[first : last - 1] == 0).tolist():  # two stamps for one step of the clock
            late[second + int(abs(rest[second + 1]) > abs(rest[second]))] = True
        if float(late.mean()) <= LATE:
            snapped[first:last] = np.where(late, time[first:last], line)
    # where the lines of two stretches cross, the samples have no common clock: their stamps are irregular as they are
    return snapped if bool((np.diff(snapped) > 0).all()) else time.copy()
