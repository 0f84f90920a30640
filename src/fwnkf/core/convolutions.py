"""Causal dilated convolutions with their past inputs as state: a network of long memory that trains in parallel.

S. Bai, J. Z. Kolter, V. Koltun: An Empirical Evaluation of Generic Convolutional and Recurrent Networks for Sequence
Modeling, 2018. A recurrent network must be run step by step to be trained; here a whole sequence is one convolution for
each layer, and the same weights run one step at a time when the inputs of the past are kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..shapes import Float

Past = tuple[Tensor, ...]
"""For each layer its last inputs ``[B, channels, taps - 1 times dilation]``, oldest first."""


class DilatedConvolutions(nn.Module):
    """``h₀ = g(W x)``, ``h ← h + g(conv(h))`` for each dilation, output ``W h``; exactly zero before training.

    ``g`` is GELU. Layer ``i`` reads its inputs ``0, d, 2d, …, (taps - 1) d`` steps ago, ``d`` being its dilation, so
    that the memory grows with the product of taps and dilations while the number of weights does not. Before the first
    step the inputs of all layers were zero. The input is ``(x - shift) / scale``; the output is multiplied by
    ``reach``.

    Args:
        inputs: channels of the input.
        channels: channels of the layers.
        outputs: channels of the output.
        taps: taps of each layer.
        dilations: one for each layer.
        dropout: probability that a channel of a layer's addition is left out in training.

    >>> network = DilatedConvolutions(6, 8, 3, taps=3, dilations=(1, 2))
    >>> network(torch.randn(2, 10, 6)).abs().max()
    tensor(0., grad_fn=<MaxBackward1>)
    >>> network.memory
    6
    """

    shift: Tensor
    scale: Tensor
    reach: Tensor

    def __init__(
        self, inputs: int, channels: int, outputs: int, *, taps: int, dilations: Sequence[int], dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.embed = nn.Linear(inputs, channels)
        self.layers = nn.ModuleList(nn.Conv1d(channels, channels, taps, dilation=step) for step in dilations)
        self.out = nn.Linear(channels, outputs)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        self.spans = tuple((taps - 1) * step for step in dilations)
        self.channels, self.dropout = channels, dropout
        self.register_buffer("shift", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(inputs))
        self.register_buffer("reach", torch.ones(outputs))

    @property
    def memory(self) -> int:
        """Steps of the past that the output depends on."""
        return sum(self.spans)

    def normalize(self, shift: Float[Tensor, " i"], scale: Float[Tensor, " i"], reach: Float[Tensor, " o"]) -> None:
        """Set means and standard deviations of the inputs, and the size of the output.

        Args:
            shift: means.
            scale: standard deviations.
            reach: what the output is multiplied by.
        """
        self.shift.copy_(shift)
        self.scale.copy_(scale)
        self.reach.copy_(reach)

    def start(self, batch: int, like: Tensor) -> Past:
        """The past before the first step.

        Args:
            batch: number of batch items.
            like: a tensor with the dtype and device of the inputs.

        Returns:
            Zeros for each layer.
        """
        return tuple(like.new_zeros(batch, self.channels, span) for span in self.spans)

    def forward(self, x: Float[Tensor, "B T i"]) -> Float[Tensor, "B T o"]:
        """Whole sequences from the start, one convolution for each layer."""
        return self.run(self.start(len(x), x), x)[1]

    def run(self, past: Past, x: Float[Tensor, "B T i"]) -> tuple[Past, Float[Tensor, "B T o"]]:
        """Steps that continue a sequence; one step is ``T = 1``.

        Args:
            past: what :meth:`start` or the steps before returned.
            x: inputs.

        Returns:
            The past for the next steps, and the outputs.
        """
        h = functional.gelu(self.embed((x - self.shift) / self.scale)).mT
        following = []
        for layer, span, before in zip(self.layers, self.spans, past, strict=True):
            seen = torch.cat((before, h), -1)
            following.append(seen[..., seen.shape[-1] - span :])
            h = h + functional.dropout(functional.gelu(layer(seen)), self.dropout, self.training)
        return tuple(following), self.out(h.mT) * self.reach
