"""Names for the lines of a log: which are fixed, which follow a rotor or a command, which are folded or harmonics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .orders import integration_gain
from .peaks import find_peaks
from .result import Peak
from .sources import Line, Source, Track, explain
from .spectra import Grid, Spectrum, grid_spectrum, noise_floor
from .thresholds import THRESHOLDS, Thresholds

Array = NDArray[np.float64]

HEARD = 2.0
"""Power of a line over that of the floor, from which a channel is said to have it."""


class Named(NamedTuple):
    """A source with its lines in each channel."""

    source: Source
    peaks: tuple[Peak, ...]
    """The strongest line first, the channel with the highest ratio first."""


class Lines(NamedTuple):
    """All lines of a log."""

    spectrum: Spectrum
    floor: Array
    named: tuple[Named, ...]
    """Sources, the strongest first."""

    @property
    def peaks(self) -> tuple[Peak, ...]:
        """Of all sources, the highest over the floor first."""
        return tuple(sorted((peak for item in self.named for peak in item.peaks), key=lambda peak: -peak.ratio))


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
    sharp = find_peaks(spectrum, channels, floor=floor, thresholds=thresholds)
    usable = [item if item is not None and len(item[0]) > 1 else None for item in (rotor, motor)]
    sources = explain(grid, rotor=usable[0], motor=usable[1], thresholds=thresholds)
    named = [Named(source, tuple(_peaks(source, channels, grid.rate, sharp))) for source in sources or ()]
    if sources is None:  # what stands out of the spectrum is all there is
        named = _unexplained(sharp)
    named = [item for item in named if item.peaks]
    return Lines(spectrum, floor, tuple(_series(named, grid.rate, spectrum.resolution, thresholds)))


def _peaks(source: Source, channels: Sequence[str], rate: float, sharp: Sequence[Peak]) -> list[Peak]:
    """A source in every channel that has it; of a fixed line, frequency and power from the average spectrum."""
    peaks = []
    for line in source.lines:
        heard = [k for k in range(len(channels)) if line.ratio[k] > HEARD] or [int(line.ratio.argmax())]
        origin = line.origin
        if source.kind == "sweep" and source.correlation is not None and source.correlation < 0:
            origin = line.order * (rate - source.lines[0].frequency)  # falls when commands rise: its source is above
        label = _label(source, line, origin, rate)
        for k in sorted(heard, key=lambda k: -line.ratio[k]):
            peak = Peak(
                channels[k], line.frequency, float(line.amplitude[k]),
                float(line.amplitude[k] ** 2 / 2 / max(line.width, 1e-9)), float(line.ratio[k]), line.width,
                source.rotor, _whole(line.order) if source.kind in ("rotor", "sweep") else None, origin,
                source.correlation, label,
            )  # fmt: skip
            if source.kind == "fixed":
                near = [item for item in sharp if item.channel == channels[k]
                        and abs(item.frequency - line.frequency) <= max(1.5, line.width)]  # fmt: skip
                if near:
                    top = max(near, key=lambda item: item.amplitude)
                    peak = peak._replace(frequency=top.frequency, amplitude=top.amplitude, density=top.density,
                                         ratio=top.ratio, width=top.width)  # fmt: skip
            peaks.append(peak)
    if source.kind == "fixed" and peaks:
        frequency = max(peaks, key=lambda peak: peak.ratio).frequency
        peaks = [peak._replace(frequency=frequency) for peak in peaks]
    return peaks


def _whole(order: float) -> int | None:
    return int(order) if float(order).is_integer() else None


def _label(source: Source, line: Line, origin: float | None, rate: float) -> str:
    if source.kind == "resonance":
        return f"resonance, {line.width:.3g} Hz wide"
    if source.kind == "fixed":
        return "fixed"
    label = f"rotor {source.rotor}" if source.kind == "rotor" else "sweeps"
    label += f", harmonic {line.order:g}" if source.kind == "rotor" or len(source.lines) > 1 else ""
    if source.motor is not None:
        label += ", follows the motor commands" + (f", that of motor {source.motor} best" if source.motor else "")
    if origin is not None:
        label += f", folded from {origin:.3g} Hz (gain {integration_gain(origin, rate):.2g})"
    return label


def _unexplained(sharp: Sequence[Peak]) -> list[Named]:
    from .peaks import group_peaks

    named = []
    for group in group_peaks(sharp):
        nothing = np.zeros(0)
        line = Line(1.0, nothing, nothing, group[0].frequency, None, 0.0, group[0].width, nothing, nothing, 0.0)
        named.append(Named(Source("fixed", (line,)), tuple(peak._replace(label="fixed") for peak in group)))
    return named


def _series(named: Sequence[Named], rate: float, resolution: float, thresholds: Thresholds) -> list[Named]:
    """Fixed lines that are multiples of one another are one source; those near half the rate may be folded."""
    fixed = [item for item in named if item.source.kind == "fixed"]
    _, members = harmonic_series(sorted(item.peaks[0].frequency for item in fixed), resolution)
    base: Named | None = None
    result: list[Named] = []
    for item in named:
        at = item.peaks[0].frequency
        if item.source.kind == "fixed":
            harmonic = next((h for h, f in members.items() if abs(f - at) <= max(resolution, 0.01 * f)), None)
            if harmonic is not None:
                of = "fundamental of a series" if harmonic == 1 else f"harmonic {harmonic} of {members[1]:.3g} Hz"
                item = item._replace(
                    peaks=tuple(p._replace(harmonic=harmonic, label=f"fixed, {of}") for p in item.peaks)
                )
                if base is not None:
                    place = result.index(base)
                    base = base._replace(peaks=base.peaks + item.peaks)
                    result[place] = base
                    continue
                base = item
            elif at > thresholds.nyquist_share * rate / 2:
                folded = f"fixed, possibly folded from {rate - at:.3g} Hz"
                item = item._replace(peaks=tuple(peak._replace(label=folded) for peak in item.peaks))
        result.append(item)
    return result


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
