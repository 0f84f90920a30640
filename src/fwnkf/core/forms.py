"""The two forms in which a filter carries its covariance from step to step: dense, or as factors ``U D Uᵀ``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..shapes import Bool, Float
from ..types import Gaussian
from . import gaussian, ud
from .gaussian import Noise, SolveForm, dense


class Factored(NamedTuple):
    """A belief whose covariance is ``U D Uᵀ``, with ``D`` on the diagonal of ``factors`` and ``U`` above it."""

    mean: Float[Tensor, "*B n"]
    factors: Float[Tensor, "*B d d"]


class CovarianceForm(NamedTuple):
    """Functions of a covariance in one form, ``carried`` from step to step."""

    belief: Callable[[Tensor, Tensor], Any]
    """A mean and what is carried, as a state."""
    start: Callable[[Tensor], Tensor]
    """What is carried of a dense covariance."""
    covariance: Callable[[Tensor], Tensor]
    """The dense covariance of what is carried."""
    propagate: Callable[[Tensor, Tensor, Tensor], Tensor]
    predicts_precisely: Callable[[Tensor, Tensor, Tensor], Tensor]
    """Whether a prediction kept its digits, from what was carried before, ``F``, and what is carried after it."""
    condition: Callable[..., gaussian.Update]


def _same(P: Tensor) -> Tensor:
    return P


def _always(before: Tensor, F: Tensor, after: Tensor) -> Tensor:
    return torch.ones_like(after[..., 0, 0], dtype=torch.bool)


def covariance_form(solve: SolveForm) -> CovarianceForm:
    """The form of ``solve=…``: factors for ``"square_root"``, otherwise dense with that solver."""
    if solve == "square_root":
        return CovarianceForm(Factored, ud.factor, ud.covariance, ud.propagate, _always, ud.condition)
    condition = partial(gaussian.condition, form=solve)
    return CovarianceForm(Gaussian, _same, _same, gaussian.propagate, gaussian.prediction_keeps_digits, condition)


DIGITS = 32
"""How often the rounding error of a number must fit into its standard deviation.

Rounding errors of successive steps add up while a filter forgets them: with a gain of 1/1,000 they are 22 times those
of one step, about half of the standard deviation.
"""


def resolved(size: Float[Tensor, "*B d"], cov: Float[Tensor, "*B d d"]) -> Bool[Tensor, "*B"]:
    """Whether the dtype has digits left for the stated standard deviations beside means of this ``size``.

    Where it has not, rounding of the mean exceeds its uncertainty and no form of the recursion helps: float64 does, or
    coordinates relative to an origin nearby. A standard deviation of zero states an exact number.
    """
    return _digits_left(size, torch.diagonal(cov, dim1=-2, dim2=-1)).all(-1)


@torch.no_grad()
def points_resolved(
    drawn: Sequence[tuple[Float[Tensor, "B _"], Float[Tensor, "B _ _"]]], update: gaussian.Update, innovation: Tensor
) -> Bool[Tensor, "B"]:
    """As :func:`resolved` where points were drawn around means, in pairs of size and covariance.

    The points round as they are added to the mean, and their differences must keep two digits. An innovation beyond its
    standard deviation makes as much more of it.
    """
    variance = torch.diagonal(update.innovation_cov, dim1=-2, dim2=-1)
    beyond = 4 * (innovation.square() / variance).amax(-1, keepdim=True).sqrt().clamp_min(1)
    return torch.stack([resolved(beyond * size, cov) for size, cov in drawn]).all(0)


@torch.no_grad()
def measured_precisely(
    precise: Bool[Tensor, "*B"] | None, y: Float[Tensor, "*B m"], noise: Noise, weight: Float[Tensor, "*B m"]
) -> Bool[Tensor, "*B"]:
    """Whether an update was precise, and the dtype can hold its measurements to within their noise."""
    variance = torch.diagonal(dense(noise), dim1=-2, dim2=-1)
    fine = (_digits_left(y.abs(), variance) | (weight == 0)).all(-1)
    return fine if precise is None else precise & fine


@torch.no_grad()
def precise_over_time(
    prior_cov: Float[Tensor, "*P n n"],
    cov: Float[Tensor, "*P n n"],
    K: Float[Tensor, "*P n m"],
    S: Float[Tensor, "*P m m"],
    pivots: Float[Tensor, "*P m"],
    innovation: Float[Tensor, "*B m"],
    weighted: Float[Tensor, "*B m"],
    H: Float[Tensor, "m n"],
    noise: Noise,
    y: Float[Tensor, "*B m"],
    weight: Float[Tensor, "*B m"] | None = None,
    IKH: Float[Tensor, "*P n n"] | None = None,
) -> Bool[Tensor, "*B"]:
    """Whether dense updates kept their digits, for all steps at once: what :func:`.gaussian.condition` and
    :func:`measured_precisely` say of one.

    Covariances may be those of one step for many measurements. ``weighted`` is ``S⁻¹ r``; gain, ``S`` and its pivots
    are those of :func:`.gaussian.solved_rows`. Predictions are judged by :func:`.gaussian.prediction_keeps_digits`.
    """
    IKH = gaussian.remaining(K, H) if IKH is None else IKH
    fine = gaussian.keeps_digits(prior_cov, cov, IKH, H, noise, weight)
    fine = fine & gaussian.update_resolved(prior_cov, cov, K, H, S, innovation, weighted, pivots, weight)
    return measured_precisely(fine, y, noise, torch.ones_like(y) if weight is None else weight)


def _digits_left(size: Tensor, variance: Tensor) -> Tensor:
    return ((DIGITS * torch.finfo(size.dtype).eps * size).square() <= variance) | (variance == 0)
