"""Order tracking: which line turns with which rotor.

The samples are multiplied by the conjugate of a wave that turns with ``harmonic`` times the speed of a rotor. A line of
that rotor becomes constant, however its speed changes, and everything else is spread. This holds for lines above the
Nyquist frequency as well: wave and line are folded alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .spectra import Grid
from .thresholds import THRESHOLDS, Thresholds

Array = NDArray[np.float64]

HARMONICS = (1, 2, 3, 4)
SECONDS = 1.0
"""Length of a segment: a line has to keep step with the rotor for as long."""
CHUNK = 64
"""Segments transformed at a time, to bound memory."""
SHIFTS = 24
"""Shifts of the rotor speed in time that show what chance does."""


class Order(NamedTuple):
    """A line of one channel at a multiple of the speed of a rotor."""

    channel: str
    rotor: int
    """From 1."""
    harmonic: int
    frequency: float
    """Hz, mean in the log, after folding."""
    origin: float
    """Hz, mean of the harmonic before folding."""
    spread: float
    """Hz, standard deviation over time of the frequency."""
    amplitude: float
    ratio: float
    """Density at the order over the density beside it."""
    z: float
    """Standard deviations of the log ratio above its mean for rotor speeds shifted in time, or ten times its margin to
    the highest of them; NaN if not tested."""


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


def track_orders(
    grid: Grid,
    channels: Sequence[str],
    rotor_time: Array,
    rotor: Array,
    *,
    harmonics: Sequence[int] = HARMONICS,
    thresholds: Thresholds = THRESHOLDS,
) -> list[Order]:
    """Lines that follow a rotor, the strongest first: at most one rotor for each channel, harmonic and frequency.

    A line counts if its density is ``rotor_ratio`` times that beside it and exceeds what the same rotor gives with its
    speed shifted in time by ``rotor_z`` standard deviations. Where the speeds hardly change, nothing follows: a fixed
    line would look the same.
    """
    orders = []
    for number in range(rotor.shape[1]):
        speeds = [at_samples(grid, run, rotor_time, rotor[:, number]) for run in range(len(grid.runs))]
        turning = np.concatenate(speeds)
        turning = turning[turning > 1]
        if len(turning) < grid.rate:
            continue
        for harmonic in harmonics:
            origin = harmonic * float(turning.mean())
            folded = fold(harmonic * turning, grid.rate)
            if np.quantile(folded, 0.02) < 1.5 * thresholds.line_lowest:  # it passes through the motion
                continue
            frequency = float(folded.mean())
            ratio, amplitude = order_strength(grid, speeds, harmonic, origin)
            for column in np.flatnonzero(ratio > thresholds.rotor_ratio):
                spread = harmonic * float(turning.std())
                orders.append(
                    Order(
                        channels[int(column)], number + 1, harmonic, frequency, origin, spread,
                        float(amplitude[column]), float(ratio[column]), math.nan,
                    )
                )  # fmt: skip
    strongest = _strongest(orders)
    tested: dict[tuple[int, int], float] = {}
    for order in strongest:  # one test for each line: where it stands out most
        key = order.rotor, order.harmonic
        if key not in tested:
            tested[key] = _deviation(grid, order, list(channels).index(order.channel), rotor_time, rotor)
    strongest = [order._replace(z=tested[order.rotor, order.harmonic]) for order in strongest]
    return [order for order in strongest if order.z > thresholds.rotor_z]


def _strongest(orders: list[Order]) -> list[Order]:
    """Of orders that lie on each other, the one with the highest ratio; the loudest first."""
    chosen: list[Order] = []
    for order in sorted(orders, key=lambda order: -order.ratio):
        rivals = [other for other in chosen if other.channel == order.channel]
        # a line of one rotor leaks into those of similar speed, and into its own folded harmonics
        if all(abs(other.frequency - order.frequency) > 2 * max(other.spread, 2.0) for other in rivals):
            chosen.append(order)
    return sorted(chosen, key=lambda order: -order.ratio)


def _deviation(grid: Grid, order: Order, column: int, rotor_time: Array, rotor: Array) -> float:
    """The log ratio against those of rotor speeds that are shifted in time, end to start, in standard deviations."""
    speed = rotor[:, order.rotor - 1]
    single = grid._replace(runs=tuple(run[:, column : column + 1] for run in grid.runs))
    logs = []
    for shift in np.linspace(0.1, 0.9, SHIFTS):
        shifted = np.roll(speed, round(shift * len(speed)))
        speeds = [at_samples(grid, run, rotor_time, shifted) for run in range(len(grid.runs))]
        logs.append(math.log(max(float(order_strength(single, speeds, order.harmonic, order.origin)[0][0]), 0.1)))
    spread = max(float(np.std(logs)), 0.15)
    # shifted speeds that overlap with the true ones widen the spread: the margin to the best of them counts as well
    margin = 10 * (math.log(order.ratio) - max(logs))
    return max((math.log(order.ratio) - float(np.mean(logs))) / spread, margin)


def at_samples(grid: Grid, run: int, rotor_time: Array, speed: Array) -> Array:
    time = grid.starts[run] + np.arange(len(grid.runs[run])) / grid.rate
    known = np.isfinite(speed)
    return np.interp(time, rotor_time[known], speed[known]) if known.any() else np.zeros(len(time))


def order_strength(grid: Grid, speeds: list[Array], harmonic: int, origin: float) -> tuple[Array, Array]:
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
