"""A small network with an analytic Jacobian, for learned transitions and observations."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..shapes import Float
from .layout import Layout

FAR_OUT = 8.0
"""Products of inputs are constant beyond this many standard deviations of the training data."""


class JacobianNetwork(nn.Module):
    """``g(x, c) = r ∘ (W₂ tanh(Wₓ x + W_c c + b) + b₂)`` with its Jacobian in ``x``; exactly zero before training.

    The output layer and ``W_c`` are initialised with zeros, so that an untrained network does not change the filter and
    the context is used only where it reduces the loss. The input is ``(x - shift) / scale``; the output is multiplied
    by ``reach``.

    With ``order=2`` the products of all pairs of inputs are inputs too, and enter the output linearly as well: a
    quadratic function is then represented exactly and extrapolates as one, where ``tanh`` would saturate.
    """

    shift: Tensor
    scale: Tensor
    reach: Tensor
    pairs: Tensor

    def __init__(self, inputs: int, context: int, width: int, outputs: int, order: int = 1) -> None:
        super().__init__()
        self.straight: nn.Linear | None = None
        features = inputs
        if order == 2:
            upper = torch.triu_indices(inputs, inputs)
            pairs = torch.zeros(upper.shape[1], inputs, inputs)  # z_i z_j = ½ zᵀ C z
            place = torch.arange(upper.shape[1])
            pairs[place, upper[0], upper[1]] += 1
            pairs[place, upper[1], upper[0]] += 1
            self.register_buffer("pairs", pairs, persistent=False)
            features += upper.shape[1]
            self.straight = nn.Linear(features, outputs, bias=False)
            nn.init.zeros_(self.straight.weight)
        self.state = nn.Linear(features, width)
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
        """Set the scales of training data; an untrained network stays at zero."""
        self.shift.copy_(shift)
        self.scale.copy_(scale)
        self.reach.copy_(reach)

    def _features(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """The input of the layers, and its Jacobian in the scaled ``x`` (None if it is the identity)."""
        z = (x - self.shift) / self.scale
        if self.straight is None:
            return z, None
        # products are constant far from the training data; otherwise an outlier could make the state diverge
        clamped = z.clamp(-FAR_OUT, FAR_OUT)
        slopes = torch.einsum("pij,...j->...pi", self.pairs, clamped)
        products = 0.5 * (slopes * clamped.unsqueeze(-2)).sum(-1)
        slopes = slopes * (clamped == z).to(z.dtype).unsqueeze(-2)
        eye = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device).expand(*z.shape[:-1], -1, -1)
        return torch.cat((z, products), -1), torch.cat((eye, slopes), -2)

    def _output(self, features: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor]:
        """The output, and the activations of the hidden layer."""
        pre: Tensor = self.state(features)
        if self.context is not None:
            pre = pre + self.context(context)
        active = torch.tanh(pre)
        output: Tensor = self.out(active)
        return (output if self.straight is None else output + self.straight(features)) * self.reach, active

    def forward(self, x: Float[Tensor, "*B i"], context: Tensor | None = None) -> Float[Tensor, "*B o"]:
        return self._output(self._features(x)[0], context)[0]

    def with_jacobian(
        self, x: Float[Tensor, "B i"], context: Tensor | None = None
    ) -> tuple[Float[Tensor, "B o"], Float[Tensor, "B o i"]]:
        features, feature_jacobian = self._features(x)
        output, active = self._output(features, context)
        slope = (1 - active * active).unsqueeze(-2)
        reach = self.reach.unsqueeze(-1)
        weight = self.out.weight * reach
        if feature_jacobian is None:
            return output, (weight * slope) @ (self.state.weight / self.scale)
        assert self.straight is not None
        inner = (weight * slope) @ self.state.weight + self.straight.weight * reach
        return output, inner @ (feature_jacobian / self.scale)


def add_residual(
    layout: Layout,
    x: Float[Tensor, "B n"],
    moved: tuple[Float[Tensor, "B n"], Float[Tensor, "*C d d"]],
    residual: tuple[Float[Tensor, "B d"], Float[Tensor, "B d f"]],
    ratio: Float[Tensor, " B"] | None,
) -> tuple[Float[Tensor, "B n"], Float[Tensor, "B d d"]]:
    """``f(x) ⊞ r g(x)`` and its Jacobian in the tangent space at ``x``.

    ``moved`` is ``f(x)`` with its Jacobian, ``residual`` is ``g(x)`` with its Jacobian in the features of ``x``, and
    ``ratio`` is the length of the step relative to the nominal one.
    """
    change, slope = residual
    return add_change(layout, moved, (change, slope if layout.flat else slope @ layout.features_jacobian(x)), ratio)


def add_change(
    layout: Layout,
    moved: tuple[Float[Tensor, "B n"], Float[Tensor, "*C d d"]],
    change: tuple[Float[Tensor, "B d"], Float[Tensor, "B d d"]],
    ratio: Float[Tensor, " B"] | None,
) -> tuple[Float[Tensor, "B n"], Float[Tensor, "B d d"]]:
    """``f(x) ⊞ r g(x)`` and its Jacobian; all Jacobians are in the tangent space at ``x``."""
    (mean, F), (delta, slope) = moved, change
    if ratio is not None:
        delta, slope = delta * ratio.unsqueeze(-1), slope * ratio[..., None, None]
    if layout.flat:
        return mean + delta, F + slope
    on_state, on_delta = layout.boxplus_jacobians(delta)
    return layout.boxplus(mean, delta), on_state @ F + on_delta @ slope
