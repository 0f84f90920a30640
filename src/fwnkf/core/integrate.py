"""Systems in continuous time: integration over one step, on manifolds too, and discretisation of linear ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..shapes import Float
from . import rotation
from .gaussian import symmetrize
from .layout import Layout
from .values import observed, readable

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


FIRST_NORM = 0.5
"""The series of :func:`discretize` is summed over a step in which the drift has at most this norm, then doubled."""
TERMS = {torch.float64: 16, torch.float32: 9}
"""Terms of the series: the next one is below the rounding error of the dtype."""
MOST_DOUBLINGS = 40
"""Doublings where their number cannot follow from values, in traced programs: enough for a norm of 5e11 over a step."""


SCHEMA = "(Tensor drift, Tensor B, Tensor density, Tensor dt) -> (Tensor, Tensor, Tensor)"


def discretize(
    drift: Float[Tensor, "n n"],
    B: Float[Tensor, "n p"],
    density: Float[Tensor, "n n"],
    dt: Float[Tensor, "*B"],
) -> tuple[Float[Tensor, "*B n n"], Float[Tensor, "*B n p"], Float[Tensor, "*B n n"]]:
    """Exact ``F = e^{A dt}``, ``Γ = ∫ e^{As} B ds`` and ``Q = ∫ e^{As} density e^{Aᵀs} ds``.

    The matrix exponential of Van Loan (1978), summed as a series over a step so short that a few terms are exact to
    rounding. That step is then doubled until it has the length ``dt``: ``Q ← Q + F Q Fᵀ``, ``Γ ← Γ + F Γ``,
    ``F ← F F``. Nothing grows here that does not grow in the system itself, whereas the exponential over the whole step
    contains ``e^{-A dt}``, which overflows. ``F - I`` is carried instead of ``F``, which would lose the digits of slow
    motions beside fast ones.

    Without gradients it is the operator ``fwnkf::discretize`` where a program is traced, so that it contains it as a
    whole. Elsewhere it is called directly: the first call of an operator of one's own imports the compiler of PyTorch,
    which takes seconds.
    """
    arguments = (drift, B.to(drift), density.to(drift), dt)
    if (torch.is_grad_enabled() and any(item.requires_grad for item in arguments)) or not observed(*arguments):
        return discretize_with(*arguments, doublings=None)
    return torch.ops.fwnkf.discretize(*arguments)


def discretize_with(
    drift: Float[Tensor, "*A n n"],
    B: Float[Tensor, "*A n p"],
    density: Float[Tensor, "*A n n"],
    dt: Float[Tensor, "*B"],
    doublings: int | None,
) -> tuple[Float[Tensor, "*B n n"], Float[Tensor, "*B n p"], Float[Tensor, "*B n n"]]:
    """As :func:`discretize`, written out; ``doublings`` are the most that are made, None for as many as are needed."""
    n, p = B.shape[-2:]
    terms = TERMS.get(drift.dtype, max(TERMS.values()))
    # a chain of n integrators drives its last state by the term 2 n - 1; doubling fills in what the series leaves out
    needed = _doublings_needed(drift, dt, least=0 if 2 * n - 1 <= terms else 2)
    fewest, count = _range_of(needed) if doublings is None else (0, doublings)
    width = 2 * n + p
    upper = torch.cat((drift, density, B), -1)
    lower = torch.nn.functional.pad(-drift.mT, (n, p, 0, p))
    h = dt * torch.exp2(-needed)
    block = (torch.cat((upper, lower), -2) * h[..., None, None]).reshape(-1, width, width)
    series = block
    for order in range(terms, 1, -1):  # Horner's rule for the exponential less one
        series = torch.baddbmm(block, block, series, alpha=1 / order)
    less_one, G, Gamma = series[:, :n].split((n, n, p), -1)
    Q = symmetrize(G + G @ less_one.mT)
    needed = needed.reshape(-1, 1, 1)
    carried = torch.cat((less_one, Gamma, Q), -1)
    for done in range(count):
        doubled = torch.baddbmm(carried, less_one, carried, beta=2)  # the last part is Q + F Q
        Q = symmetrize(torch.baddbmm(doubled[..., n + p :], doubled[..., n + p :] - Q, less_one.mT))
        doubled = torch.cat((doubled[..., : n + p], Q), -1)
        carried = doubled if done < fewest else torch.where(done < needed, doubled, carried)
        less_one, Q = carried[..., :n], carried[..., n + p :]
    eye = torch.eye(n, dtype=drift.dtype, device=drift.device)
    parts = eye + less_one, carried[..., n : n + p], Q
    F, Gamma, Q = (part.reshape(*dt.shape, *part.shape[1:]) for part in parts)
    return F, Gamma.clone(), Q.clone()  # parts of one tensor, which an operator may not return


@torch.no_grad()
def _doublings_needed(drift: Tensor, dt: Tensor, least: int) -> Tensor:
    """How often the short step of each item is doubled, as a float; at most what the range of a double needs."""
    size = drift.abs()
    norm = torch.minimum(size.sum(-1).amax(-1), size.sum(-2).amax(-1))
    wanted = torch.log2(norm * dt.abs() / FIRST_NORM).ceil()
    # zero drift or zero dt gives -inf; NaN and infinity stay visible in the result and need no doublings
    return torch.where(wanted.isfinite(), wanted, 0.0).clamp(least, 2048)


def _range_of(needed: Tensor) -> tuple[int, int]:
    """The smallest and the largest number of doublings; zero and :data:`MOST_DOUBLINGS` where Python cannot read it."""
    if not needed.numel():
        return 0, 0
    fewest, most = needed.min(), needed.max()
    return (int(fewest), int(most)) if readable(most) else (0, MOST_DOUBLINGS)


@torch.library.custom_op("fwnkf::discretize", mutates_args=(), schema=SCHEMA)
def _discretize(drift: Tensor, B: Tensor, density: Tensor, dt: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return discretize_with(drift, B, density, dt, doublings=None)


@_discretize.register_fake
def _(drift: Tensor, B: Tensor, density: Tensor, dt: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    n, p = B.shape
    return drift.new_empty(*dt.shape, n, n), drift.new_empty(*dt.shape, n, p), drift.new_empty(*dt.shape, n, n)


@_discretize.register_vmap
def _(info: Any, axes: tuple[int | None, ...], *arguments: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    *matrices, dt = (
        item.expand(info.batch_size, *item.shape) if axis is None else item.movedim(axis, 0)
        for item, axis in zip(arguments, axes, strict=True)
    )
    # matrices get the axes of dt behind that of the batch
    drift, B, density = (item.reshape(len(item), *[1] * (dt.ndim - 1), *item.shape[1:]) for item in matrices)
    return discretize_with(drift, B, density, dt, doublings=None), (0, 0, 0)
