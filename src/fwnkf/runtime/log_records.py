"""The first steps of a log, as a filter takes them: for comparisons of an exported filter with the filter itself."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ..export.reference import Record
from ..filters.base import Filter
from .recordings import Piece, Summary, concatenated, pieces, steps_of

__all__ = ["log_records"]


def log_records(
    model: Filter, blocks: Iterable[tuple[NDArray[np.float64], NDArray[np.float64]]], steps: int, stamps: bool = False
) -> list[Record]:
    """At least ``steps`` steps, if the log has as many, as :func:`~fwnkf.runtime.recordings.run_long` takes them.

    Args:
        model: the filter.
        blocks: blocks of ``(time, values)``, the columns of values being channels, then controls; NaN is missing.
        steps: how many are wanted.
        stamps: take the steps from the time stamps, not from the rate of the filter.

    Returns:
        A record for each part of the log between long gaps.

    Raises:
        DataError: the log has no samples, or another rate than a filter with a fixed step.

    >>> import torch, fwnkf
    >>> model = fwnkf.KF(F=torch.eye(1), H=torch.eye(1), Q=torch.eye(1), R=torch.eye(1), dt=0.1)
    >>> time = 0.1 * np.arange(8)
    >>> [record.y.shape for record in log_records(model, [(time, time[:, None])], 5)]
    [torch.Size([8, 1])]
    """
    parts: list[list[Piece]] = []
    count = 0
    for piece in pieces(model, blocks, Summary(), stamps=stamps):
        if piece.first:
            parts.append([])
        parts[-1].append(piece)
        count += len(piece.time) // model.input_sizes.block
        if count >= steps:
            break
    return [_record(model, concatenated(part)) for part in parts]


def _record(model: Filter, piece: Piece) -> Record:
    y, u, mask, dt = (None if item is None else item[0] for item in steps_of(model, piece)[:4])
    assert y is not None
    assert mask is not None
    return Record(y, mask, u, dt)
