"""Training objectives that need a filter and its trajectory, not only tensors."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ..core import spectral
from ..core.gaussian import log_prob
from ..shapes import Float
from ..types import Trajectory
from .base import Filter


def spectral_loss(
    model: Filter,
    trajectory: Trajectory,
    truth: Float[Tensor, "B T n"],
    *,
    which: Literal["prior", "posterior"] = "prior",
    band: tuple[float, float] = spectral.HALF_BAND,
    taper: spectral.Window = "none",
    reduction: spectral.Reduction = "paper",
) -> Float[Tensor, ""]:
    """Algorithm 1: ``|F H(x̂_{t|t-1})|`` against ``|F H(x_t)|``; raises for a filter without an observation model."""
    estimate = trajectory.prior_mean if which == "prior" else trajectory.mean
    return spectral.spectral_loss(model.observe(estimate), model.observe(truth), band, taper, reduction)


def state_loss(model: Filter, trajectory: Trajectory, truth: Float[Tensor, "B T n"]) -> Float[Tensor, ""]:
    """Mean over batch and time of ``‖x̂ ⊟ x‖²`` (summed over dimensions, as Algorithm 1 writes it)."""
    return model.layout.boxminus(trajectory.mean, truth).square().sum(-1).mean()


def state_nll(model: Filter, trajectory: Trajectory, truth: Float[Tensor, "B T n"]) -> Float[Tensor, ""]:
    """Mean negative log-likelihood of the truth under the posterior."""
    residual = model.layout.boxminus(truth, trajectory.mean)
    return -log_prob(residual, trajectory.cov)[0].mean()
