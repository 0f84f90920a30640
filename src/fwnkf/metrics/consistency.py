"""Is the stated uncertainty true? NEES, NIS, coverage and the whiteness of innovations.

A consistent filter has ``E[NEES] = n`` and ``E[NIS] = m``: values above mean it is too sure of itself, values below
that it hides what it knows.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..core.gaussian import safe_cholesky
from ..errors import ConfigError
from ..shapes import Float


def mahalanobis_squared(residual: Float[Tensor, "*B n"], cov: Float[Tensor, "*B n n"]) -> Float[Tensor, "*B"]:
    """``rᵀ cov⁻¹ r``; NaN where ``cov`` is not positive definite, so that a failure is seen and not averaged away."""
    white, ok = _whiten(residual, cov)
    return torch.where(ok, white.square().sum(-1), torch.nan)


def nees(error: Float[Tensor, "*B d"], cov: Float[Tensor, "*B d d"]) -> Float[Tensor, "*B"]:
    """Normalised estimation error squared, divided by the dimension: one on average for a consistent filter."""
    return mahalanobis_squared(error, cov) / error.shape[-1]


def nis(innovation: Float[Tensor, "*B m"], cov: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B"]:
    """Normalised innovation squared, divided by the number of channels."""
    return mahalanobis_squared(innovation, cov) / innovation.shape[-1]


def variance_ratio(error: Float[Tensor, "*B d"], cov: Float[Tensor, "*B d d"]) -> Float[Tensor, " d"]:
    """Mean of ``e_i² / P_ii`` in each dimension: one for a consistent filter, above it for one that is too certain.

    NEES can be one on average while single axes are off in both directions. Measured on recordings left out of a fit,
    these are the factors for ``filter.calibrate_covariance``.

    >>> variance_ratio(torch.tensor([[2.0, 1.0]]), torch.eye(2)[None])
    tensor([4., 1.])
    """
    ratio = error.square() / cov.diagonal(dim1=-2, dim2=-1)
    return ratio.reshape(-1, error.shape[-1]).mean(0)


class LjungBox(NamedTuple):
    """Test of whiteness: the statistic and the probability of one as large from white noise."""

    statistic: Float[Tensor, "*B"]
    p_value: Float[Tensor, "*B"]


def ljung_box(series: Float[Tensor, "*B T"], lags: int = 20) -> LjungBox:
    """Ljung-Box test over the last axis, for each series apart."""
    length = series.shape[-1]
    centred = series - series.mean(-1, keepdim=True)
    power = centred.square().sum(-1)
    statistic = torch.zeros_like(power)
    for lag in range(1, lags + 1):
        correlation = (centred[..., lag:] * centred[..., :-lag]).sum(-1) / power
        statistic = statistic + correlation.square() / (length - lag)
    statistic = length * (length + 2) * statistic
    return LjungBox(statistic, torch.special.gammaincc(torch.full_like(statistic, lags / 2), statistic / 2))


def whiten(innovation: Float[Tensor, "*B m"], cov: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m"]:
    """Innovations as independent unit-variance numbers, ``L⁻¹ r`` with ``cov = L Lᵀ``."""
    return _whiten(innovation, cov)[0]


def _whiten(residual: Tensor, cov: Tensor) -> tuple[Tensor, Tensor]:
    """``L⁻¹ r`` and whether ``cov = L Lᵀ`` could be factored."""
    factor, ok = safe_cholesky(cov)
    return torch.linalg.solve_triangular(factor, residual.unsqueeze(-1), upper=False).squeeze(-1), ok


class Coverage(NamedTuple):
    """The share of errors within their interval: of all components, and of each dimension apart."""

    overall: Float[Tensor, ""]
    by_dimension: Float[Tensor, " d"]


def coverage(error: Float[Tensor, "*B d"], cov: Float[Tensor, "*B d d"], level: float = 0.95) -> Coverage:
    """Share of components with ``|e_i| ≤ z √P_ii``, ``z`` the normal quantile of ``(1 + level) / 2``.

    A consistent filter covers ``level`` of them, one too sure of itself fewer. What is not finite, and what has a
    negative variance, is not covered.

    >>> coverage(torch.tensor([[1.9, 0.0], [2.0, 0.0]]), torch.eye(2).expand(2, 2, 2)).by_dimension
    tensor([0.5000, 1.0000])
    """
    if not 0 < level < 1:
        raise ConfigError(f"level {level} is not between 0 and 1; for 95 % write 0.95")
    z = float(torch.special.ndtri(torch.tensor((1 + level) / 2, dtype=torch.float64)))
    bound = z * cov.diagonal(dim1=-2, dim2=-1).sqrt()  # the root of a negative variance is NaN, which nothing is below
    covered = (error.abs() <= bound) & error.isfinite() & bound.isfinite()
    share = covered.to(error.dtype).reshape(-1, error.shape[-1]).mean(0)
    return Coverage(share.mean(), share)
