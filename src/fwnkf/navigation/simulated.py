"""A simulated flight of a multirotor with known truth: what the filter should find is what was put in."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from ..core import rotation
from ..systems import earth
from .recording import NavigationRecording, Pose
from .timeline import Array, Readings

ORIGIN = (47.0, 8.0, 450.0)
"""Latitude, longitude (degrees) and height (m) of the take-off."""
STANDS = 4.0
"""Seconds before the take-off."""


@dataclass(frozen=True)
class Flight:
    """What is simulated; standard deviations of white noise, and constants.

    >>> recording = Flight(seconds=20.0).recording(np.random.default_rng(0))
    >>> len(recording.imu.time), sorted(recording.sensors)
    (2000, ['barometer', 'gnss_position', 'gnss_velocity', 'magnetometer'])
    """

    seconds: float = 60.0
    rate: float = 100.0
    """Of the IMU (Hz)."""
    gnss_rate: float = 5.0
    """Of the receiver (Hz)."""
    gnss_delay: float = 0.12
    """Seconds by which fixes are older than their stamps."""
    gyro_density: float = 2e-3
    """rad/s/√Hz"""
    accelerometer_density: float = 3e-2
    """m/s²/√Hz"""
    gyro_bias: tuple[float, float, float] = (0.004, -0.006, 0.003)
    """rad/s"""
    accelerometer_bias: tuple[float, float, float] = (0.1, -0.05, 0.15)
    """m/s²"""
    position_std: tuple[float, float, float] = (0.5, 0.5, 0.8)
    """m"""
    velocity_std: tuple[float, float, float] = (0.1, 0.1, 0.15)
    """m/s"""
    position_drift_std: float = 0.5
    """m, over a minute: errors of fixes that last, as those of receivers do."""
    velocity_drift_std: float = 0.1
    """m/s, over three seconds."""
    barometer_std: float = 0.3
    """m"""
    barometer_offset: float = 6.0
    """m"""
    magnetometer_std: float = 1.0
    """µT"""
    hard_iron: tuple[float, float, float] = (2.0, -1.0, 1.5)
    """µT, fixed to the body."""

    def recording(self, random: np.random.Generator) -> NavigationRecording:
        """The sensors with their noise, and the truth.

        Args:
            random: of the noise.

        Returns:
            The recording; its clock starts at zero.
        """
        count, dt = round(self.seconds * self.rate), 1.0 / self.rate
        time: Array = dt * np.arange(1, count + 1, dtype=np.float64)
        ends = np.concatenate(([0.0], time))
        velocity, orientation = _derivative(self._position, ends), self._orientation(ends)
        # a sample is the mean since the one before it
        step = rotation.log(rotation.multiply(rotation.conjugate(orientation[:-1]), orientation[1:])) / dt
        middle = rotation.multiply(orientation[:-1], rotation.exp(0.5 * dt * step))
        back = rotation.to_matrix(middle).mT.numpy()
        latitude = math.radians(ORIGIN[0])
        turn = earth.RATE * np.array([math.cos(latitude), 0.0, -math.sin(latitude)])
        gravity = np.array([0.0, 0.0, earth.gravity(latitude, ORIGIN[2])])
        mean = 0.5 * (velocity[1:] + velocity[:-1])
        force = np.diff(velocity, axis=0) / dt - gravity + np.cross(2 * turn, mean)
        rate = step.numpy() + back @ turn
        biases = np.array((self.gyro_bias, self.accelerometer_bias)).reshape(6)
        sensed = np.concatenate((rate, (back @ force[..., None])[..., 0]), 1) + biases
        densities = [self.gyro_density] * 3 + [self.accelerometer_density] * 3
        imu = Readings(time, sensed + random.normal(size=sensed.shape) * densities / math.sqrt(dt))

        stamps = np.arange(1.0 / self.gnss_rate, self.seconds, 1.0 / self.gnss_rate)
        when = stamps - self.gnss_delay
        place = self._position(when) + random.normal(size=(len(when), 3)) * self.position_std
        place += self._drift(random, len(when), self.position_drift_std, 60.0)
        speed = _derivative(self._position, when) + random.normal(size=(len(when), 3)) * self.velocity_std
        speed += self._drift(random, len(when), self.velocity_drift_std, 3.0)
        slow = np.arange(0.1, self.seconds, 0.1)
        height = -self._position(slow)[:, 2:] + self.barometer_offset + ORIGIN[2]
        field = np.array(earth.magnetic_field(*ORIGIN))
        body = rotation.to_matrix(self._orientation(slow)).mT.numpy() @ field + self.hard_iron
        made = NavigationRecording.from_fixes(
            "simulated flight",
            imu,
            Readings(stamps, earth.geodetic(place, ORIGIN)),
            velocity=Readings(stamps, speed),
            magnetometer=Readings(slow, body + random.normal(size=body.shape) * self.magnetometer_std),
            barometer=Readings(slow, height + random.normal(size=height.shape) * self.barometer_std),
        )
        # the origin of a recording is its first fix
        shift = earth.north_east_down(np.array(ORIGIN), made.origin)
        truth = Pose(time, self._position(time) + shift, velocity[1:], orientation[1:].numpy())
        return NavigationRecording(**{**vars(made), "truth": truth})

    def _drift(self, random: np.random.Generator, count: int, std: float, seconds: float) -> Array:
        """Stationary first-order Gauss-Markov processes at the fixes."""
        decay = math.exp(-1.0 / (self.gnss_rate * seconds))
        made = std * random.normal(size=(count, 3))
        made[1:] *= math.sqrt(1.0 - decay**2)
        for step in range(1, count):
            made[step] += decay * made[step - 1]
        return made

    def _position(self, time: Array) -> Array:
        """North, east, down: a climb, then loops of about 20 m with changing speed."""
        share = np.clip((time - STANDS) / 6.0, 0.0, 1.0)
        ramp = share**3 * (10 - 15 * share + 6 * share**2)
        north = 15.0 * ramp * np.sin(0.45 * (time - STANDS))
        east = 20.0 * ramp * np.sin(0.27 * (time - STANDS))
        down = -ramp * (10.0 + 2.0 * np.sin(0.6 * (time - STANDS)))
        return np.stack((north, east, down), -1)

    def _orientation(self, time: Array) -> torch.Tensor:
        """Thrust along the force, and a heading that changes slowly."""
        wide = 1e-3
        acceleration = (self._position(time + wide) - 2 * self._position(time) + self._position(time - wide)) / wide**2
        down = np.array([0.0, 0.0, earth.gravity(math.radians(ORIGIN[0]), ORIGIN[2])]) - acceleration
        down /= np.linalg.norm(down, axis=1, keepdims=True)
        heading = 0.7 + 0.8 * np.sin(0.2 * np.maximum(time - STANDS, 0.0)) ** 2
        # the shortest turn from the vertical to that axis, after the heading
        tilt = np.stack((1 + down[:, 2], -down[:, 1], down[:, 0], np.zeros(len(time))), -1)
        tilt /= np.linalg.norm(tilt, axis=1, keepdims=True)
        yaw = np.stack((np.cos(heading / 2), *np.zeros((2, len(time))), np.sin(heading / 2)), -1)
        return rotation.multiply(torch.from_numpy(tilt), torch.from_numpy(yaw))


def _derivative(function: Callable[[Array], Array], time: Array, wide: float = 1e-4) -> Array:
    return (function(time + wide) - function(time - wide)) / (2 * wide)
