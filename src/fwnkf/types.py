"""Shared types: a Gaussian belief, the output of a step, a filtered trajectory.

Axis letters: ``B`` batch, ``T`` time, ``n`` state as stored, ``d`` tangent space of the state (``d == n`` unless the
state has quaternions), ``m`` observation, ``p`` control.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntFlag
from typing import Any, NamedTuple

from torch import Tensor

from .errors import NumericalFailureError
from .shapes import Float, Int


class Status(IntFlag):
    """Bits for the faults of a step. A step sets them and never raises; :meth:`Trajectory.raise_for_status` does."""

    OK = 0
    FACTORIZATION_FAILED = 1
    """The innovation covariance was not positive definite: the update was skipped."""
    NON_FINITE_OBSERVATION = 2
    """An unmasked channel was NaN or infinite: it was treated as missing."""


class Gaussian(NamedTuple):
    """A belief ``N(mean, cov)``; ``cov`` is in the tangent space of the state at ``mean``.

    >>> import torch, fwnkf
    >>> fwnkf.Gaussian(torch.zeros(1, 2), torch.eye(2).expand(1, 2, 2)).cov.shape
    torch.Size([1, 2, 2])
    """

    mean: Float[Tensor, "*B n"]
    cov: Float[Tensor, "*B d d"]


class StepOutput(NamedTuple):
    """The output of one step: posterior, prior, innovations and status.

    ``innovation`` and ``shaped_innovation`` are zero in masked channels; ``innovation_cov`` is the full predicted
    covariance ``H P Hᵀ + R``, independent of the mask.
    """

    mean: Float[Tensor, "*B n"]
    cov: Float[Tensor, "*B d d"]
    prior_mean: Float[Tensor, "*B n"]
    prior_cov: Float[Tensor, "*B d d"]
    innovation: Float[Tensor, "*B m"]
    shaped_innovation: Float[Tensor, "*B m"]
    innovation_cov: Float[Tensor, "*B m m"]
    status: Int[Tensor, "*B"]


class Trajectory(NamedTuple):
    """:class:`StepOutput` stacked over time (axis 1), and the final state, from which ``run`` can continue."""

    mean: Float[Tensor, "B T n"]
    cov: Float[Tensor, "B T d d"]
    prior_mean: Float[Tensor, "B T n"]
    prior_cov: Float[Tensor, "B T d d"]
    innovation: Float[Tensor, "B T m"]
    shaped_innovation: Float[Tensor, "B T m"]
    innovation_cov: Float[Tensor, "B T m m"]
    status: Int[Tensor, "B T"]
    state: Any
    linear: Any = None
    """The linear models of all steps (:class:`fwnkf.core.smoothing.LinearSteps`), with ``run(…, smoothing=True)``."""

    def raise_for_status(self, streams: Sequence[str] | None = None) -> Trajectory:
        """Raise :class:`NumericalFailureError` naming the first failing stream and step, or return ``self``."""
        failed = self.status.nonzero()
        if len(failed) == 0:
            return self
        stream, step = (int(i) for i in failed[0])
        flags = Status(int(self.status[stream, step]))
        name = streams[stream] if streams is not None else f"number {stream}"
        raise NumericalFailureError(
            f"stream {name}, step {step}: {flags!r}; {len(failed)} step(s) in all. "
            "Mask observations that are not finite (mask=False there). A failed factorisation means that the "
            "innovation covariance was not positive definite: increase R or Q, or run in float64."
        )
