"""Jacobians, second-order terms and sigma points of a Gaussian through a function, and moments of mixtures."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..shapes import Bool, Float
from ..types import Gaussian
from .gaussian import safe_cholesky, symmetrize
from .layout import Layout


def jacobian(
    function: Callable[[Tensor], Tensor], x: Float[Tensor, "B n"], domain: Layout, image: Layout
) -> tuple[Float[Tensor, "B k"], Float[Tensor, "B e d"]]:
    """``f(x)`` and its tangent-space Jacobian ``∂(f(x ⊞ δ) ⊟ f(x))/∂δ`` at ``δ = 0``, by automatic differentiation.

    ``function`` must treat the batch items independently. In eager mode the Jacobian is computed in reverse mode,
    because eager forward mode spends milliseconds per call on tangents that are zero. In forward mode it is computed
    while tracing and under activation checkpointing, where reverse mode is not available. Both agree up to rounding.

    The gradient through a forward derivative of ``torch.linalg.solve`` is wrong in torch 2.13; ``inv`` and the Cholesky
    factor are right.
    """
    centre = function(x)
    # a plain difference has the same derivative without the gradient of its second argument
    fixed = centre.detach() if image.flat else centre

    def moved(delta: Tensor) -> Tensor:
        return image.boxminus(function(domain.boxplus(x, delta)), fixed)

    zero = x.new_zeros(*x.shape[:-1], domain.tangent_size)
    forward = torch.compiler.is_compiling() or _saving_is_hooked()
    directions = domain.tangent_size if forward else image.tangent_size
    basis = torch.eye(directions, dtype=x.dtype, device=x.device)
    if forward:

        def push(row: Tensor) -> Tensor:
            return torch.func.jvp(moved, (zero,), (row.expand_as(zero),))[1]

        if not torch.compiler.is_compiling():
            try:  # all columns at once: eager forward mode spends its time in Python, once per call
                return centre, torch.func.vmap(push, out_dims=-1)(basis)
            except RuntimeError:  # the function has an operation without a batched form
                pass
        return centre, torch.stack([push(row) for row in basis], -1)
    value, pull = torch.func.vjp(moved, zero)  # type: ignore[misc]  # three values only with has_aux
    (rows,) = torch.func.vmap(pull)(basis.unsqueeze(-2).expand(-1, *value.shape))
    return centre, rows.movedim(0, -2)


def _saving_is_hooked() -> bool:
    """Whether saved-tensor hooks are active, as under activation checkpointing; torch.func.vjp then fails."""
    try:
        with torch.autograd.graph.disable_saved_tensors_hooks("probe"):
            return False
    except RuntimeError:
        return True


class SigmaRule(NamedTuple):
    """Spread and weights of the scaled unscented transform (Wan and van der Merwe)."""

    spread: float
    mean_weight: float
    cov_weight: float
    side_weight: float


def sigma_rule(size: int, alpha: float, beta: float, kappa: float) -> SigmaRule:
    """``α = 1, β = 0, κ = 0`` is the cubature rule: equal positive weights, so covariances are semidefinite."""
    scaled = alpha * alpha * (size + kappa)
    centre = (scaled - size) / scaled
    return SigmaRule(scaled, centre, centre + 1 - alpha * alpha + beta, 0.5 / scaled)


def _factor(cov: Float[Tensor, "B d d"]) -> tuple[Float[Tensor, "B d d"], Bool[Tensor, "B"]]:
    """The lower Cholesky factor; where there is none, of ``cov`` with each variance larger by its rounding error."""
    with torch.no_grad():  # decided before, so that no gradient passes through a factorisation that failed
        _, regular = safe_cholesky(cov)
        variance = torch.diagonal(cov, dim1=-2, dim2=-1)
        kind = torch.finfo(cov.dtype)
        # a state that is known exactly gets the least that can be squared and divided by
        added = torch.where(regular[:, None], 0.0, 16 * kind.eps * variance + kind.tiny**0.9)
    return safe_cholesky(cov + torch.diag_embed(added))


class SigmaPoints(NamedTuple):
    """Points that represent a Gaussian, and the factor of its covariance along whose columns they lie."""

    points: Float[Tensor, "B s n"]
    factor: Float[Tensor, "B d d"]
    ok: Bool[Tensor, "B"]
    """Whether there was a factor."""


def sigma_points(
    mean: Float[Tensor, "B n"], cov: Float[Tensor, "B d d"], layout: Layout, rule: SigmaRule
) -> SigmaPoints:
    """``2 d + 1`` points ``mean ⊞ (0, ±√spread columns of the factor)``."""
    factor, ok = _factor(cov)
    rows = factor.mT * rule.spread**0.5
    offsets = torch.cat((torch.zeros_like(rows[:, :1]), rows, -rows), 1)
    return SigmaPoints(layout.boxplus(mean.unsqueeze(1).expand(-1, offsets.shape[1], -1), offsets), factor, ok)


def sigma_moments(
    points: Float[Tensor, "B s n"], layout: Layout, rule: SigmaRule, iterations: int = 2
) -> tuple[Float[Tensor, "B n"], Float[Tensor, "B s d"], Float[Tensor, "B d d"]]:
    """Weighted mean on the manifold, deviations from it, and covariance."""
    centre = points[:, 0]
    for _ in range(1 if layout.flat else iterations):
        deviations = layout.boxminus(points, centre.unsqueeze(1).expand_as(points))
        shift = rule.mean_weight * deviations[:, 0] + rule.side_weight * deviations[:, 1:].sum(1)
        centre = layout.boxplus(centre, shift)
    deviations = layout.boxminus(points, centre.unsqueeze(1).expand_as(points))
    return centre, deviations, sigma_cross(deviations, deviations, rule)


def sigma_cross(left: Float[Tensor, "B s d"], right: Float[Tensor, "B s e"], rule: SigmaRule) -> Float[Tensor, "B d e"]:
    """Weighted cross-covariance of two sets of deviations."""
    centre = rule.cov_weight * left[:, 0].unsqueeze(-1) * right[:, 0].unsqueeze(-2)
    return centre + rule.side_weight * (left[:, 1:].mT @ right[:, 1:])


def repeated(item: Float[Tensor, "B *s"] | None, count: int) -> Float[Tensor, "R *s"] | None:
    """Each row repeated ``count`` times, for the points of one item stored next to each other; None stays None."""
    return None if item is None else item.repeat_interleave(count, 0)


class SecondOrderCorrection(NamedTuple):
    """The second-order terms of a function of a Gaussian: a shift of the mean and an addition to the covariance."""

    shift: Float[Tensor, "B e"]
    cov: Float[Tensor, "B e e"]


def second_order_correction(
    function: Callable[[Tensor], Tensor],
    mean: Float[Tensor, "B n"],
    cov: Float[Tensor, "B d d"],
    domain: Layout,
    image: Layout,
) -> SecondOrderCorrection:
    """The second-order terms of the Gaussian second-order filter, exact where ``f`` is quadratic.

    With ``s_i`` the columns of a factor of ``cov`` and ``D_ij = s_iᵀ f″ s_j``, the mean is shifted by ``½ Σ D_ii`` and
    ``½ Σ D_ij D_ijᵀ`` is added to the covariance, which is positive semidefinite. The ``D`` are finite differences of
    ``f`` over one standard deviation, so they measure the curvature over the extent of the belief and need no second
    derivative. ``function`` is called once with all ``B (1 + d + d²)`` points, those of an item next to each other.
    """
    factor, ok = _factor(cov)
    factor = factor * ok[:, None, None]  # without a factor nothing is added; the update that follows sets the status
    d = cov.shape[-1]
    first, second = torch.triu_indices(d, d, 1, device=cov.device)
    single, double = factor.mT, factor.mT[:, first] + factor.mT[:, second]
    offsets = torch.cat((torch.zeros_like(single[:, :1]), single, -single, double, -double), 1)
    count = offsets.shape[1]
    points = domain.boxplus(mean.unsqueeze(1).expand(-1, count, -1), offsets)
    moved = function(points.flatten(0, 1)).unflatten(0, (-1, count))
    deviations = image.boxminus(moved, moved[:, :1].expand_as(moved))
    pairs = len(first)
    up, down, up2, down2 = deviations[:, 1:].split((d, d, pairs, pairs), 1)
    diagonal = up + down  # D_ii
    off_diagonal = 0.5 * (up2 + down2 - diagonal[:, first] - diagonal[:, second])  # D_ij, i < j
    added_cov = 0.5 * diagonal.mT @ diagonal + off_diagonal.mT @ off_diagonal
    return SecondOrderCorrection(0.5 * diagonal.sum(1), symmetrize(added_cov))


def statistical_linearization(
    drawn: SigmaPoints, deviations: Float[Tensor, "B s m"], rule: SigmaRule
) -> tuple[Float[Tensor, "B m d"], Float[Tensor, "B m m"]]:
    """The best linear map ``A = C_yx P⁻¹`` in the mean square, and the covariance of its residual.

    ``deviations`` are those of the points after the function. Conditioning with ``H = A`` and noise ``R + residual`` is
    the unscented update: same gain, same posterior. Both are computed from the points, whose map in units of the factor
    needs no inverse: ``C_yy - A P Aᵀ`` would be a small difference of large numbers, and ``P⁻¹`` loses twice the
    digits of the factor.
    """
    d, root = drawn.factor.shape[-1], rule.spread**0.5
    up, down = deviations[:, 1:].split(d, 1)
    scaled = rule.side_weight * root * (up - down)  # [B, d, m], the map of each column of the factor
    A = torch.linalg.solve_triangular(drawn.factor.mT, scaled, upper=True).mT
    left = torch.cat((deviations[:, :1], up - root * scaled, down + root * scaled), 1)
    return A, symmetrize(sigma_cross(left, left, rule))


def mix(
    layout: Layout, weight: Float[Tensor, "B K"], mean: Float[Tensor, "B K n"], cov: Float[Tensor, "B K d d"]
) -> Gaussian:
    """Mean and covariance of a mixture, taken in the tangent space at its likeliest member."""
    place = weight.argmax(-1)[:, None, None].expand(-1, 1, mean.shape[-1])
    reference = mean.gather(1, place)
    apart = layout.boxminus(mean, reference.expand_as(mean))
    share = weight.unsqueeze(-1)
    centre = (share * apart).sum(1)
    spread = apart - centre.unsqueeze(1)
    whole = cov + spread.unsqueeze(-1) * spread.unsqueeze(-2)
    return Gaussian(layout.boxplus(reference.squeeze(1), centre), (share.unsqueeze(-1) * whole).sum(1))
