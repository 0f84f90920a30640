"""Power spectral density of innovations, and its peaks.

The innovations of a filter with the correct model are white, so a peak is a disturbance or a motion that the model does
not include.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.spectral import periodogram
from ..errors import ConfigError, DataError, ShapeError
from ..shapes import Float
from .consistency import whiten


class Spectrum(NamedTuple):
    """Frequencies in the unit of the sampling rate, and one-sided density in power per unit of frequency."""

    frequency: Float[Tensor, " w"]
    density: Float[Tensor, "*B w m"]


def welch(signal: Float[Tensor, "*B T m"], rate: float = 1.0, segment: int = 256) -> Spectrum:
    """Welch's averaged periodogram of every channel: Hann window, 50 % overlap, mean removed from each segment.

    ``S(f) = 2/rate · ⟨|Σ_t w_t x_t e^{-2πift/rate}|²⟩ / Σ w²``, without the factor 2 at zero and Nyquist. White noise
    of variance ``σ²`` has ``S = 2 σ²/rate`` at all frequencies. A signal shorter than a segment is one segment.

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

    >>> innovation_spectrum(torch.zeros(8, 100, 3), segment=64).density.shape
    torch.Size([33, 3])
    """
    frequency, density = welch(innovation if cov is None else whiten(innovation, cov), rate, segment)
    return Spectrum(frequency, density.reshape(-1, *density.shape[-2:]).mean(0))


class Peak(NamedTuple):
    """A peak of a spectrum."""

    frequency: float
    """Frequency of the maximum, interpolated between bins by a parabola through three logarithms."""
    share: float
    """Fraction of the total power within the peak."""
    height: float
    """Height relative to the median of the density."""


def named_peaks(
    density: Float[Tensor, " w"], frequency: Float[Tensor, " w"], count: int = 5, prominence: float = 4.0
) -> list[Peak]:
    """The highest peaks of one channel, at most ``count``, that exceed ``prominence`` times the median; highest first.

    Two maxima are separate peaks if the density between them falls below half the lower one. A peak extends as far as
    the density is above the median, or to the minimum before the next peak. White noise averaged over ``k`` segments
    has a standard deviation of ``1/√k``: with few segments use a larger prominence.

    >>> tone = torch.sin(2 * torch.pi * 0.125 * torch.arange(4096.0)).unsqueeze(-1)
    >>> frequency, density = welch(tone + 0.01 * torch.randn(4096, 1, generator=torch.Generator().manual_seed(0)))
    >>> [(round(peak.frequency, 3), round(peak.share, 2)) for peak in named_peaks(density[:, 0], frequency)]
    [(0.125, 1.0)]
    """
    if density.ndim != 1 or density.shape != frequency.shape or len(density) < 3:
        raise ShapeError(
            f"density {tuple(density.shape)} and frequency {tuple(frequency.shape)} must be of one channel and "
            "at least 3 bins: use density[:, channel]"
        )
    if prominence <= 1:
        raise ConfigError(f"prominence {prominence} must be above 1, in multiples of the median density")
    power = density.detach().double().cpu()
    total, floor = float(power.sum()), float(power.median())
    if not math.isfinite(total):
        raise DataError("the density is not finite: check the status of the filter's trajectory for failed steps")
    if total == 0:
        return []
    padded = torch.nn.functional.pad(power, (1, 1), value=-1.0)
    maxima = (power > padded[:-2]) & (power >= padded[2:]) & (power >= prominence * floor)
    peaks: list[int] = []
    for top in sorted(maxima.nonzero().flatten().tolist(), key=lambda k: -float(power[k])):
        if all(_valley(power, top, other)[1] < float(power[top]) / 2 for other in peaks):
            peaks.append(top)

    result = []
    for top in peaks[:count]:
        low, high = _reach(power, top, floor, [other for other in peaks if other != top])
        share = float(power[low : high + 1].sum()) / total
        height = float(power[top]) / floor if floor > 0 else float("inf")
        result.append(Peak(_between_bins(power, frequency, top), share, height))
    return result


def _valley(power: Tensor, a: int, b: int) -> tuple[int, float]:
    """Index and value of the minimum of the density between two bins."""
    low, high = min(a, b), max(a, b)
    lowest = int(power[low : high + 1].argmin()) + low
    return lowest, float(power[lowest])


def _reach(power: Tensor, top: int, floor: float, others: list[int]) -> tuple[int, int]:
    """First and last bin of a peak: where the density is above the floor, up to the minimum before the next peak."""
    valleys = [_valley(power, top, other)[0] for other in others]
    stops = [*(power <= floor).nonzero().flatten().tolist(), *valleys]
    low = max((stop + 1 for stop in stops if stop < top), default=0)
    high = min((stop - 1 for stop in stops if stop > top), default=len(power) - 1)
    return low, high


def _between_bins(power: Tensor, frequency: Tensor, top: int) -> float:
    """Vertex of the parabola through the logarithms at a maximum and its neighbours; accurate to a few % of a bin."""
    here = float(frequency[top])
    if not 0 < top < len(power) - 1 or float(power[top - 1 : top + 2].min()) <= 0:
        return here
    left, middle, right = power[top - 1 : top + 2].log().tolist()
    shift = 0.5 * (left - right) / (left - 2 * middle + right)
    return here + shift * float(frequency[1] - frequency[0])
