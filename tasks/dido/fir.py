"""Causal FIR filters by ridge least squares: the best any fixed linear filter of a given length does on recordings.

The usual reference for a denoising filter. It states no uncertainty, and knows neither gaps nor irregular steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fwnkf.core.gaussian import solve_psd
from fwnkf.errors import ConfigError, DataError
from fwnkf.shapes import Float


class RidgeChoice(NamedTuple):
    """The ridge with the least error on recordings left out in turn, and the error of every candidate."""

    ridge: float
    errors: dict[float, float]


def fit_fir(
    y: Float[Tensor, "N T m"], target: Float[Tensor, "N T n"], *, taps: int, ridge: float = 1e-4
) -> Float[Tensor, "k m n"]:
    """Weights of ``x̂_t = Σ_i y_{t-i} W_i``, ``i < taps``, by least squares over all recordings.

    ``ridge`` is a fraction of the variance of a channel: each channel is scaled to a mean square of one first.

    >>> y = torch.randn(1, 500, 2, dtype=torch.float64)
    >>> fit_fir(y, 0.5 * y[..., :1] + 0.5 * y.roll(1, 1)[..., :1], taps=2, ridge=1e-9)[:, 0, 0].round(decimals=2)
    tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    return _solve(*_moments(y, target, taps), ridge)


def apply_fir(weights: Float[Tensor, "k m n"], y: Float[Tensor, "N T m"]) -> Float[Tensor, "N T n"]:
    """The filter's output for recordings that have stood at their first sample for ever."""
    taps = len(weights)
    held = torch.cat((y[:, :1].expand(-1, taps - 1, -1), y), 1)
    # convolution flips nothing in torch: the newest sample meets the last weight
    return torch.nn.functional.conv1d(held.mT, weights.flip(0).permute(2, 1, 0)).mT


def choose_ridge(
    y: Float[Tensor, "N T m"], target: Float[Tensor, "N T n"], *, taps: int, ridges: Sequence[float]
) -> RidgeChoice:
    """The ridge for :func:`fit_fir`: each recording is left out in turn and predicted from the others.

    The error of a ridge is the mean over outputs and recordings of the squared error over the output's variance.
    """
    if len(y) < 2:
        raise DataError("a ridge is chosen on recordings left out; there must be at least two")
    moments = [_moments(y[i : i + 1], target[i : i + 1], taps) for i in range(len(y))]
    gram, cross = (torch.stack(parts) for parts in zip(*moments, strict=True))
    spread = target.flatten(0, 1).var(0)
    errors = dict.fromkeys(ridges, 0.0)
    for out in range(len(y)):
        others = [i for i in range(len(y)) if i != out]
        for ridge in ridges:
            weights = _solve(gram[others].sum(0), cross[others].sum(0), ridge)
            error = (apply_fir(weights, y[out : out + 1]) - target[out]).square().mean((0, 1)) / spread
            errors[ridge] += float(error.mean()) / len(y)
    return RidgeChoice(min(errors, key=errors.__getitem__), errors)


def _moments(y: Tensor, target: Tensor, taps: int) -> tuple[Float[Tensor, "k m k m"], Float[Tensor, "k m n"]]:
    """Second moments of the delayed samples, and of them with the target."""
    if taps < 1 or taps > y.shape[1]:
        raise ConfigError(f"taps = {taps}: wanted 1 to {y.shape[1]}, the length of the recordings")
    m, n = y.shape[-1], target.shape[-1]
    gram = y.new_zeros(taps * m, taps * m)
    cross = y.new_zeros(taps * m, n)
    for record, wanted in zip(y, target, strict=True):
        held = torch.cat((record[:1].expand(taps - 1, m), record))
        delayed = held.unfold(0, taps, 1).flip(-1).mT.flatten(1)  # [T, taps m], newest first
        gram += delayed.mT @ delayed
        cross += delayed.mT @ wanted
    return gram.reshape(taps, m, taps, m), cross.reshape(taps, m, n)


def _solve(gram: Tensor, cross: Tensor, ridge: float) -> Tensor:
    taps, m, n = cross.shape
    power = gram.diagonal(dim1=0, dim2=2).diagonal(dim1=0, dim2=1).mean(0)  # of each channel, over its delays
    whole = gram.reshape(taps * m, taps * m) + torch.diag_embed((ridge * power).repeat(taps))
    weights, ok = solve_psd(whole, cross.reshape(taps * m, n))
    if not bool(ok):
        raise DataError(f"ridge = {ridge}: the delayed samples are collinear; raise the ridge")
    return weights.reshape(taps, m, n)
