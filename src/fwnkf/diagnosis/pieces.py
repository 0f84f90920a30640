"""A series cut at gaps into equally long pieces that a filter runs side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..shapes import Bool, Float
from .series import Series


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
