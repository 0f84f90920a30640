"""The two forms in which a filter carries its covariance from step to step: dense, or as factors ``U D Uᵀ``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..shapes import Bool, Float
from ..types import Gaussian
from . import gaussian, ud
from .gaussian import Noise, SolveForm, dense
from .layout import Layout


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
    condition: Callable[..., gaussian.Update]


def _same(P: Tensor) -> Tensor:
    return P


def covariance_form(solve: SolveForm) -> CovarianceForm:
    """The form of ``solve=…``: factors for ``"square_root"``, otherwise dense with that solver."""
    if solve == "square_root":
        return CovarianceForm(Factored, ud.factor, ud.covariance, ud.propagate, ud.condition)
    return CovarianceForm(Gaussian, _same, _same, gaussian.propagate, partial(gaussian.condition, form=solve))


def representable(
    layout: Layout, posterior: Gaussian, y: Float[Tensor, "*B m"], noise: Noise, weight: Float[Tensor, "*B m"]
) -> Bool[Tensor, "*B"]:
    """Whether measurements and estimate are larger than their uncertainty by less than the digits of their dtype.

    Where they are not, the rounding of the numbers themselves exceeds the noise, and no form of the recursion helps.
    """
    eps = torch.finfo(y.dtype).eps
    variance = torch.diagonal(dense(noise), dim1=-2, dim2=-1)
    fine = (((eps * y) ** 2 <= variance) | (weight == 0)).all(-1)
    if layout.flat:
        stated = torch.diagonal(posterior.cov, dim1=-2, dim2=-1)
        fine = fine & (((eps * posterior.mean) ** 2 <= stated) | (stated == 0)).all(-1)
    return fine
