"""Sensors of different rates and delays as one sequence of steps: who measured what when, and the IMU between.

A step ends where a sensor measured, at the time at which it measured, not at that at which its message arrived; delays
are therefore exact. Samples of the IMU are preintegrated over the steps, with the corrections of second order for
coning and sculling (P. G. Savage: Strapdown inertial navigation integration algorithm design, Journal of Guidance,
Control, and Dynamics 21, 1998).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError

Array = NDArray[np.float64]

LONGEST = 0.1
"""Seconds after which a step ends even if nothing was measured: over longer ones a linearisation is too coarse."""
SAME = 1e-6
"""Seconds within which two measurements are at the same time."""


@dataclass(frozen=True)
class Readings:
    """Measurements of one sensor.

    >>> Readings(np.array([1.0, 2.0]), np.zeros((2, 3)), delay=0.2).measured.tolist()
    [0.8, 1.8]
    """

    time: Array
    """Seconds, by the stamps in the recording."""
    values: Array
    """``[T, channels]``; NaN where a channel is missing."""
    delay: float = 0.0
    """Seconds by which a measurement is older than its stamp."""

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or len(self.time) != len(self.values):
            raise DataError(
                f"readings: {len(self.time)} times and values of shape {self.values.shape}; wanted [T, channels]"
            )

    @property
    def measured(self) -> Array:
        """When they were measured."""
        return self.time - self.delay

    def between(self, begin: float, end: float) -> Readings:
        """Those that were measured from ``begin`` to before ``end``.

        Args:
            begin: the first time (s).
            end: the time before which they are (s).

        Returns:
            The readings.
        """
        kept = (self.measured >= begin) & (self.measured < end)
        return Readings(self.time[kept], self.values[kept], self.delay)

    def averaged(self, rate: float) -> Readings:
        """Means over blocks, so that at most ``rate`` a second are left; a mean stands at the mean of its times.

        Args:
            rate: readings a second.

        Returns:
            The means.
        """
        if len(self.time) < 2:
            return self
        block = max(1, round(1.0 / (rate * float(np.median(np.diff(self.time))))))
        if block == 1:
            return self
        count = len(self.time) // block
        time = self.time[: count * block].reshape(count, block).mean(1)
        parts = self.values[: count * block].reshape(count, block, -1)
        known = np.isfinite(parts)
        total = np.where(known, parts, 0.0).sum(1)
        values = np.where(known.all(1), total / block, np.nan)
        return Readings(time, values, self.delay)


@dataclass(frozen=True)
class Steps:
    """What a filter runs on: what :func:`steps` returns.

    >>> Steps(np.zeros(1), np.zeros(1), np.zeros((1, 6)), np.ones((1, 1)), {"barometer": slice(0, 1)}).sensor(
    ...     "barometer"
    ... )
    array([[1.]])
    """

    time: Array
    """The end of each step; the first is when the filter starts."""
    dt: Array
    """Their lengths (s)."""
    u: Array
    """Mean rate and force of each step, ``[T, 6]``."""
    y: Array
    """Measurements of all sensors side by side, NaN where there is none."""
    channels: Mapping[str, slice] = field(default_factory=dict)
    """The columns of each sensor."""

    def sensor(self, name: str) -> Array:
        """The measurements of one sensor, a view.

        Args:
            name: the name of the sensor.

        Returns:
            Its columns.
        """
        return self.y[:, self.channels[name]]


def preintegrated(time: Array, samples: Array, ends: Array) -> Array:
    """Mean rate and force between times, ``[T, 6]``; the first row, before which there is nothing, is the first sample.

    A sample is the mean since the one before it. The force is that in the middle of the rotation of a step.

    >>> time = np.arange(1, 101) * 0.01
    >>> spin = np.tile([0.0, 0.0, 1.0, 0.0, 0.0, -9.8], (100, 1))
    >>> preintegrated(time, spin, np.array([0.0, 0.5, 1.0]))[1:].round(9).tolist()
    [[0.0, 0.0, 1.0, 0.0, 0.0, -9.8], [0.0, 0.0, 1.0, 0.0, 0.0, -9.8]]
    """
    grid = np.union1d(time, ends)
    grid = grid[(grid >= ends[0]) & (grid <= ends[-1])]
    place = np.clip(np.searchsorted(time, grid[1:]), 0, len(time) - 1)
    parts = samples[place] * np.diff(grid)[:, None]
    angle, speed = parts[:, :3], parts[:, 3:]
    step = np.searchsorted(ends, grid[1:]) - 1
    begins = np.searchsorted(step, np.arange(len(ends) - 1))

    def before(items: Array) -> Array:
        """Sums since the beginning of the step, without the item itself."""
        sums = np.concatenate((np.zeros((1, 3)), np.cumsum(items, 0)))
        return sums[:-1] - sums[begins[step]]

    turned, gained = before(angle), before(speed)
    coning = 0.5 * np.cross(turned, angle)
    sculling = 0.5 * (np.cross(turned, speed) + np.cross(gained, angle))
    totals = np.add.reduceat(np.concatenate((angle + coning, speed + sculling), 1), begins, axis=0)
    return np.concatenate((samples[:1], totals / np.diff(ends)[:, None]))


def steps(
    imu: Readings, sensors: Mapping[str, Readings], begin: float, end: float, *, longest: float = LONGEST
) -> Steps:
    """The steps from ``begin`` to ``end``: one ends at every measurement, and after ``longest`` at the latest.

    Args:
        imu: gyroscope (rad/s) and accelerometer (m/s²), six channels.
        sensors: measurements by the name of the sensor.
        begin: when the filter starts (s).
        end: when it ends (s).
        longest: the longest step (s).

    Returns:
        The steps.

    Raises:
        DataError: the IMU does not cover the time.

    >>> time = np.arange(0, 101) * 0.01
    >>> imu = Readings(time, np.zeros((101, 6)))
    >>> fixes = Readings(np.array([0.3, 0.8]), np.ones((2, 3)), delay=0.1)
    >>> found = steps(imu, {"gnss": fixes}, 0.0, 1.0, longest=0.5)
    >>> found.time.round(3).tolist(), found.sensor("gnss")[:, 0].tolist()
    ([0.0, 0.2, 0.7, 1.0], [nan, 1.0, 1.0, nan])
    """
    covered = (imu.measured >= begin) & (imu.measured <= end)
    if covered.sum() < 2:
        raise DataError(f"the IMU has no samples between {begin:.3f} and {end:.3f} s")
    chosen = {name: item.between(begin, end + SAME) for name, item in sensors.items()}
    ends = np.unique(np.concatenate([[begin, end], *(item.measured for item in chosen.values())]))
    ends = ends[np.concatenate(([True], np.diff(ends) > SAME))]
    # long intervals in equal pieces
    pieces = np.maximum(1, np.ceil(np.diff(ends) / longest - 1e-9).astype(int))
    inner = [np.linspace(a, b, n, endpoint=False) for a, b, n in zip(ends[:-1], ends[1:], pieces, strict=True)]
    moments = np.concatenate([*inner, ends[-1:]])
    channels, width = {}, 0
    for name, item in sensors.items():
        channels[name] = slice(width, width + item.values.shape[1])
        width += item.values.shape[1]
    y = np.full((len(moments), width), np.nan)
    for name, item in chosen.items():
        row = np.searchsorted(moments, item.measured - SAME)
        y[np.clip(row, 0, len(moments) - 1), channels[name]] = item.values
    u = preintegrated(imu.measured, imu.values, moments)
    return Steps(moments, np.diff(moments, prepend=moments[0]), u, y, channels)
