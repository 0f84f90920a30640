"""Consistency of stated uncertainties: NEES, NIS, coverage and whiteness of innovations.

NEES and NIS are divided by the dimension here, so a consistent filter has a mean of one: larger values mean that it is
overconfident, smaller values that its covariance is too large.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..core.gaussian import safe_cholesky
from ..errors import ConfigError
from ..shapes import Float, Int

__all__ = [
    "Coverage",
    "LjungBox",
    "chi_square_quantile",
    "coverage",
    "ljung_box",
    "mahalanobis_squared",
    "nees",
    "nis",
    "variance_ratio",
    "whiten",
]


def mahalanobis_squared(residual: Float[Tensor, "*B n"], cov: Float[Tensor, "*B n n"]) -> Float[Tensor, "*B"]:
    """``rᵀ cov⁻¹ r``; NaN where ``cov`` is not positive definite, so that failures show up in averages.

    Args:
        residual: ``r``.
        cov: its covariance.

    Returns:
        The squared distance.

    >>> mahalanobis_squared(torch.tensor([2.0]), torch.tensor([[4.0]]))
    tensor(1.)
    """
    white, ok = _whiten(residual, cov)
    return torch.where(ok, white.square().sum(-1), torch.nan)


def nees(error: Float[Tensor, "*B d"], cov: Float[Tensor, "*B d d"]) -> Float[Tensor, "*B"]:
    """Normalised estimation error squared, divided by the dimension: one on average for a consistent filter.

    Args:
        error: errors in the tangent space.
        cov: the covariances stated.

    Returns:
        One value for each error; NaN where the covariance is not positive definite.

    >>> nees(torch.tensor([1.0, 1.0]), torch.eye(2))
    tensor(1.)
    """
    return mahalanobis_squared(error, cov) / error.shape[-1]


def nis(innovation: Float[Tensor, "*B m"], cov: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B"]:
    """Normalised innovation squared, divided by the number of channels.

    Args:
        innovation: innovations.
        cov: their covariances.

    Returns:
        One value for each innovation; NaN where the covariance is not positive definite.

    >>> nis(torch.tensor([2.0, 0.0]), torch.eye(2))
    tensor(2.)
    """
    return mahalanobis_squared(innovation, cov) / innovation.shape[-1]


def variance_ratio(error: Float[Tensor, "*B d"], cov: Float[Tensor, "*B d d"]) -> Float[Tensor, " d"]:
    """Mean of ``e_i² / P_ii`` in each dimension: one for a consistent filter, larger for an overconfident one.

    NEES can be one on average although single axes are overconfident and others underconfident. Computed on recordings
    that were not used for training, these are the factors for ``filter.calibrate_covariance``.

    Args:
        error: errors in the tangent space.
        cov: the covariances stated.

    Returns:
        One ratio for each dimension.

    >>> variance_ratio(torch.tensor([[2.0, 1.0]]), torch.eye(2)[None])
    tensor([4., 1.])
    """
    ratio = error.square() / cov.diagonal(dim1=-2, dim2=-1)
    return ratio.reshape(-1, error.shape[-1]).mean(0)


def chi_square_quantile(degrees: Int[Tensor, "*B"], probability: float) -> Float[Tensor, "*B"]:
    """The value that ``χ²`` with ``degrees`` of freedom exceeds with probability ``1 - probability``; 0 for none.

    Computed by bisection of the regularised incomplete gamma function, without scipy.

    Args:
        degrees: degrees of freedom.
        probability: that a value is below the quantile.

    Returns:
        The quantile, in float64.

    >>> round(float(chi_square_quantile(torch.tensor(2), 0.95)), 4)
    5.9915
    """
    half = degrees.double() / 2
    low, high = torch.zeros_like(half), half + 40 * half.sqrt() + 40
    for _ in range(80):
        middle = (low + high) / 2
        below = torch.special.gammainc(half, middle) < probability
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return torch.where(half > 0, 2 * middle, 0.0)


class LjungBox(NamedTuple):
    """Result of the Ljung-Box test.

    >>> LjungBox(torch.tensor(20.0), torch.tensor(0.46)).p_value > 0.01
    tensor(True)
    """

    statistic: Float[Tensor, "*B"]
    """The statistic ``Q``."""
    p_value: Float[Tensor, "*B"]
    """Its p-value under the hypothesis of white noise."""


def ljung_box(series: Float[Tensor, "*B T"], lags: int = 20) -> LjungBox:
    """Ljung-Box test for whiteness along the last axis, for each series separately.

    Innovations of a filter with the correct model are white. A p-value below 0.01 means that the series is correlated
    in time: the noise is coloured, or the model is wrong. Use it on innovations normalised by :func:`whiten`.

    Args:
        series: the series.
        lags: number of autocorrelations tested.

    Returns:
        Statistic and p-value of each series.

    >>> white = torch.randn(2000, generator=torch.Generator().manual_seed(0))
    >>> drifting = white.cumsum(0)
    >>> [bool(ljung_box(series).p_value > 0.01) for series in (white, drifting)]
    [True, False]
    """
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
    """Innovations normalised to unit covariance, ``L⁻¹ r`` with ``cov = L Lᵀ``.

    Args:
        innovation: innovations.
        cov: their covariances.

    Returns:
        Normalised innovations; not meaningful where a covariance is not positive definite.

    >>> whiten(torch.tensor([2.0]), torch.tensor([[4.0]]))
    tensor([1.])
    """
    return _whiten(innovation, cov)[0]


def _whiten(residual: Tensor, cov: Tensor) -> tuple[Tensor, Tensor]:
    """``L⁻¹ r`` and whether ``cov = L Lᵀ`` could be factored."""
    factor, ok = safe_cholesky(cov)
    return torch.linalg.solve_triangular(factor, residual.unsqueeze(-1), upper=False).squeeze(-1), ok


class Coverage(NamedTuple):
    """Fraction of errors within their interval.

    >>> Coverage(torch.tensor(0.95), torch.tensor([0.9, 1.0])).overall
    tensor(0.9500)
    """

    overall: Float[Tensor, ""]
    """Over all components."""
    by_dimension: Float[Tensor, " d"]
    """For each dimension."""


def coverage(error: Float[Tensor, "*B d"], cov: Float[Tensor, "*B d d"], level: float = 0.95) -> Coverage:
    """Fraction of components with ``|e_i| ≤ z √P_ii``, ``z`` the normal quantile of ``(1 + level) / 2``.

    A consistent filter covers the fraction ``level``, an overconfident filter less. Errors or variances that are not
    finite, and negative variances, are not covered.

    Args:
        error: errors in the tangent space.
        cov: the covariances stated.
        level: of the interval.

    Returns:
        The fractions.

    Raises:
        ConfigError: the level is not between 0 and 1.

    >>> coverage(torch.tensor([[1.9, 0.0], [2.0, 0.0]]), torch.eye(2).expand(2, 2, 2)).by_dimension
    tensor([0.5000, 1.0000])
    """
    if not 0 < level < 1:
        raise ConfigError(f"level {level} is not between 0 and 1; for 95 % write 0.95")
    z = float(torch.special.ndtri(torch.tensor((1 + level) / 2, dtype=torch.float64)))
    bound = z * cov.diagonal(dim1=-2, dim2=-1).sqrt()  # NaN for a negative variance, so that the comparison is False
    covered = (error.abs() <= bound) & error.isfinite() & bound.isfinite()
    share = covered.to(error.dtype).reshape(-1, error.shape[-1]).mean(0)
    return Coverage(share.mean(), share)


def coverage_scale(error: Float[Tensor, "*B d"], cov: Float[Tensor, "*B d d"], level: float = 0.95) -> float:
    """The factor of all variances with which the share ``level`` of the components is covered.

    Unlike :func:`variance_ratio` it does not depend on a few records with very large errors, and being one factor it
    leaves correlations as they are. Computed on recordings that were not used for training, it is a factor for
    ``filter.calibrate_covariance``.

    Args:
        error: errors in the tangent space.
        cov: the covariances stated.
        level: of the interval.

    Returns:
        The factor.

    >>> error = torch.linspace(-3.0, 3.0, 1001)[:, None]
    >>> scale = coverage_scale(error, torch.ones(1001, 1, 1))
    >>> round(float(coverage(error, torch.full((1001, 1, 1), scale)).overall), 2)
    0.95
    """
    ratio = (error.square() / cov.diagonal(dim1=-2, dim2=-1)).flatten().double()
    known = ratio[ratio.isfinite()].sort().values
    z = float(torch.special.ndtri(torch.tensor((1 + level) / 2, dtype=torch.float64)))
    return float(known[min(len(known) - 1, int(level * len(known)))]) / z**2
