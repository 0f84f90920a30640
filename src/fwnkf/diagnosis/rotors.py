"""Names for the lines of a log: which are fixed, which follow a rotor or a command, which are folded or harmonics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .orders import Order, fold, integration_gain, order_strength, track_orders
from .peaks import find_peaks, group_peaks
from .result import Peak, Waterfall
from .ridges import Ridge, find_ridge, with_commands
from .spectra import Grid, Spectrum, grid_spectrum, grid_waterfall, noise_floor
from .thresholds import THRESHOLDS, Thresholds

Array = NDArray[np.float64]
Track = tuple[Array, Array]
"""Times and values, ``[samples]`` and ``[samples, rotors]``."""


class Lines(NamedTuple):
    """All lines of a log."""

    spectrum: Spectrum
    floor: Array
    peaks: tuple[Peak, ...]
    """With their names, the highest over the floor first."""
    orders: tuple[Order, ...]
    """What follows a rotor, where rotor speeds are known."""
    ridge: Ridge | None
    """What sweeps by itself."""


def name_lines(
    grid: Grid,
    channels: Sequence[str],
    *,
    rotor: Track | None = None,
    motor: Track | None = None,
    thresholds: Thresholds = THRESHOLDS,
) -> Lines:
    """Find the lines of all channels and name their sources: rotor speeds first, then commands, then none.

    >>> from fwnkf.data.flights import flight
    >>> from fwnkf.diagnosis.spectra import even_grid
    >>> flown = flight("rotor_vibration", seed=2, seconds=30.0)
    >>> grid = even_grid(flown.imu_time, flown.gyro)
    >>> lines = name_lines(grid, ["gyro_x", "gyro_y", "gyro_z"], rotor=(flown.rotor_time, flown.rotor))
    >>> lines.peaks[0].rotor == flown.causes[0].figures["rotor"]
    True
    """
    spectrum = grid_spectrum(grid)
    floor = noise_floor(spectrum)
    peaks = find_peaks(spectrum, channels, floor=floor, thresholds=thresholds)
    orders: list[Order] = []
    if rotor is not None and len(rotor[0]) > 1:
        orders = track_orders(grid, channels, *rotor, thresholds=thresholds)
    ridge = find_ridge(grid, range(len(channels)), thresholds=thresholds)
    source = rotor if rotor is not None and len(rotor[0]) > 1 else motor
    if ridge is not None and source is not None and len(source[0]) > 1:
        ridge = with_commands(ridge, *source)
    sweeping = [_order_peak(order, grid.rate, ridge) for order in orders]
    if ridge is not None and not orders:
        sweeping += _ridge_peaks(grid, ridge, channels, thresholds)
    fixed = _fixed(peaks, grid, list(channels), sweeping, thresholds)
    fixed = name_fixed(fixed, grid.rate, spectrum.resolution, thresholds)
    named = sorted([*fixed, *sweeping], key=lambda peak: -peak.ratio)
    return Lines(spectrum, floor, tuple(named), tuple(orders), ridge)


def name_fixed(
    peaks: Sequence[Peak], rate: float, resolution: float, thresholds: Thresholds = THRESHOLDS
) -> list[Peak]:
    """Lines at fixed frequencies: harmonics of the lowest line of a series, and those that may be folded.

    >>> tone = Peak("gyro_x", 16.7, 1.0, 1.0, 9.0, 1.0)
    >>> series = [tone._replace(frequency=harmonic * 16.7) for harmonic in (1, 2, 3)]
    >>> [peak.label for peak in name_fixed(series, 200.0, 0.5)]
    ['fixed, fundamental of a series', 'fixed, harmonic 2 of 16.7 Hz', 'fixed, harmonic 3 of 16.7 Hz']
    """
    groups = group_peaks(peaks)
    frequencies = sorted(group[0].frequency for group in groups)
    fundamental, members = harmonic_series(frequencies, resolution)
    named = []
    for peak in peaks:
        label, harmonic = "fixed", None
        if fundamental is not None:
            near = [h for h, f in members.items() if abs(f - peak.frequency) <= max(resolution, 0.01 * f)]
            if near:
                harmonic = near[0]
                of = "fundamental of a series" if harmonic == 1 else f"harmonic {harmonic} of {fundamental:.3g} Hz"
                label = f"fixed, {of}"
        if peak.frequency > thresholds.nyquist_share * rate / 2:
            label += f", possibly folded from {rate - peak.frequency:.3g} Hz"
        named.append(peak._replace(harmonic=harmonic, label=label))
    return named


def harmonic_series(frequencies: Sequence[float], resolution: float) -> tuple[float | None, dict[int, float]]:
    """The fundamental that has most multiples among sorted frequencies, two at least, and its multiples by number.

    >>> harmonic_series([16.7, 33.5, 50.2, 61.0], 0.5)
    (16.7, {1: 16.7, 2: 33.5, 3: 50.2})
    """
    best: tuple[float | None, dict[int, float]] = (None, {})
    for fundamental in frequencies:
        members = {1: fundamental}
        for harmonic in range(2, 9):
            near = min(frequencies, key=lambda f, wanted=harmonic * fundamental: abs(f - wanted))  # type: ignore[misc]
            if abs(near - harmonic * fundamental) <= max(0.5 * resolution, 0.004 * near):
                members[harmonic] = near
        if len(members) > max(2, len(best[1])) and {2, 3} & set(members):
            best = fundamental, members
    return best


def persistence(waterfall: Waterfall, frequency: float) -> float:
    """Median over time of the density at a line over its mean: about 0.7 for a fixed line, near 0 for a passing one."""
    index = int(np.argmin(np.abs(waterfall.frequency - frequency)))
    density = waterfall.density[:, max(index - 1, 0) : index + 2].sum(1)
    return float(np.median(density) / max(density.mean(), np.finfo(float).tiny))


def _fixed(
    peaks: list[Peak], grid: Grid, channels: list[str], sweeping: list[Peak], thresholds: Thresholds
) -> list[Peak]:
    """Without peaks of the whole spectrum that are where a sweeping line of their channel happened to stay longest."""
    waterfalls: dict[str, Waterfall] = {}
    fixed = []
    for peak in peaks:
        lines = [line for line in sweeping if line.channel == peak.channel]
        if any(abs(line.frequency - peak.frequency) <= max(1.3 * line.width, peak.width) for line in lines):
            if peak.channel not in waterfalls:
                waterfalls[peak.channel] = grid_waterfall(grid, channels.index(peak.channel), rows=1 << 20)
            if persistence(waterfalls[peak.channel], peak.frequency) < thresholds.fixed_persistence:
                continue
        fixed.append(peak)
    return fixed


def _order_peak(order: Order, rate: float, ridge: Ridge | None) -> Peak:
    width = max(2.355 * order.spread, 1.0)
    folded = order.origin > rate / 2
    label = f"rotor {order.rotor}, harmonic {order.harmonic}"
    if folded:
        label += f", folded from {order.origin:.3g} Hz (gain {integration_gain(order.origin, rate):.2g})"
    correlation = None
    if ridge is not None and abs(ridge.mean - order.frequency) < max(ridge.spread, order.spread, 2.0):
        correlation = ridge.correlation
    return Peak(
        order.channel,
        order.frequency,
        order.amplitude,
        order.amplitude**2 / 2 / width,
        order.ratio,
        width,
        order.rotor,
        order.harmonic,
        order.origin if folded else None,
        correlation,
        label,
    )


def _ridge_peaks(grid: Grid, ridge: Ridge, channels: Sequence[str], thresholds: Thresholds) -> list[Peak]:
    """A sweeping line, and its harmonics, in every channel where they stand out."""
    peaks = []
    folded = ridge.correlation is not None and ridge.correlation < 0
    speeds = [
        np.interp(start + np.arange(len(run)) / grid.rate, ridge.time, ridge.frequency)
        for run, start in zip(grid.runs, grid.starts, strict=True)
    ]
    follows = "" if ridge.motor is None else ", follows the motor commands"
    if ridge.motor:
        follows += f", that of motor {ridge.motor} best"
    for harmonic in ridge.harmonics:
        ratio, amplitude = order_strength(grid, speeds, harmonic, harmonic * ridge.mean)
        at = float(fold(harmonic * ridge.frequency, grid.rate).mean())
        # multiples of a folded line are those of its source, folded again
        above = harmonic * (grid.rate - ridge.mean if folded else ridge.mean)
        origin = above if above > grid.rate / 2 else None
        width = max(2.355 * harmonic * ridge.spread, 1.0)
        label = "sweeps" + (f", harmonic {harmonic}" if len(ridge.harmonics) > 1 else "") + follows
        if origin is not None:
            label += f", folded from {origin:.3g} Hz (gain {integration_gain(origin, grid.rate):.2g})"
        for column in np.flatnonzero(ratio > thresholds.ridge_ratio):
            line = float(amplitude[column])
            peaks.append(
                Peak(
                    channels[int(column)], at, line, line**2 / 2 / width, float(ratio[column]), width, None, harmonic,
                    origin, ridge.correlation, label,
                )
            )  # fmt: skip
    return peaks
