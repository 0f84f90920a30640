"""Assembly of the outputs of a step, shared by all filters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..core.forms import resolved
from ..core.layout import Layout
from ..core.tree import tree_leaves, tree_select
from ..shapes import Bool, Float, Int
from ..types import Gaussian, Status, StepOutput


def per_step(flags: Int[Tensor, "*B"], axes: int) -> Int[Tensor, "*C"]:
    """The status of each step: the largest of the samples of its block."""
    return flags if flags.ndim == axes else flags.amax(-1)


def step_output(
    prior: Gaussian,
    posterior: Gaussian,
    innovation: Float[Tensor, "B m"],
    innovation_cov: Float[Tensor, "B m m"],
    ok: Bool[Tensor, "B"],
    precise: Bool[Tensor, "B"],
    shaped: Float[Tensor, "B m"] | None = None,
) -> StepOutput:
    """The output of a step; without shaping the shaped innovation is the innovation.

    ``precise`` has no default: every filter says whether its update kept its digits.
    """
    shaped = innovation if shaped is None else shaped
    # an update that failed is not imprecise as well
    status = ~ok * int(Status.FACTORIZATION_FAILED) + (ok & ~precise) * int(Status.PRECISION_LOST)
    return StepOutput(*posterior, *prior, innovation, shaped, innovation_cov, status)


@torch.no_grad()
def _has_digits(layout: Layout, out: StepOutput) -> Bool[Tensor, "B"]:
    # a prediction that an update moves far leaves the rounding of its own size
    size = torch.maximum(layout.magnitude(out.mean), layout.magnitude(out.prior_mean))
    return resolved(size, out.cov)


def with_resolution(layout: Layout, out: StepOutput) -> StepOutput:
    """The output with ``PRECISION_LOST`` where the dtype has no digits left for the stated standard deviations."""
    lost = ~_has_digits(layout, out) & ((out.status & int(Status.FACTORIZATION_FAILED)) == 0)
    return out._replace(status=out.status | lost * int(Status.PRECISION_LOST))


def rejected(
    before: Any,
    after: Any,
    out: StepOutput,
    u: Float[Tensor, "B *N p"] | None = None,
    dt: Float[Tensor, "B *N"] | None = None,
) -> tuple[Any, StepOutput]:
    """The state of before the step, and a status, where the result or ``u`` is not finite or ``dt`` is negative.

    Nothing branches on values, so that a traced step rejects as well.
    """
    fine = _usable((after, out.mean, out.cov, out.innovation_cov, u), dt)
    # digits that were lost are no matter where there is no number
    status = (out.status & ~int(Status.PRECISION_LOST)) | int(Status.REJECTED)
    return tree_select(fine, after, before), out._replace(status=torch.where(fine, out.status, status))


def rejected_prediction(
    before: Any, after: Any, u: Float[Tensor, "B p"] | None = None, dt: Float[Tensor, "B"] | None = None
) -> Any:
    """As :func:`rejected`, for a prediction alone."""
    return tree_select(_usable((after, u), dt), after, before)


@torch.no_grad()
def _usable(tree: Any, dt: Tensor | None) -> Bool[Tensor, "B"]:
    """Whether all numbers of a batch item are finite, and ``dt`` is a length."""
    leaves = {id(leaf): leaf for leaf in tree_leaves(tree)}  # the estimate is in the state and in the output
    numbers = [leaf.reshape(len(leaf), -1) for leaf in leaves.values() if leaf.is_floating_point() and leaf.numel()]
    flat = torch.cat(numbers, -1)
    fine = (flat - flat).sum(-1) == 0  # a difference to itself is zero only where a number is finite
    return fine if dt is None else fine & (dt >= 0).reshape(len(dt), -1).all(-1)


def covariance_factor(scale: Float[Tensor, " d"]) -> Float[Tensor, "d d"]:
    """``√s √sᵀ``: multiplied elementwise it scales variances by ``s`` and keeps correlations."""
    root = scale.sqrt()
    return root.unsqueeze(-1) * root


def scale_covariance(out: StepOutput, scale: Float[Tensor, " d"]) -> StepOutput:
    """The output with its covariances multiplied by :func:`covariance_factor`."""
    factor = covariance_factor(scale)
    return out._replace(cov=out.cov * factor, prior_cov=out.prior_cov * factor)
