"""Cross-spectra of recordings: what a linear model in its steady state needs to know of them."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import DataError
from ..shapes import Float

SEGMENT = 2048
FINE, MIDDLE = 0.05, 0.25
"""Below these frequencies (cycles per sample) bins stay as they are, or are pooled in pairs; above them in fours."""


class Spectra(NamedTuple):
    """Cross-spectra of the measurements, or of ``[measurements; truth]``, over bins whose weights sum to one.

    >>> Spectra(torch.zeros(3), torch.ones(3) / 3, torch.zeros(3, 4, 4), torch.ones(2)).has_truth
    True
    """

    omega: Float[Tensor, " f"]
    """Radians per sample."""
    weight: Float[Tensor, " f"]
    """Share of each bin."""
    density: Tensor
    """Complex, ``[f, m, m]`` or ``[f, 2m, 2m]``; its weighted sum is the covariance."""
    scale: Float[Tensor, " m"]
    """What each channel was divided by: the standard deviation of the truth, or of the measurements without it."""

    @property
    def channels(self) -> int:
        """Number of measured channels."""
        return len(self.scale)

    @property
    def has_truth(self) -> bool:
        """Whether the truth is part of the density."""
        return self.density.shape[-1] == 2 * self.channels


def cross_spectra(
    y: Float[Tensor, "N T m"], truth: Float[Tensor, "N T m"] | None = None, *, segment: int = SEGMENT
) -> Spectra:
    """Welch's estimate over all recordings, with Hann windows that overlap by half.

    Bins are pooled at higher frequencies, where the transfer functions of a filter are smooth, which makes a fit
    several times faster.

    Args:
        y: measurements, without constant offset.
        truth: the clean signals, where they are known.
        segment: length of a window in samples.

    Returns:
        The spectra.

    Raises:
        DataError: recordings are shorter than a segment, or a channel never changes.

    >>> y = torch.randn(2, 4096, 3, dtype=torch.float64)
    >>> spectra = cross_spectra(y)
    >>> spectra.channels, spectra.has_truth, round(float(spectra.weight.sum()), 9)
    (3, False, 1.0)
    """
    if y.shape[1] < segment:
        raise DataError(f"recordings of {y.shape[1]} samples are shorter than one segment of {segment}; set segment")
    scale = (y if truth is None else truth).flatten(0, 1).std(0)
    if not bool((scale > 0).all()):
        raise DataError(f"channel {int(scale.argmin())} never changes: it has no spectrum; leave it out")
    signals = (y if truth is None else torch.cat((y, truth), -1)) / (scale if truth is None else scale.repeat(2))
    window = torch.hann_window(segment, dtype=y.dtype, device=y.device).unsqueeze(-1)
    pieces = signals.unfold(1, segment, segment // 2).flatten(0, 1).mT
    lines = torch.fft.rfft(pieces * window, dim=1)
    density = torch.einsum("bfi,bfj->fij", lines, lines.conj()) / (len(pieces) * window.square().sum())
    weight = torch.full((len(density),), 2.0 / segment, dtype=y.dtype, device=y.device)
    weight[[0, -1]] /= 2
    omega = 2 * math.pi * torch.arange(len(density), dtype=y.dtype, device=y.device) / segment
    return _pooled(omega, weight, density, scale, segment)


def _pooled(omega: Tensor, weight: Tensor, density: Tensor, scale: Tensor, segment: int) -> Spectra:
    """Neighbouring bins together, their weights added."""
    first, second = round(FINE * segment), round(MIDDLE * segment)
    sizes = [1] * first + [2] * ((second - first) // 2)
    rest = len(density) - sum(sizes)
    sizes += [4] * (rest // 4) + ([rest % 4] if rest % 4 else [])
    parts = list(zip(weight.split(sizes), omega.split(sizes), density.split(sizes), strict=True))
    return Spectra(
        torch.stack([(w * o).sum() / w.sum() for w, o, _ in parts]),
        torch.stack([w.sum() for w, _, _ in parts]),
        torch.stack([(w[:, None, None] * d).sum(0) / w.sum() for w, _, d in parts]),
        scale,
    )
