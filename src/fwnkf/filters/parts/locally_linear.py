"""The transition of Algorithm 3: a linear step whose matrix and offset come from the encoder."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...core.gaussian import matvec
from ...core.layout import Layout
from ...registry import PARTS, at_least
from ...shapes import Float
from .part import Part


@PARTS.register("locally_linear")
@dataclass(frozen=True)
class LocallyLinear(Part):
    """``x⁻ = x ⊞ (U_t V_tᵀ τ(x) + b_t)`` with ``U_t, V_t, b_t`` from the encoder, in place of the system's transition.

    Args:
        rank: of ``U_t V_tᵀ``.

    >>> import torch, fwnkf
    >>> system = fwnkf.systems.LearnedSystem.of(H=torch.eye(1, 2))
    >>> fwnkf.FWNKF(system, encoder=fwnkf.GRU(8), transition=LocallyLinear(rank=2)).run(torch.zeros(1, 5, 1)).mean.shape
    torch.Size([1, 5, 2])
    """

    kind = "locally_linear"
    rank: int = at_least(1, 1)


class LocallyLinearTransition(nn.Module):
    """The transition of :class:`LocallyLinear`.

    ``τ(x)`` are the numbers of the state, with the nine entries of the rotation matrix in place of a quaternion, which
    has no coordinates that are continuous everywhere. Without quaternions ``τ(x) = x`` and ``F = I + U_t V_tᵀ``. The
    output of the encoder is in units of ``reach``, the size of one step, and of ``scale``, the size of the state, so
    that it is of order one in every coordinate.

    Args:
        layout: of the state.
        rank: of the matrix.
    """

    eye: Tensor
    reach: Tensor
    scale: Tensor

    def __init__(self, layout: Layout, rank: int) -> None:
        super().__init__()
        self.layout, self.rank = layout, rank
        self.inputs = layout.linear()
        d, f = layout.tangent_size, self.inputs.feature_size
        self.head_size = (d + f) * rank + d
        self.register_buffer("eye", torch.eye(d), persistent=False)
        self.register_buffer("reach", torch.ones(d))
        self.register_buffer("scale", torch.ones(f))

    def normalize(self, feature_std: Tensor, step: Tensor) -> None:
        """Set the scales of training data; that of an angle is one radian, that of a rotation matrix one."""
        self.reach.copy_(step)
        spreads = feature_std.split([Layout((part,)).feature_size for part in self.layout.parts])
        scales = self.scale.split([Layout((part,)).feature_size for part in self.inputs.parts])
        for part, spread, scale in zip(self.layout.parts, spreads, scales, strict=True):
            if part.kind == "euclidean":
                scale.copy_(spread)

    def start_head(self, bias: Tensor) -> None:
        """Initialise ``V`` at random and ``U`` with zeros: the matrix is zero but its gradient is not."""
        d, f = len(self.eye), self.inputs.feature_size
        nn.init.normal_(bias[d * self.rank : (d + f) * self.rank], std=f**-0.5)

    def forward(
        self, x: Float[Tensor, "B n"], head: Float[Tensor, "B h"], ratio: Float[Tensor, " B"] | None
    ) -> tuple[Float[Tensor, "B n"], Float[Tensor, "B d d"]]:
        d, f = len(self.eye), self.inputs.feature_size
        gate, offset = head[..., :-d], head[..., -d:] * self.reach
        U, V = gate.unflatten(-1, (d + f, self.rank)).split([d, f], -2)
        slope = (U @ V.mT) * (self.reach.unsqueeze(-1) / self.scale)
        if ratio is not None:
            offset, slope = offset * ratio.unsqueeze(-1), slope * ratio[..., None, None]
        delta = matvec(slope, self.inputs.features(x)) + offset
        if self.inputs.flat:
            return self.layout.boxplus(x, delta), self.eye + slope
        on_state, on_delta = self.layout.boxplus_jacobians(delta)
        return self.layout.boxplus(x, delta), on_state + on_delta @ slope @ self.inputs.features_jacobian(x)
