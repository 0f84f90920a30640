"""Batch selection: which records, and which time range of them, each optimizer step trains on.

The selection is a pure function of the step number, so a resumed run needs no sampler state: step 617 always reads the
same samples. Records are drawn from successive permutations of the training set, each seeded by the run's seed and the
number of the permutation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..data.protocols import Records
from ..types import Gaussian
from .losses import Batch


class Piece(NamedTuple):
    """Rows of the training set, and the steps ``[start, stop)`` of them."""

    rows: Tensor
    start: int
    stop: int


class Position(NamedTuple):
    """Position of a run: its step, the rank of this process and the number of processes."""

    step: int
    rank: int = 0
    world: int = 1


class Plan:
    """The pieces of a run. With ``chunk``, records are split into chunks, one optimizer step for each, in order.

    >>> plan = Plan(records=10, length=100, batch_size=4, chunk=50, seed=0)
    >>> [(piece.start, piece.stop) for piece in map(plan.at, range(3))]
    [(0, 50), (50, 100), (0, 50)]
    """

    def __init__(self, records: int, length: int, batch_size: int, chunk: int | None, seed: int) -> None:
        self.records, self.length, self.batch_size, self.seed = records, length, batch_size, seed
        self.chunk = min(chunk or length, length)
        self.pieces = -(-length // self.chunk)
        """Optimizer steps for each batch of records."""
        self._cached: tuple[int, list[int]] = (-1, [])

    def at(self, step: int) -> Piece:
        group, number = divmod(step, self.pieces)
        first = group * self.batch_size
        rows = [self._row(position) for position in range(first, first + self.batch_size)]
        start = number * self.chunk
        return Piece(torch.tensor(rows), start, min(start + self.chunk, self.length))

    def whole_groups(self, steps: int) -> int:
        """``steps`` rounded up to a whole number of batches of records."""
        return -(-steps // self.pieces) * self.pieces

    def _row(self, position: int) -> int:
        number, index = divmod(position, self.records)
        return self._permutation(number)[index]

    def _permutation(self, number: int) -> list[int]:
        # batches are read in order, so the last permutation is nearly always the right one
        if self._cached[0] != number:
            generator = torch.Generator().manual_seed(1_000_003 * (self.seed + 1) + number)
            self._cached = (number, torch.randperm(self.records, generator=generator).tolist())
        return self._cached[1]


class Batches:
    """Iterable for the Lightning trainer: ``per_epoch`` batches, from the current step of the run."""

    def __init__(self, records: Records, plan: Plan, per_epoch: int, position: Callable[[], Position]) -> None:
        self.records, self.plan, self.per_epoch, self.position = records, plan, per_epoch, position

    def __len__(self) -> int:
        return self.per_epoch

    def __iter__(self) -> Iterator[tuple[Batch, Piece]]:
        # read on the first batch: only then has a resumed run restored its step, and a process learned its rank
        step, rank, world = self.position()
        while True:
            piece = self.plan.at(step)
            yield gather(self.records, piece, rank, world), piece
            step += 1
            if step % self.per_epoch == 0:
                return


def gather(records: Records, piece: Piece, rank: int = 0, world: int = 1) -> Batch:
    """The part of a batch that belongs to one process; ``share`` is relative to the whole batch."""
    steps = slice(piece.start, piece.stop)
    mask = records.mask[piece.rows, steps]
    truth = records.truth[piece.rows, steps]
    valid = truth.isfinite().all(-1)
    counts = (valid | mask.any(-1)).sum(-1).to(records.y.dtype)
    share = counts / counts.sum().clamp_min(1)
    own = slice(rank, None, world)
    rows = piece.rows[own]
    start = records.start
    if start.mean.ndim == 2:
        start = Gaussian(start.mean[rows], start.cov[rows] if start.cov.ndim == 3 else start.cov)
    origin = records.layout.origin(truth)
    return Batch(
        y=records.y[rows, steps],
        truth=torch.where(valid.unsqueeze(-1), truth, origin)[own],
        valid=valid[own],
        mask=mask[own],
        dt=records.dt[rows, steps],
        u=None if records.u is None else records.u[rows, steps],
        prior=start,
        share=share[own],
        first=piece.start,
    )
