"""Inputs of networks that predict a gain: changes of measurements and estimates, in their tangent spaces.

Shared by KalmanNet and its variants. A masked channel contributes zero, independent of its value.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...core.layout import Layout
from ...shapes import Float

NORM_FLOOR = 1e-12
"""A vector shorter than this is treated as zero, because its direction is undefined."""


def unit(x: Float[Tensor, "*B k"]) -> Float[Tensor, "*B k"]:
    """``x / |x|``, and zero for a zero vector.

    ``torch.nn.functional.normalize`` has the same values, but its gradient at zero is ``1 / eps = 1e12``, which would
    dominate all other gradients whenever nothing was measured.
    """
    squared = x.square().sum(-1, keepdim=True)
    empty = squared <= NORM_FLOOR**2
    length = torch.where(empty, torch.ones_like(squared), squared).sqrt()
    return torch.where(empty, torch.zeros_like(x), x / length)


def observation_change(
    layout: Layout, y: Float[Tensor, "B m"], seen: Float[Tensor, "B m"], weight: Float[Tensor, "B m"]
) -> Float[Tensor, "B m"]:
    """``y_t ⊟ y_{t-1}`` with the last measurement of each channel as ``y_{t-1}``, zero where masked."""
    return layout.boxminus(y, seen) * weight


def last_seen(
    seen: Float[Tensor, "B m"], y: Float[Tensor, "B m"], weight: Float[Tensor, "B m"]
) -> Float[Tensor, "B m"]:
    """``y`` where it was measured, the previous measurement elsewhere."""
    return torch.where(weight > 0, y, seen)


def applied_correction(
    layout: Layout, posterior: Float[Tensor, "B n"], prior: Float[Tensor, "B n"], weight: Float[Tensor, "B m"]
) -> Float[Tensor, "B d"]:
    """``x̂ ⊟ x̂⁻``, exactly zero where nothing was measured.

    For a rotation ``(q ⊞ 0) ⊟ q`` is rounding noise, which :func:`unit` would scale to length one.
    """
    return layout.boxminus(posterior, prior) * weight.any(-1, keepdim=True)
