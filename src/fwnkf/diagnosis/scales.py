"""How many times too large an inertial sensor reads: a gyro against the attitude, an accelerometer against gravity."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..logs.log import Stream
from .attitude import Agreement, means, rotations

Array = NDArray[np.float64]

GYRO, ACCEL = (tuple(f"{name}_{axis}" for axis in "xyz") for name in ("gyro", "accel"))
ORIENTATION = tuple(f"orientation_{part}" for part in "wxyz")
GRAVITY = 9.80665
CALM_SECONDS, CALM_RATE = 0.5, 0.35
"""Seconds of a window, and rad/s below which a vehicle hardly turns in it."""
CALM_SPREAD = 0.15
"""Spread of the acceleration in such windows, over its median, up to which it is gravity."""
TILTED = 1.5
"""Size over gravity up to which a vehicle may fly tilted, at a constant speed, where no attitude is logged."""
FEWEST = 8
"""Calm windows, at least."""


class Scale(NamedTuple):
    """A sensor whose values are all wrong by one factor."""

    channels: tuple[str, ...]
    factor: float
    """How many times too large."""
    against: str
    """What says so."""
    text: str
    """The evidence, for people."""


def gyro_scale(found: Agreement, source: str, limit: float) -> Scale | None:
    """Of a gyro against the attitude in ``source``; None within the limit, a relative error."""
    factor = found.factor
    if abs(math.log(factor)) <= math.log(1 + limit):
        return None
    return Scale(GYRO, factor, f"the attitude in {source}", coefficients(found, source))


def coefficients(found: Agreement, source: str) -> str:
    """The regression as equations."""
    return f"rate of the attitude in {source} regressed on the gyro: " + "; ".join(
        f"{axis} = {found.matrix[k, 0]:.2f} x {found.matrix[k, 1]:+.2f} y {found.matrix[k, 2]:+.2f} z"
        for k, axis in enumerate("xyz")
        if k in found.seen
    )


def accel_scale(
    accel: Stream, gyro: Stream | None, attitude: Stream | None, limit: float, gyro_factor: float = 1.0
) -> Scale | None:
    """Of an accelerometer against gravity, while the vehicle hardly turns; None within the limit, a relative error.

    A vehicle that flies tilted at a constant speed feels more than gravity, of which the vertical part is gravity.
    """
    edges = np.arange(accel.time[0], accel.time[-1], CALM_SECONDS)
    if len(edges) < 12:
        return None
    mean = means(accel.time, accel.stack(ACCEL), edges[:-1], edges[1:])
    calm = np.isfinite(mean).all(1)
    if gyro is not None:
        rate = np.linalg.norm(means(gyro.time, gyro.stack(GYRO), edges[:-1], edges[1:]), axis=1)
        calm &= rate / gyro_factor < CALM_RATE
    if calm.sum() < FEWEST:
        return None
    mean, middle = mean[calm], 0.5 * (edges[:-1] + edges[1:])[calm]
    low, level, high = np.quantile(np.linalg.norm(mean, axis=1), (0.25, 0.5, 0.75)).tolist()
    if high - low > CALM_SPREAD * level:  # flown too hard to tell
        return None
    text, most = f"median size while it hardly turns {level:.4g} m/s²", 1 + limit
    if level > GRAVITY:
        vertical = None if attitude is None else _vertical(mean, middle, attitude)
        if vertical is not None:
            level, text = vertical, f"{text}, its vertical part {vertical:.4g} m/s²"
        else:
            most = max(most, TILTED)
    factor = level / GRAVITY
    if 1 / (1 + limit) <= factor <= most:
        return None
    return Scale(ACCEL, factor, "gravity", f"{text}, gravity is {GRAVITY:.4g} m/s²")


def _vertical(mean: Array, time: Array, attitude: Stream) -> float | None:
    """Median of the vertical part of accelerations; None where the attitude is not known."""
    orientation = attitude.stack(ORIENTATION)
    known = np.isfinite(orientation).all(1)
    inside = (time >= attitude.time[known].min(initial=np.inf)) & (time <= attitude.time[known].max(initial=-np.inf))
    if inside.sum() < FEWEST:
        return None
    near = np.clip(np.searchsorted(attitude.time[known], time[inside]), 0, known.sum() - 1)
    turned = np.einsum("nij,nj->ni", rotations(orientation[known][near]), mean[inside])
    return abs(float(np.median(turned[:, 2])))
