"""A linear Gaussian model over the steps of recordings: what the engines for linear filters take and return."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ..shapes import Bool, Float, Int
from .gaussian import Noise


class Continuous(NamedTuple):
    """``dx = A x dt + B u dt + noise`` of spectral density ``density``: what the matrices of all steps follow from."""

    A: Float[Tensor, "D D"]
    B: Float[Tensor, "D p"]
    density: Float[Tensor, "D D"]
    factor: Float[Tensor, "D D"] | None = None
    """Multiplies the entries of every ``Q``; None for ones."""


class LinearRun(NamedTuple):
    """``x_t = F_t x_{t-1} + c_t + N(0, Q_t)``, ``y_t = H x_t + N(0, R)`` for ``B`` records of ``T`` steps."""

    F: Float[Tensor, "K D D"]
    """Transitions of the different lengths of steps that occur; one for a regular recording."""
    Q: Float[Tensor, "K D D"]
    H: Float[Tensor, "m D"]
    R: Noise
    """One for all steps."""
    y: Float[Tensor, "B T m"]
    """Finite; zero where missing."""
    weight: Float[Tensor, "B T m"]
    """1 where a channel was measured, else 0."""
    mean: Float[Tensor, "B D"]
    """Of the belief before the first step, or at the first measurement."""
    cov: Float[Tensor, "B D D"]
    kind: Int[Tensor, "B T"] | None = None
    """Which of ``F``, ``Q`` and ``B`` a step has; None for the first in all steps."""
    shift: Float[Tensor, "B T D"] | None = None
    """``c``, what controls add; None for zero."""
    predicts_first: bool = True
    """False where the belief is that at the first measurement, so that the first step conditions alone."""
    B: Float[Tensor, "K D p"] | None = None
    u: Float[Tensor, "B T p"] | None = None
    """Controls, from which compiled code computes ``c_t = B_t u_t`` itself."""
    continuous: Continuous | None = None
    """The model in continuous time, with which compiled code computes the matrices of steps of length ``dt``; then
    ``F``, ``Q`` and ``B`` are those of the nominal step."""
    dt: Float[Tensor, "B T"] | None = None
    """Lengths of steps over that of the nominal one, for ``continuous``."""


class LinearTrack(NamedTuple):
    """What a filter computes in every step of a :class:`LinearRun`; see :class:`fwnkf.Trajectory`."""

    mean: Float[Tensor, "B T D"]
    cov: Float[Tensor, "B T D D"]
    prior_mean: Float[Tensor, "B T D"]
    prior_cov: Float[Tensor, "B T D D"]
    innovation: Float[Tensor, "B T m"]
    """Zero where missing."""
    innovation_cov: Float[Tensor, "B T m m"]
    """``H P Hᵀ + R`` of all channels, whatever was missing."""
    log_density: Float[Tensor, "B T"]
    """The log-likelihood of each step over the channels that were measured."""
    ok: Bool[Tensor, "B T"]
    """Whether ``S`` was positive definite; where it was not, the update was skipped."""
    precise: Bool[Tensor, "B T"]
    """Whether rounding left mean and covariance their first digits."""
