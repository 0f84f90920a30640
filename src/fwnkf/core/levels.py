"""Levels of noise that are followed while it is measured: the power of the white noise and of noise states.

The covariance of an estimate is a sum over the sources of its error. A source ``l`` of unknown level ``λ_l`` has a part
``P_l`` of it, which goes through the same transition and gain as the whole,

    P_l⁻ = F P_l Fᵀ + λ_l Q_l,      P_l = (I - K H) P_l⁻ (I - K H)ᵀ + K λ_l R_l Kᵀ.

For the Kalman gain this is also the derivative of ``P`` with respect to ``log λ_l``, because the first-order effect of
a change of the gain vanishes. With it come the derivatives of the innovation's covariance, ``S_l = H P_l⁻ Hᵀ + λ_l
R_l``, of the gain and of the mean, and so the gradient of the likelihood of a measurement and its expected curvature
(Gupta and Mehra 1974). Each measurement moves ``log λ`` by one scoring step with the curvature gathered so far, which
is forgotten exponentially. For white noise alone the step is the update of an inverse gamma distribution, exactly.

When a level moves, the belief moves along its derivatives to what it would be, had the level been the new one before:
the mean by ``∂x/∂log λ``, the covariance by ``(e^Δ - 1) P_l``. As ``Σ P_l ⪯ P`` it stays positive semidefinite.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..shapes import Float
from .gaussian import FullNoise, Update, gain, matvec, right_solve, symmetrize

SPREAD = 0.8
"""Standard deviation of the logarithm of a level before anything is measured: a factor of about two either way."""
LIMIT = math.log(1e4)
"""Largest change of the logarithm of a level: a sensor that repeats a value must not make a filter certain."""
LARGEST_DROP, LARGEST_RISE = -0.5, 20.0
"""Bounds on the relative change of a level in one step, where few measurements give its curvature."""


class Levels(NamedTuple):
    """What is known of ``L`` levels, and the derivatives of the belief with respect to their logarithms."""

    log: Float[Tensor, "B L"]
    """Estimates of ``log λ``; zero is the level a filter was made with."""
    information: Float[Tensor, "B L L"]
    """Curvature of the likelihood of what was measured lately."""
    mean: Float[Tensor, "B L j"]
    """Derivatives of the mean."""
    cov: Float[Tensor, "B L j j"]
    """Parts of the covariance that are due to each source."""


class Change(NamedTuple):
    """What a change of levels adds to mean and covariance of the belief."""

    mean: Float[Tensor, "B j"]
    cov: Float[Tensor, "B j j"]


def start(shares: Float[Tensor, "B L j j"]) -> Levels:
    """Levels of which nothing is known but their spread.

    Args:
        shares: parts of the initial covariance that are due to each source.

    >>> start(torch.zeros(1, 2, 3, 3)).log
    tensor([[0., 0.]])
    """
    zeros = torch.zeros_like(shares[..., 0])
    return Levels(zeros[..., 0].clone(), _least(shares).expand(len(shares), -1, -1).clone(), zeros, shares)


def predict(
    levels: Levels, F: Float[Tensor, "*K j j"], Q: Float[Tensor, "*B L j j"], kept: Float[Tensor, " B"]
) -> Levels:
    """The derivatives after a transition, and what is left of the information.

    Args:
        levels: as :func:`follow` returned them.
        F: the transition.
        Q: what the noise of each source, at its level, adds to the covariance.
        kept: share of the information that is not forgotten in this step.

    Returns:
        The levels before the next measurement.
    """
    wide, share = F.unsqueeze(-3), kept[:, None, None]
    cov = symmetrize(wide @ levels.cov @ wide.mT + Q)
    information = share * levels.information + (1 - share) * _least(levels.cov)
    return levels._replace(information=information, mean=matvec(wide, levels.mean), cov=cov)


def follow(
    levels: Levels,
    R: Float[Tensor, "B L m m"],
    P: Float[Tensor, "B j j"],
    update: Update,
    innovation: Float[Tensor, "B m"],
    H: Float[Tensor, "*K m j"],
    weight: Float[Tensor, "B m"],
    free: Float[Tensor, " B"],
) -> tuple[Levels, Change]:
    """Levels after a measurement, and what their change adds to the posterior belief.

    Args:
        levels: as :func:`predict` returned them.
        R: what the noise of each source, at its level, adds to the measurement.
        P: covariance of the prior, of which ``levels.cov`` are parts.
        update: of that prior with this measurement.
        innovation: zero where masked.
        H: Jacobian of the observation.
        weight: 1 where a channel was measured, else 0.
        free: 1 where levels may move, 0 where they stay.

    Returns:
        The levels, and the change of mean and covariance.

    >>> from fwnkf.core.gaussian import DiagonalNoise, condition
    >>> one, wide = torch.ones(1, 1), torch.ones(1, 1, 1)
    >>> prior = condition(0 * wide, 3 * one, wide, DiagonalNoise(one), one)
    >>> known = start(torch.zeros(1, 1, 1, 1))
    >>> after, _ = follow(known, torch.ones(1, 1, 1, 1), 0 * wide, prior, 3 * one, wide, one, one[0])
    >>> a = 1 / SPREAD**2  # of an inverse gamma distribution, whose scale is a too
    >>> bool((after.log.exp() - (a + 0.5 * 9) / (a + 0.5)).abs() < 1e-5)
    True
    """
    K, S, ok = update.gain, update.innovation_cov, update.ok
    if K is None:  # channels were used one by one
        K, _, _ = gain(P, H, FullNoise(R.sum(-3)), weight)
    eye = torch.eye(S.shape[-1], dtype=S.dtype, device=S.device)
    inverse, _ = right_solve(eye.expand_as(S), S, weight)
    wide_H, wide_K = H.unsqueeze(-3), K.unsqueeze(-3)
    # derivatives of S, of the innovation and of the gain with respect to each log-level
    cross = levels.cov @ wide_H.mT
    parts = wide_H @ cross + R
    moved = matvec(wide_H, levels.mean)
    turned = (cross - wide_K @ parts) @ inverse.unsqueeze(-3)
    score, curvature = _likelihood(innovation, inverse, parts, moved)

    known = (free * ok).unsqueeze(-1)
    information = symmetrize(levels.information + known.unsqueeze(-1) * curvature)
    step, solved = right_solve((known * score).unsqueeze(-2), information)
    relative = torch.where(solved.unsqueeze(-1), step.squeeze(-2), 0.0).clamp(LARGEST_DROP, LARGEST_RISE)
    log = (levels.log + torch.log1p(relative)).clamp(-LIMIT, LIMIT)
    change = log - levels.log

    left = torch.eye(P.shape[-1], dtype=P.dtype, device=P.device) - wide_K @ wide_H
    mean = matvec(left, levels.mean) + matvec(turned, innovation.unsqueeze(-2).expand(*turned.shape[:-2], -1))
    cov = symmetrize(left @ levels.cov @ left.mT + wide_K @ R @ wide_K.mT)
    growth = torch.expm1(change)[..., None, None] * cov
    following = Levels(log, information, mean, cov + growth)
    return following, Change((change.unsqueeze(-1) * mean).sum(-2), growth.sum(-3))


def _likelihood(
    innovation: Tensor, inverse: Tensor, parts: Tensor, moved: Tensor
) -> tuple[Float[Tensor, "B L"], Float[Tensor, "B L L"]]:
    """Gradient of ``log N(r; 0, S)`` and its expected curvature, for ``∂S = parts`` and ``∂r = -moved``."""
    white = matvec(inverse, innovation).unsqueeze(-2)
    ratio = inverse.unsqueeze(-3) @ parts
    square = (white * matvec(parts, white.expand_as(moved))).sum(-1)
    score = 0.5 * (square - ratio.diagonal(dim1=-2, dim2=-1).sum(-1)) + (moved * white).sum(-1)
    flat, turned = ratio.flatten(-2), ratio.mT.flatten(-2)
    return score, 0.5 * flat @ turned.mT + moved @ inverse @ moved.mT


def _least(like: Float[Tensor, "B L j j"]) -> Float[Tensor, "L L"]:
    """Information about levels of which nothing was measured."""
    return torch.eye(like.shape[-3], dtype=like.dtype, device=like.device) / SPREAD**2
