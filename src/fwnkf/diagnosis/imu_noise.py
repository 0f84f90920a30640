"""Noise of the IMU in a log as calibration files state it: without vibration, and in motion.

Without vibration is at rest, where the log has some seconds of it; else the quietest band of the spectrum in motion,
which only bounds the noise of the sensor from above.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..logs.log import Stream
from ..settings import ImuNoise, SensorNoise
from .allan import allan
from .evidence import Analysed, Evidence, within
from .spectra import detrended, even_grid

Array = NDArray[np.float64]

SENSORS = {"gyro": ("rad/s", 0.01), "accel": ("m/s²", 0.3)}
"""Unit, and RMS of a second without its trend below which a vehicle may be at rest."""
COVERED = 0.9
"""Share of the samples of a second that are needed."""
WALK = 60.0
"""Seconds at rest in one piece from which a random walk of the bias is read."""
REST = 5.0
"""Seconds at rest from which noise is measured there."""
LOWEST = 20.0
"""Hz: motion is below, vibration above."""
BANDS = 8
"""Of the spectrum, evenly spaced in their logarithm, of which the quietest is taken."""
CLEAR, HIGHEST = 0.8, 150.0
"""Share of half the sampling rate, and Hz, up to which they reach: filters of the sensor cut above."""


class _Measured(NamedTuple):
    noise: SensorNoise
    where: str = ""
    """The band of the spectrum, if it comes from one."""


def imu_noise(evidence: Evidence) -> ImuNoise:
    """Densities and random walks of gyroscope and accelerometer.

    Args:
        evidence: of a diagnosis.

    Returns:
        The largest of the axes of each.

    Raises:
        DataError: the log has no gyroscope, or no accelerometer.
    """
    parts = {}
    for sensor in SENSORS:
        part = next((p for p in evidence.analysed if any(c.startswith(sensor) for c in p.series.channels)), None)
        if part is None:
            raise DataError(f"{evidence.log.path}: a calibration file needs a gyroscope and an accelerometer; the log "
                            f"has no {sensor} that could be analysed")  # fmt: skip
        parts[sensor] = part
    rest = _resting(parts, evidence)
    if sum(stop - start for start, stop in rest) < REST:
        rest = ()
    gyro, accel = (_measured(sensor, part, rest, evidence) for sensor, part in parts.items())
    rate = max(part.series.rate for part in parts.values())
    where = f"at rest, {sum(stop - start for start, stop in rest):.0f} s"
    if not rest:
        where = f"at most this, from the quietest bands in motion ({gyro.where} and {accel.where})"
    return ImuNoise(gyro.noise, accel.noise, round(rate, 1), where)


def _measured(sensor: str, part: Analysed, rest: Sequence[tuple[float, float]], evidence: Evidence) -> _Measured:
    unit = SENSORS[sensor][0]
    columns = [k for k, name in enumerate(part.series.channels) if name.startswith(sensor)]
    frequency = part.signal.frequency
    above = frequency >= min(LOWEST, 0.25 * part.signal.rate)
    # a density has two sides in Kalibr's model, and one in a spectrum
    shaken: float | None = math.sqrt(float(part.signal.density[above][:, columns].mean(0).max()) / 2)
    if CLEAR * part.signal.rate / 2 < LOWEST:  # all that is left is motion
        shaken = None
    if not rest:
        low, high = float(frequency[above][0]), min(CLEAR * part.signal.rate / 2, HIGHEST)
        edges = np.geomspace(low, high, BANDS + 1)
        levels = [
            (float(np.median(part.floor[(frequency >= a) & (frequency < b)][:, columns], axis=0).max()), a, b)
            for a, b in pairwise(edges.tolist())
            if ((frequency >= a) & (frequency < b)).any()
        ]
        level, a, b = min(levels)
        return _Measured(SensorNoise(unit, math.sqrt(level / 2), None, shaken), f"{sensor} {a:.0f} to {b:.0f} Hz")
    stream = within(_entire(part, evidence), rest)
    names = [name for name in stream.columns if name.startswith(sensor)]
    grid = even_grid(stream.time, stream.stack(names))
    curves = allan(grid, names, [unit] * len(names))
    white = max((row.white for row in curves if row.white is not None), default=None)
    if white is None:
        raise DataError(f"{evidence.log.path}: the {sensor} shows no white noise at rest; its samples may be filtered")
    walk = max((row.walk for row in curves if row.walk is not None), default=None)
    if max(len(run) for run in grid.runs) < WALK * grid.rate:
        walk = None
    return _Measured(SensorNoise(unit, white, walk, shaken if evidence.airborne else None))


def _resting(parts: Mapping[str, Analysed], evidence: Evidence) -> tuple[tuple[float, float], ...]:
    """Times on the ground in which gyroscope and accelerometer are still, by whole seconds."""
    still: list[set[int]] = []
    for sensor, part in parts.items():
        stream = _entire(part, evidence)
        seconds = np.floor(stream.time)
        values = stream.stack([name for name in stream.columns if name.startswith(sensor)])
        places = np.flatnonzero(np.diff(seconds, prepend=np.nan) != 0)
        still.append(set())
        for begin, end in pairwise([*places.tolist(), len(seconds)]):
            enough = end - begin > COVERED * part.series.rate
            if enough and float(detrended(values[begin:end]).std(0).max()) < SENSORS[sensor][1]:
                still[-1].add(int(seconds[begin]))
    flying = {second for a, b in evidence.airborne for second in range(math.floor(a) - 1, math.ceil(b) + 1)}
    rest = sorted(set.intersection(*still) - flying)
    ends = [second for second in rest if second + 1 not in rest]
    starts = [second for second in rest if second - 1 not in rest]
    return tuple((float(a), float(b) + 1) for a, b in zip(starts, ends, strict=True))


def _entire(part: Analysed, evidence: Evidence) -> Stream:
    return evidence.whole(part.role) or part.stream
