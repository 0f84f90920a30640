"""Errors of estimates, from which :mod:`fwnkf.metrics.accuracy` computes its figures and whose names it has too."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.layout import Layout
from ..errors import ShapeError
from ..shapes import Bool, Float


def check_shapes(estimate: Tensor, truth: Tensor) -> None:
    """Raise ShapeError if an estimate does not have the shape of the truth."""
    if estimate.shape != truth.shape:  # otherwise the subtraction would broadcast silently
        raise ShapeError(
            f"estimate {tuple(estimate.shape)} and truth {tuple(truth.shape)} differ in shape; "
            "expand or slice one of them"
        )


def usable(layout: Layout, estimate: Float[Tensor, "*B n"]) -> Bool[Tensor, "*B d"]:
    """Mask of the tangent components with a valid estimate: finite, and for a rotation not the zero quaternion.

    Args:
        layout: that of the state.
        estimate: estimated states.

    Returns:
        True where the estimate is valid.

    >>> usable(Layout.euclidean(2), torch.tensor([1.0, torch.nan]))
    tensor([ True, False])
    """
    masks = []
    for part, values in zip(layout.parts, estimate.split([part.size for part in layout.parts], -1), strict=True):
        finite = values.isfinite()
        if part.kind == "quaternion":
            rotation = finite.all(-1, keepdim=True) & (values != 0).any(-1, keepdim=True)
            masks.append(rotation.expand(*values.shape[:-1], 3))
        else:
            masks.append(finite)
    return torch.cat(masks, -1)


def residual(layout: Layout, estimate: Float[Tensor, "*B n"], truth: Float[Tensor, "*B n"]) -> Float[Tensor, "*B d"]:
    """``e = x̂ ⊟ x``: the shortest arc for angles, the rotation vector on SO(3); infinite where ``x̂`` is not valid.

    Args:
        layout: that of the state.
        estimate: ``x̂``.
        truth: ``x``.

    Returns:
        The error in the tangent space.

    Raises:
        ShapeError: estimate and truth differ in shape.

    >>> residual(Layout.parse([("theta", "angle", 1)]), torch.tensor([3.1]), torch.tensor([-3.1])).round(decimals=3)
    tensor([-0.0830])
    """
    check_shapes(estimate, truth)
    return layout.boxminus(estimate, truth).masked_fill(~usable(layout, estimate), torch.inf)


def raw_difference(estimate: Float[Tensor, "*B n"], truth: Float[Tensor, "*B n"]) -> Float[Tensor, "*B n"]:
    """``e = x̂ - x`` of the stored numbers, as in the paper's public code; infinite where ``x̂`` is not finite.

    Only for comparison with published figures: near ±π a correct angle may count as an error of 2π.

    Args:
        estimate: ``x̂``.
        truth: ``x``.

    Returns:
        The difference.

    Raises:
        ShapeError: estimate and truth differ in shape.

    >>> raw_difference(torch.tensor([3.0]), torch.tensor([-3.0]))
    tensor([6.])
    """
    check_shapes(estimate, truth)
    return (estimate - truth).masked_fill(~estimate.isfinite(), torch.inf)


def from_step(error: Float[Tensor, "*B T d"], step: int) -> Float[Tensor, "*B S d"]:
    """The error of the steps ``t ≥ step``, counted from zero: without the initial transient.

    Args:
        error: errors over time.
        step: the first step that counts.

    Returns:
        The later errors.

    >>> from_step(torch.tensor([[[9.0], [1.0], [2.0]]]), 1).flatten()
    tensor([1., 2.])
    """
    if not 0 <= step < error.shape[-2]:
        raise ShapeError(f"step {step} is not in a trajectory of {error.shape[-2]} steps")
    return error[..., step:, :]
