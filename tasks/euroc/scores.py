"""Running a filter on windows of an IMU, and what is measured of its estimates."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fwnkf import Filter, Gaussian
from fwnkf.core.gaussian import log_prob
from fwnkf.data.protocols import Records
from fwnkf.metrics import consistency
from fwnkf.metrics.accuracy import residual
from fwnkf.shapes import Float
from tasks.euroc.protocol import by_source
from tasks.euroc.strapdown import same_sign
from tasks.euroc.trajectory import Poses, ate, rpe

COORDINATES = tuple(f"{name} {axis}" for name in ("position", "velocity", "attitude") for axis in "xyz")
BATCH = 256
"""Windows that are filtered together; a whole trajectory with covariances takes 6 kB a step and window."""


@torch.no_grad()
def run(model: Filter, *sets: Records, u: Float[Tensor, "N p"] | None = None) -> list[Gaussian]:
    """Beliefs about position, velocity and orientation at every sample, for each of several sets of equal length.

    ``u`` is a control that is constant during each window. The signs of quaternions follow those of the truth.
    """
    dtype = next(model.parameters()).dtype
    y, dt, truth = (torch.cat([getattr(one, name) for one in sets]) for name in ("y", "dt", "truth"))
    initial, cov = torch.cat([one.start.mean for one in sets]), sets[0].start.cov
    means, covs = [], []
    for rows in torch.arange(len(y)).split(BATCH):
        control = None if u is None else u[rows].to(dtype).unsqueeze(1).expand(-1, y.shape[1], -1)
        prior = Gaussian(initial[rows].to(dtype), cov.to(dtype))
        track = model.run(y[rows].to(dtype), u=control, dt=dt[rows].to(dtype), prior=prior).raise_for_status()
        means.append(track.mean[..., :10])
        covs.append(track.cov[..., :9, :9])
    mean, covariance = same_sign(torch.cat(means).to(truth), truth), torch.cat(covs).to(truth)
    sizes = [len(one) for one in sets]
    return [Gaussian(*parts) for parts in zip(mean.split(sizes), covariance.split(sizes), strict=True)]


def errors(records: Records, mean: Float[Tensor, "N T 10"]) -> dict[str, float]:
    """Root mean squared lengths of the errors of position, velocity and attitude: over all steps, and at the end."""
    error = residual(records.layout, mean, records.truth).unflatten(-1, (3, 3)).square().sum(-1)
    values = {}
    for i, name in enumerate(("p", "v", "q")):
        values[f"rmse_{name}"] = math.sqrt(float(error[..., i].mean()))
        values[f"end_{name}"] = math.sqrt(float(error[:, -1, i].mean()))
    return values


def position_rmse(*sets: tuple[Records, Gaussian]) -> float:
    """``rmse_p`` of several sets together."""
    error = [residual(one.layout, belief.mean, one.truth)[..., :3].flatten(0, 1) for one, belief in sets]
    return math.sqrt(float(torch.cat(error).square().sum(-1).mean()))


def pooled(sets: Sequence[tuple[Records, Gaussian]]) -> tuple[Float[Tensor, "M 9"], Float[Tensor, "M 9 9"]]:
    """Errors and stated covariances of all steps but the first, of several sets together."""
    error = torch.cat([residual(one.layout, belief.mean, one.truth)[:, 1:].flatten(0, 1) for one, belief in sets])
    return error, torch.cat([belief.cov[:, 1:].flatten(0, 1) for _, belief in sets])


def consistency_of(*sets: tuple[Records, Gaussian]) -> dict[str, float]:
    """NEES over the dimension, and the share of errors within their 95 % interval, over all steps but the first."""
    error, cov = pooled(sets)
    return {
        "nees": float(consistency.nees(error, cov).mean()),
        "coverage": float(consistency.coverage(error, cov).overall),
    }


def consistency_by_axis(*sets: tuple[Records, Gaussian]) -> dict[str, dict[str, float]]:
    """NEES and coverage of each coordinate alone."""
    error, cov = pooled(sets)
    ratio, covered = consistency.variance_ratio(error, cov), consistency.coverage(error, cov).by_dimension
    return {name: {"nees": float(ratio[i]), "coverage": float(covered[i])} for i, name in enumerate(COORDINATES)}


def likelihood(records: Records, belief: Gaussian, every: int = 20) -> float:
    """Mean log-likelihood of the true states for each coordinate: accuracy and consistency in one figure."""
    error = residual(records.layout, belief.mean, records.truth)[:, every::every]
    return float(log_prob(error, belief.cov[:, every::every])[0].mean()) / error.shape[-1]


def by_recording(records: Records, mean: Float[Tensor, "N T 10"], metric: str) -> dict[str, float]:
    """One of the errors for each sequence."""
    return {name: errors(records.take(rows), mean[rows])[metric] for name, rows in by_source(records).items()}


def trajectory_errors(records: Records, mean: Float[Tensor, "N T 10"], frames: int) -> dict[str, float]:
    """ATE without alignment and RPE over ``frames`` samples, mean over windows of each window's RMSE."""
    estimate, truth = (Poses(x[..., :3], x[..., 6:10]) for x in (mean, records.truth))
    relative = rpe(estimate, truth, frames)
    return {
        "ATE (m)": float(ate(estimate.position, truth.position).rmse.mean()),
        "RPE (m)": float(relative.translation_rmse.mean()),
        "RPE (deg)": math.degrees(float(relative.rotation_rmse.mean())),
    }
