"""Truth onto other stamps: linear for vectors, along the shortest arc for rotations, never across a gap."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core import rotation
from ..core.layout import Layout
from ..shapes import Bool, Float


def continuous_signs(q: Float[Tensor, "T 4"], known: Bool[Tensor, " T"]) -> tuple[Float[Tensor, "T 4"], int]:
    """The same rotations without jumps from ``q`` to ``-q``, and how many there were; unknown rows are passed over."""
    rows = known.nonzero()[:, 0]
    flips = (q[rows[1:]] * q[rows[:-1]]).sum(-1) < 0
    signs = q.new_ones(len(q))
    signs[rows[1:]] = torch.where(flips, -1.0, 1.0).to(q.dtype).cumprod(0)
    return q * signs[:, None], int(flips.sum())


def slerp(p: Float[Tensor, "N 4"], q: Float[Tensor, "N 4"], share: Float[Tensor, " N"]) -> Float[Tensor, "N 4"]:
    """Between two rotations along the shortest arc: ``p ⊗ exp(s log(p* ⊗ q))``."""
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
    """Values of a layout at other stamps, and where they are known.

    A stamp that agrees with one of the source within the tolerance takes its row as it is, bit for bit. Any other lies
    between two rows; if one of them is not finite, or they are further apart than ``max_gap_ns``, it is not known.
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
