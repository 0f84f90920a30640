"""Assembly of the outputs of a step, shared by all filters."""

from __future__ import annotations

from torch import Tensor

from ..shapes import Bool, Float, Int
from ..types import Gaussian, Status, StepOutput


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
    precise: Bool[Tensor, "B"] | None = None,
) -> StepOutput:
    """The output of a step; without shaping the shaped innovation is the innovation."""
    shaped = innovation if shaped is None else shaped
    status = failed(ok)
    if precise is not None:  # an update that failed is not imprecise as well
        status = status + (ok & ~precise) * int(Status.PRECISION_LOST)
    return StepOutput(*posterior, *prior, innovation, shaped, innovation_cov, status)


def covariance_factor(scale: Float[Tensor, " d"]) -> Float[Tensor, "d d"]:
    """``√s √sᵀ``: multiplied elementwise it scales variances by ``s`` and keeps correlations."""
    root = scale.sqrt()
    return root.unsqueeze(-1) * root


def scale_covariance(out: StepOutput, scale: Float[Tensor, " d"]) -> StepOutput:
    """The output with its covariances multiplied by :func:`covariance_factor`."""
    factor = covariance_factor(scale)
    return out._replace(cov=out.cov * factor, prior_cov=out.prior_cov * factor)
