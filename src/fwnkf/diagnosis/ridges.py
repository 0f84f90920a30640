"""Lines that sweep, found without rotor speeds: the smoothest strong path through a waterfall, and what it follows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .orders import HARMONICS, fold
from .spectra import Grid, grid_waterfall
from .thresholds import THRESHOLDS, Thresholds

Array = NDArray[np.float64]

WINDOWS = (1.0, 0.5, 0.25)
"""Seconds: long windows for lines that are weak, short ones for lines that sweep fast."""
JUMP = 4
"""Bins by which a path moves from one window to the next, at most."""
JUMP_COST = 0.15
"""Loss of log ratio for every bin that it moves."""
CEILING = 4.0
"""Log ratio above which a window counts no more, so that a single burst makes no path."""
HEARD, MOST_HEARD = 0.5, 0.8
"""A line is heard where it is above this share of its loudest log ratios (of one window in ten); where it is heard in
fewer windows than the second share, its path in the others is chance."""
SHUFFLES = 16
"""Waterfalls with their windows in random order, which show what chance does."""


class Ridge(NamedTuple):
    """A line that sweeps."""

    time: Array
    frequency: Array
    """Hz over time."""
    score: float
    """Mean of the log of its density over the usual density at the same frequencies."""
    z: float
    """Standard deviations of the score above those of shuffled windows."""
    harmonics: tuple[int, ...]
    """Multiples of its frequency, folded, that are in the log too; 1 is the ridge itself."""
    motor: int | None = None
    """Number of the motor, from 1, whose command it follows best; 0 for the mean of all."""
    correlation: float | None = None
    """Rank correlation of its frequency with that command: negative where the line is folded."""

    @property
    def mean(self) -> float:
        """Hz"""
        return float(self.frequency.mean())

    @property
    def spread(self) -> float:
        """Hz, standard deviation over time."""
        return float(self.frequency.std())


def find_ridge(
    grid: Grid, columns: Sequence[int], *, seed: int = 0, thresholds: Thresholds = THRESHOLDS
) -> Ridge | None:
    """The line that sweeps through the waterfalls of ``columns``, or None where there is none.

    Densities are compared with their medians over time at the same frequency, so that fixed lines do not count. A path
    through the windows in their order has to be better than paths through the windows in random order.
    """
    tried = [_ridge(grid, columns, seconds, seed, thresholds) for seconds in WINDOWS]
    ridges = [ridge for ridge in tried if ridge is not None]
    # of those that are about as loud as the loudest, one with harmonics, and the smoothest
    loudest = max((ridge.score for ridge in ridges), default=0.0)
    loud = [ridge for ridge in ridges if ridge.score > 0.8 * loudest]
    return max(loud, key=lambda ridge: (len(ridge.harmonics) > 1, ridge.z), default=None)


def _ridge(grid: Grid, columns: Sequence[int], seconds: float, seed: int, thresholds: Thresholds) -> Ridge | None:
    waterfalls = [grid_waterfall(grid, column, seconds=seconds, rows=1 << 20) for column in columns]
    frequency, time = waterfalls[0].frequency, waterfalls[0].time
    if len(time) < 16:
        return None
    logs = np.mean([_log_ratio(result.density) for result in waterfalls], axis=0)
    first = int(np.searchsorted(frequency, thresholds.line_lowest))
    if len(frequency) - first < 2 * JUMP + 1:
        return None  # sampled too slowly for a line that sweeps
    inside = logs[:, first:]
    # the ratio to the usual density leads beside the frequencies where a line stays long: the density itself does not
    loud = np.mean([np.log(result.density[:, first:] + np.finfo(float).tiny) for result in waterfalls], axis=0)
    path, score = _best_path(inside)
    if score < thresholds.ridge_score:
        return None
    generator = np.random.default_rng(seed)
    shuffled = _best_scores(np.stack([generator.permutation(inside) for _ in range(SHUFFLES)]))
    z = (score - float(np.mean(shuffled))) / max(float(np.std(shuffled)), 0.01)
    resolution = float(frequency[1])
    track = _refined(loud, path, resolution) + float(frequency[first])
    if z < thresholds.ridge_z or track.std() < thresholds.ridge_spread * track.mean():
        return None
    heard = _heard(inside[np.arange(len(path)), path], track)
    if not heard.all():
        track, moments = track[heard], time[heard]
        swept = len(track) >= 16 and track.std() > thresholds.ridge_spread * track.mean()
        return Ridge(moments, track, score, z, (1,)) if swept else None
    # with harmonics the path of the fundamental is the surer one: they move faster, and fold
    comb = inside + sum(_multiple(logs, harmonic)[:, first:] for harmonic in (2, 3))
    fundamental = _refined(loud, _best_path(comb)[0], resolution) + float(frequency[first])
    present = tuple(h for h in HARMONICS if _stands_out(logs, fundamental, resolution, h, thresholds))
    own = along(logs, fundamental, resolution, 1)
    if len(present) > 1 and present[0] == 1 and own > 0.85 * score:
        return Ridge(time, fundamental, own, z, present)
    return Ridge(time, track, score, z, (1,))


def _heard(logs: Array, track: Array) -> NDArray[np.bool_]:
    """Windows in which a line is on, and near where it usually is; all of them for one that is never off."""
    heard: NDArray[np.bool_] = logs > HEARD * np.quantile(logs, 0.9)
    if heard.mean() > MOST_HEARD:
        return np.ones(len(logs), bool)
    low, middle, high = np.quantile(track[heard], (0.25, 0.5, 0.75))
    return heard & (np.abs(track - middle) <= 3 * max(high - low, 1e-9))


def with_commands(ridge: Ridge, motor_time: Array, motor: Array) -> Ridge:
    """With the motor whose command it follows best, where it follows one beyond chance.

    The speed of a rotor grows with its command, whatever the law: ranks are compared. Chance is the correlation with
    commands shifted in time.

    >>> time = np.arange(100.0)
    >>> command = 0.5 + 0.2 * np.sin(time / 7 + np.sin(time / 3))[:, None]
    >>> ridge = Ridge(time, 80 - 20 * np.sqrt(command[:, 0]), 1.0, 9.0, (1,))
    >>> round(with_commands(ridge, time, command).correlation, 3)
    -1.0
    """
    candidates = [(0, np.nanmean(motor, axis=1)), *((number + 1, motor[:, number]) for number in range(motor.shape[1]))]
    best: tuple[float, int] | None = None
    for number, command in candidates:
        usable = np.isfinite(command)
        if usable.sum() < 8 or np.ptp(command[usable]) <= 0:
            continue
        speeds = np.interp(ridge.time, motor_time[usable], command[usable])
        correlation = rank_correlation(ridge.frequency, speeds)
        shifts = np.linspace(0.1, 0.9, 33)
        chance = [rank_correlation(ridge.frequency, np.roll(speeds, round(shift * len(speeds)))) for shift in shifts]
        if abs(correlation) > max(0.5, 1.1 * max(map(abs, chance))) and (
            best is None or abs(correlation) > abs(best[0])
        ):
            best = correlation, number
    return ridge if best is None else ridge._replace(correlation=best[0], motor=best[1])


def rank_correlation(first: Array, second: Array) -> float:
    """Spearman's correlation.

    >>> rank_correlation(np.array([1.0, 2.0, 5.0]), np.array([1.0, 4.0, 9.0]))
    1.0
    """
    ranks = [np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(float) for values in (first, second)]
    a, b = (rank - rank.mean() for rank in ranks)
    norm = math.sqrt(float(a @ a) * float(b @ b))
    return round(float(a @ b) / norm, 12) if norm > 0 else 0.0


def along(logs: Array, track: Array, resolution: float, harmonic: float) -> float:
    """Mean log ratio along a multiple of a track, folded at the Nyquist frequency."""
    rate = 2 * (logs.shape[1] - 1) * resolution
    position = fold(harmonic * track, rate) / resolution
    low = np.clip(np.floor(position).astype(int), 0, logs.shape[1] - 2)
    rows = np.arange(len(track))
    return float(np.maximum(logs[rows, low], logs[rows, low + 1]).mean())


def _log_ratio(density: Array) -> Array:
    """Log of the density over its median in time, smoothed over three bins; the usual level of noise is zero."""
    padded = np.pad(density, ((0, 0), (1, 1)), mode="edge")
    smooth = padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]
    usual = np.maximum(np.median(smooth, axis=0), np.finfo(float).tiny)
    logs = np.log(np.maximum(smooth / usual, np.exp(-CEILING)))
    # a louder or a quieter moment is no line
    return np.clip(logs - np.median(logs, axis=1, keepdims=True), -CEILING, CEILING)


def _best_path(logs: Array) -> tuple[NDArray[np.int64], float]:
    """The path with the largest sum of log ratios less the cost of its moves (dynamic programming), and its mean."""
    count, bins = logs.shape
    moves = np.arange(-JUMP, JUMP + 1)
    total = logs[0].copy()
    back = np.zeros((count, bins), np.int8)
    for row in range(1, count):
        padded = np.pad(total, JUMP, constant_values=-np.inf)
        options = np.stack([padded[JUMP + move : JUMP + move + bins] - JUMP_COST * abs(move) for move in moves])
        choice = options.argmax(0)
        back[row] = moves[choice]
        total = options[choice, np.arange(bins)] + logs[row]
    path = np.empty(count, np.int64)
    path[-1] = total.argmax()
    for row in range(count - 1, 0, -1):
        path[row - 1] = path[row] + back[row, path[row]]
    return path, float(total.max()) / count


def _best_scores(stack: Array) -> Array:
    """Means of the best paths through several waterfalls ``[stack, time, frequency]``."""
    cost = JUMP_COST * np.abs(np.arange(-JUMP, JUMP + 1))
    bins = stack.shape[2]
    padded = np.full((len(stack), bins + 2 * JUMP), -np.inf)
    padded[:, JUMP : JUMP + bins] = stack[:, 0]
    for row in range(1, stack.shape[1]):
        moved = (sliding_window_view(padded, 2 * JUMP + 1, axis=1) - cost).max(-1)
        padded[:, JUMP : JUMP + bins] = moved + stack[:, row]
    return padded.max(1) / stack.shape[1]


def _refined(logs: Array, path: NDArray[np.int64], resolution: float) -> Array:
    """Frequencies of a path between bins, from the parabola about the highest log density near it."""
    rows, middle = np.arange(len(path)), np.clip(path, 3, logs.shape[1] - 4)
    middle = middle + np.stack([logs[rows, middle + step] for step in range(-2, 3)]).argmax(0) - 2
    left, centre, right = (logs[rows, middle + step] for step in (-1, 0, 1))
    curvature = left - 2 * centre + right
    safe = np.where(curvature < -1e-9, curvature, -1.0)
    shift = np.where(curvature < -1e-9, 0.5 * (left - right) / safe, 0.0)
    return (middle + np.clip(shift, -0.5, 0.5)) * resolution


def _multiple(logs: Array, harmonic: int) -> Array:
    """The log ratio at a multiple of every frequency, folded: the largest of the bins that it covers."""
    bins = logs.shape[1]
    position = fold(harmonic * np.arange(bins, dtype=np.float64), 2.0 * (bins - 1)).astype(int)
    near = [logs[:, np.clip(position + step, 0, bins - 1)] for step in (-1, 0, 1)]
    return np.max(near, axis=0)


def _stands_out(logs: Array, track: Array, resolution: float, harmonic: int, thresholds: Thresholds) -> bool:
    """Whether there is more power along a multiple of a track than along the same track shifted in time."""
    value = along(logs, track, resolution, harmonic)
    chance = [
        along(logs, np.roll(track, round(shift * len(track))), resolution, harmonic)
        for shift in np.linspace(0.1, 0.9, 24)
    ]
    spread = max(float(np.std(chance)), 0.03)
    return value > 0.3 and value - float(np.mean(chance)) > thresholds.rotor_z * spread
