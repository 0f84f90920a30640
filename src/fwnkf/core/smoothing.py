"""Smoothing of a linear Gaussian recursion in square-root form.

The belief after step ``t`` is written as ``x_t = x̂_t + A_t z_t`` with ``P_t = A_t A_tᵀ`` and ``z_t ~ N(0, I)``.
Prediction and update act on ``z`` by orthogonal matrices alone: with ``Q = B Bᵀ``,

    [A_tᵀ Fᵀ; Bᵀ] = O [U; 0],      A⁻ = Uᵀ,      z_t = O₁₁ z⁻ + O₁₂ η,   η ~ N(0, I)
    [R^{T/2}; A⁻ᵀ Hᵀ] = V [S^{T/2}; 0],          z⁻ = V₂₁ S^{-1/2} r + V₂₂ z_{t+1}

so the backward pass is ``z_t = c_t + M_t z_{t+1} + N(0, N_t)`` with ``M = O₁₁ V₂₂``, ``c = O₁₁ V₂₁ S^{-1/2} r`` and
``N = O₁₂ O₁₂ᵀ``. It is the Rauch-Tung-Striebel smoother in the coordinates ``z``: nothing is inverted but ``S``, so
``Q``, ``R`` and every covariance may be singular, and the smoothed covariance ``A_t T_t A_tᵀ`` is a sum of positive
semidefinite terms without a subtraction.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..shapes import Bool, Float
from .gaussian import FullNoise, Noise, dense, factor_psd, masked, matvec, pseudo_solve, symmetrize, triangularize
from .tree import tree_map

# ---- what a filter records ------------------------------------------------------------------------------------------


class Measurement(NamedTuple):
    """An update with the Kalman gain of ``H`` and ``noise``."""

    innovation: Float[Tensor, "*B m"]
    """What the gain multiplied."""
    H: Float[Tensor, "*H m D"]
    noise: Noise
    weight: Float[Tensor, "*B m"]
    """Zero for channels that were missing."""
    ok: Bool[Tensor, "*B"]
    """False where the update was skipped."""


class StatedCovariance(NamedTuple):
    """An update by another gain, after which the filter states the covariance of its error."""

    cov: Float[Tensor, "*B D D"]


class LinearStep(NamedTuple):
    """The linear model that a filter used in one step; constant matrices may lack the batch axis.

    It is over all ``D`` coordinates that the filter carries a covariance of: the tangent space of the state, then noise
    states or lagged states.
    """

    F: Float[Tensor, "*F D D"] | None
    """From the tangent space at the estimate of the step before to that at the prediction; None if nothing moved."""
    Q: Float[Tensor, "*Q D D"] | None
    update: Measurement | StatedCovariance
    correction: Float[Tensor, "*B D"]
    """What the update added, in the tangent space at the prediction."""
    mean: Float[Tensor, "*B n"]
    """The estimate of the state after the update."""
    extra: Float[Tensor, "*B s"] | None = None
    """That of the further coordinates, if there are any."""
    log_weight: Float[Tensor, "*C K"] | None = None
    """Where ``K`` models run side by side (``B`` is then ``C K``): the logarithm of their probabilities."""


class LinearSteps(NamedTuple):
    """The linear models of all steps of a run, stacked on axis 1, and the covariance before the first."""

    start: Float[Tensor, "B D D"]
    steps: LinearStep

    @property
    def log_weight(self) -> Float[Tensor, "C T K"] | None:
        """The logarithms of the probabilities of models that ran side by side."""
        return self.steps.log_weight


def batched(step: LinearStep) -> LinearStep:
    """The step with a batch axis on every matrix, so that steps can be stacked."""
    batch, update = len(step.mean), step.update

    def expand(matrix: Tensor, axes: int) -> Tensor:
        return matrix if matrix.ndim > axes else matrix.expand(batch, *matrix.shape)

    if isinstance(update, Measurement):
        full = isinstance(update.noise, FullNoise)
        noise = tree_map(lambda item: expand(item, 2 if full else 1), update.noise)
        update = update._replace(H=expand(update.H, 2), noise=noise)
    F, Q = _moved(step)
    return step._replace(F=expand(F, 2), Q=expand(Q, 2), update=update)


def _moved(step: LinearStep) -> tuple[Tensor, Tensor]:
    """``F`` and ``Q``; the identity where nothing was predicted, and zero unless the state jumped."""
    eye = torch.eye(step.correction.shape[-1], dtype=step.mean.dtype, device=step.mean.device)
    return eye if step.F is None else step.F, torch.zeros_like(eye) if step.Q is None else step.Q


# ---- algebra --------------------------------------------------------------------------------------------------------


class Link(NamedTuple):
    """What connects the step before with this one: ``z = shift + gain z' + N(0, spread)`` with ``z'`` of this step."""

    shift: Float[Tensor, "*B D"]
    gain: Float[Tensor, "*B D D"]
    spread: Float[Tensor, "*B D D"]


class Coordinates(NamedTuple):
    """Mean and covariance of ``z``, the error of a step in units of its filtered covariance."""

    mean: Float[Tensor, "*B D"]
    cov: Float[Tensor, "*B D D"]


def predicted_factor(
    A: Float[Tensor, "B D D"], F: Float[Tensor, "B D D"], B: Float[Tensor, "B D D"]
) -> tuple[Float[Tensor, "B D D"], Float[Tensor, "B D D"], Float[Tensor, "B D D"]]:
    """A factor of ``F A Aᵀ Fᵀ + B Bᵀ``, and ``O₁₁, O₁₂``, which take ``z⁻`` and ``η`` back to ``z``."""
    size = A.shape[-1]
    O, U = triangularize(torch.cat((A.mT @ F.mT, B.mT), -2))
    return U.mT, O[..., :size, :size], O[..., :size, size:]


def measured_link(
    A: Float[Tensor, "B D D"],
    H: Float[Tensor, "B m D"],
    root_R: Float[Tensor, "B m m"],
    innovation: Float[Tensor, "B m"],
) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B D D"]]:
    """Shift and gain of an update with the Kalman gain: ``z⁻ = shift + gain z``."""
    channels = H.shape[-2]
    V, root_S = triangularize(torch.cat((root_R.mT, A.mT @ H.mT), -2))
    whitened = torch.linalg.solve_triangular(root_S.mT, innovation.unsqueeze(-1), upper=False)
    return (V[..., channels:, :channels] @ whitened).squeeze(-1), V[..., channels:, channels:]


def stated_link(
    A: Float[Tensor, "B D D"], cov: Float[Tensor, "B D D"], correction: Float[Tensor, "B D"]
) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B D D"]]:
    """Shift and gain of an update by any other rule, from the correction it made and the covariance it states."""
    solved = pseudo_solve(A, torch.cat((correction.unsqueeze(-1), factor_psd(cov)), -1))
    return solved[..., 0], solved[..., 1:]


class Factors(NamedTuple):
    """A factor of every filtered covariance, and the links into every step, the first one from before the run."""

    factors: Float[Tensor, "B T D D"]
    links: Link


def factorize(
    start: Float[Tensor, "B D D"], steps: LinearStep, transport: Float[Tensor, "B T D D"] | None = None
) -> Factors:
    """The forward pass over the linear models of a run, from a factor of the covariance before the first step.

    ``transport`` are the Jacobians that take errors from the tangent space at the prediction to that at the estimate;
    none where the state is flat.
    """
    F, Q = _moved(steps)
    root_Q, update = _roots(Q), steps.update
    if isinstance(update, Measurement):
        weight = update.weight * update.ok.unsqueeze(-1)
        H, innovation = update.H * weight.unsqueeze(-1), update.innovation * weight
        root_R = _roots(masked(dense(update.noise), weight))
    A, factors, links = start, [], []
    for t in range(F.shape[1]):
        prior, O11, O12 = predicted_factor(A, F[:, t], root_Q[:, t])
        if isinstance(update, Measurement):
            shift, gain = measured_link(prior, H[:, t], root_R[:, t], innovation[:, t])
        else:
            shift, gain = stated_link(prior, update.cov[:, t], steps.correction[:, t])
        links.append(Link(matvec(O11, shift), O11 @ gain, O12 @ O12.mT))
        A = prior @ gain
        A = A if transport is None else transport[:, t] @ A
        factors.append(A)
    return Factors(torch.stack(factors, 1), Link(*(torch.stack(items, 1) for items in zip(*links, strict=True))))


def _roots(P: Float[Tensor, "B T n n"]) -> Float[Tensor, "B T n n"]:
    """Factors of covariances, of which there is often one alone."""
    first = P[:1, :1]
    return factor_psd(first).expand_as(P) if bool((first == P).all()) else factor_psd(P)


def back(link: Link, z: Coordinates) -> Coordinates:
    """One step of the backward pass."""
    return Coordinates(
        link.shift + matvec(link.gain, z.mean), symmetrize(link.gain @ z.cov @ link.gain.mT + link.spread)
    )


def end(A: Float[Tensor, "*B D D"]) -> Coordinates:
    """The coordinates where nothing later is known: those of the filtered belief."""
    eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    return Coordinates(torch.zeros_like(A[..., 0]), eye.expand_as(A))


def fixed_interval(links: Link, last: Coordinates) -> Coordinates:
    """The coordinates of all ``T`` steps given every measurement, from the links into steps ``1 … T - 1``."""
    z = [last]
    for t in reversed(range(links.shift.shape[1])):
        z.append(back(Link(*(item[:, t] for item in links)), z[-1]))
    return Coordinates(*(torch.stack(items, 1) for items in zip(*reversed(z), strict=True)))


def fixed_lag(links: Link, last: Coordinates, lag: int) -> Coordinates:
    """The coordinates of every step given the measurements up to ``lag`` steps later, for all steps at once."""
    count = links.shift.shape[1]
    z = Coordinates(*(item.unsqueeze(1).repeat_interleave(count + 1, 1) for item in last))
    for _ in range(min(lag, count)):
        moved = back(links, Coordinates(*(item[:, 1:] for item in z)))
        z = Coordinates(*(torch.cat((new, old[:, -1:]), 1) for new, old in zip(moved, z, strict=True)))
    return z
