"""Power spectral density of innovations, and its peaks.

The innovations of a filter with the correct model are white, so a peak is a disturbance or a motion that the model does
not include.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..core.spectral import periodogram
from ..errors import ShapeError
from ..shapes import Float
from .consistency import whiten

__all__ = ["Spectrum", "innovation_spectrum", "welch"]


class Spectrum(NamedTuple):
    """A power spectral density.

    >>> Spectrum(torch.zeros(3), torch.zeros(3, 2)).density.shape
    torch.Size([3, 2])
    """

    frequency: Float[Tensor, " w"]
    """In the unit of the sampling rate."""
    density: Float[Tensor, "*B w m"]
    """One-sided, in power per unit of frequency."""


def welch(signal: Float[Tensor, "*B T m"], rate: float = 1.0, segment: int = 256) -> Spectrum:
    """Welch's averaged periodogram of every channel: Hann window, 50 % overlap, mean removed from each segment.

    ``S(f) = 2/rate · ⟨|Σ_t w_t x_t e^{-2πift/rate}|²⟩ / Σ w²``, without the factor 2 at zero and Nyquist. White noise
    of variance ``σ²`` has ``S = 2 σ²/rate`` at all frequencies. A signal shorter than a segment is one segment.

    Args:
        signal: samples.
        rate: samples per unit of time.
        segment: length of a segment in samples.

    Returns:
        Frequencies and densities.

    Raises:
        ShapeError: there are fewer than two samples.

    >>> welch(torch.zeros(100, 2), rate=200.0, segment=50).frequency[:3]
    tensor([0., 4., 8.])
    """
    length = signal.shape[-2]
    if segment < 2 or length < 2:
        raise ShapeError(f"a spectrum needs at least 2 samples, not {length} in segments of {segment}")
    segment = min(segment, length)
    pieces = signal.unfold(-2, segment, segment - segment // 2).mT  # (*B, pieces, segment, m)
    density = periodogram(pieces - pieces.mean(-2, keepdim=True), "hann").mean(-3) / rate
    bins = torch.arange(segment // 2 + 1, device=signal.device)
    one_sided = (bins > 0) & (2 * bins < segment)
    frequency = torch.fft.rfftfreq(segment, 1 / rate, dtype=signal.dtype, device=signal.device)
    return Spectrum(frequency, torch.where(one_sided.unsqueeze(-1), 2 * density, density))


def innovation_spectrum(
    innovation: Float[Tensor, "*B T m"],
    cov: Float[Tensor, "*B T m m"] | None = None,
    rate: float = 1.0,
    segment: int = 256,
) -> Spectrum:
    """Spectrum of the innovations, averaged over trajectories; with ``cov`` they are whitened first.

    The density of whitened innovations of a consistent filter is ``2 / rate`` at all frequencies. Masked channels are
    zero, as in :class:`~fwnkf.types.StepOutput`.

    Args:
        innovation: innovations.
        cov: their covariances, to whiten them.
        rate: samples per unit of time.
        segment: length of a segment in samples.

    Returns:
        Frequencies, and densities of every channel.

    >>> innovation_spectrum(torch.zeros(8, 100, 3), segment=64).density.shape
    torch.Size([33, 3])
    """
    frequency, density = welch(innovation if cov is None else whiten(innovation, cov), rate, segment)
    return Spectrum(frequency, density.reshape(-1, *density.shape[-2:]).mean(0))
