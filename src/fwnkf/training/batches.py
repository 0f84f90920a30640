"""Which records, and which stretch of them, an optimizer step trains on: a pure function of the step's number.

Nothing has to be remembered to go on after a stop: step 617 reads what step 617 always reads. Records are drawn from
one permutation of the training set after another, each from the seed and its own number.
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


class Place(NamedTuple):
    """Where a run stands: its step, and which of how many processes this is."""

    step: int
    rank: int = 0
    world: int = 1


class Plan:
    """All pieces of a run. With ``chunk``, records are cut into stretches that follow each other step by step.

    >>> plan = Plan(records=10, length=100, batch_size=4, chunk=50, seed=0)
    >>> [(piece.start, piece.stop) for piece in map(plan.at, range(3))]
    [(0, 50), (50, 100), (0, 50)]
    """

    def __init__(self, records: int, length: int, batch_size: int, chunk: int | None, seed: int) -> None:
        self.records, self.length, self.batch_size, self.seed = records, length, batch_size, seed
        self.chunk = min(chunk or length, length)
        self.pieces = -(-length // self.chunk)
        """Optimizer steps that one batch of records takes."""
        self._held: tuple[int, list[int]] = (-1, [])

    def at(self, step: int) -> Piece:
        group, number = divmod(step, self.pieces)
        first = group * self.batch_size
        rows = [self._row(position) for position in range(first, first + self.batch_size)]
        start = number * self.chunk
        return Piece(torch.tensor(rows), start, min(start + self.chunk, self.length))

    def whole_groups(self, steps: int) -> int:
        """``steps`` rounded up, so that they end where a batch of records ends."""
        return -(-steps // self.pieces) * self.pieces

    def _row(self, position: int) -> int:
        number, place = divmod(position, self.records)
        return self._permutation(number)[place]

    def _permutation(self, number: int) -> list[int]:
        if self._held[0] != number:  # batches follow each other, so the last one drawn is nearly always the one
            generator = torch.Generator().manual_seed(1_000_003 * (self.seed + 1) + number)
            self._held = (number, torch.randperm(self.records, generator=generator).tolist())
        return self._held[1]


class Batches:
    """What a Lightning trainer iterates over: ``per_epoch`` batches, from the step where the run stands."""

    def __init__(self, task: Records, plan: Plan, per_epoch: int, stands_at: Callable[[], Place]) -> None:
        self.task, self.plan, self.per_epoch, self.stands_at = task, plan, per_epoch, stands_at

    def __len__(self) -> int:
        return self.per_epoch

    def __iter__(self) -> Iterator[tuple[Batch, Piece]]:
        # read when the first batch is asked for: only then does a resumed run know its step, and a process its rank
        step, rank, world = self.stands_at()
        while True:
            piece = self.plan.at(step)
            yield gather(self.task, piece, rank, world), piece
            step += 1
            if step % self.per_epoch == 0:
                return


def gather(task: Records, piece: Piece, rank: int = 0, world: int = 1) -> Batch:
    """One process's part of a batch; shares are those within the whole batch."""
    stretch = slice(piece.start, piece.stop)
    mask = task.mask[piece.rows, stretch]
    truth = task.truth[piece.rows, stretch]
    valid = truth.isfinite().all(-1)
    counts = (valid | mask.any(-1)).sum(-1).to(task.y.dtype)
    share = counts / counts.sum().clamp_min(1)
    mine = slice(rank, None, world)
    rows = piece.rows[mine]
    start = task.start
    if start.mean.ndim == 2:
        start = Gaussian(start.mean[rows], start.cov[rows] if start.cov.ndim == 3 else start.cov)
    origin = task.layout.origin(truth)
    return Batch(
        y=task.y[rows, stretch],
        truth=torch.where(valid.unsqueeze(-1), truth, origin)[mine],
        valid=valid[mine],
        mask=mask[mine],
        dt=task.dt[rows, stretch],
        u=None if task.u is None else task.u[rows, stretch],
        prior=start,
        share=share[mine],
        first=piece.start,
    )
