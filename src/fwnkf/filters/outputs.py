"""Cleaning of inputs and assembly of outputs, shared by all filters."""

from __future__ import annotations

import torch
from torch import Tensor

from ..shapes import Bool, Float, Int
from ..types import Gaussian, Status, StepOutput


def clean(
    y: Float[Tensor, "*B m"], mask: Bool[Tensor, "*B m"] | None
) -> tuple[Float[Tensor, "*B m"], Float[Tensor, "*B m"], Int[Tensor, "*B"]]:
    """Finite values, weights, and a status bit where an unmasked channel is not finite."""
    finite = (y - y) == 0  # two kernel calls; torch.isfinite takes five
    present = finite if mask is None else finite & mask
    invalid = ~finite if mask is None else mask & ~finite
    flagged = invalid.any(-1) * int(Status.NON_FINITE_OBSERVATION)
    return torch.where(present, y, 0.0), present.to(y.dtype), flagged


def per_step(flags: Int[Tensor, "*B"], axes: int) -> Int[Tensor, "*C"]:
    """The status of each step: the largest of the samples of its block."""
    return flags if flags.ndim == axes else flags.amax(-1)


def failed(ok: Bool[Tensor, "B"]) -> Int[Tensor, "B"]:
    """Status of a factorisation: 0 where it worked."""
    return ~ok * int(Status.FACTORIZATION_FAILED)


def step_output(
    prior: Gaussian,
    posterior: Gaussian,
    innovation: Float[Tensor, "B m"],
    innovation_cov: Float[Tensor, "B m m"],
    ok: Bool[Tensor, "B"],
    shaped: Float[Tensor, "B m"] | None = None,
) -> StepOutput:
    """The output of a step; without shaping the shaped innovation is the innovation."""
    shaped = innovation if shaped is None else shaped
    return StepOutput(*posterior, *prior, innovation, shaped, innovation_cov, failed(ok))


def scale_covariance(out: StepOutput, scale: Float[Tensor, " d"]) -> StepOutput:
    """The output with its covariances multiplied by ``√s √sᵀ`` elementwise; correlations do not change."""
    root = scale.sqrt()
    factor = root.unsqueeze(-1) * root
    return out._replace(cov=out.cov * factor, prior_cov=out.prior_cov * factor)
