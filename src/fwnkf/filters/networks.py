"""Networks inside filters: a stepped GRU stack and a small network that knows its own Jacobian.

``nn.GRU`` is avoided on purpose: stepped, it is slower than cells, and torch.compile leaves it uncompiled.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..shapes import Float

Hidden = tuple[Tensor, ...]
FAR_OUT = 8.0
"""Standard deviations of the training data beyond which products no longer grow."""


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

    ``order=2`` reads the products of all pairs besides, and adds them to the output directly too: what bends like a
    parabola is then learned as one, and goes on as one beyond the training data, where ``tanh`` only flattens.
    """

    shift: Tensor
    scale: Tensor
    reach: Tensor
    pairs: Tensor

    def __init__(self, inputs: int, context: int, width: int, outputs: int, order: int = 1) -> None:
        super().__init__()
        self.straight: nn.Linear | None = None
        read = inputs
        if order == 2:
            above = torch.triu_indices(inputs, inputs)
            pairs = torch.zeros(above.shape[1], inputs, inputs)  # z_i z_j = ½ zᵀ C z
            place = torch.arange(above.shape[1])
            pairs[place, above[0], above[1]] += 1
            pairs[place, above[1], above[0]] += 1
            self.register_buffer("pairs", pairs, persistent=False)
            read += above.shape[1]
            self.straight = nn.Linear(read, outputs, bias=False)
            nn.init.zeros_(self.straight.weight)
        self.state = nn.Linear(read, width)
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

    def _read(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """What the layers read, and how it moves with ``x`` (None where it is ``x`` itself but for its scale)."""
        z = (x - self.shift) / self.scale
        if self.straight is None:
            return z, None
        # products of what lies far out stay what they were at the rim, or one outlier would run away with the state
        held = z.clamp(-FAR_OUT, FAR_OUT)
        slopes = torch.einsum("pij,...j->...pi", self.pairs, held)
        products = 0.5 * (slopes * held.unsqueeze(-2)).sum(-1)
        slopes = slopes * (held == z).to(z.dtype).unsqueeze(-2)
        eye = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device).expand(*z.shape[:-1], -1, -1)
        return torch.cat((z, products), -1), torch.cat((eye, slopes), -2)

    def _answer(self, read: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor]:
        """The output and the activations behind it."""
        pre: Tensor = self.state(read)
        if self.context is not None:
            pre = pre + self.context(context)
        active = torch.tanh(pre)
        answer: Tensor = self.out(active)
        return (answer if self.straight is None else answer + self.straight(read)) * self.reach, active

    def forward(self, x: Float[Tensor, "*B i"], context: Tensor | None = None) -> Float[Tensor, "*B o"]:
        return self._answer(self._read(x)[0], context)[0]

    def with_jacobian(
        self, x: Float[Tensor, "B i"], context: Tensor | None = None
    ) -> tuple[Float[Tensor, "B o"], Float[Tensor, "B o i"]]:
        read, moves = self._read(x)
        answer, active = self._answer(read, context)
        slope = (1 - active * active).unsqueeze(-2)
        reach = self.reach.unsqueeze(-1)
        weight = self.out.weight * reach
        if moves is None:
            return answer, (weight * slope) @ (self.state.weight / self.scale)
        assert self.straight is not None
        inner = (weight * slope) @ self.state.weight + self.straight.weight * reach
        return answer, inner @ (moves / self.scale)
