"""The spectra of an airframe from a log: those of the diagnosis in flight, as means over bands, and their lines."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..airframes.entry import UNITS, Line
from ..airframes.entry import Spectrum as Kept
from ..errors import DataError
from .evidence import SIGNALS, Evidence
from .peaks import find_peaks
from .spectra import Spectrum

Array = NDArray[np.float64]

BANDS = 48
"""Of the spectrum, even in their logarithm."""
LOWEST = 1.0
"""Hz: below is motion alone."""
LINES = 4
"""Lines of a channel that are kept."""
DIGITS = 3


def airframe_spectra(evidence: Evidence) -> tuple[Kept, ...]:
    """Gyroscope and accelerometer in flight.

    Args:
        evidence: of a diagnosis.

    Returns:
        A spectrum for each of the two that the log has.

    Raises:
        DataError: the log has neither.
    """
    kept: dict[str, Kept] = {}
    for part in evidence.analysed:
        if part.role not in SIGNALS:
            continue
        for sensor, unit in UNITS.items():
            columns = {
                name.rpartition("_")[2]: column
                for column, name in enumerate(part.series.channels)
                if name.rpartition("_")[0] == sensor and part.series.units[column] == unit
            }
            if not columns or sensor in kept:
                continue
            edges, means = bands(part.signal, list(columns.values()))
            seconds = sum(len(run) for run in part.grid.runs) / part.grid.rate
            alone = part.signal._replace(density=part.signal.density[:, list(columns.values())])
            peaks = find_peaks(alone, list(columns), limit=LINES, thresholds=evidence.thresholds)
            kept[sensor] = Kept(
                sensor, unit, _rounded(part.series.rate, 6), round(seconds, 1), tuple(_rounded(x, 5) for x in edges),
                {axis: tuple(_rounded(x) for x in means[:, number]) for number, axis in enumerate(columns)},
                tuple(
                    Line(peak.channel, _rounded(peak.frequency, 5), _rounded(peak.width), _rounded(peak.amplitude))
                    for peak in sorted(peaks, key=lambda peak: -peak.amplitude)
                ),
            )  # fmt: skip
    if not kept:
        raise DataError(
            f"{evidence.log.path}: an airframe needs a gyroscope or an accelerometer in flight; the log has none that "
            "could be analysed"
        )
    return tuple(kept[sensor] for sensor in UNITS if sensor in kept)


def bands(spectrum: Spectrum, columns: list[int]) -> tuple[Array, Array]:
    """Edges of bands, and the mean density in each: every band has a bin, and every bin from 1 Hz on is in one."""
    width = spectrum.resolution
    first = int(np.searchsorted(spectrum.frequency, max(LOWEST, width)))
    count = len(spectrum.frequency) - first
    if count < 1:
        raise DataError("the sensor is too slow for a spectrum above 1 Hz")
    wanted = np.geomspace(spectrum.frequency[first], spectrum.frequency[-1] + width, BANDS + 1)
    starts = np.unique(np.searchsorted(spectrum.frequency[first:], wanted[:-1] - 1e-9 * width))
    means = np.add.reduceat(spectrum.density[first:, columns], starts, axis=0) / np.diff([*starts, count])[:, None]
    half = 0.5 * width
    edges = np.array([*(spectrum.frequency[first + starts] - half), spectrum.frequency[-1]])
    return edges, means


def _rounded(value: float, digits: int = DIGITS) -> float:
    return float(f"{value:.{digits}g}")
