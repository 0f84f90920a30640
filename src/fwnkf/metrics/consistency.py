"""Is the stated uncertainty true? NEES, NIS and the whiteness of innovations.

A consistent filter has ``E[NEES] = n`` and ``E[NIS] = m``: values above mean it is too sure of itself, values below
that it hides what it knows.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..core.gaussian import safe_cholesky
from ..shapes import Float


def mahalanobis_squared(residual: Float[Tensor, "*B n"], cov: Float[Tensor, "*B n n"]) -> Float[Tensor, "*B"]:
    """``rᵀ cov⁻¹ r``; NaN where ``cov`` is not positive definite, so that a failure is seen and not averaged away."""
    factor, ok = safe_cholesky(cov)
    white = torch.linalg.solve_triangular(factor, residual.unsqueeze(-1), upper=False).squeeze(-1)
    return torch.where(ok, white.square().sum(-1), torch.nan)


def nees(error: Float[Tensor, "*B d"], cov: Float[Tensor, "*B d d"]) -> Float[Tensor, "*B"]:
    """Normalised estimation error squared, divided by the dimension: one on average for a consistent filter."""
    return mahalanobis_squared(error, cov) / error.shape[-1]


def nis(innovation: Float[Tensor, "*B m"], cov: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B"]:
    """Normalised innovation squared, divided by the number of channels."""
    return mahalanobis_squared(innovation, cov) / innovation.shape[-1]


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
    factor, _ = safe_cholesky(cov)
    return torch.linalg.solve_triangular(factor, innovation.unsqueeze(-1), upper=False).squeeze(-1)
