"""Several parts of coloured noise in one filter: their states side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...core.gaussian import block_diagonal
from ...core.system import System
from ...shapes import Float
from .part import Moved, NoiseStates, OwnMeasurement


class PreparedStack(NamedTuple):
    """What the parts prepared, and what the channels of the filter measure of all their states."""

    C: Float[Tensor, "m s"]
    parts: tuple[Any, ...]


class StackedNoise(NoiseStates):
    """The states of several parts, one after the other; ``stack[0]`` is the first part.

    Args:
        parts: the modules of the parts.
        channels: all channels of the filter.
        system: the system of the filter.
    """

    def __init__(self, parts: list[NoiseStates], channels: slice, system: System) -> None:
        super().__init__(channels, system)
        self.parts = nn.ModuleList(parts)
        self.sizes = [part.size for part in parts]
        self.size, self.controls = sum(self.sizes), sum(part.controls for part in parts)
        self.reads_variance = any(part.reads_variance for part in parts)
        self.linear = all(part.linear for part in parts)

    def __getitem__(self, number: int) -> NoiseStates:
        part = self.parts[number]
        assert isinstance(part, NoiseStates)
        return part

    def __iter__(self) -> Iterator[NoiseStates]:
        return iter(self[number] for number in range(len(self.parts)))

    def begin(self, like: Tensor) -> tuple[Tensor, Tensor]:
        means, variances = zip(*(part.begin(like) for part in self), strict=True)
        return torch.cat(means), torch.cat(variances)

    def prepare(self, white_std: Tensor) -> PreparedStack:
        prepared = tuple(part.prepare(white_std[part.channels]) for part in self)
        rows = [
            nn.functional.pad(item.C, (0, 0, part.channels.start, self.width - part.channels.stop))
            for part, item in zip(self, prepared, strict=True)
        ]
        return PreparedStack(torch.cat(rows, -1), prepared)

    def move(self, prepared: PreparedStack, mean: Tensor, variance: Tensor | None, ratio: Tensor | None) -> Moved:
        variances = [None] * len(self.sizes) if variance is None else variance.split(self.sizes, -1)
        moved = [
            part.move(item, own, spread, ratio)
            for part, item, own, spread in zip(self, prepared.parts, mean.split(self.sizes, -1), variances, strict=True)
        ]
        A, Q = moved[0].A, moved[0].Q
        for item in moved[1:]:
            A, Q = block_diagonal(A, item.A), block_diagonal(Q, item.Q)
        return Moved(torch.cat([item.mean for item in moved], -1), A, Q)

    def continuous(self, prepared: PreparedStack) -> tuple[Tensor, Tensor] | None:
        found = [part.continuous(item) for part, item in zip(self, prepared.parts, strict=True)]
        known = [item for item in found if item is not None]
        if len(known) < len(found):
            return None
        return torch.block_diag(*(A for A, _ in known)), torch.block_diag(*(density for _, density in known))

    def own_measurement(self, mean: Tensor, variance: Tensor, control: Tensor) -> OwnMeasurement | None:
        given = control.split([part.controls for part in self], -1)
        found, before = [], 0
        for part, own, spread, speeds in zip(
            self, mean.split(self.sizes, -1), variance.split(self.sizes, -1), given, strict=True
        ):
            measured = part.own_measurement(own, spread, speeds)
            if measured is not None:
                H = nn.functional.pad(measured.H, (before, self.size - before - part.size))
                found.append(measured._replace(H=H))
            before += part.size
        if len(found) < 2:
            return found[0] if found else None
        return OwnMeasurement(
            torch.cat([item.innovation for item in found], -1),
            torch.cat([item.H for item in found], -2),
            torch.cat([item.variance for item in found], -1),
            torch.cat([item.weight for item in found], -1),
        )

    def bounded(self, mean: Tensor) -> Tensor:
        parts = zip(self, mean.split(self.sizes, -1), strict=True)
        return torch.cat([part.bounded(own) for part, own in parts], -1)

    def levels(self) -> list[int | None]:
        owners: list[int | None] = []
        for part in self:
            used = [owner for owner in owners if owner is not None]
            first = 1 + max(used) if used else 0
            owners += [None if owner is None else first + owner for owner in part.levels()]
        return owners
