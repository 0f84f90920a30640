"""Samples of a stream on an even grid, cut at gaps into equally long pieces that a filter runs side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import DataError
from ..logs.clock import step_counts
from ..runtime.recordings import starts_anew
from ..shapes import Bool, Float
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
        breaks = np.flatnonzero(starts_anew(np.diff(self.index), MOST_SKIPPED + 1)) + 1
        edges = [0, *breaks.tolist(), len(self)]
        return [slice(low, high) for low, high in pairwise(edges) if high > low]


class Pieces(NamedTuple):
    """Equally long pieces of a series: the first ``warm`` steps let a filter forget its start and do not count."""

    y: Float[Tensor, "B T m"]
    mask: Bool[Tensor, "B T m"]
    sample: NDArray[np.int64]
    """``[B, T]``: which sample of the series a step is; -1 where none is, or in the warm-up."""


def pieces(series: Series, *, length: int, warm: int) -> Pieces:
    """Cut a series into pieces of ``length`` steps that count, after up to ``warm`` steps that do not.

    A run starts without a warm-up before it, because there is nothing to warm up with: its first ``warm`` steps do not
    count, if the run is longer than three times that.
    """
    return _cut(series, _rows(series, length, warm))


def batches(series: Series, *, length: int, warm: int, most: int) -> Iterator[Pieces]:
    """:func:`pieces`, at most so many at a time, the longest first.

    Pieces are as long as the longest beside them: a log with many gaps would be padded to many times its size.
    """
    rows = sorted(_rows(series, length, warm), key=lambda row: row[0] - row[2])
    for first in range(0, len(rows), most):
        yield _cut(series, rows[first : first + most])


Row = tuple[int, int, int]
"""First step on the grid, first that counts, and end of a piece."""


def _rows(series: Series, length: int, warm: int) -> list[Row]:
    rows: list[Row] = []
    for run in series.runs():
        first, end = int(series.index[run.start]), int(series.index[run.stop - 1]) + 1
        settle = min(warm, (end - first) // 3)
        at = first + settle
        while at < end:
            stop = min(at + length, end)
            rows.append((max(first, at - warm), at, stop))
            at = stop
    return rows


def _cut(series: Series, rows: Sequence[Row]) -> Pieces:
    channels = series.values.shape[1]
    T = max(stop - first for first, _, stop in rows)
    y = np.full((len(rows), T, channels), np.nan)
    sample = np.full((len(rows), T), -1, np.int64)
    for row, (first, counted, stop) in enumerate(rows):
        low, high = (int(place) for place in np.searchsorted(series.index, (first, stop)))
        place = series.index[low:high] - first
        y[row, place] = series.values[low:high]
        counts = series.index[low:high] >= counted
        sample[row, place[counts]] = np.arange(low, high)[counts]
    values = torch.from_numpy(y)
    mask = values.isfinite()
    return Pieces(torch.where(mask, values, 0.0), mask, sample)
