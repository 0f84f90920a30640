"""A gyro against the attitude in a log: axes, signs, scale, delay, and a bias over time, in this order.

The rate of the attitude is regressed on the gyro with all nine coefficients and a delay. An axis that is mirrored,
exchanged or in another unit shows in the coefficients; only where these are as they should be is what is left a bias.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STEP = 0.2
"""Seconds over which rates are compared."""
WINDOW = 3.0
"""Seconds over which a bias is averaged."""
LATEST, EARLIEST, GRAIN = 0.8, -0.2, 0.02
"""Delays of the attitude that are tried, and their steps, in seconds."""
FEWEST = 20
"""Intervals, at least."""
FASTEST = 1.5
"""rad/s: faster turns say nothing about a bias, where there are slower ones."""
MOVED = 0.02
"""rad/s: standard deviation of a rate below which an axis was not turned."""
EXPLAINED = 0.5
"""Share of the variance of an axis that the gyro has to explain, for its coefficients to be judged."""
RANK = 1e-9
"""Singular value over the largest, up to which a combination of columns is not determined."""
SURE = 5.0
"""Standard errors from which a coefficient is not zero."""
CLEAR = 0.3
"""Size from which a coefficient is that of a mirrored or exchanged axis."""
ALIKE = 0.2
"""Range of the logarithms of factors that are one factor."""


class Rates(NamedTuple):
    """Mean rates of the attitude over intervals."""

    start: Array
    stop: Array
    rate: Array
    """rad/s about the axes of the body, ``[n, 3]``"""


class Agreement(NamedTuple):
    """``attitude rate = matrix · gyro + level``, with the attitude late by ``delay``."""

    matrix: Array
    error: Array
    """Standard errors of the matrix."""
    seen: tuple[int, ...]
    """Axes that turned, and are explained."""
    delay: float
    """s; positive where the attitude is late."""
    sharpness: float
    """Variance that is left without the delay, over that which is left with it."""
    explained: Array
    """Of each axis: share of the variance of its rate that the gyro explains."""

    @property
    def sure(self) -> NDArray[np.bool_]:
        """Which coefficients stand out of their errors."""
        return np.abs(self.matrix) > SURE * self.error

    @property
    def swapped(self) -> tuple[tuple[int, int], ...]:
        """Axes of the attitude, each with another axis of the gyro that explains it."""
        size = np.abs(self.matrix)
        strongest = {row: int(np.argmax(size[row] * self.sure[row])) for row in self.seen if self.sure[row].any()}
        return tuple(
            (row, column) for row, column in strongest.items()
            if row != column and size[row, column] > 3 * size[row, row] and size[row, column] > CLEAR
        )  # fmt: skip

    @property
    def mirrored(self) -> tuple[int, ...]:
        """Axes whose gyro has the wrong sign."""
        return tuple(row for row in self.seen if self.sure[row, row] and self.matrix[row, row] < -CLEAR)

    @property
    def factor(self) -> float:
        """How many times too large the gyro is, at least: one where its axes do not have one factor in common.

        Noise in the gyro makes coefficients too small, by the share that is explained at most; noise in the attitude
        does not change them. The factor is the one nearest to one between both.
        """
        rows = [row for row in self.seen if self.sure[row, row]]
        slopes = np.array([self.matrix[row, row] for row in rows])
        if self.swapped or self.mirrored or not rows or (slopes <= 0).any() or np.ptp(np.log(slopes)) >= ALIKE:
            return 1.0
        low = float(np.median(slopes))
        high = float(np.median(slopes / self.explained[rows]))
        return 1 / min(max(1.0, low), high)


class Bias(NamedTuple):
    """Bias of a gyro over time, against a known attitude."""

    time: Array
    bias: Array
    """rad/s, ``[windows, 3]``"""

    @property
    def change(self) -> Array:
        """Of each axis, rad/s: the largest difference between two means of neighbouring windows."""
        return np.ptp(self.bias[1:] + self.bias[:-1], axis=0) / 2

    @property
    def lasting(self) -> Array:
        """Of each axis, rad/s: the largest difference between the medians before and after a moment.

        An attitude that is corrected for a while, as headings are, leaves none.
        """
        splits = range(2, len(self.bias) - 1)
        middle = [np.median(self.bias[k:], axis=0) - np.median(self.bias[:k], axis=0) for k in splits]
        return np.asarray(np.max(np.abs(middle), axis=0))


def attitude_rates(time: Array, orientation: Array, step: float = STEP) -> Rates | None:
    """From orientations (w, x, y, z) about ``step`` seconds apart; None where there are too few."""
    known = np.isfinite(orientation).all(1) & np.isfinite(time)
    time, orientation = time[known], orientation[known]
    if len(time) < FEWEST:
        return None
    place = np.unique(np.searchsorted(time, np.arange(time[0], time[-1], step)))
    time, orientation = time[place], orientation[place]
    steps = np.diff(time)
    first, second = orientation[:-1], orientation[1:]
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = rotation_vector(first, second) / steps[:, None]
    good = (steps > 0) & (steps < 3 * step) & np.isfinite(rate).all(1)
    if good.sum() < FEWEST:
        return None
    return Rates(time[:-1][good], time[1:][good], rate[good])


def rotation_vector(first: Array, second: Array) -> Array:
    """Of the rotation from one orientation to the next, in the body.

    >>> turned = np.array([[np.cos(0.1), 0.0, 0.0, np.sin(0.1)]])
    >>> rotation_vector(np.array([[1.0, 0, 0, 0]]), turned).round(6).tolist()
    [[0.0, 0.0, 0.2]]
    """
    w1, v1, w2, v2 = first[:, :1], first[:, 1:], second[:, :1], second[:, 1:]
    w = w1 * w2 + (v1 * v2).sum(1, keepdims=True)
    v = w1 * v2 - w2 * v1 - np.cross(v1, v2)
    v = np.where(w < 0, -v, v)
    size = np.linalg.norm(v, axis=1, keepdims=True)
    angle = 2 * np.arctan2(size, np.abs(w))
    return np.where(size > 1e-12, v / np.maximum(size, 1e-12) * angle, 2 * v)


def means(time: Array, values: Array, start: Array, stop: Array) -> Array:
    """Mean of a signal over intervals; NaN outside it and across its gaps."""
    known = np.isfinite(values).all(1) & np.isfinite(time)
    time, values = time[known], values[known]
    steps = np.diff(time)
    total = np.concatenate(
        (np.zeros((1, values.shape[1])), np.cumsum(0.5 * (values[1:] + values[:-1]) * steps[:, None], 0))
    )
    both = [np.stack([np.interp(at, time, column) for column in total.T], -1) for at in (start, stop)]
    result = (both[1] - both[0]) / (stop - start)[:, None]
    usual = float(np.median(steps)) if len(steps) else 1.0
    gaps = np.r_[0, np.cumsum(np.where(steps > 20 * usual, 1.0, 0.0))]
    broken = (np.interp(stop, time, gaps) != np.interp(start, time, gaps)) | (start < time[0]) | (stop > time[-1])
    result[broken] = np.nan
    return result


def agreement(time: Array, gyro: Array, rates: Rates) -> Agreement | None:
    """The coefficients and the delay that explain the rates of the attitude best."""
    best: tuple[float, float, Array] | None = None
    left: dict[float, float] = {}
    lags = np.round(np.arange(EARLIEST, LATEST + GRAIN / 2, GRAIN), 6)
    for lag in lags:
        mean = means(time, gyro, rates.start - lag, rates.stop - lag)
        known = np.isfinite(mean).all(1)
        if known.sum() < FEWEST:
            continue
        residual = _regressed(mean[known], rates.rate[known])[2]
        left[float(lag)] = float((residual**2).mean(0).sum())
        if best is None or left[float(lag)] < best[0]:
            best = left[float(lag)], float(lag), mean
    if best is None:
        return None
    _, lag, mean = best
    known = np.isfinite(mean).all(1)
    x, y = mean[known], rates.rate[known]
    keep = np.ones(len(x), bool)
    for _ in range(2):  # without intervals that fit nothing
        matrix, _, residual = _regressed(x[keep], y[keep], x, y)
        size = np.linalg.norm(residual, axis=1)
        keep = size <= max(4 * float(np.median(size)), 5 * MOVED)
    matrix, variance, residual = _regressed(x[keep], y[keep])
    left_over = (residual**2).sum(0)[:, None] / max(keep.sum() - 4, 1)
    error = np.sqrt(np.maximum(left_over, np.finfo(float).tiny) * variance)  # of undetermined axes infinite
    spread = y[keep].std(0)
    explained = 1 - (residual**2).mean(0) / np.maximum(spread**2, 1e-12)
    seen = tuple(k for k in range(3) if spread[k] > MOVED and explained[k] > EXPLAINED)
    still = left.get(0.0, left[lag])
    return Agreement(matrix, error, seen, lag, still / max(left[lag], 1e-12), explained)


def _regressed(
    x: Array, y: Array, all_x: Array | None = None, all_y: Array | None = None
) -> tuple[Array, Array, Array]:
    """Coefficients ``[3, 3]``, their variances over that of the residuals, and residuals (of all, where given)."""
    weights, variance = least_squares(np.column_stack((x, np.ones(len(x)))), y)
    if all_x is not None and all_y is not None:
        x, y = all_x, all_y
    return weights[:3].T, variance[:3], y - np.column_stack((x, np.ones(len(x)))) @ weights


def least_squares(design: Array, target: Array) -> tuple[Array, Array]:
    """Coefficients, and the diagonal of the inverse of ``XᵀX``: infinite where the columns do not determine one.

    >>> design = np.column_stack((np.arange(5.0), np.ones(5)))
    >>> weights, variance = least_squares(design, 2 * np.arange(5.0) + 1)
    >>> weights.round(6).tolist(), variance.round(6).tolist()
    ([2.0, 1.0], [0.1, 0.6])
    """
    scale = np.maximum(np.abs(design).max(0), 1e-12)
    left, sizes, directions = np.linalg.svd(design / scale, full_matrices=False)
    known = sizes > RANK * sizes[0]
    inverse = np.where(known, 1 / np.where(known, sizes, 1.0), 0.0)
    weights = directions.T @ (inverse * (left.T @ target).T).T
    variance = ((directions.T * inverse) ** 2).sum(1)
    undetermined = (np.abs(directions[~known]) > RANK).any(0)
    scaled = weights.T / scale
    return scaled.T, np.where(undetermined, np.inf, variance) / scale**2


def rotations(orientation: Array) -> Array:
    """Matrices from the body to the world, ``[n, 3, 3]``, of orientations (w, x, y, z)."""
    w, x, y, z = orientation.T
    return np.stack(
        [
            np.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], -1),
            np.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], -1),
            np.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1),
        ],
        1,
    )


def gyro_bias(
    time: Array, gyro: Array, attitude_time: Array, attitude: Array, seconds: float = WINDOW, delay: float = 0.0
) -> Bias | None:
    """The gyro less the rate of the attitude (w, x, y, z), averaged over windows; None if fewer than five remain."""
    rates = attitude_rates(attitude_time, attitude)
    if rates is None:
        return None
    difference = means(time, gyro, rates.start - delay, rates.stop - delay) - rates.rate
    known = np.isfinite(difference).all(1)
    slow = known & (np.linalg.norm(rates.rate, axis=1) < FASTEST)
    known = slow if slow.sum() > 0.5 * known.sum() else known
    if not known.any():
        return None
    middle = 0.5 * (rates.start + rates.stop)[known]
    difference = difference[known]
    place = ((middle - middle[0]) / seconds).astype(int)
    centres, values = [], []
    for window in np.unique(place):
        inside = place == window
        if inside.sum() * STEP >= 0.6 * seconds:
            centres.append(float(middle[inside].mean()))
            values.append(np.median(difference[inside], axis=0))  # an attitude that is reset jumps in one interval
    return Bias(np.array(centres), np.array(values)) if len(values) >= 5 else None


def jump(bias: Array) -> tuple[int, float, float]:
    """Where a series jumps (the first after it), by how much, and how much better than a smooth curve that explains it.

    >>> place, size, better = jump(np.r_[np.zeros(6), np.ones(6)] + 0.01 * np.arange(12) % 0.02)
    >>> place, round(size, 1), better > 2
    (6, 1.0, True)
    """
    count = len(bias)
    best = (math.inf, 1, 0.0)
    for place in range(2, count - 1):
        before, after = bias[:place], bias[place:]
        left = float(((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum())
        if left < best[0]:
            best = left, place, float(after.mean() - before.mean())
    at = np.arange(count)
    line = np.polyfit(at, bias, 2)
    smooth = float(((bias - np.polyval(line, at)) ** 2).sum())
    return best[1], best[2], smooth / max(best[0], 1e-12)
