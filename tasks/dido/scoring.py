"""Metrics of ``dido``: errors by axis and flight, lag, and whether the stated uncertainty is right."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fwnkf.metrics.consistency import coverage, nees, nis, variance_ratio
from fwnkf.shapes import Float
from tasks.dido.baselines import Estimate
from tasks.dido.protocol import AXES, RATE

LAGS = 20
"""Samples either way in which the lag of an estimate is looked for."""


def rmse(estimate: Float[Tensor, "N T 6"], truth: Float[Tensor, "N T 6"]) -> dict[str, float]:
    """Root mean squared error of each axis over all flights."""
    return dict(zip(AXES, (estimate - truth).square().mean((0, 1)).sqrt().tolist(), strict=True))


def lag(estimate: Float[Tensor, "N T 6"], truth: Float[Tensor, "N T 6"]) -> float:
    """Milliseconds by which an estimate comes after the truth: the mean over axes of the best cross-correlation."""
    delays = []
    for a, b in zip(estimate.unbind(-1), truth.unbind(-1), strict=True):
        a, b = a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)
        middle = b[:, LAGS:-LAGS]
        fits = [float((a[:, LAGS + k : a.shape[1] - LAGS + k] * middle).sum()) for k in range(-LAGS, LAGS + 1)]
        at = max(range(1, 2 * LAGS), key=fits.__getitem__)
        low, top, high = fits[at - 1 : at + 2]
        delays.append(at - LAGS + 0.5 * (low - high) / (low - 2 * top + high))
    return 1000 / RATE * sum(delays) / len(delays)


def best_of(errors: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The least error of each axis over methods."""
    return {axis: min(each[axis] for each in errors.values()) for axis in AXES}


def ratio(errors: Mapping[str, float], reference: Mapping[str, float]) -> float:
    """Mean over axes of the error over a reference's error of that axis."""
    return sum(errors[axis] / reference[axis] for axis in AXES) / len(AXES)


def ratio_by_flight(
    estimate: Tensor, truth: Tensor, names: tuple[str, ...], reference: Mapping[str, float]
) -> dict[str, float]:
    """:func:`ratio` of each flight alone; the reference is that of all flights together."""
    return {name: ratio(rmse(estimate[i : i + 1], truth[i : i + 1]), reference) for i, name in enumerate(names)}


def metrics(estimate: Estimate, truth: Tensor) -> dict[str, float]:
    """All metrics but the ratio, which needs the baselines."""
    errors = rmse(estimate.mean, truth)
    values = {f"rmse_{axis}": value for axis, value in errors.items()}
    values |= {"mean_rmse": sum(errors.values()) / len(AXES), "lag_ms": lag(estimate.mean, truth)}
    if estimate.cov is None or estimate.innovation is None or estimate.innovation_cov is None:
        return values
    error = estimate.mean - truth
    ratios = variance_ratio(error, estimate.cov)
    return values | {
        "nis": float(nis(estimate.innovation, estimate.innovation_cov).mean()),
        "nees": float(nees(error, estimate.cov).mean()),
        "coverage": float(coverage(error, estimate.cov).overall),
        "worst_variance_ratio": float(torch.maximum(ratios, 1 / ratios).max()),
    }


def consistency_by_axis(error: Tensor, cov: Tensor, factors: Float[Tensor, " 6"]) -> dict[str, dict[str, float]]:
    """Error over stated variance and 95 % coverage of each axis, before calibration by ``factors`` and after it."""
    root = factors.sqrt()
    before = cov / (root.unsqueeze(-1) * root)
    ratios = [variance_ratio(error, each).tolist() for each in (before, cov)]
    shares = [coverage(error, each).by_dimension.tolist() for each in (before, cov)]
    return {
        axis: {
            "error² / variance before": ratios[0][i], "after": ratios[1][i],
            "95 % coverage before": shares[0][i], "coverage after": shares[1][i],
        }
        for i, axis in enumerate(AXES)
    }  # fmt: skip
