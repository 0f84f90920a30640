"""Time series for plots: errors and consistency over time, without steps that have no true state (NaN)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..core import rotation
from ..core.layout import Layout
from ..core.system import System
from ..metrics.accuracy import residual, usable
from ..metrics.consistency import chi_square_quantile, coverage, nees
from ..shapes import Bool, Float, Int


def known(truth: Float[Tensor, "*B n"]) -> Bool[Tensor, "*B"]:
    """Mask of the steps with a true state."""
    return truth.isfinite().all(-1)


def rmse_by_step(layout: Layout, mean: Float[Tensor, "B T n"], truth: Float[Tensor, "B T n"]) -> Float[Tensor, " T"]:
    """``√⟨e²⟩`` of each step over the records with a true state; infinite where one of them has no estimate.

    >>> truth = torch.tensor([[[0.0], [0.0]], [[0.0], [torch.nan]]])
    >>> rmse_by_step(Layout.euclidean(1), torch.tensor([[[3.0], [2.0]], [[3.0], [9.0]]]), truth)
    tensor([3., 2.], dtype=torch.float64)
    """
    squared = _error(layout, mean, truth).square().mean(-1)
    return _average(squared, known(truth)).sqrt()


class Consistency(NamedTuple):
    """NEES divided by the dimension (one if consistent), by step and overall, and the coverage of 95 % intervals."""

    by_step: Float[Tensor, " T"]
    overall: float
    coverage: float


def consistency(
    layout: Layout, mean: Float[Tensor, "B T n"], cov: Float[Tensor, "B T d d"], truth: Float[Tensor, "B T n"]
) -> Consistency:
    """NEES and coverage of steps with a true state; without an estimate a step is infinite and not covered."""
    valid = known(truth)
    error, cov = _error(layout, mean, truth), cov.double()
    failed = ~(usable(layout, mean).all(-1) & cov.isfinite().all(-1).all(-1))
    skip = failed | ~valid
    eye = torch.eye(cov.shape[-1], dtype=cov.dtype, device=cov.device)
    clean = torch.where(skip[..., None, None], eye, cov)
    values = nees(torch.where(skip[..., None], 0.0, error), clean)
    values = values.masked_fill(failed | values.isnan(), torch.inf)
    covered = coverage(error.masked_fill(failed[..., None], torch.inf)[valid], clean[valid]).overall
    return Consistency(_average(values, valid), float(values[valid].mean()), float(covered))


def chi_square_band(degrees: Int[Tensor, "*B"], level: float = 0.95) -> tuple[Tensor, Tensor]:
    """Central interval that contains ``χ²/degrees`` with probability ``level``; NaN for zero degrees of freedom.

    >>> [round(float(x), 4) for x in chi_square_band(torch.tensor(10))]
    [0.3247, 2.0483]
    """
    low, high = ((1 - level) / 2, (1 + level) / 2)
    return chi_square_quantile(degrees, low) / degrees, chi_square_quantile(degrees, high) / degrees


def seconds(dt: Float[Tensor, "*B T"]) -> Float[Tensor, " T"]:
    """Time of each step since the first sample, averaged over records."""
    elapsed = dt.double().cumsum(-1)
    return elapsed.reshape(-1, dt.shape[-1]).mean(0)


def stored_std(layout: Layout, mean: Float[Tensor, "*B n"], cov: Float[Tensor, "*B d d"]) -> Float[Tensor, "*B n"]:
    """Standard deviation of each stored component; first order for quaternions, ``q ⊞ δ ≈ q + ½ q ⊗ (0, δ)``."""
    stds, start = [], 0
    for part, value in zip(layout.parts, mean.split([part.size for part in layout.parts], -1), strict=True):
        stop = start + part.tangent_size
        block = cov[..., start:stop, start:stop]
        if part.kind == "quaternion":
            axes = torch.eye(4, dtype=mean.dtype, device=mean.device)[1:]
            slope = 0.5 * rotation.multiply(value.unsqueeze(-2), axes).mT
            block = slope @ block @ slope.mT
        stds.append(torch.diagonal(block, dim1=-2, dim2=-1).clamp_min(0).sqrt())
        start = stop
    return torch.cat(stds, -1)


def without_jumps(
    layout: Layout, reference: Float[Tensor, "T n"], values: Float[Tensor, "T n"]
) -> Float[Tensor, "T n"]:
    """Equivalent values without jumps: angles close to the unwrapped reference, quaternions with its sign.

    >>> layout = Layout.parse([("theta", "angle", 1)])
    >>> turning = torch.tensor([[3.0], [-3.0], [-2.9]])
    >>> without_jumps(layout, turning, turning).flatten().round(decimals=2)
    tensor([3.0000, 3.2800, 3.3800])
    """
    if layout.flat:
        return values
    parts = []
    sizes = [part.size for part in layout.parts]
    for part, base, value in zip(layout.parts, reference.split(sizes, -1), values.split(sizes, -1), strict=True):
        if part.kind == "angle":
            base = torch.from_numpy(_unwrap(base.detach().cpu().numpy())).to(value)
            parts.append(base + rotation.wrap(value - base))
        elif part.kind == "quaternion":
            base = _steady_sign(base)
            parts.append(torch.where((base * value).sum(-1, keepdim=True) < 0, -value, value))
        else:
            parts.append(value)
    return torch.cat(parts, -1)


def direct_channels(system: System | None, x: Float[Tensor, "K n"]) -> dict[int, int]:
    """Channels that measure one stored component directly at all states ``x``: a mapping from channel to component.

    Determined from the observation model: ``h(x)ᵢ = xⱼ``, and the row of ``H`` is a unit vector.
    """
    if system is None or len(x) == 0:
        return {}
    with torch.no_grad():
        observed, H = system.linearize_observation(x)
    H = H.expand(len(x), *H.shape[-2:])
    tolerance = math.sqrt(torch.finfo(x.dtype).eps)
    channels: dict[int, int] = {}
    stored = tangent = 0
    for part in system.layout.parts:
        for k in range(part.size if part.kind != "quaternion" else 0):
            unit = torch.zeros_like(H[0, 0])
            unit[tangent + k] = 1
            difference = observed - x[:, stored + k : stored + k + 1]
            if part.kind == "angle":
                difference = rotation.wrap(difference)
            unit_row = (H - unit).abs().amax((0, 2)) < tolerance
            same = difference.abs().amax(0) < tolerance * (1 + observed.abs().amax(0))
            channels.update({int(channel): stored + k for channel in (unit_row & same).nonzero().flatten()})
        stored, tangent = stored + part.size, tangent + part.tangent_size
    return channels


def _error(layout: Layout, mean: Tensor, truth: Tensor) -> Tensor:
    return residual(layout, mean.detach().double(), truth.double())


def _average(values: Float[Tensor, "B T"], valid: Bool[Tensor, "B T"]) -> Float[Tensor, " T"]:
    """Average over the known records of each step; NaN if there is none."""
    return torch.where(valid, values, 0.0).sum(0) / valid.sum(0)


def _unwrap(angle: np.ndarray) -> np.ndarray:
    """``np.unwrap`` along time that skips gaps, because a NaN would spread to all later steps."""
    smooth = angle.copy()
    for column in smooth.T:
        finite = np.isfinite(column)
        column[finite] = np.unwrap(column[finite])
        # gaps are interpolated, so that estimates within a gap are drawn next to its neighbours
        if finite.any():
            column[~finite] = np.interp(np.flatnonzero(~finite), np.flatnonzero(finite), column[finite])
    return smooth


def _steady_sign(q: Float[Tensor, "T 4"]) -> Float[Tensor, "T 4"]:
    """``q`` or ``-q``, whichever is closer to the previous quaternion."""
    flipped = (q[1:] * q[:-1]).sum(-1) < 0
    flips = torch.cat((flipped.new_zeros(1), flipped)).cumsum(0) % 2
    return torch.where((flips == 1).unsqueeze(-1), -q, q)
