"""Checks and cleaning of the inputs of a filter: shapes, dtypes, missing values, priors."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.layout import Layout
from ..core.values import truth
from ..errors import DataError, ShapeError
from ..shapes import Bool, Float, Int
from ..types import Gaussian, Status

LARGEST = 2.0**-4
"""Measurements up to this share of the root of the largest number are used: squares must not overflow."""


class InputSizes(NamedTuple):
    """What a filter reads: channels of the measurement, of the control, and samples per step."""

    channels: int
    controls: int
    block: int = 1


def clean(
    y: Float[Tensor, "*B m"], mask: Bool[Tensor, "*B m"] | None
) -> tuple[Float[Tensor, "*B m"], Float[Tensor, "*B m"], Int[Tensor, "*B"]]:
    """Values that can be squared, weights, and a status bit where an unmasked channel has none."""
    usable = y.abs() <= LARGEST * torch.finfo(y.dtype).max ** 0.5  # False for NaN too
    present = usable if mask is None else usable & mask
    invalid = ~usable if mask is None else mask & ~usable
    flagged = invalid.any(-1) * int(Status.NON_FINITE_OBSERVATION)
    return torch.where(present, y, 0.0), present.to(y.dtype), flagged


def check_lengths(dt: Float[Tensor, "B *T"] | None, first: int = 0) -> None:
    """Raise DataError where a step from the number ``first`` on is not of a length; traced values are not read."""
    if dt is None:
        return
    wrong = ~(dt >= 0) | (dt == math.inf)
    if wrong.ndim > 1:
        wrong[:, :first] = False
    if truth(wrong.any()):
        place = [int(i) for i in wrong.nonzero()[0]]
        where = f"stream {place[0]}" + (f", step {place[1]}" if len(place) > 1 else "")
        raise DataError(
            f"dt = {float(dt[tuple(place)]):g} at {where}: the length of a step is a finite number of seconds, zero or "
            "more. Sort the measurements by time, and mask what has no time"
        )


def batched_prior(owner: str, prior: Gaussian, batch_size: int, layout: Layout, like: Tensor) -> Gaussian:
    """A prior with a batch axis of ``batch_size``. Raises ShapeError if it does not fit the filter ``owner``."""
    n, d = layout.size, layout.tangent_size
    if prior.mean.dtype != like.dtype or prior.mean.device != like.device:
        raise ShapeError(
            f"filter {owner!r} is {like.dtype} on {like.device}, but the prior is {prior.mean.dtype} on "
            f"{prior.mean.device}; convert one of them"
        )
    leads = ((), (1,), (batch_size,))
    if prior.mean.shape not in [(*lead, n) for lead in leads] or prior.cov.shape not in [
        (*lead, d, d) for lead in leads
    ]:
        raise ShapeError(
            f"prior of filter {owner!r}: mean {tuple(prior.mean.shape)}, cov {tuple(prior.cov.shape)}; "
            f"wanted [{batch_size}, {n}] and [{batch_size}, {d}, {d}]"
        )
    return Gaussian(
        prior.mean.expand(batch_size, n).clone(),
        prior.cov.to(prior.mean).expand(batch_size, d, d).clone(),
    )


def check_inputs(
    owner: str,
    sizes: InputSizes,
    like: Tensor,
    y: Tensor | None,
    u: Tensor | None,
    mask: Tensor | None,
    dt: Tensor | None,
    time_axes: int,
) -> None:
    """Raise ShapeError where the shape, dtype or device of an input does not fit the filter ``owner``."""
    channels, controls, block = sizes
    axes: tuple[str, ...] = ("B", "T") if time_axes else ("B",) if block == 1 else ("B", str(block))
    given = next((item for item in (y, u, dt) if item is not None), None)
    if given is None:
        return
    lead = given.shape[: len(axes)]
    if y is not None:
        wanted = f"[{', '.join((*axes, str(channels)))}]"
        complete = time_axes or block == 1 or lead[-1] == block
        if y.ndim != 1 + len(axes) or y.shape[-1] != channels or not complete:
            raise ShapeError(f"filter {owner!r}: y has shape {tuple(y.shape)}, wanted {wanted}")
        if mask is not None and (mask.shape != y.shape or mask.dtype != torch.bool):
            raise ShapeError(f"mask is {mask.dtype} {tuple(mask.shape)}, wanted torch.bool {tuple(y.shape)}")
    if dt is not None and dt.shape != lead:
        raise ShapeError(f"dt has shape {tuple(dt.shape)}, wanted {tuple(lead)}: seconds per stream and step")
    if y is not None and (y.dtype != like.dtype or y.device != like.device):
        raise ShapeError(
            f"filter {owner!r} is {like.dtype} on {like.device}, but y is {y.dtype} on {y.device}; "
            "convert one of them, e.g. filter.to(y)"
        )
    for name, item in (("u", u), ("dt", dt)):
        if item is not None and item.dtype != like.dtype:
            raise ShapeError(f"{name} is {item.dtype}, but y is {like.dtype}; convert it, e.g. {name}.to(y)")
    if u is not None and (controls == 0 or u.shape != (*lead, controls)):
        raise ShapeError(
            f"u has shape {tuple(u.shape)}, filter {owner!r} takes "
            + (f"{(*lead, controls)}" if controls else "no control")
        )
