"""Which samples of a log belong into its spectra: those in the air, without touchdowns, impacts and handling."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .spectra import Grid

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Intervals = tuple[tuple[float, float], ...]

LIFT = 0.6
"""A vehicle is in the air while its rotors, or their commands, are above this share of their median."""
SUSTAINED = 0.5
"""Seconds for which they have to be."""
SHORTEST = 4.0
"""Seconds in the air below which a log is examined as a whole."""
WINDOW = 0.25
"""Seconds whose power is compared with that of the rest."""
BURST = 12.0
"""Power of a window over the usual one, in most of the frequencies at once, from which it is a burst."""
BANDS = (80.0, 400.0)
"""Hz between the bands that are examined: a touchdown rings at low frequencies."""
BINS = 24
"""Frequencies of a band above the first, at least: a line that moves is in several neighbours within one window."""
MOST_CUT = 0.2
"""Share of the samples that may be bursts; more of them are how the vehicle moves."""


def lifted(time: Array, drive: Array, airborne: Intervals) -> Intervals:
    """Times in the air without spinning up and down, from rotor speeds or commands ``[samples, rotors]``.

    Only the ends of each interval move: rotors may stop for a moment in the air.

    >>> time = np.arange(0, 20, 0.1)
    >>> drive = np.where((time > 4) & (time < 15), 0.5, 0.05)[:, None]
    >>> [(round(start, 1), round(stop, 1)) for start, stop in lifted(time, drive, ())]
    [(4.1, 14.9)]
    """
    level = np.nanmean(drive, axis=1)
    known = np.isfinite(level) & np.isfinite(time)
    time, level = time[known], level[known]
    if len(time) < 8:
        return airborne
    spans = airborne or ((float(time[0]), float(time[-1])),)
    inside = np.any([(time >= start) & (time <= stop) for start, stop in spans], axis=0)
    running = inside & (level > 0.02 * level.max())
    if not running.any():
        return airborne
    enough = level > LIFT * float(np.median(level[running]))
    result = []
    for start, stop in spans:
        runs = _runs((time >= start) & (time <= stop) & enough)
        long = [(time[a], time[b - 1]) for a, b in runs if time[b - 1] - time[a] >= SUSTAINED]
        if long:
            result.append((float(long[0][0]), float(long[-1][1])))
    if sum(stop - start for start, stop in result) < SHORTEST:
        return airborne
    return tuple(result)


def bursts(grid: Grid, lowest: float) -> list[tuple[float, float]]:
    """Times at which most frequencies are far above their usual power at once: touchdowns, impacts, handling."""
    length = max(2 * round(grid.rate * WINDOW / 2), 16)
    window = np.hanning(length + 1)[:-1]
    density, starts = [], []
    for run, start in zip(grid.runs, grid.starts, strict=True):
        for first in range(0, len(run) - length + 1, length // 2):
            piece = run[first : first + length]
            density.append(np.abs(np.fft.rfft((piece - piece.mean(0)) * window[:, None], axis=0)) ** 2)
            starts.append(start + first / grid.rate)
    if len(density) < 16:
        return []
    power = np.array(density)
    frequency = np.arange(power.shape[1]) * grid.rate / length
    loud = np.zeros(len(power), bool)
    for inside in _bands(frequency, lowest):
        ratio = power[:, inside] / np.maximum(np.median(power[:, inside], axis=0), np.finfo(float).tiny)
        middle = np.median(ratio, axis=1)  # over frequencies: a line is in a few of them
        loud |= np.max([middle[:, k : k + 3].mean(1) for k in range(0, middle.shape[1], 3)], axis=0) > BURST
    if loud.mean() > MOST_CUT:
        return []
    seconds = length / grid.rate
    return [(starts[a] - seconds / 2, starts[b - 1] + 1.5 * seconds) for a, b in _runs(loud)]


def _bands(frequency: Array, lowest: float) -> list[Mask]:
    """Bands that are compared apart: the lowest, in which every burst is, and others that are wide enough."""
    edges = zip((lowest, *BANDS), (*BANDS, np.inf), strict=True)
    masks = [(frequency >= low) & (frequency < high) for low, high in edges]
    return [inside for k, inside in enumerate(masks) if inside.sum() >= (BINS if k else 5)]


def without(grid: Grid, spans: Sequence[tuple[float, float]]) -> Grid:
    """A grid without some times; what is between them are runs of their own."""
    if not spans:
        return grid
    runs, starts = [], []
    for run, start in zip(grid.runs, grid.starts, strict=True):
        time = start + np.arange(len(run)) / grid.rate
        keep = ~np.any([(time >= low) & (time <= high) for low, high in spans], axis=0)
        for a, b in _runs(keep):
            runs.append(run[a:b])
            starts.append(float(time[a]))
    return grid._replace(runs=tuple(runs), starts=tuple(starts)) if runs else grid


def _runs(state: Mask) -> list[tuple[int, int]]:
    """First and end of every run of True."""
    edges = np.flatnonzero(np.diff(np.r_[False, state, False].astype(np.int8)))
    return [(int(a), int(b)) for a, b in pairwise(edges.tolist())][::2]
