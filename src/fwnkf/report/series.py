"""The numbers behind the plots: errors and consistency against time, where steps without truth (NaN) are left out."""

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
from ..metrics.consistency import coverage, nees
from ..shapes import Bool, Float, Int


def known(truth: Float[Tensor, "*B n"]) -> Bool[Tensor, "*B"]:
    """Where there is a truth to compare with."""
    return truth.isfinite().all(-1)


def rmse_by_step(layout: Layout, mean: Float[Tensor, "B T n"], truth: Float[Tensor, "B T n"]) -> Float[Tensor, " T"]:
    """``√⟨e²⟩`` of each step over the records that have a truth there; infinite where one of them has no estimate.

    >>> truth = torch.tensor([[[0.0], [0.0]], [[0.0], [torch.nan]]])
    >>> rmse_by_step(Layout.euclidean(1), torch.tensor([[[3.0], [2.0]], [[3.0], [9.0]]]), truth)
    tensor([3., 2.], dtype=torch.float64)
    """
    squared = _error(layout, mean, truth).square().mean(-1)
    return _average(squared, known(truth)).sqrt()


class Consistency(NamedTuple):
    """NEES over the dimension (one is right), step by step and over all, and how often 95 % intervals hold."""

    by_step: Float[Tensor, " T"]
    overall: float
    coverage: float


def consistency(
    layout: Layout, mean: Float[Tensor, "B T n"], cov: Float[Tensor, "B T d d"], truth: Float[Tensor, "B T n"]
) -> Consistency:
    """NEES and coverage where there is truth; infinite and not covered where there is no estimate, as in a table."""
    there = known(truth)
    error, cov = _error(layout, mean, truth), cov.double()
    failed = ~(usable(layout, mean).all(-1) & cov.isfinite().all(-1).all(-1))
    skip = failed | ~there
    eye = torch.eye(cov.shape[-1], dtype=cov.dtype, device=cov.device)
    clean = torch.where(skip[..., None, None], eye, cov)
    each = nees(torch.where(skip[..., None], 0.0, error), clean)
    each = each.masked_fill(failed | each.isnan(), torch.inf)
    held = coverage(error.masked_fill(failed[..., None], torch.inf)[there], clean[there]).overall
    return Consistency(_average(each, there), float(each[there].mean()), float(held))


def chi_square_band(degrees: Int[Tensor, "*B"], level: float = 0.95) -> tuple[Tensor, Tensor]:
    """Between which two values ``χ²/degrees`` lies with probability ``level``, as much below as above.

    Bisection of the regularised incomplete gamma function, so that no scipy is needed; NaN without degrees.

    >>> [round(float(x), 4) for x in chi_square_band(torch.tensor(10))]
    [0.3247, 2.0483]
    """
    half = degrees.double() / 2

    def quantile(p: float) -> Tensor:
        low, high = torch.zeros_like(half), half + 40 * half.sqrt() + 40
        for _ in range(80):
            middle = (low + high) / 2
            below = torch.special.gammainc(half, middle) < p
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return torch.where(half > 0, middle / half, torch.nan)

    return quantile((1 - level) / 2), quantile((1 + level) / 2)


def seconds(dt: Float[Tensor, "*B T"]) -> Float[Tensor, " T"]:
    """Time of each step from the first sample; the average over records, should their steps differ."""
    elapsed = dt.double().cumsum(-1)
    return elapsed.reshape(-1, dt.shape[-1]).mean(0)


def stored_std(layout: Layout, mean: Float[Tensor, "*B n"], cov: Float[Tensor, "*B d d"]) -> Float[Tensor, "*B n"]:
    """Standard deviation of every stored number; for a quaternion to first order, ``q ⊞ δ ≈ q + ½ q ⊗ (0, δ)``."""
    found, start = [], 0
    for part, value in zip(layout.parts, mean.split([part.size for part in layout.parts], -1), strict=True):
        stop = start + part.tangent_size
        block = cov[..., start:stop, start:stop]
        if part.kind == "quaternion":
            axes = torch.eye(4, dtype=mean.dtype, device=mean.device)[1:]
            slope = 0.5 * rotation.multiply(value.unsqueeze(-2), axes).mT
            block = slope @ block @ slope.mT
        found.append(torch.diagonal(block, dim1=-2, dim2=-1).clamp_min(0).sqrt())
        start = stop
    return torch.cat(found, -1)


