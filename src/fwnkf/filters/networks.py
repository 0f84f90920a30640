"""The encoder of the FW-NKF: a stack of GRU cells.

``nn.GRU`` is not used: called step by step it is slower than cells, and torch.compile does not compile it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..shapes import Float

Hidden = tuple[Tensor, ...]


class CellWeights(NamedTuple):
    """The tensors of one GRU cell; weights are transposed and contiguous, which is twice as fast at batch size 1."""

    input: Tensor
    hidden: Tensor
    input_bias: Tensor
    hidden_bias: Tensor


class GRUStack(nn.Module):
    """A stack of GRU cells, with the normalisation of the inputs folded into the first."""

    shift: Tensor
    scale: Tensor

    def __init__(self, inputs: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.cells = nn.ModuleList(nn.GRUCell(inputs if i == 0 else hidden, hidden) for i in range(layers))
        self.register_buffer("shift", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(inputs))
        self.hidden_size = hidden

    def normalize(self, shift: Float[Tensor, " i"], scale: Float[Tensor, " i"]) -> None:
        """Set the means and standard deviations of the inputs."""
        self.shift.copy_(shift)
        self.scale.copy_(scale)

    def start(self, like: Float[Tensor, "B n"]) -> Hidden:
        return tuple(like.new_zeros(like.shape[0], self.hidden_size) for _ in self.cells)

    def weights(self) -> tuple[CellWeights, ...]:
        """The weights for :func:`gru_step`; the input of the first cell is ``(inputs - shift) / scale``."""
        folded = []
        for i, cell in enumerate(self.cells):
            assert isinstance(cell, nn.GRUCell)
            weight: Tensor = cell.weight_ih
            bias: Tensor = cell.bias_ih
            if i == 0:
                weight = weight / self.scale
                bias = bias - weight @ self.shift
            folded.append(CellWeights(weight.mT.contiguous(), cell.weight_hh.mT.contiguous(), bias, cell.bias_hh))
        return tuple(folded)


@torch.no_grad()
def scale_weights(network: nn.Module, factor: float) -> None:
    """Multiply the initial weights and biases of the linear layers of a network."""
    for module in network.modules():
        if isinstance(module, nn.Linear):
            module.weight.mul_(factor)
            module.bias.mul_(factor)


def gru_step(weights: tuple[CellWeights, ...], x: Float[Tensor, "B i"], hidden: Hidden) -> Hidden:
    """One step of the stack with the equations of nn.GRUCell; the last entry of the result is the output."""
    next_hidden = []
    for cell, h in zip(weights, hidden, strict=True):
        sizes = [2 * h.shape[-1], h.shape[-1]]
        # split instead of slices: its gradient is one concatenation, that of each slice a padded copy
        gates_in, candidate_in = torch.addmm(cell.input_bias, x, cell.input).split(sizes, -1)
        gates_hidden, candidate_hidden = torch.addmm(cell.hidden_bias, h, cell.hidden).split(sizes, -1)
        reset, update = torch.sigmoid(gates_in + gates_hidden).chunk(2, -1)
        candidate = torch.tanh(torch.addcmul(candidate_in, reset, candidate_hidden))
        x = torch.lerp(candidate, h, update)
        next_hidden.append(x)
    return tuple(next_hidden)


class GRUCell(nn.GRUCell):
    """``nn.GRUCell`` with its equations written out: ``torch.vmap`` has no rule for the built-in one and would loop."""

    def forward(self, x: Float[Tensor, "B i"], hidden: Float[Tensor, "B h"]) -> Float[Tensor, "B h"]:  # type: ignore[override]
        weights = CellWeights(self.weight_ih.mT, self.weight_hh.mT, self.bias_ih, self.bias_hh)
        return gru_step((weights,), x, (hidden,))[-1]
