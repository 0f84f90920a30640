"""Shared types: a Gaussian belief, and the output of a step.

Axis letters: ``B`` batch, ``T`` time, ``n`` state as stored, ``d`` tangent space of the state (``d == n`` unless the
state has quaternions), ``m`` observation, ``p`` control.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from .shapes import Float, Int


def numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    """The type of the numbers of a tensor in NumPy; a TypeError for those that it does not have (bfloat16).

    >>> numpy_dtype(torch.float32)
    dtype('float32')
    """
    return torch.empty(0, dtype=dtype).numpy().dtype


class Status(IntFlag):
    """Bits for the faults of a step. A step sets them and never raises; ``Trajectory.raise_for_status`` does.

    ``PRECISION_LOST`` is a warning: the measurement was used.

    >>> import fwnkf
    >>> fwnkf.Status.FACTORIZATION_FAILED in fwnkf.Status(3)
    True
    """

    OK = 0
    """No fault."""
    FACTORIZATION_FAILED = 1
    """The innovation covariance was not positive definite: the update was skipped."""
    NON_FINITE_OBSERVATION = 2
    """An unmasked channel was NaN, infinite, or so large that its square overflows: it was treated as missing."""
    PRECISION_LOST = 4
    """The update was made, but rounding may have changed it by more than a percent.

    A covariance is too ill-conditioned for the dtype: use ``solve="square_root"`` or float64. Or measurements or
    estimates are so large that their rounding is not small beside their uncertainty: then only float64 helps, or
    coordinates relative to an origin nearby (:class:`fwnkf.Part`).
    """
    REJECTED = 256
    """The result was not finite, or ``dt`` was negative: the state is that of before the step.

    The outputs of this step mean nothing. Exported C has the same bit.
    """


class Gaussian(NamedTuple):
    """A belief ``N(mean, cov)``; ``cov`` is in the tangent space of the state at ``mean``.

    >>> import torch, fwnkf
    >>> fwnkf.Gaussian(torch.zeros(1, 2), torch.eye(2).expand(1, 2, 2)).cov.shape
    torch.Size([1, 2, 2])
    """

    mean: Float[Tensor, "*B n"]
    """The mean, as the state is stored."""
    cov: Float[Tensor, "*B d d"]
    """The covariance."""


class StepOutput(NamedTuple):
    """The output of one step: posterior, prior, innovations and status.

    >>> import torch, fwnkf
    >>> one = torch.eye(1)
    >>> kf = fwnkf.KF(F=one, H=one, Q=one, R=one)
    >>> state, out = kf.step(kf.init(1), torch.tensor([[3.0]]))
    >>> out.prior_mean, out.innovation, out.mean
    (tensor([[0.]]), tensor([[3.]]), tensor([[2.]]))
    """

    mean: Float[Tensor, "*B n"]
    """Posterior mean."""
    cov: Float[Tensor, "*B d d"]
    """Posterior covariance, in the tangent space at :attr:`mean`."""
    prior_mean: Float[Tensor, "*B n"]
    """Predicted mean, before the measurement."""
    prior_cov: Float[Tensor, "*B d d"]
    """Predicted covariance."""
    innovation: Float[Tensor, "*B m"]
    """``y ⊟ ŷ``, zero in masked channels."""
    shaped_innovation: Float[Tensor, "*B m"]
    """The innovation after the filter's shaping; without any the innovation itself. Zero in masked channels."""
    innovation_cov: Float[Tensor, "*B m m"]
    """The full predicted covariance ``H P Hᵀ + R`` of the innovation, whatever the mask."""
    status: Int[Tensor, "*B"]
    """Bits of :class:`fwnkf.Status`."""


@runtime_checkable
class DataFrame(Protocol):
    """A DataFrame of pandas or polars, see :mod:`fwnkf.frames`; neither is imported for it."""

    @property
    def columns(self) -> Any: ...


@runtime_checkable
class Dataset(Protocol):
    """A Dataset of xarray, likewise."""

    @property
    def data_vars(self) -> Any: ...


Frame = DataFrame | Dataset
"""A table in memory with a time and named columns."""
FrameT = TypeVar("FrameT", bound=Frame)


class Statistics(NamedTuple):
    """Means and standard deviations of training data, for networks whose inputs should be of order one.

    ``feature`` refers to :meth:`Layout.features`; ``step`` is the root mean square change of each tangent coordinate of
    the state in one step.
    """

    feature_mean: Float[Tensor, " f"]
    feature_std: Float[Tensor, " f"]
    observation_mean: Float[Tensor, " m"]
    observation_std: Float[Tensor, " m"]
    control_mean: Float[Tensor, " p"]
    control_std: Float[Tensor, " p"]
    step: Float[Tensor, " d"]
