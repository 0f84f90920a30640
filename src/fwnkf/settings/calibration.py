"""Noise of an IMU as visual-inertial estimators want it: Kalibr, OpenVINS, GTSAM.

Kalibr's continuous-time model, which the three share: white noise of the density ``N``, so that samples at a rate ``f``
have the standard deviation ``N √f``, and a bias that walks by ``K √t``. What vibration adds in motion is not white and
is said apart: users who only have the values at rest inflate them by guess.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import ConfigError
from .files import comment


@dataclass(frozen=True)
class SensorNoise:
    """White noise and bias of a gyroscope or an accelerometer, the largest of its axes.

    >>> SensorNoise("m/s²", 0.003, 1e-4, in_motion=0.005).vibration
    0.004
    """

    unit: str
    """``rad/s`` or ``m/s²``."""
    density: float
    """Without vibration, unit/√Hz."""
    walk: float | None = None
    """Of the bias, unit/s/√Hz; None if the log does not show it."""
    in_motion: float | None = None
    """Density of white noise with the power of all that is above 20 Hz in motion, unit/√Hz; None if unknown."""

    @property
    def vibration(self) -> float | None:
        """Density that vibration adds, unit/√Hz; None if the log does not show it.

        >>> SensorNoise("rad/s", 1e-3).vibration is None
        True
        """
        if self.in_motion is None:
            return None
        return float(f"{math.sqrt(max(self.in_motion**2 - self.density**2, 0.0)):.6g}")


@dataclass(frozen=True)
class ImuNoise:
    """Noise of an IMU.

    >>> noise = ImuNoise(SensorNoise("rad/s", 2e-4), SensorNoise("m/s²", 3e-3), 200.0, "at rest, 40 s")
    >>> noise.rate
    200.0
    """

    gyroscope: SensorNoise
    """Of the gyroscope."""
    accelerometer: SensorNoise
    """Of the accelerometer."""
    rate: float
    """Hz."""
    measured: str
    """Where the density without vibration comes from, in words."""
    topic: str = "/imu"
    """ROS topic, for Kalibr."""


def kalibr(noise: ImuNoise, *, vibration: bool = False, source: str = "") -> str:
    """An ``imu.yaml`` for Kalibr.

    Args:
        noise: of the IMU.
        vibration: write the densities in motion instead of those without vibration.
        source: the log or command behind it, for the header.

    Returns:
        The text. A random walk that the log does not show is left to fill in.

    Raises:
        ConfigError: densities in motion are wanted of a log that has none.

    >>> noise = ImuNoise(SensorNoise("rad/s", 2e-4, 1e-5), SensorNoise("m/s²", 3e-3, 1e-4, 0.05), 200.0, "at rest")
    >>> print(kalibr(noise).splitlines()[-1])
    update_rate: 200
    """
    lines = [comment(f"Suggested by fwnkf{' from ' + source if source else ''}"), *_said(noise, vibration)]
    lines += _yaml(noise, vibration)
    lines += [f'rostopic: "{noise.topic}"', f"update_rate: {noise.rate:.6g}"]
    return "\n".join(lines) + "\n"


def openvins(noise: ImuNoise, *, vibration: bool = False) -> str:
    """The noise of ``imu0`` in OpenVINS's ``kalibr_imu_chain.yaml``; transforms and the rest stay as they are.

    Args:
        noise: of the IMU.
        vibration: write the densities in motion instead of those without vibration.

    Returns:
        The text.

    Raises:
        ConfigError: densities in motion are wanted of a log that has none.

    >>> noise = ImuNoise(SensorNoise("rad/s", 2e-4, 1e-5), SensorNoise("m/s²", 3e-3, 1e-4, 0.05), 200.0, "at rest")
    >>> print(openvins(noise).splitlines()[-1])
      update_rate: 200
    """
    lines = [*_said(noise, vibration), "imu0:"]
    lines += [f"  {line}" for line in (*_yaml(noise, vibration), f"update_rate: {noise.rate:.6g}")]
    return "\n".join(lines) + "\n"


def gtsam(noise: ImuNoise, *, vibration: bool = False) -> str:
    """Lines of Python that set GTSAM's ``PreintegrationCombinedParams``.

    Args:
        noise: of the IMU.
        vibration: take the densities in motion instead of those without vibration.

    Returns:
        The text.

    Raises:
        ConfigError: densities in motion are wanted of a log that has none.

    >>> noise = ImuNoise(SensorNoise("rad/s", 2e-4, 1e-5), SensorNoise("m/s²", 3e-3, 1e-4, 0.05), 200.0, "at rest")
    >>> print(gtsam(noise).splitlines()[-1])
    params.setBiasAccCovariance(0.0001**2 * np.eye(3))
    """
    lines = [*_said(noise, vibration)]
    for sensor, white, bias in (
        (noise.gyroscope, "setGyroscopeCovariance", "setBiasOmegaCovariance"),
        (noise.accelerometer, "setAccelerometerCovariance", "setBiasAccCovariance"),
    ):
        lines.append(f"params.{white}({_density(sensor, vibration):.4g}**2 * np.eye(3))")
        if sensor.walk is None:
            lines.append(comment(f"{bias}: the log does not show the random walk; record hours at rest"))
        else:
            lines.append(f"params.{bias}({sensor.walk:.4g}**2 * np.eye(3))")
    return "\n".join(lines) + "\n"


def _density(sensor: SensorNoise, vibration: bool) -> float:
    if not vibration:
        return sensor.density
    if sensor.in_motion is None:
        raise ConfigError("no density in motion: the log was recorded at rest, or too slowly for vibration")
    return sensor.in_motion


def _said(noise: ImuNoise, vibration: bool) -> list[str]:
    """Comments: where the densities come from, and what vibration adds."""
    lines = [f"densities without vibration: {noise.measured}" + ("; written are those in motion" if vibration else "")]
    for name, sensor in (("gyroscope", noise.gyroscope), ("accelerometer", noise.accelerometer)):
        if sensor.vibration is not None and sensor.in_motion is not None:
            lines.append(
                f"{name}: {sensor.density:.3g} {sensor.unit}/√Hz without vibration, {sensor.in_motion:.3g} in motion "
                f"({sensor.in_motion / sensor.density:.3g} times; vibration adds {sensor.vibration:.3g})"
            )
    return [comment(line) for line in lines]


def _yaml(noise: ImuNoise, vibration: bool) -> list[str]:
    lines = []  # numbers with a point: "1e-05" is text in YAML 1.1
    for name, sensor in (("accelerometer", noise.accelerometer), ("gyroscope", noise.gyroscope)):
        lines.append(f"{name}_noise_density: {_density(sensor, vibration):.3e}")
        key = f"{name}_random_walk:"
        if sensor.walk is None:
            lines.append(comment(f"{key} the log does not show it; record hours at rest, or use the data sheet"))
        else:
            lines.append(f"{key} {sensor.walk:.3e}")
    return lines
