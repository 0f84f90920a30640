"""Systems in continuous time: integration over one step, on manifolds too, and discretisation of linear ones."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..shapes import Float
from . import rotation
from .layout import Layout

Rate = Callable[[Tensor], Tensor]
"""The derivative of the state as a tangent vector: for a quaternion the angular rate in the body frame."""


def runge_kutta(
    rate: Rate, x: Float[Tensor, "*B n"], step: Float[Tensor, "*C"], layout: Layout, substeps: int = 1
) -> Float[Tensor, "*B n"]:
    """The state after ``step`` seconds by the classical method of fourth order, on the manifold of ``layout``.

    Stages are tangent vectors at the start of the substep (Runge-Kutta-Munthe-Kaas), so quaternions keep their norm and
    the method its order; for a Euclidean layout this is plain RK4.
    """
    h = (step / substeps).unsqueeze(-1)
    for _ in range(substeps):
        k1 = rate(x)
        second = 0.5 * h * k1
        k2 = _pulled_back(rate(layout.boxplus(x, second)), second, layout)
        third = 0.5 * h * k2
        k3 = _pulled_back(rate(layout.boxplus(x, third)), third, layout)
        fourth = h * k3
        k4 = _pulled_back(rate(layout.boxplus(x, fourth)), fourth, layout)
        x = layout.boxplus(x, h / 6 * (k1 + 2 * (k2 + k3) + k4))
    return x


def _pulled_back(rate: Tensor, offset: Tensor, layout: Layout) -> Tensor:
    """The rate of a tangent vector, at ``offset``, that moves the point at ``rate``.

    Of a rotation this is the inverse of the right Jacobian, ``ω + ½ θ × ω + ⅟₁₂ θ × (θ × ω)``; its next term is of
    fourth order in the step and does not change the order of the method.
    """
    if layout.flat:
        return rate
    pieces = []
    for part, omega, theta in zip(layout.parts, *(layout.split_tangent(item) for item in (rate, offset)), strict=True):
        if part.kind == "quaternion":
            turned = torch.linalg.cross(theta, omega)
            omega = omega + 0.5 * turned + torch.linalg.cross(theta, turned) / 12
        pieces.append(omega)
    return torch.cat(pieces, -1)


def error_drift(rate: Float[Tensor, " d"], slope: Float[Tensor, "d d"], layout: Layout) -> Float[Tensor, "d d"]:
    """The matrix ``A`` of the error ``dδ/dt = A δ`` along a motion, from its rate and the rate's Jacobian ``slope``.

    An error of a rotation is in the body frame, which turns: its block has ``-[ω]×`` in addition.
    """
    if layout.flat:
        return slope
    blocks = [
        -rotation.skew(piece) if part.kind == "quaternion" else piece.new_zeros(len(piece), len(piece))
        for part, piece in zip(layout.parts, layout.split_tangent(rate), strict=True)
    ]
    return slope + torch.block_diag(*blocks)


def discretize(
    drift: Float[Tensor, "n n"],
    B: Float[Tensor, "n p"],
    density: Float[Tensor, "n n"],
    dt: Float[Tensor, "*B"],
) -> tuple[Float[Tensor, "*B n n"], Float[Tensor, "*B n p"], Float[Tensor, "*B n n"]]:
    """Exact ``F = e^{A dt}``, ``∫ e^{As} B ds`` and ``Q = ∫ e^{As} density e^{Aᵀs} ds`` (Van Loan 1978)."""
    n, p = B.shape
    lower = torch.cat((torch.zeros_like(drift), -drift.mT), -1)
    big = torch.cat((torch.cat((drift, density), -1), lower), -2)
    controls = torch.nn.functional.pad(torch.cat((drift, B), -1), (0, 0, 0, p))
    scale = dt[..., None, None]
    F_B = torch.linalg.matrix_exp(controls * scale)
    pair = torch.linalg.matrix_exp(big * scale)
    F = F_B[..., :n, :n]
    Q = pair[..., :n, n:] @ F.mT
    return F, F_B[..., :n, n:], 0.5 * (Q + Q.mT)
