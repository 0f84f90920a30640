"""Order tracking: which line turns with which rotor.

The samples are multiplied by the conjugate of a wave that turns with ``harmonic`` times the speed of a rotor. A line of
that rotor becomes constant, however its speed changes, and everything else is spread. This holds for lines above the
Nyquist frequency as well: wave and line are folded alike.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .spectra import Grid

Array = NDArray[np.float64]

SECONDS = 1.0
"""Length of a segment: a line has to keep step with the rotor for as long."""
CHUNK = 64
"""Segments transformed at a time, to bound memory."""


def fold(frequency: Array | float, rate: float) -> Array:
    """Where a frequency appears after sampling.

    >>> float(fold(170.0, 200.0)), float(fold(30.0, 200.0)), float(fold(430.0, 200.0))
    (30.0, 30.0, 30.0)
    """
    frequency = np.asarray(frequency, dtype=np.float64)
    return np.asarray(np.abs(frequency - rate * np.rint(frequency / rate)))


def integration_gain(frequency: float, rate: float) -> float:
    """Amplitude that is left of a line after averaging over each sampling interval.

    >>> round(integration_gain(170.0, 200.0), 2)
    0.17
    """
    return float(np.abs(np.sinc(frequency / rate)))


def at_samples(grid: Grid, run: int, rotor_time: Array, speed: Array) -> Array:
    time = grid.starts[run] + np.arange(len(grid.runs[run])) / grid.rate
    known = np.isfinite(speed)
    return np.interp(time, rotor_time[known], speed[known]) if known.any() else np.zeros(len(time))


def order_strength(grid: Grid, speeds: list[Array], harmonic: float, origin: float) -> tuple[Array, Array]:
    """Of each channel: density at the order over that beside it, and the amplitude of the line."""
    width = min(max(0.01 * origin, 1.0), 4.0)  # Hz; speeds are logged with about a per cent
    length = max(2 * round(grid.rate * SECONDS / 2), 16)
    window = np.hanning(length + 1)[:-1]
    offset = np.fft.fftfreq(length, 1 / grid.rate)
    at = np.abs(offset) <= max(width, 1.01 * grid.rate / length)
    beside = (np.abs(offset) > 2 * width) & (np.abs(offset) <= 2 * width + 12)
    chosen = np.flatnonzero(at | beside)
    inner = at[chosen]
    total = np.zeros((len(chosen), grid.runs[0].shape[1]))
    count = 0
    for run, speed in zip(grid.runs, speeds, strict=True):
        if len(run) < length:
            continue
        turns = np.exp(-2j * np.pi * harmonic * np.cumsum(speed) / grid.rate)
        firsts = np.arange(0, len(run) - length + 1, length // 2)
        firsts = firsts[sliding_window_view(speed, length)[firsts].min(1) > 1]
        for part in range(0, len(firsts), CHUNK):
            index = firsts[part : part + CHUNK, None] + np.arange(length)
            pieces = run[index]
            pieces = (pieces - pieces.mean(1, keepdims=True)) * (window * turns[index])[..., None]
            total += (np.abs(np.fft.fft(pieces, axis=1)[:, chosen]) ** 2).sum(0)
        count += len(firsts)
    if not count:
        zeros = np.zeros(total.shape[1])
        return zeros, zeros
    density = total / (count * grid.rate * (window**2).sum())
    floor = np.maximum(np.median(density[~inner], axis=0), np.finfo(float).tiny)
    power = np.maximum(density[inner] - floor, 0).sum(0) * grid.rate / length
    # half the amplitude of a real line is at its positive frequency
    return density[inner].max(0) / floor, 2 * np.sqrt(power)
