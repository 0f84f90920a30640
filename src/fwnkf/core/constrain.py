"""Maps from unconstrained parameters to valid values: positive, bounded, positive definite.

The result is valid for every raw value in float32. The inverse maps convert an initial value to the raw parameter
that is learned.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import ConfigError
from ..shapes import Float
from .gaussian import safe_cholesky

LOG_RANGE = 20.0
"""Standard deviations lie within ``exp(±20)``: beyond it float32 squares overflow."""
SLOPE_RANGE = 30.0
"""Off-diagonal slopes lie within ±30, so correlations within ±0.9994 and every factor well conditioned."""


def soft_clamp(raw: Tensor, limit: float) -> Tensor:
    """Identity near zero, saturating at ``±limit``."""
    return limit * torch.tanh(raw / limit)


def inverse_soft_clamp(value: Tensor, limit: float) -> Tensor:
    return limit * torch.atanh(value / limit)


def positive(raw: Tensor) -> Tensor:
    """``exp`` within ``exp(±20)``."""
    return soft_clamp(raw, LOG_RANGE).exp()


def inverse_positive(value: Tensor) -> Tensor:
    return inverse_soft_clamp(value.log(), LOG_RANGE)


def bounded(raw: Tensor, low: float, high: float) -> Tensor:
    """A value in ``[low, high]``."""
    return low + (high - low) * torch.sigmoid(raw)


def lower_triangular(entries: Float[Tensor, "*B k"], size: int, diagonal: int = 0) -> Float[Tensor, "*B n n"]:
    """A matrix with ``entries`` on and below a diagonal, row by row, and zeros elsewhere.

    >>> lower_triangular(torch.tensor([1.0, 2.0, 3.0]), 2).tolist()
    [[1.0, 0.0], [2.0, 3.0]]
    """
    rows, columns = torch.tril_indices(size, size, diagonal, device=entries.device)
    # read with an index instead of written with one, which torch.func.vmap over parameters does not allow
    position = torch.full((size, size), entries.shape[-1], device=entries.device)  # of the zero behind the entries
    position[rows, columns] = torch.arange(entries.shape[-1], device=entries.device)
    return torch.nn.functional.pad(entries, (0, 1))[..., position]


def covariance(log_std: Float[Tensor, "*B n"], slopes: Float[Tensor, "*B k"]) -> Float[Tensor, "*B n n"]:
    """Positive definite ``D C D``: standard deviations ``D`` and a correlation matrix ``C``.

    Row ``i`` of the factor of ``C`` is ``[slopes_i, 1]`` scaled to length one, so ``C`` has a unit diagonal and is
    definite for every raw value. ``k = n (n - 1) / 2``.
    """
    n = log_std.shape[-1]
    below = lower_triangular(soft_clamp(slopes, SLOPE_RANGE), n, diagonal=-1)
    factor = below + torch.eye(n, dtype=log_std.dtype, device=log_std.device)
    factor = torch.nn.functional.normalize(factor, dim=-1) * positive(log_std).unsqueeze(-1)
    return factor @ factor.mT


def inverse_covariance(cov: Float[Tensor, "*B n n"]) -> tuple[Float[Tensor, "*B n"], Float[Tensor, "*B k"]]:
    """The raw parameters of ``cov``. Raises ConfigError if it is indefinite or nearly singular."""
    n = cov.shape[-1]
    variance = torch.diagonal(cov, dim1=-2, dim2=-1)
    if bool((variance <= 0).any()):
        raise ConfigError(
            "a learnable covariance needs positive variances; keep it fixed (leave it out of learn=…), "
            "or start from a small positive value"
        )
    std = variance.sqrt()
    correlation = cov / (std.unsqueeze(-1) * std.unsqueeze(-2))
    factor, ok = safe_cholesky(correlation)
    if not bool(ok.all()):
        raise ConfigError(
            "the initial covariance is not positive definite, so it cannot be learned; start from one that is"
        )
    rows, columns = torch.tril_indices(n, n, -1, device=cov.device)
    slopes = (factor / torch.diagonal(factor, dim1=-2, dim2=-1).unsqueeze(-1))[..., rows, columns]
    if bool((slopes.abs() >= SLOPE_RANGE).any()):
        raise ConfigError(
            "the initial covariance is nearly singular (a correlation beyond 0.9994); reduce the correlation, or "
            "keep it fixed (leave it out of learn=…)"
        )
    return inverse_positive(std), inverse_soft_clamp(slopes, SLOPE_RANGE)
