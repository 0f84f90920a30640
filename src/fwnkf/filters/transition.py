"""Transitions of the FW-NKF: locally linear as in Algorithm 3, or a given system plus a learned residual.

Before training both equal the classical model they extend: the identity (a random walk) or the system itself.
"""

from __future__ import annotations

import copy
from typing import Literal

import torch
from torch import Tensor, nn

from ..core.gaussian import matvec
from ..core.layout import Layout
from ..core.networks import JacobianNetwork
from ..core.system import System
from ..errors import ConfigError
from ..shapes import Float

TransitionKind = Literal["locally_linear", "residual"]
GateKind = Literal["diagonal", "low_rank", "full"]


class LocallyLinearTransition(nn.Module):
    """``x⁻ = x ⊞ (ΔA_t x + b_t)``, ``F = I + ΔA_t`` with ``ΔA_t`` and ``b_t`` from the encoder (Algorithm 3).

    ``ΔA_t`` is diagonal, low-rank ``U_t V_tᵀ`` or full. The output of the encoder is in units of ``reach``, the size of
    one step, and of ``scale``, the size of the state, so that it is of order one in every coordinate.
    """

    eye: Tensor
    reach: Tensor
    scale: Tensor

    def __init__(self, layout: Layout, gate: GateKind, rank: int) -> None:
        super().__init__()
        if any(part.kind == "quaternion" for part in layout.parts):
            raise ConfigError("transition='locally_linear' is not defined for a quaternion state; use 'residual'")
        n = layout.size
        self.layout, self.gate, self.rank = layout, gate, rank
        gate_size = {"diagonal": n, "low_rank": 2 * n * rank, "full": n * n}[gate]
        self.head_size = gate_size + n
        self.register_buffer("eye", torch.eye(n), persistent=False)
        self.register_buffer("reach", torch.ones(n))
        self.register_buffer("scale", torch.ones(n))

    def normalize(self, feature_mean: Tensor, feature_std: Tensor, step: Tensor) -> None:
        """Set the scales of training data; the scale of an angle is one radian."""
        self.reach.copy_(step)
        start = 0
        for part, scale in zip(self.layout.parts, self.scale.split([p.size for p in self.layout.parts]), strict=True):
            if part.kind == "euclidean":
                scale.copy_(feature_std[start : start + part.size])
            start += part.size * (2 if part.kind == "angle" else 1)

    def start_head(self, bias: Tensor) -> None:
        """Initialise ``V`` at random and ``U`` with zeros: ``ΔA`` is zero but its gradient is not."""
        if self.gate == "low_rank":
            n = self.layout.size
            nn.init.normal_(bias[n * self.rank : 2 * n * self.rank], std=n**-0.5)

    def forward(
        self,
        x: Tensor,
        head: Tensor,
        context: Tensor | None,
        u: Tensor | None,
        dt: Tensor | None,
        ratio: Tensor | None,
    ) -> tuple[Float[Tensor, "B n"], Float[Tensor, "B n n"]]:
        n = self.layout.size
        gate, offset = head[..., :-n], head[..., -n:] * self.reach
        if ratio is not None:
            offset = offset * ratio.unsqueeze(-1)
        if self.gate == "diagonal":
            slope = torch.diag_embed(gate)
        elif self.gate == "low_rank":
            U, V = gate.unflatten(-1, (2, n, self.rank)).unbind(-3)
            slope = U @ V.mT
        else:
            slope = gate.unflatten(-1, (n, n))
        slope = slope * (self.reach.unsqueeze(-1) / self.scale)
        if ratio is not None:
            slope = slope * ratio[..., None, None]
        return self.layout.boxplus(x, matvec(slope, x) + offset), self.eye + slope


class ResidualTransition(nn.Module):
    """``x⁻ = f(x, u, dt) ⊞ (dt/dt₀) g(x, h_t)``: a given system or none (``f = x``), and a network if ``width > 0``."""

    head_size = 0
    eye: Tensor

    def __init__(self, layout: Layout, system: System | None, context: int, width: int, order: int) -> None:
        super().__init__()
        self.layout = layout
        self._system = (system,)  # owned by the filter; see SystemObservation
        self.network = (
            JacobianNetwork(layout.feature_size, context, width, layout.tangent_size, order) if width else None
        )
        self.register_buffer("eye", torch.eye(layout.tangent_size), persistent=False)

    def on(self, system: System | None) -> ResidualTransition:
        """The same transition, sharing its network, on another system."""
        other = copy.copy(self)
        other._system = (system,)
        return other

    def start_head(self, bias: Tensor) -> None:
        """Does nothing: this transition has no output of the encoder to initialise."""

    def normalize(self, feature_mean: Tensor, feature_std: Tensor, step: Tensor) -> None:
        """Set the scales of training data."""
        if self.network is not None:
            self.network.normalize(feature_mean, feature_std, step)

    def move(
        self, x: Tensor, context: Tensor | None, u: Tensor | None, dt: Tensor | None, ratio: Tensor | None
    ) -> Float[Tensor, "B n"]:
        """The next state, without the Jacobian."""
        (system,) = self._system
        moved = x if system is None else system.transition(x, u, dt)
        if self.network is None:
            return moved
        residual = self.network(self.layout.features(x), context)
        if ratio is not None:
            residual = residual * ratio.unsqueeze(-1)
        return self.layout.boxplus(moved, residual)

    def forward(
        self,
        x: Tensor,
        head: Tensor,
        context: Tensor | None,
        u: Tensor | None,
        dt: Tensor | None,
        ratio: Tensor | None,
    ) -> tuple[Float[Tensor, "B n"], Float[Tensor, "*C d d"]]:
        (system,) = self._system
        mean, F = (x, self.eye) if system is None else system.linearize_transition(x, u, dt)
        if self.network is None:
            return mean, F
        residual, slope = self.network.with_jacobian(self.layout.features(x), context)
        if ratio is not None:
            residual, slope = residual * ratio.unsqueeze(-1), slope * ratio[..., None, None]
        if self.layout.flat:
            return mean + residual, F + slope
        on_state, on_residual = self.layout.boxplus_jacobians(residual)
        moved = on_state @ F + on_residual @ slope @ self.layout.features_jacobian(x)
        return self.layout.boxplus(mean, residual), moved


Transition = LocallyLinearTransition | ResidualTransition