def without_jumps(
    layout: Layout, reference: Float[Tensor, "T n"], values: Float[Tensor, "T n"]
) -> Float[Tensor, "T n"]:
    """The same points in numbers that do not jump: angles next to the unwrapped reference, quaternions of its sign.

    >>> layout = Layout.parse([("theta", "angle", 1)])
    >>> turning = torch.tensor([[3.0], [-3.0], [-2.9]])
    >>> without_jumps(layout, turning, turning).flatten().round(decimals=2)
    tensor([3.0000, 3.2800, 3.3800])
    """
    if layout.flat:
        return values
    found = []
    sizes = [part.size for part in layout.parts]
    for part, base, value in zip(layout.parts, reference.split(sizes, -1), values.split(sizes, -1), strict=True):
        if part.kind == "angle":
            base = torch.from_numpy(_unwrap(base.detach().cpu().numpy())).to(value)
            found.append(base + rotation.wrap(value - base))
        elif part.kind == "quaternion":
            base = _steady_sign(base)
            found.append(torch.where((base * value).sum(-1, keepdim=True) < 0, -value, value))
        else:
            found.append(value)
    return torch.cat(found, -1)


def direct_channels(system: System | None, x: Float[Tensor, "K n"]) -> dict[int, int]:
    """Which channels measure one stored number as it is, at all the states given: channel to number.

    Told by the model itself: ``h(x)ᵢ = xⱼ`` with the row of ``H`` a unit vector.
    """
    if system is None or len(x) == 0:
        return {}
    with torch.no_grad():
        seen, H = system.linearize_observation(x)
    H = H.expand(len(x), *H.shape[-2:])
    tolerance = math.sqrt(torch.finfo(x.dtype).eps)
    found: dict[int, int] = {}
    stored = tangent = 0
    for part in system.layout.parts:
        for k in range(part.size if part.kind != "quaternion" else 0):
            unit = torch.zeros_like(H[0, 0])
            unit[tangent + k] = 1
            apart = seen - x[:, stored + k : stored + k + 1]
            if part.kind == "angle":
                apart = rotation.wrap(apart)
            right = (H - unit).abs().amax((0, 2)) < tolerance
            same = apart.abs().amax(0) < tolerance * (1 + seen.abs().amax(0))
            found.update({int(channel): stored + k for channel in (right & same).nonzero().flatten()})
        stored, tangent = stored + part.size, tangent + part.tangent_size
    return found


def _error(layout: Layout, mean: Tensor, truth: Tensor) -> Tensor:
    return residual(layout, mean.detach().double(), truth.double())


def _average(values: Float[Tensor, "B T"], there: Bool[Tensor, "B T"]) -> Float[Tensor, " T"]:
    """Over records, of those that are there; NaN where none is."""
    return torch.where(there, values, 0.0).sum(0) / there.sum(0)


def _unwrap(angle: np.ndarray) -> np.ndarray:
    """numpy's unwrap along time, across gaps: a NaN would spread to everything after it."""
    smooth = angle.copy()
    for column in smooth.T:
        there = np.isfinite(column)
        column[there] = np.unwrap(column[there])
        # a gap stands in its neighbours' numbers, so that what others know there is drawn beside them
        if there.any():
            column[~there] = np.interp(np.flatnonzero(~there), np.flatnonzero(there), column[there])
    return smooth


def _steady_sign(q: Float[Tensor, "T 4"]) -> Float[Tensor, "T 4"]:
    """``q`` or ``-q``, whichever continues the one before."""
    turned = (q[1:] * q[:-1]).sum(-1) < 0
    flips = torch.cat((turned.new_zeros(1), turned)).cumsum(0) % 2
    return torch.where((flips == 1).unsqueeze(-1), -q, q)
