"""Samples of a stream on an even grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..logs.clock import step_counts
from .spectra import Spectrum, sampling_rate, spectrum

Array = NDArray[np.float64]

SHORTEST = 16
"""Samples of the shortest series."""
MOST_SKIPPED = 20
"""Samples in a row that may be missing inside a piece; longer gaps end it."""


@dataclass(frozen=True, eq=False)
class Series:
    """Channels sampled evenly but for missing samples and gaps.

    ``index`` is the place of every sample on a grid of ``1 / rate``; it is counted from step to step, so that a clock
    that drifts stays on it, and it jumps by more than :data:`MOST_SKIPPED` at gaps.
    """

    name: str
    time: Array
    values: Array
    """``[samples, channels]``; NaN where a channel is missing."""
    channels: tuple[str, ...]
    units: tuple[str, ...]
    index: NDArray[np.int64]
    rate: float

    @staticmethod
    def of(
        name: str, time: Array, values: Array, channels: Sequence[str], units: Sequence[str], rate: float | None = None
    ) -> Series:
        """From time stamps; samples that are not after the one before are left out, as in :func:`even_grid`."""
        time, values = np.asarray(time, float), np.asarray(values, float)
        later = np.isfinite(time)
        later[later] = np.r_[True, np.diff(np.maximum.accumulate(time[later])) > 0][: later.sum()]
        time, values = time[later], values[later]
        if len(time) < SHORTEST:
            raise DataError(f"{name}: {len(time)} samples are too few to diagnose; record at least a few seconds")
        rate = sampling_rate(time) if rate is None else rate
        index = np.concatenate(([0], np.cumsum(step_counts(time, rate))))
        return Series(name, time, values, tuple(channels), tuple(units), index, rate)

    def __len__(self) -> int:
        return len(self.time)

    @property
    def missing(self) -> float:
        """Share of the grid without a sample, gaps left out."""
        steps = np.diff(self.index)
        inside = steps[steps <= MOST_SKIPPED + 1]
        return 1 - len(inside) / max(1, int(inside.sum()))

    def columns(self, chosen: Sequence[int]) -> Series:
        """Some of the channels."""
        return Series(
            self.name, self.time, self.values[:, chosen], tuple(self.channels[c] for c in chosen),
            tuple(self.units[c] for c in chosen), self.index, self.rate,
        )  # fmt: skip

    def spectrum(self) -> Spectrum:
        """Density of every channel."""
        return spectrum(self.time, self.values)

    def part(self, start: float, stop: float) -> Series:
        """The samples from ``start`` to before ``stop`` (s)."""
        low, high = (int(place) for place in np.searchsorted(self.time, (start, stop)))
        chosen = slice(low, high)
        return Series(
            self.name, self.time[chosen], self.values[chosen], self.channels, self.units, self.index[chosen], self.rate
        )

    def first(self, count: int) -> Series:
        """At most so many samples from the start."""
        return self if len(self) <= count else self.part(-np.inf, float(self.time[count]))

    def runs(self) -> list[slice]:
        """Samples without a gap between them."""
        breaks = np.flatnonzero(np.diff(self.index) > MOST_SKIPPED + 1) + 1
        edges = [0, *breaks.tolist(), len(self)]
        return [slice(low, high) for low, high in pairwise(edges) if high > low]


def moving_channels(series: Series) -> list[int]:
    """Columns that change; a dead channel has no noise, and no filter."""
    return [
        column
        for column in range(series.values.shape[1])
        if np.isfinite(series.values[:, column]).sum() > 16 and np.nanstd(series.values[:, column]) > 0
    ]
