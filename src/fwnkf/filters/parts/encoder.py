"""The encoder: a GRU that reads estimates and measurements and adapts transition, ``Q_t`` and ``R_t``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ...registry import PARTS, at_least
from ...shapes import Float
from ..networks import CellWeights, GRUStack, Hidden, gru_step
from .part import Part


@PARTS.register("gru")
@dataclass(frozen=True)
class GRU(Part):
    """A stack of GRU cells; before training it has no effect.

    Args:
        units: of each layer.
        layers: number of layers.
        reads: the ``"previous"`` measurement, so that innovations stay prediction errors, or the ``"current"`` one as
            in the paper.

    >>> import torch, fwnkf
    >>> one = torch.eye(1)
    >>> system = fwnkf.LinearSystem.of(F=one, H=one, Q=one, R=one, dt=0.01)
    >>> fwnkf.FWNKF(system, encoder=GRU(units=8)).init(1).encoder.hidden[0].shape
    torch.Size([1, 8])
    """

    kind = "gru"
    units: int = at_least(1, 64)
    layers: int = at_least(1, 1)
    reads: Literal["previous", "current"] = "previous"


class EncoderState(NamedTuple):
    """The memory of the encoder."""

    hidden: Hidden
    seen: Float[Tensor, "B m"]
    """The last measurement; for a channel that was missing, the prediction."""
    read: Float[Tensor, " B"]
    """One if the encoder was advanced by a prediction whose measurement has not arrived yet."""


def start(stack: GRUStack, observed: Float[Tensor, "B m"]) -> EncoderState:
    """The memory before the first step."""
    return EncoderState(stack.start(observed), observed, observed.new_zeros(len(observed)))


def read(
    cells: tuple[CellWeights, ...],
    state: EncoderState,
    features: Float[Tensor, "B f"],
    seen: Float[Tensor, "B m"],
    control: Float[Tensor, "B p"] | None,
) -> EncoderState:
    """The memory after one reading."""
    inputs = [features, seen] if control is None else [features, seen, control]
    hidden = gru_step(cells, torch.cat(inputs, -1), state.hidden)
    return EncoderState(hidden, state.seen, torch.ones_like(state.read))
