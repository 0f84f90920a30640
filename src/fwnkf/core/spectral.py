"""Spectra: magnitudes, the paper's spectral loss, power spectral density."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from ..shapes import Float

Window = Literal["none", "hann"]
Reduction = Literal["paper", "mean"]
HALF_BAND = (0.0, math.pi / 2)
"""The band of Algorithm 1, in radians per sample."""


def window(kind: Window, length: int, like: Tensor) -> Float[Tensor, " T"]:
    if kind == "hann":
        return torch.hann_window(length, dtype=like.dtype, device=like.device)
    return like.new_ones(length)


def magnitude(signal: Float[Tensor, "*B T m"], taper: Window = "none") -> Float[Tensor, "*B w m"]:
    """``|rfft|`` over time, channel by channel."""
    weights = window(taper, signal.shape[-2], signal)
    return torch.fft.rfft(signal * weights.unsqueeze(-1), dim=-2).abs()


def band_bins(length: int, band: tuple[float, float]) -> slice:
    """The rfft bins whose angular frequency ``2πk/length`` lies in the closed ``band``."""
    step = 2 * math.pi / length
    slack = 1e-9  # a bin exactly on the edge of the band counts as inside despite rounding
    low = math.ceil(band[0] / step - slack)
    high = math.floor(band[1] / step + slack)
    return slice(max(low, 0), min(high, length // 2) + 1)


def spectral_distance(
    predicted: Float[Tensor, "*B T m"],
    reference: Float[Tensor, "*B T m"],
    band: tuple[float, float] = HALF_BAND,
    taper: Window = "none",
    reduction: Reduction = "paper",
) -> Float[Tensor, "*B"]:
    """``‖ |F ŷ| - |F ỹ| ‖₁`` over the band (Algorithm 1 of the paper), of each record.

    ``"paper"`` averages over bins and sums over channels, ``"mean"`` averages over both.
    """
    bins = band_bins(predicted.shape[-2], band)
    difference = (magnitude(predicted, taper) - magnitude(reference, taper))[..., bins, :].abs()
    return difference.sum(-1).mean(-1) if reduction == "paper" else difference.mean((-1, -2))


def periodogram(signal: Float[Tensor, "*B T m"], taper: Window = "none") -> Float[Tensor, "*B w m"]:
    """Two-sided power spectral density on the rfft bins; its mean over the whole circle is the mean square."""
    weights = window(taper, signal.shape[-2], signal)
    return magnitude(signal, taper).square() / weights.square().sum()
