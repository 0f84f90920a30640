"""Networks inside filters: a stepped GRU stack and a small network that knows its own Jacobian.

``nn.GRU`` is avoided on purpose: stepped, it is slower than cells, and torch.compile leaves it uncompiled.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..shapes import Float

Hidden = tuple[Tensor, ...]


class CellWeights(NamedTuple):
    """The tensors of one GRU cell; weights transposed and contiguous, which halves a product at batch 1."""

    input: Tensor
    hidden: Tensor
    input_bias: Tensor
    hidden_bias: Tensor


class GRUStack(nn.Module):
    """GRU cells on top of each other, with the normalisation of the inputs folded into the first."""

    shift: Tensor
    scale: Tensor

    def __init__(self, inputs: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.cells = nn.ModuleList(nn.GRUCell(inputs if i == 0 else hidden, hidden) for i in range(layers))
        self.register_buffer("shift", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(inputs))
        self.hidden_size = hidden

    def normalize(self, shift: Float[Tensor, " i"], scale: Float[Tensor, " i"]) -> None:
        """Take the means and standard deviations of the inputs."""
        self.shift.copy_(shift)
        self.scale.copy_(scale)

    def start(self, like: Float[Tensor, "B n"]) -> Hidden:
        return tuple(like.new_zeros(like.shape[0], self.hidden_size) for _ in self.cells)

    def weights(self) -> tuple[CellWeights, ...]:
        """What :func:`gru_step` needs; the first cell reads ``(inputs - shift) / scale``."""
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


def gru_step(weights: tuple[CellWeights, ...], x: Float[Tensor, "B i"], hidden: Hidden) -> Hidden:
    """One step of the stack; the last entry of the result is its output. The equations are those of nn.GRUCell."""
    following = []
    for cell, h in zip(weights, hidden, strict=True):
        sizes = [2 * h.shape[-1], h.shape[-1]]
        # split, not slices: the gradient of a split is one concatenation, that of a slice a padded copy each
        gates_in, candidate_in = torch.addmm(cell.input_bias, x, cell.input).split(sizes, -1)
        gates_hidden, candidate_hidden = torch.addmm(cell.hidden_bias, h, cell.hidden).split(sizes, -1)
        reset, update = torch.sigmoid(gates_in + gates_hidden).chunk(2, -1)
        candidate = torch.tanh(torch.addcmul(candidate_in, reset, candidate_hidden))
        x = torch.lerp(candidate, h, update)
        following.append(x)
    return tuple(following)


class JacobianNetwork(nn.Module):
    """``g(x, c) = r ∘ (W₂ tanh(Wₓ x + W_c c + b) + b₂)`` with its Jacobian in ``x``; starts at exactly zero.

    The output layer starts at zero, so that the network adds nothing until it is trained, and so does ``W_c``: what
    depends on ``x`` alone is learned as such, and context is added where it helps. ``x`` is read as
    ``(x - shift) / scale``, and ``reach`` gives the outputs their size.
    """

    shift: Tensor
    scale: Tensor
    reach: Tensor

    def __init__(self, inputs: int, context: int, width: int, outputs: int) -> None:
        super().__init__()
        self.state = nn.Linear(inputs, width)
        self.context = nn.Linear(context, width, bias=False) if context else None
        if self.context is not None:
            nn.init.zeros_(self.context.weight)
        self.out = nn.Linear(width, outputs)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        self.register_buffer("shift", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(inputs))
        self.register_buffer("reach", torch.ones(outputs))

    def normalize(self, shift: Tensor, scale: Tensor, reach: Tensor) -> None:
        """Take the scales of training data; a network that starts at zero stays at zero."""
        self.shift.copy_(shift)
        self.scale.copy_(scale)
        self.reach.copy_(reach)

    def _activate(self, x: Tensor, context: Tensor | None) -> Tensor:
        pre: Tensor = self.state((x - self.shift) / self.scale)
        if self.context is not None:
            pre = pre + self.context(context)
        return torch.tanh(pre)

    def forward(self, x: Float[Tensor, "*B i"], context: Tensor | None = None) -> Float[Tensor, "*B o"]:
        return self.out(self._activate(x, context)) * self.reach

    def with_jacobian(
        self, x: Float[Tensor, "B i"], context: Tensor | None = None
    ) -> tuple[Float[Tensor, "B o"], Float[Tensor, "B o i"]]:
        active = self._activate(x, context)
        slope = (1 - active * active).unsqueeze(-2)
        weight = self.out.weight * self.reach.unsqueeze(-1)
        return self.out(active) * self.reach, (weight * slope) @ (self.state.weight / self.scale)
