"""Power over time and frequency, beside the floor: how well a frequency that moves explains it, by likelihood.

The power of noise in a cell of a short-time transform is exponential about its mean (Whittle 1953). A line adds power
to the cells at its frequency. Hypotheses about where a line is at each moment (constant, a multiple of a rotor's
speed, a path) are compared by the logarithm of the likelihood that they gain over the floor alone, on windows that the
hypothesis was not fitted to. What is explained is taken out, so that it is not explained twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .spectra import Grid, Spectrum, detrended, noise_floor

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

CAP = 12.0
"""Nats that one second of one channel contributes in full; beyond, the logarithm counts: a burst is no line."""
LOBE = 1.5
"""Bins on either side of a line that hold its power under a Hann window."""
ROWS = 400
"""Windows, at most: of a longer log, windows further apart."""


@dataclass(eq=False)
class Plane:
    """Densities in windows that overlap by half, over the floor of their channel and the level of their window."""

    seconds: float
    """Length of a window."""
    time: Array
    """``[W]``: middles of the windows."""
    frequency: Array
    """``[K]``"""
    ratio: Array
    """``[W, K, C]``: one is noise; zero where something was taken out."""
    scale: Array
    """``[W, K, C]``: power (the square of the unit) of a cell whose ratio is one."""
    free: Mask
    """``[W, K]``: cells that nothing explains so far."""
    lowest: float
    """Hz: below is motion."""
    usual: Array = field(init=False)
    """``[K, C]``: mean ratio of the free cells."""
    scores: Array = field(init=False)
    """``[W, K]``: log-likelihood of the most likely line at each free cell."""

    def __post_init__(self) -> None:
        self._sum()

    def _sum(self) -> None:
        padded = np.zeros((len(self.time), len(self.frequency) + 1, self.ratio.shape[2]))
        left = self.ratio * self.free[:, :, None]
        np.cumsum(left, axis=1, out=padded[:, 1:])
        self._total = padded
        count: Array = np.zeros(padded.shape[:2])
        np.cumsum(self.free, axis=1, out=count[:, 1:])
        self._count = count
        known = self.free.sum(0)[:, None]
        self.usual = np.where(known > 0, np.minimum(left, 1e4).sum(0) / np.maximum(known, 1), 1.0)
        self.scores = _scores(left, self.free)
        self._constant: dict[int, Array] = {}

    @property
    def resolution(self) -> float:
        """Hz between bins."""
        return float(self.frequency[1])

    @property
    def rate(self) -> float:
        """Hz at which the channels are sampled."""
        return 2 * float(self.frequency[-1])

    def along(self, track: Array, half: Array | float = 0.0) -> tuple[Array, Array]:
        """Mean ratio ``[W, C]`` of the free cells within a lobe and ``half`` Hz of a track (Hz), and their number."""
        low, high = self._cells(track, half)
        rows = np.arange(len(self.time))
        count = self._count[rows, high] - self._count[rows, low]
        total = self._total[rows, high] - self._total[rows, low]
        return total / np.maximum(count, 1)[:, None], count

    def power(self, track: Array, half: Array | float = 0.0) -> Array:
        """Power above the floor ``[W, C]`` along a track; NaN in windows in which most of it was taken out."""
        return self.moments(track, half)[0]

    def moments(self, track: Array, half: Array | float = 0.0) -> tuple[Array, Array]:
        """Power above the floor ``[W, C]`` along a track, and the sum of power times frequency.

        Both are NaN in windows in which most of the track was taken out.
        """
        low, high = self._cells(track, np.asarray(half) + 0.5 * self.resolution)
        place = np.arange(len(self.frequency))
        inside = (place >= low[:, None]) & (place < high[:, None])
        rows, cells = np.nonzero(inside & self.free)
        result = np.zeros((2, len(self.time), self.ratio.shape[2]))
        above = (self.ratio[rows, cells] - 1) * self.scale[rows, cells]
        np.add.at(result[0], rows, above)
        np.add.at(result[1], rows, above * self.frequency[cells, None])
        share = (inside & self.free).sum(1) / np.maximum(inside.sum(1), 1)
        power, moment = np.where(share[:, None] > 0.5, result / np.maximum(share, 0.5)[:, None], np.nan)
        return power, moment

    def _cells(self, track: Array, half: Array | float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        reach = LOBE * self.resolution + np.broadcast_to(half, track.shape)
        bins = len(self.frequency)
        low = np.ceil((track - reach) / self.resolution).astype(np.int64).clip(0, bins)
        high = (np.floor((track + reach) / self.resolution).astype(np.int64) + 1).clip(0, bins)
        return low, np.maximum(high, low)

    def gains(self, track: Array, half: Array | float = 0.0) -> Array:
        """Log-likelihood ``[W]`` that a line along a track gains in each window, its power from the other windows."""
        ratio, count = self.along(track, half)
        return self._held_out(ratio[:, None], count[:, None])[:, 0]

    def gain(self, track: Array, half: Array | float = 0.0) -> float:
        """Log-likelihood that a line along a track gains over the floor alone."""
        return float(self.gains(track, half).sum())

    def constant_gains(self, half: float = 0.0) -> Array:
        """Gain ``[K]`` of a line at each constant frequency, of the width that a track has with the same ``half``."""
        bins, reach = len(self.frequency), int(LOBE + half / self.resolution)
        if reach in self._constant:
            return self._constant[reach]
        low, high = np.maximum(np.arange(bins) - reach, 0), np.minimum(np.arange(bins) + reach + 1, bins)
        count = self._count[:, high] - self._count[:, low]
        ratio = (self._total[:, high] - self._total[:, low]) / np.maximum(count, 1)[:, :, None]
        result = self._held_out(ratio, count).sum(0)
        result[self.frequency < self.lowest] = 0
        self._constant[reach] = result
        return result

    def _held_out(self, ratio: Array, count: Array) -> Array:
        """Gains ``[W, n]`` of ratios ``[W, n, C]``; the power of a line is the mean over every other window."""
        weight, cap = count[:, :, None] / LOBE, CAP * self.seconds
        result = np.zeros(ratio.shape[:2])
        for fold in (0, 1):
            test, train = slice(fold, None, 2), slice(1 - fold, None, 2)
            # no window counts for more than a few times the usual one
            level = np.minimum(ratio[train], 8 * np.maximum(np.median(ratio[train], axis=0), 1))
            share = np.maximum((weight[train] * level).sum(0) / np.maximum(weight[train].sum(0), 1e-9) - 1, 0)
            gain = weight[test] * (ratio[test] * share / (1 + share) - np.log1p(share))
            result[test] = (np.sign(gain) * cap * np.log1p(np.abs(gain) / cap)).sum(-1)
        return result

    def take_out(self, track: Array, half: Array | float = 0.0) -> None:
        """Count the cells along a track as explained, with the side lobes of a strong line."""
        strongest = float(np.quantile(self.along(track, half)[0].max(1), 0.95))
        # side lobes of a Hann window: -31 dB at 2.5 bins, and falling with the sixth power of the distance
        lobes = max(2.5, 2.5 * (2 * strongest * 10**-3.1) ** (1 / 6))
        low, high = self._cells(track, np.asarray(half) + (lobes - LOBE) * self.resolution)
        cells = np.arange(len(self.frequency))
        self.free &= ~((cells >= low[:, None]) & (cells < high[:, None]))
        self._sum()

    def restore(self, free: Mask) -> None:
        """Take back what was taken out since."""
        self.free = free
        self._sum()


def _scores(ratio: Array, free: Mask) -> Array:
    """Gain ``[W, K]`` of the most likely line at each cell, noise at zero."""
    smooth = 0.5 * ratio
    smooth[:, 1:] += 0.25 * ratio[:, :-1]
    smooth[:, :-1] += 0.25 * ratio[:, 1:]
    np.maximum(smooth, 1.0, out=smooth)
    gain = (6 * np.log1p((smooth - 1 - np.log(smooth)) / 6)).sum(2)
    return np.where(free, gain - np.median(gain), 0.0)


def plane(grid: Grid, seconds: float, lowest: float) -> Plane | None:
    """The windows of all runs of a grid; None where there are too few of them, or too few bins."""
    length = max(2 * round(grid.rate * seconds / 2), 16)
    hop = max(length // 2, sum(len(run) for run in grid.runs) // ROWS)
    firsts = [(k, first) for k, run in enumerate(grid.runs) for first in range(0, len(run) - length + 1, hop)]
    if len(firsts) < 12 or lowest > grid.rate / 4:
        return None
    window = np.hanning(length + 1)[:-1]
    columns = grid.runs[0].shape[1]
    density = np.empty((len(firsts), length // 2 + 1, columns))
    time = np.empty(len(firsts))
    for row, (k, first) in enumerate(firsts):
        piece = detrended(grid.runs[k][first : first + length]) * window[:, None]
        density[row] = np.abs(np.fft.rfft(piece, axis=0)) ** 2
        time[row] = grid.starts[k] + (first + length / 2) / grid.rate
    density *= 2 / (grid.rate * (window**2).sum())
    frequency = np.arange(length // 2 + 1) * grid.rate / length
    usual = np.median(density, axis=0) / np.log(2)  # of an exponential variable
    floor = noise_floor(Spectrum(frequency, np.maximum(usual, np.finfo(float).tiny), 1e6, grid.rate))
    ratio = density / floor
    above = frequency >= lowest
    level = np.maximum(np.median(ratio[:, above], axis=1, keepdims=True) / np.log(2), 1e-3)
    ratio /= level
    scale = floor[None] * level * (frequency[1] - frequency[0])
    free = np.broadcast_to(above, density.shape[:2]).copy()
    free[:, -1] = False  # of one degree of freedom
    return Plane(seconds, time, frequency, ratio, scale, free, lowest)
