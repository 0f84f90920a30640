"""Values at the limit of a range, shocks, and the vibration levels that autopilots compute."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .thresholds import THRESHOLDS, Thresholds

Array = NDArray[np.float64]


LEVELS = 8
"""Different values of a channel, at least, for a verdict on clipping."""


STEPS = 4
"""Values next to the extreme one that are counted against it, at least: of a parabola they hold more samples."""


class Clip(NamedTuple):
    """Samples of one channel that are stuck at a limit."""

    channel: str
    limit: float
    samples: int
    share: float


class Shock(NamedTuple):
    """A moment of acceleration far above the rest of the flight."""

    time: float
    seconds: float
    peak: float
    """m/s², of the magnitude."""


def clipping(values: Array, channels: Sequence[str], *, thresholds: Thresholds = THRESHOLDS) -> list[Clip]:
    """Channels whose largest or smallest value is repeated more often than the values just inside it.

    A signal within its range reaches its extreme once, or a few times if it is coarse; a clipped one piles up there.
    Channels with fewer than :data:`LEVELS` different values are too coarse to tell.

    >>> wave = np.sin(np.arange(10000.0) * 0.7)[:, None] * 20
    >>> [(clip.channel, clip.limit) for clip in clipping(np.clip(wave, -16, 30), ["accel_x"])]
    [('accel_x', -16.0)]
    """
    clips = []
    for column, channel in enumerate(channels):
        samples = values[np.isfinite(values[:, column]), column]
        if not len(samples):
            continue
        extent = float(np.ptp(samples))
        if len(np.unique(samples)) < LEVELS:
            continue
        for limit, inward in ((float(samples.max()), -1.0), (float(samples.min()), 1.0)):
            depth = inward * (samples - limit)
            at = int((depth <= 1e-7 * extent).sum())
            # the values just inside: within 2 % of the range, and the next few where steps are coarser, because
            # a smooth maximum stays in the last step for 2.4 times as long as in the one before
            steps = np.unique(depth[depth > 1e-7 * extent])
            near = max(0.02 * extent, float(steps[:STEPS][-1])) if len(steps) else 0.0
            inside = int(((depth > 1e-7 * extent) & (depth <= near)).sum())
            if (
                extent > 0
                and at >= max(5, thresholds.clip_share * len(samples))
                and at > inside + 3 * math.sqrt(inside)
            ):
                clips.append(Clip(channel, limit, at, at / len(samples)))
    return sorted(clips, key=lambda clip: -clip.samples)


def shocks(time: Array, accel: Array, *, thresholds: Thresholds = THRESHOLDS) -> list[Shock]:
    """Moments at which the magnitude of the acceleration is far from its usual value; those within a second are one.

    >>> time = np.arange(1000) / 100
    >>> accel = np.tile([0.0, 0.0, 9.8], (1000, 1)) + np.random.default_rng(0).normal(size=(1000, 3))
    >>> accel[500:510, 0] = 150.0
    >>> [(shock.time, round(shock.peak)) for shock in shocks(time, accel)]
    [(5.0, 150)]
    """
    size = np.linalg.norm(accel, axis=1)
    usual = float(np.nanmedian(size))
    change = np.abs(size - usual)
    # most vibration is within a small multiple of what is exceeded in one sample of a hundred
    strong = 2.5 * float(np.nanquantile(change, 0.99))
    limit = max(thresholds.shock_accel, thresholds.shock_ratio * float(np.nanmedian(change)), strong)
    index = np.flatnonzero(change > limit)
    if not len(index):
        return []
    parts = np.split(index, np.flatnonzero(np.diff(time[index]) > 1.0) + 1)
    return [
        Shock(float(time[part[0]]), float(time[part[-1]] - time[part[0]]), float(size[part].max())) for part in parts
    ]


def vibe(accel: Array, rate: float) -> Array:
    """ArduPilot's VIBE of each axis (m/s²) over time: ``√LP₂((a - LP₅ a)²)``, low-passes of first order in Hz.

    >>> time = np.arange(4000) / 400
    >>> round(float(vibe(10 * np.sin(2 * np.pi * 60 * time)[:, None], 400.0)[-1, 0]), 1)
    6.8
    """
    high = accel - low_pass(accel, 5.0, rate)
    return np.sqrt(np.maximum(low_pass(high**2, 2.0, rate), 0))


def low_pass(values: Array, corner: float, rate: float) -> Array:
    """A first-order low-pass along time, started at the first sample."""
    share = 1 - math.exp(-2 * math.pi * corner / rate)
    # in blocks, so that neither a loop over samples nor a filter library is needed: y_k = (1 - s)^k (y_0 + s Σ …)
    length = max(int(4 / -math.log1p(-share)), 1)
    powers = (1 - share) ** np.arange(1, length + 1)
    result = np.empty_like(values)
    state = values[0].astype(float)
    for start in range(0, len(values), length):
        block = values[start : start + length]
        decay = powers[: len(block), None]
        result[start : start + len(block)] = decay * (state + share * np.cumsum(block / decay, axis=0))
        state = result[start + len(block) - 1]
    return result
