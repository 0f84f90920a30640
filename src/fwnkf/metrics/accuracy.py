"""Accuracy of estimates: MSE, RMSE, MAE, NRMSE, R², and a summary row for tables.

All metrics are functions of the error ``e = x̂ ⊟ x``, computed by :func:`residual` (or :func:`raw_difference`). They are
averages over trajectories, steps and dimensions; those named ``_paper`` follow the paper's Eq. (metrics) and sum over
dimensions.

An estimate that is not finite has an infinite error, which stays in every average.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from ..core.layout import Layout
from ..core.trajectory import Trajectory
from ..errors import DataError, ShapeError
from ..shapes import Bool, Float
from ..types import Gaussian
from .consistency import coverage, nees
from .errors import check_shapes, from_step, raw_difference, residual, usable

__all__ = [
    "by_dimension",
    "by_step",
    "from_step",
    "mae",
    "mae_paper",
    "mse",
    "mse_paper",
    "nrmse_rms",
    "nrmse_std",
    "r2",
    "raw_difference",
    "residual",
    "rmse",
    "rmse_paper",
    "summarize",
    "usable",
]

Difference = Literal["shortest", "raw"]


# -------------------------------------------------------------------------------------------------------------- metrics


def mse(error: Float[Tensor, "*B d"]) -> Float[Tensor, ""]:
    """Mean of ``e²`` over trajectories, steps and dimensions.

    Args:
        error: errors.

    Returns:
        The mean.

    >>> mse(torch.tensor([[3.0, 4.0]])), mse_paper(torch.tensor([[3.0, 4.0]]))
    (tensor(12.5000), tensor(25.))
    """
    return error.square().mean()


def mse_paper(error: Float[Tensor, "*B d"]) -> Float[Tensor, ""]:
    """``1/T Σ_t ‖e_t‖₂²`` of the paper, averaged over trajectories: the sum over dimensions.

    Args:
        error: errors.

    Returns:
        The mean of the squared norms.

    >>> mse_paper(torch.tensor([[3.0, 4.0]]))
    tensor(25.)
    """
    return error.square().sum(-1).mean()


def rmse(error: Float[Tensor, "*B d"]) -> Float[Tensor, ""]:
    """``√mse``: the root of the mean over all trajectories, not the mean of their roots.

    Args:
        error: errors.

    Returns:
        The root.

    >>> rmse(torch.tensor([[3.0], [4.0]]))
    tensor(3.5355)
    """
    return mse(error).sqrt()


def rmse_paper(error: Float[Tensor, "*B d"]) -> Float[Tensor, ""]:
    """``√mse_paper``.

    Args:
        error: errors.

    Returns:
        The root.

    >>> rmse_paper(torch.tensor([[3.0, 4.0]]))
    tensor(5.)
    """
    return mse_paper(error).sqrt()


def mae(error: Float[Tensor, "*B d"]) -> Float[Tensor, ""]:
    """Mean of ``|e|`` over trajectories, steps and dimensions.

    Args:
        error: errors.

    Returns:
        The mean.

    >>> mae(torch.tensor([[3.0, -4.0]]))
    tensor(3.5000)
    """
    return error.abs().mean()


def mae_paper(error: Float[Tensor, "*B d"]) -> Float[Tensor, ""]:
    """``1/T Σ_t ‖e_t‖₁`` of the paper, averaged over trajectories: the sum over dimensions.

    Args:
        error: errors.

    Returns:
        The mean of the norms.

    >>> mae_paper(torch.tensor([[3.0, -4.0]]))
    tensor(7.)
    """
    return error.abs().sum(-1).mean()


def nrmse_rms(error: Float[Tensor, "*B d"], truth: Float[Tensor, "*B n"]) -> Float[Tensor, ""]:
    """``rmse_paper / √(1/T Σ_t ‖x_t‖₂²)`` of the paper. It is smaller for states far from zero.

    Args:
        error: errors.
        truth: true states.

    Returns:
        The ratio.

    >>> nrmse_rms(torch.tensor([[3.0, 4.0]]), torch.tensor([[6.0, 8.0]]))
    tensor(0.5000)
    """
    return rmse_paper(error) / mse_paper(truth).sqrt()


def nrmse_std(error: Float[Tensor, "*B d"], truth: Float[Tensor, "*B n"]) -> Float[Tensor, ""]:
    """``rmse / std(x)`` as in the paper's public code, with one standard deviation over all numbers of ``x``.

    Args:
        error: errors.
        truth: true states.

    Returns:
        The ratio.

    >>> nrmse_std(torch.tensor([[1.0], [1.0]]), torch.tensor([[10.0], [14.0]]))
    tensor(0.5000)
    """
    return rmse(error) / truth.std(correction=0)


def r2(error: Float[Tensor, "*B d"], truth: Float[Tensor, "*B n"]) -> Float[Tensor, ""]:
    """``R² = 1 - Σ‖e‖² / Σ‖x - x̄‖²``, with ``x̄`` the mean of each dimension: 0 for an estimate equal to ``x̄``.

    ``x - x̄`` uses the stored numbers of angles and quaternions; the error of a quaternion is a rotation vector, about
    twice the difference of the quaternions.

    Args:
        error: errors.
        truth: true states.

    Returns:
        ``R²``, at most 1.

    >>> truth = torch.tensor([[1.0, 20.0], [3.0, 40.0]])
    >>> r2(truth.mean(0) - truth, truth)
    tensor(0.)
    """
    mean = truth.reshape(-1, truth.shape[-1]).mean(0)
    return 1 - error.square().sum() / (truth - mean).square().sum()


def by_dimension(error: Float[Tensor, "*B d"]) -> Float[Tensor, " d"]:
    """Mean of ``e²`` for each dimension, over trajectories and steps; its mean is :func:`mse`.

    Args:
        error: errors.

    Returns:
        One mean for each dimension.

    >>> by_dimension(torch.tensor([[3.0, 4.0], [1.0, 0.0]]))
    tensor([5., 8.])
    """
    return error.square().reshape(-1, error.shape[-1]).mean(0)


def by_step(error: Float[Tensor, "*B T d"]) -> Float[Tensor, " T"]:
    """Mean of ``e²`` for each step, over trajectories and dimensions: the error over time.

    Args:
        error: errors over time.

    Returns:
        One mean for each step.

    >>> by_step(torch.tensor([[[3.0], [2.0], [1.0]]]))
    tensor([9., 4., 1.])
    """
    squared = error.square().mean(-1)
    return squared.reshape(-1, squared.shape[-1]).mean(0)


# -------------------------------------------------------------------------------------------------------------- summary


def summarize(
    layout: Layout,
    estimate: Trajectory | Gaussian | tuple[Tensor, Tensor | None],
    truth: Float[Tensor, "B T n"],
    *,
    difference: Difference = "shortest",
    late: int = 10,
    valid: Bool[Tensor, "B T"] | None = None,
) -> dict[str, float | int]:
    """One row of a table: accuracy, consistency and failures of a filter on a test set, computed in float64.

    Trajectories with a mean or covariance that is not finite are counted in ``failures`` and not dropped: such a mean
    makes the errors infinite and R² minus infinity. A covariance that is not finite or not positive definite makes NEES
    infinite. Neither is covered.

    Args:
        layout: the layout of the state.
        estimate: a filtered trajectory, or mean ``(B, T, n)`` and covariance ``(B, T, d, d)``. The covariance is
            ``None`` for a method without one; ``nees`` and ``coverage95`` are then NaN.
        truth: the true states, finite at all counted steps.
        difference: ``"raw"`` uses the stored numbers. NEES and coverage always use the shortest difference.
        late: first step of the second error, ``mse_from_10``; NaN if no trajectory is that long.
        valid: mask of the counted steps; all steps if None. Other steps are treated as removed from the trajectories:
            their values have no effect, and ``late`` counts the remaining steps. All counted steps have equal weight,
            so a trajectory is weighted by its number of counted steps.

    Returns:
        Figures by name.

    Raises:
        DataError: no step is counted, or the truth is not finite at one that is.
        ShapeError: shapes differ.

    >>> row = summarize(Layout.euclidean(1), (torch.ones(2, 20, 1), torch.ones(2, 20, 1, 1)), torch.zeros(2, 20, 1))
    >>> row["mse"], row["mse_from_10"], row["nees"], row["coverage95"], row["failures"]
    (1.0, 1.0, 1.0, 1.0, 0)
    """
    moments = (estimate.mean, estimate.cov) if isinstance(estimate, Trajectory | Gaussian) else estimate
    check_shapes(moments[0], truth)
    counts = truth.new_ones(truth.shape[:-1], dtype=torch.bool) if valid is None else valid
    if counts.shape != truth.shape[:-1] or counts.dtype != torch.bool:
        raise ShapeError(f"valid is {counts.dtype} {tuple(counts.shape)}, must be torch.bool {tuple(truth.shape[:-1])}")
    if not counts.any():
        raise DataError("no step is counted: check that the true states are not missing everywhere")
    missing = (counts & ~truth.isfinite().all(-1)).nonzero()
    if len(missing):
        trajectory, step = missing[0].tolist()
        raise DataError(
            f"the truth of trajectory {trajectory} is not finite at step {step}: exclude such steps with valid"
        )

    def select(values: Tensor) -> Tensor:
        """The counted steps of all trajectories along one axis."""
        return values.detach().flatten(0, 1).double() if valid is None else values.detach()[valid].double()

    mean, truth = select(moments[0]), select(truth)
    cov = None if moments[1] is None else select(moments[1])
    tangent = residual(layout, mean, truth)
    error = tangent if difference == "shortest" else raw_difference(mean, truth)
    failed = ~usable(layout, mean).all(-1)
    after_transient = counts.cumsum(-1)[counts] > late
    row = {
        "mse": mse(error),
        "mse_paper": mse_paper(error),
        "rmse": rmse(error),
        "mae": mae(error),
        "mae_paper": mae_paper(error),
        "nrmse_rms": nrmse_rms(error, truth),
        "nrmse_std": nrmse_std(error, truth),
        "r2": r2(error, truth),
        f"mse_from_{late}": mse(error[after_transient]) if after_transient.any() else math.nan,
        "nees": math.nan,
        "coverage95": math.nan,
    }
    if cov is not None:
        failed = failed | ~cov.isfinite().all(-1).all(-1)
        # failed covariances are replaced first: LAPACK's behaviour on NaN and infinity is undefined
        clean = torch.where(failed[..., None, None], torch.eye(cov.shape[-1], dtype=cov.dtype, device=cov.device), cov)
        values = nees(torch.where(failed[..., None], 0, tangent), clean)
        row["nees"] = values.masked_fill(failed | values.isnan(), torch.inf).mean()
        row["coverage95"] = coverage(tangent.masked_fill(failed[..., None], torch.inf), clean).overall
    failures = counts.nonzero()[:, 0][failed].unique().numel()
    return {**{name: float(value) for name, value in row.items()}, "failures": failures}
