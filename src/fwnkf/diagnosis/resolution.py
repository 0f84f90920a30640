"""Steps in which a channel moves, and the drift of a sensor at rest: what any sensor can show."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FEWEST = 100
"""Samples, at least, for a verdict."""
BLOCKS = 20
"""Parts of a log whose means are compared."""
WHOLE = 0.02
"""Difference from a multiple of the step, over the step, up to which a value lies on it."""


class Drift(NamedTuple):
    """A straight drift: per second, over the whole log, and over its standard error."""

    slope: float
    change: float
    t: float
    scatter: float
    """Standard deviation of the means of parts about the line."""


def resolution(values: Array) -> float | None:
    """The step in which a channel moves; None if its values are not multiples of one.

    >>> resolution(np.round(np.sin(np.arange(500.0) / 30), 1))
    0.1
    """
    values = values[np.isfinite(values)]
    levels = np.unique(values)
    if len(values) < FEWEST or len(levels) < 3:
        return None
    steps = np.diff(levels)
    step = float(np.median(steps[steps < 1.5 * steps.min()]))
    multiples = steps / step
    if (np.abs(multiples - np.round(multiples)) > WHOLE * np.maximum(multiples, 1)).mean() > 0.01:
        return None
    return round(step, 12 - math.ceil(math.log10(step))) if step > 0 else None


def drift(time: Array, values: Array) -> Drift | None:
    """A straight line through the means of parts of a log; None for a log that is too short.

    >>> time = np.arange(4000) / 100
    >>> noise = np.random.default_rng(0).normal(size=4000)
    >>> round(drift(time, 0.05 * time + 0.1 * noise).change, 1)
    2.0
    """
    known = np.isfinite(values) & np.isfinite(time)
    if known.sum() < FEWEST * 2:
        return None
    parts = np.array_split(np.flatnonzero(known), BLOCKS)
    moments = np.array([time[part].mean() for part in parts])
    means = np.array([values[part].mean() for part in parts])
    centred = moments - moments.mean()
    slope = float(centred @ means / (centred @ centred))
    left = means - means.mean() - slope * centred
    scatter = float(np.sqrt((left @ left) / (BLOCKS - 2)))
    error = scatter / math.sqrt(float(centred @ centred))
    return Drift(slope, slope * float(np.ptp(time[known])), abs(slope) / max(error, np.finfo(float).tiny), scatter)
