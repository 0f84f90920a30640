"""Jacobians, curvature and sigma points: how a nonlinear function acts on a Gaussian."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..shapes import Bool, Float
from .gaussian import safe_cholesky, solve_psd, symmetrize
from .layout import Layout


def jacobian(
    function: Callable[[Tensor], Tensor], x: Float[Tensor, "B n"], domain: Layout, image: Layout
) -> tuple[Float[Tensor, "B k"], Float[Tensor, "B e d"]]:
    """``f(x)`` and its tangent-space Jacobian ``∂(f(x ⊞ δ) ⊟ f(x))/∂δ`` at ``δ = 0``, by differentiation.

    ``function`` must treat the batch items independently. Two ways that agree to rounding: reverse mode where it is
    possible, because forward mode run eagerly spends milliseconds per call on tangents that are zero; forward mode when
    traced or recomputed, where reverse mode is not possible.
    """
    centre = function(x)
    fixed = centre.detach() if image.flat else centre  # ⊟ needs the value, plain subtraction drops out

    def moved(delta: Tensor) -> Tensor:
        return image.boxminus(function(domain.boxplus(x, delta)), fixed)

    zero = x.new_zeros(*x.shape[:-1], domain.tangent_size)
    forward = torch.compiler.is_compiling() or _saving_is_hooked()
    directions = domain.tangent_size if forward else image.tangent_size
    basis = torch.eye(directions, dtype=x.dtype, device=x.device)
    if forward:
        columns = [torch.func.jvp(moved, (zero,), (row.expand_as(zero),))[1] for row in basis]
        return centre, torch.stack(columns, -1)
    value, pull = torch.func.vjp(moved, zero)  # type: ignore[misc]  # three values only with has_aux
    (rows,) = torch.func.vmap(pull)(basis.unsqueeze(-2).expand(-1, *value.shape))
    return centre, rows.movedim(0, -2)


def _saving_is_hooked() -> bool:
    """Whether tensors saved for the backward pass go through hooks, as in recomputation; torch.func.vjp cannot then."""
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
    """``α = 1, β = 0, κ = 0`` gives the cubature rule: equal positive weights, covariances PSD by construction."""
    scaled = alpha * alpha * (size + kappa)
    centre = (scaled - size) / scaled
    return SigmaRule(scaled, centre, centre + 1 - alpha * alpha + beta, 0.5 / scaled)


def _barely_definite(cov: Float[Tensor, "B d d"]) -> Float[Tensor, "B d d"]:
    """A covariance that may be singular, a known start say, lifted by its own rounding so that it has a factor."""
    variance = torch.diagonal(cov, dim1=-2, dim2=-1)
    lift = torch.finfo(cov.dtype).eps * variance.mean(-1, keepdim=True) + 1e-30
    return cov + torch.diag_embed(lift.expand_as(variance))


def sigma_points(
    mean: Float[Tensor, "B n"], cov: Float[Tensor, "B d d"], layout: Layout, rule: SigmaRule
) -> tuple[Float[Tensor, "B s n"], Bool[Tensor, "B"]]:
    """``2 d + 1`` points ``mean ⊞ (0, ±√spread columns of the factor)``, and success of the factorisation."""
    factor, ok = safe_cholesky(_barely_definite(cov))
    rows = factor.mT * rule.spread**0.5
    offsets = torch.cat((torch.zeros_like(rows[:, :1]), rows, -rows), 1)
    return layout.boxplus(mean.unsqueeze(1).expand(-1, offsets.shape[1], -1), offsets), ok


def sigma_moments(
    points: Float[Tensor, "B s n"], layout: Layout, rule: SigmaRule, iterations: int = 2
) -> tuple[Float[Tensor, "B n"], Float[Tensor, "B s d"], Float[Tensor, "B d d"]]:
    """Weighted mean on the manifold, deviations from it, and covariance."""
    centre = points[:, 0]
    for _ in range(1 if layout.flat else iterations):
        apart = layout.boxminus(points, centre.unsqueeze(1).expand_as(points))
        shift = rule.mean_weight * apart[:, 0] + rule.side_weight * apart[:, 1:].sum(1)
        centre = layout.boxplus(centre, shift)
    apart = layout.boxminus(points, centre.unsqueeze(1).expand_as(points))
    return centre, apart, sigma_cross(apart, apart, rule)


def sigma_cross(left: Float[Tensor, "B s d"], right: Float[Tensor, "B s e"], rule: SigmaRule) -> Float[Tensor, "B d e"]:
    """Weighted cross-covariance of two sets of deviations."""
    centre = rule.cov_weight * left[:, 0].unsqueeze(-1) * right[:, 0].unsqueeze(-2)
    return centre + rule.side_weight * (left[:, 1:].mT @ right[:, 1:])


def repeated(item: Float[Tensor, "B *s"] | None, count: int) -> Float[Tensor, "R *s"] | None:
    """Each row ``count`` times, for points that lie side by side; nothing stays nothing."""
    return None if item is None else item.repeat_interleave(count, 0)


class SecondOrderCorrection(NamedTuple):
    """What a function's curvature does to a Gaussian: a shift of the mean, and covariance a Jacobian does not see."""

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

    With ``s_i`` the columns of a factor of ``cov`` and ``D_ij = s_iᵀ f″ s_j``, the mean moves by ``½ Σ D_ii`` and the
    covariance grows by ``½ Σ D_ij D_ijᵀ``, which is positive by its form. The ``D`` are differences of ``f`` over one
    standard deviation: they see the curvature where the belief lies, and need no second derivative. ``function`` is
    given all ``B (1 + d + d²)`` points as one batch, those of an item side by side.
    """
    factor, ok = safe_cholesky(_barely_definite(cov))
    factor = factor * ok[:, None, None]  # without one nothing is added; the update that follows tells what is wrong
    d = cov.shape[-1]
    first, second = torch.triu_indices(d, d, 1, device=cov.device)
    single, double = factor.mT, factor.mT[:, first] + factor.mT[:, second]
    offsets = torch.cat((torch.zeros_like(single[:, :1]), single, -single, double, -double), 1)
    count = offsets.shape[1]
    points = domain.boxplus(mean.unsqueeze(1).expand(-1, count, -1), offsets)
    moved = function(points.flatten(0, 1)).unflatten(0, (-1, count))
    apart = image.boxminus(moved, moved[:, :1].expand_as(moved))
    pairs = len(first)
    up, down, up2, down2 = apart[:, 1:].split((d, d, pairs, pairs), 1)
    straight = up + down  # D_ii
    across = 0.5 * (up2 + down2 - straight[:, first] - straight[:, second])  # D_ij, i < j
    grown = 0.5 * straight.mT @ straight + across.mT @ across
    return SecondOrderCorrection(0.5 * straight.sum(1), symmetrize(grown))


def statistical_linearization(
    P: Float[Tensor, "B d d"], cross: Float[Tensor, "B d m"], image_cov: Float[Tensor, "B m m"]
) -> tuple[Float[Tensor, "B m d"], Float[Tensor, "B m m"], Bool[Tensor, "B"]]:
    """The linear map ``A = C_yx P⁻¹`` nearest to the function and the covariance ``C_yy - A P Aᵀ`` it leaves over.

    Conditioning on ``(A, R + leftover)`` is the unscented update: same gain, same posterior, one algebra.
    """
    solved, ok = solve_psd(_barely_definite(P), cross)
    A = solved.mT
    return A, image_cov - A @ cross, ok
