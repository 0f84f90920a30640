"""Interpolation of ground truth to other time stamps: linear for vectors, slerp for rotations, not across gaps."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core import rotation
from ..core.layout import Layout
from ..shapes import Bool, Float


def continuous_signs(q: Float[Tensor, "T 4"], known: Bool[Tensor, " T"]) -> tuple[Float[Tensor, "T 4"], int]:
    """The same rotations without jumps from ``q`` to ``-q``, and the number of such jumps; unknown rows are skipped."""
    rows = known.nonzero()[:, 0]
    flips = (q[rows[1:]] * q[rows[:-1]]).sum(-1) < 0
    signs = q.new_ones(len(q))
    signs[rows[1:]] = torch.where(flips, -1.0, 1.0).to(q.dtype).cumprod(0)
    return q * signs[:, None], int(flips.sum())


def slerp(p: Float[Tensor, "N 4"], q: Float[Tensor, "N 4"], share: Float[Tensor, " N"]) -> Float[Tensor, "N 4"]:
    """Spherical linear interpolation along the shortest arc: ``p ⊗ exp(s log(p* ⊗ q))``."""
    arc = rotation.log(rotation.multiply(rotation.conjugate(p), q))
    return rotation.normalize(rotation.multiply(p, rotation.exp(share[:, None] * arc)))


def resample(
    stamps_ns: NDArray[np.int64],
    values: Float[Tensor, "S n"],
    layout: Layout,
    wanted_ns: NDArray[np.int64],
    max_gap_ns: int,
    tolerance_ns: int = 0,
) -> tuple[Float[Tensor, "T n"], Bool[Tensor, " T"]]:
    """Interpolate the values of a layout to other time stamps; returns the values, and the mask of the valid ones.

    A time stamp within the tolerance of a source row copies that row unchanged. Any other is interpolated between two
    rows; it is invalid if one of them is not finite, or if they are more than ``max_gap_ns`` apart.
    """
    last = len(stamps_ns) - 1
    left = np.clip(np.searchsorted(stamps_ns, wanted_ns, side="right") - 1, 0, last)
    right = np.minimum(left + 1, last)
    nearest = np.where(np.abs(stamps_ns[right] - wanted_ns) < np.abs(wanted_ns - stamps_ns[left]), right, left)
    same = np.abs(stamps_ns[nearest] - wanted_ns) <= tolerance_ns
    inside = (stamps_ns[left] <= wanted_ns) & (wanted_ns <= stamps_ns[right])
    step = stamps_ns[right] - stamps_ns[left]
    between = inside & (step <= max_gap_ns) & (step > 0)

    share = torch.from_numpy(np.where(between, wanted_ns - stamps_ns[left], 0) / np.maximum(step, 1))
    a, b = values[torch.from_numpy(left)], values[torch.from_numpy(right)]
    parts = []
    at = 0
    for part in layout.parts:
        pa, pb = a[:, at : at + part.size], b[:, at : at + part.size]
        parts.append(slerp(pa, pb, share) if part.kind == "quaternion" else pa + share[:, None] * (pb - pa))
        at += part.size
    exact = torch.from_numpy(same)
    out = torch.where(exact[:, None], values[torch.from_numpy(nearest)], torch.cat(parts, -1))
    known = (exact | torch.from_numpy(between)) & out.isfinite().all(-1)
    return torch.where(known[:, None], out, torch.nan), known
