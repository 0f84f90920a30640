"""What a navigation filter runs on: an IMU, and the sensors that aid it, each with its own stamps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..errors import DataError
from ..systems import earth
from .timeline import Array, Readings

FASTEST = {"barometer": 5.0, "magnetometer": 5.0, "airspeed": 5.0, "wheels": 5.0}
"""Readings a second of sensors whose errors are correlated over shorter times; faster ones are averaged."""
STILL_RATE, STILL_FORCE = 0.05, 0.3
"""Largest standard deviation of rate (rad/s) and force (m/s²) over a second of a vehicle that stands."""


@dataclass(frozen=True)
class Pose:
    """A trajectory from elsewhere: the truth, or what an autopilot estimated.

    >>> Pose(np.array([0.0, 1.0]), position=np.zeros((2, 3))).velocity is None
    True
    """

    time: Array
    """Seconds."""
    position: Array | None = None
    """North, east, down of the origin of the recording (m)."""
    velocity: Array | None = None
    """North, east, down (m/s)."""
    orientation: Array | None = None
    """Quaternions (w, x, y, z) from forward, right, down to north, east, down."""


@dataclass(frozen=True)
class NavigationRecording:
    """Sensors of a vehicle in forward, right, down, and positions relative to an origin.

    >>> time = np.arange(0, 10, 0.01)
    >>> imu = Readings(time, np.tile([0, 0, 0, 0, 0, -9.81], (1000, 1)))
    >>> fixes = np.array([[45.0, 7.0, 200.0]] * 10)
    >>> recording = NavigationRecording.from_fixes("bench", imu, Readings(np.arange(10.0), fixes))
    >>> recording.origin, recording.sensors["gnss_position"].values[0].tolist()
    ((45.0, 7.0, 200.0), [0.0, 0.0, 0.0])
    """

    name: str
    """What it is called."""
    imu: Readings
    """Gyroscope (rad/s) and accelerometer (m/s²): six channels."""
    sensors: Mapping[str, Readings]
    """By the names of :class:`fwnkf.systems.Navigation`."""
    origin: tuple[float, float, float]
    """Latitude and longitude in degrees, height in metres."""
    magnetic_field: tuple[float, float, float] = (20.0, 0.0, 45.0)
    """North, east, down (µT), in the scale of the magnetometer."""
    truth: Pose | None = None
    """Where the vehicle was, if that is known."""
    autopilot: Pose | None = None
    """Where an autopilot thought it was."""
    notes: tuple[str, ...] = ()
    """What a reader should know of it."""

    def __post_init__(self) -> None:
        if self.imu.values.shape[1] != 6:
            raise DataError(
                f"{self.name}: the IMU has {self.imu.values.shape[1]} channels; wanted gyroscope and accelerometer"
            )

    @classmethod
    def from_fixes(
        cls,
        name: str,
        imu: Readings,
        fixes: Readings,
        *,
        velocity: Readings | None = None,
        magnetometer: Readings | None = None,
        **sensors: Readings,
    ) -> NavigationRecording:
        """A recording from fixes in degrees and metres; the first one is the origin.

        The scale of the magnetometer is that of the field of the Earth, so that its unit does not matter.

        Args:
            name: what the recording is called.
            imu: gyroscope (rad/s) and accelerometer (m/s²), forward, right, down.
            fixes: latitude and longitude (degrees) and height (m).
            velocity: north, east, down (m/s).
            magnetometer: any unit.
            **sensors: others by name.

        Returns:
            The recording.

        Raises:
            DataError: there is no fix.
        """
        known = np.isfinite(fixes.values).all(1)
        if not known.any():
            raise DataError(f"{name}: no fix of GNSS: latitude, longitude and height are never all there")
        first = fixes.values[known][0]
        origin = (float(first[0]), float(first[1]), float(first[2]))
        placed = earth.north_east_down(fixes.values, origin)
        chosen = {"gnss_position": replace(fixes, values=placed)}
        if velocity is not None:
            chosen["gnss_velocity"] = velocity
        field = earth.magnetic_field(*origin)
        if magnetometer is not None:
            strength = float(np.nanmedian(np.linalg.norm(magnetometer.values, axis=1)))
            if strength > 0:
                scale = float(np.linalg.norm(field)) / strength
                chosen["magnetometer"] = replace(magnetometer, values=magnetometer.values * scale)
        chosen |= sensors
        chosen = {key: item.averaged(FASTEST[key]) if key in FASTEST else item for key, item in chosen.items()}
        return cls(name, imu, chosen, origin, field)

    @property
    def span(self) -> tuple[float, float]:
        """When the IMU and at least one fix of GNSS are there (s)."""
        fixes = [item.measured for key, item in self.sensors.items() if key.startswith("gnss") and len(item.time)]
        first = min((float(item[0]) for item in fixes), default=float(self.imu.measured[0]))
        return max(float(self.imu.measured[0]), first), float(self.imu.measured[-1])

    def with_delays(self, delays: Mapping[str, float]) -> NavigationRecording:
        """The same with other delays of sensors (s).

        Args:
            delays: seconds by the names of sensors.

        Returns:
            The recording.
        """
        sensors = {
            key: replace(item, delay=delays[key]) if key in delays else item for key, item in self.sensors.items()
        }
        return replace(self, sensors=sensors)

    def only(self, names: tuple[str, ...]) -> NavigationRecording:
        """The same with some of the sensors.

        Args:
            names: of the sensors to keep.

        Returns:
            The recording.
        """
        return replace(self, sensors={key: item for key, item in self.sensors.items() if key in names})

    def hidden(self, windows: list[tuple[float, float]], names: tuple[str, ...]) -> NavigationRecording:
        """The same without what some sensors measured in some windows of time.

        Args:
            windows: beginnings and ends (s).
            names: of the sensors that are hidden.

        Returns:
            The recording.
        """

        def seen(item: Readings) -> Readings:
            kept = np.ones(len(item.time), dtype=bool)
            for begin, end in windows:
                kept &= (item.measured < begin) | (item.measured >= end)
            return Readings(item.time[kept], item.values[kept], item.delay)

        sensors = {key: seen(item) if key in names else item for key, item in self.sensors.items()}
        return replace(self, sensors=sensors)

    def second(self, moment: float, length: float = 1.0) -> tuple[Array, bool]:
        """The mean of the IMU over a second from ``moment`` on, and whether the vehicle stands.

        Args:
            moment: the beginning (s).
            length: of the time (s).

        Returns:
            The mean of six channels, and whether the vehicle stands.
        """
        kept = (self.imu.measured >= moment) & (self.imu.measured < moment + length)
        samples = self.imu.values[kept]
        if len(samples) < 2:
            raise DataError(f"{self.name}: the IMU has no samples after {moment:.2f} s")
        std = samples.std(0)
        return samples.mean(0), bool(std[:3].max() < STILL_RATE and std[3:].max() < STILL_FORCE)
