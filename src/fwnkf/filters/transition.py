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
from ..core.networks import JacobianNetwork, add_residual
from ..core.system import System
from ..shapes import Float

GateKind = Literal["diagonal", "low_rank", "full"]


class LocallyLinearTransition(nn.Module):
    """``x⁻ = x ⊞ (ΔA_t τ(x) + b_t)`` with ``ΔA_t`` and ``b_t`` from the encoder (Algorithm 3).

    ``τ(x)`` are the numbers of the state, with the nine entries of the rotation matrix in place of a quaternion, which
    has no coordinates that are continuous everywhere. Without quaternions ``τ(x) = x`` and ``F = I + ΔA_t``.

    ``ΔA_t`` is diagonal, low-rank ``U_t V_tᵀ`` or full; a diagonal one moves a rotation by ``b_t`` alone. The output of
    the encoder is in units of ``reach``, the size of one step, and of ``scale``, the size of the state, so that it is
    of order one in every coordinate.
    """

    eye: Tensor
    diagonal: Tensor
    reach: Tensor
    scale: Tensor

    def __init__(self, layout: Layout, gate: GateKind, rank: int) -> None:
        super().__init__()
        self.layout, self.gate, self.rank = layout, gate, rank
        self.inputs = layout.linear()
        d, f = layout.tangent_size, self.inputs.feature_size
        gate_size = {"diagonal": d, "low_rank": (d + f) * rank, "full": d * f}[gate]
        self.head_size = gate_size + d
        self.register_buffer("eye", torch.eye(d), persistent=False)
        self.register_buffer("diagonal", self._diagonal(), persistent=False)
        self.register_buffer("reach", torch.ones(d))
        self.register_buffer("scale", torch.ones(f))

    def _diagonal(self) -> Float[Tensor, "d f"]:
        """One where a tangent coordinate and an input are the same number; a rotation has no such pair."""
        blocks = [
            torch.zeros(part.tangent_size, 9) if part.kind == "quaternion" else torch.eye(part.size)
            for part in self.layout.parts
        ]
        return torch.block_diag(*blocks)

    def normalize(self, feature_mean: Tensor, feature_std: Tensor, step: Tensor) -> None:
        """Set the scales of training data; that of an angle is one radian, that of a rotation matrix one."""
        self.reach.copy_(step)
        spreads = feature_std.split([Layout((part,)).feature_size for part in self.layout.parts])
        scales = self.scale.split([Layout((part,)).feature_size for part in self.inputs.parts])
        for part, spread, scale in zip(self.layout.parts, spreads, scales, strict=True):
            if part.kind == "euclidean":
                scale.copy_(spread)

    def start_head(self, bias: Tensor) -> None:
        """Initialise ``V`` at random and ``U`` with zeros: ``ΔA`` is zero but its gradient is not."""
        if self.gate == "low_rank":
            d, f = self.diagonal.shape
            nn.init.normal_(bias[d * self.rank : (d + f) * self.rank], std=f**-0.5)

    def forward(
        self,
        x: Tensor,
        head: Tensor,
        context: Tensor | None,
        u: Tensor | None,
        dt: Tensor | None,
        ratio: Tensor | None,
    ) -> tuple[Float[Tensor, "B n"], Float[Tensor, "B d d"]]:
        d, f = self.diagonal.shape
        gate, offset = head[..., :-d], head[..., -d:] * self.reach
        if self.gate == "diagonal":
            slope = gate.unsqueeze(-1) * self.diagonal
        elif self.gate == "low_rank":
            U, V = gate.unflatten(-1, (d + f, self.rank)).split([d, f], -2)
            slope = U @ V.mT
        else:
            slope = gate.unflatten(-1, (d, f))
        slope = slope * (self.reach.unsqueeze(-1) / self.scale)
        if ratio is not None:
            offset, slope = offset * ratio.unsqueeze(-1), slope * ratio[..., None, None]
        delta = matvec(slope, self.inputs.features(x)) + offset
        if self.inputs.flat:
            return self.layout.boxplus(x, delta), self.eye + slope
        on_state, on_delta = self.layout.boxplus_jacobians(delta)
        return self.layout.boxplus(x, delta), on_state + on_delta @ slope @ self.inputs.features_jacobian(x)


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
        residual = self.network.with_jacobian(self.layout.features(x), context)
        return add_residual(self.layout, x, (mean, F), residual, ratio)


Transition = LocallyLinearTransition | ResidualTransition
