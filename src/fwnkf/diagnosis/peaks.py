"""Lines of a spectrum that are not chance: frequency between the bins, amplitude from their power, and width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from .chi_square import mean_square_quantile
from .result import Peak
from .spectra import Spectrum, noise_floor
from .thresholds import THRESHOLDS, Thresholds

Array = NDArray[np.float64]


def find_peaks(
    spectrum: Spectrum,
    channels: Sequence[str] = ("",),
    *,
    floor: Array | None = None,
    lowest: float | None = None,
    limit: int = 8,
    thresholds: Thresholds = THRESHOLDS,
) -> list[Peak]:
    """The strongest lines of each channel, at most ``limit``, the strongest first.

    A line exceeds the floor by more than chance does with probability ``line_false_alarm`` anywhere in the spectrum,
    and by ``line_ratio`` at least. Frequencies below ``lowest`` are motion.

    >>> time = np.arange(12000) / 200
    >>> noise = np.random.default_rng(0).normal(size=12000)
    >>> from .spectra import spectrum
    >>> (peak,) = find_peaks(spectrum(time, 0.5 * np.sin(2 * np.pi * 34.27 * time) + noise), ["gyro_x"])
    >>> peak.channel, round(peak.frequency, 2), round(peak.amplitude, 1)
    ('gyro_x', 34.27, 0.5)
    """
    floor = noise_floor(spectrum) if floor is None else floor
    bins = len(spectrum.frequency)
    density, floor = spectrum.density.reshape(bins, -1), floor.reshape(bins, -1)
    lowest = thresholds.line_lowest if lowest is None else lowest
    needed = max(thresholds.line_ratio, chance_ratio(thresholds.line_false_alarm, bins, spectrum.averages))
    peaks = []
    for number, channel in enumerate(channels):
        lines = _lines(spectrum, channel, density[:, number], floor[:, number], lowest, needed)
        peaks += sorted(lines, key=lambda peak: -peak.amplitude)[:limit]
    return sorted(peaks, key=lambda peak: -peak.ratio)


def chance_ratio(false_alarm: float, bins: int, averages: float) -> float:
    """Ratio to the floor that the highest of ``bins`` exceeds by chance with this probability.

    A bin of Welch's average over the floor is a chi-square variable with ``2 · averages`` degrees of freedom over its
    mean.

    >>> round(chance_ratio(0.01, 500, 60.0), 2)
    1.62
    """
    quantile = -NormalDist().inv_cdf(false_alarm / bins)
    return mean_square_quantile(quantile, 2 * averages)


def group_peaks(peaks: Sequence[Peak], tolerance: float = 0.01) -> list[list[Peak]]:
    """Peaks of all channels at the same frequency together: within ``tolerance``, or within their widths.

    The group with the highest ratio comes first, and so does the peak with the highest ratio in each group.

    >>> a, b = Peak("gyro_x", 34.2, 1.0, 1.0, 50.0, 0.7), Peak("gyro_y", 34.3, 1.0, 1.0, 20.0, 0.7)
    >>> [[peak.channel for peak in group] for group in group_peaks([b, a, a._replace(frequency=80.0)])]
    [['gyro_x', 'gyro_y'], ['gyro_x']]
    """
    groups: list[list[Peak]] = []
    for peak in sorted(peaks, key=lambda peak: -peak.ratio):
        for group in groups:
            near = max(tolerance * peak.frequency, min(peak.width, group[0].width))
            if abs(peak.frequency - group[0].frequency) <= near and peak.channel not in {p.channel for p in group}:
                group.append(peak)
                break
        else:
            groups.append([peak])
    return groups


def _lines(spectrum: Spectrum, channel: str, density: Array, floor: Array, lowest: float, needed: float) -> list[Peak]:
    last = len(density) - 1
    ratio = density / floor
    inner = np.arange(1, last + 1)
    left, right = density[inner - 1], density[np.minimum(inner + 1, last)]
    tops = inner[(density[inner] > left) & (density[inner] >= right) & (ratio[inner] > needed)]
    tops = tops[spectrum.frequency[tops] >= lowest]
    return [
        _line(spectrum, channel, density, floor, int(top)) for top in tops if _stands_alone(density, floor, int(top))
    ]


def _stands_alone(density: Array, floor: Array, top: int) -> bool:
    """Whether the density falls to half, or to twice the floor, before it rises above this peak on either side."""
    for step in (-1, 1):
        index = top + step
        lowest = density[top]
        while 0 <= index < len(density):
            lowest = min(lowest, density[index])
            if lowest < max(0.5 * density[top], 2 * floor[index]) and abs(index - top) > 1:
                break
            if density[index] > density[top]:
                return False
            index += step
    return True


def _line(spectrum: Spectrum, channel: str, density: Array, floor: Array, top: int) -> Peak:
    bins, last = spectrum.resolution, len(density) - 1
    low, high = _crossing(density, top, -1), _crossing(density, top, 1)
    width = (high - low) * bins
    if width <= 2.5 * bins:
        position = top + _vertex(density, top)
    else:  # the centre of power of a broad one
        span = np.arange(max(math.ceil(low), 1), min(math.floor(high), last) + 1)
        weight = np.maximum(density[span] - floor[span], 0)
        position = float(span @ weight / weight.sum()) if weight.sum() > 0 else float(top)
    # a line lies in the two bins on either side of it under a Hann window; a broad one reaches to the floor
    reach = max(2, math.ceil(1.5 * (high - low)))
    first, end = _foot(density, floor, top, -reach), _foot(density, floor, top, reach)
    power = float(np.maximum(density[first : end + 1] - floor[first : end + 1], 0).sum() * bins)
    return Peak(
        channel,
        position * bins,
        math.sqrt(2 * power),
        float(density[top]),
        float(density[top] / floor[top]),
        width,
    )


def _vertex(density: Array, top: int) -> float:
    """Top of the parabola through the logarithms of three bins, relative to the middle one."""
    if top == 0 or top == len(density) - 1:
        return 0.0
    left, middle, right = np.log(np.maximum(density[top - 1 : top + 2], np.finfo(float).tiny))
    curvature = left - 2 * middle + right
    return float(0.5 * (left - right) / curvature) if curvature < 0 else 0.0


def _crossing(density: Array, top: int, step: int) -> float:
    """Where the density falls to half of the top, in bins."""
    half, index = 0.5 * density[top], top
    while 0 <= index + step < len(density) and density[index + step] > half:
        index += step
    after = index + step
    if not 0 <= after < len(density):
        return float(index)
    share = (density[index] - half) / max(density[index] - density[after], np.finfo(float).tiny)
    return index + step * float(share)


def _foot(density: Array, floor: Array, top: int, reach: int) -> int:
    """The last bin of a line on one side: at most ``reach`` bins, but not into the next line."""
    step = 1 if reach > 0 else -1
    index = top
    for _ in range(abs(reach)):
        after = index + step
        if not 0 < after < len(density):
            break
        if abs(index - top) >= 2 and density[after] > 1.5 * density[index]:
            break
        index = after
    return index
