"""Intervals over recordings: how much of a difference is owed to the recordings it was measured on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

__all__ = ["Interval", "paired_ratio"]


class Interval(NamedTuple):
    """An estimate and the ends of its interval.

    >>> str(Interval(0.5, 0.4, 0.7))
    '0.5 [0.4, 0.7]'
    """

    value: float
    """The estimate."""
    low: float
    """Lower end."""
    high: float
    """Upper end."""

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def paired_ratio(
    ours: Mapping[str, float], theirs: Mapping[str, float], *, level: float = 0.95, draws: int = 10_000, seed: int = 0
) -> Interval:
    """Mean error of one method over that of another on the same recordings, by the percentile bootstrap.

    Whole recordings are drawn with replacement, the same for both methods, because samples of one recording are not
    independent. With few recordings (below about ten) the interval is a rough one and tends to be too narrow.

    Args:
        ours, theirs: errors of the two methods by recording; recordings of one alone are left out.
        level: of the interval.
        draws: of the bootstrap.
        seed: of the draws.

    Returns:
        The ratio and its interval.

    Raises:
        ValueError: the two methods share no recording.

    >>> str(paired_ratio({"a": 1.0, "b": 2.0}, {"a": 2.0, "b": 4.0}))
    '0.5 [0.5, 0.5]'
    """
    names = [name for name in ours if name in theirs]
    if not names:
        raise ValueError("the two methods share no recording")
    a, b = (np.array([errors[name] for name in names]) for errors in (ours, theirs))
    rows = np.random.default_rng(seed).integers(len(names), size=(draws, len(names)))
    ratios = a[rows].mean(1) / b[rows].mean(1)
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(a.mean() / b.mean()), float(low), float(high))
