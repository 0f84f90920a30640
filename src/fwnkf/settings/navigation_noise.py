"""Fitted noises of a navigation filter as settings of EKF2 (PX4) and EKF3 (ArduPilot).

Both filters add ``(dt · noise)²`` to the variance of an angle or velocity in each prediction (PX4's
``predictCovariance``, ArduPilot's ``CovariancePrediction``), where white noise of the density ``N`` adds ``N² dt``: the
parameter is ``N / √dt``, and depends on the interval of the predictions. The same holds for a bias, which takes
``(dt · noise)²`` where a random walk of ``K`` takes ``K² dt``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from .catalogue import Vehicle, find
from .suggestion import Gain, Suggestion

PREDICTION: Mapping[str, float] = {"PX4": 0.010, "ArduPilot": 0.012}
"""Seconds between predictions: EKF2_PREDICT_US by default, EKF_TARGET_DT of EKF3."""
DISTINCT = 2.0
"""Standard errors by which an estimate has to differ from the value in the log."""

Group = Literal[
    "imu", "bias", "gnss_position", "gnss_velocity", "barometer", "magnetometer", "airspeed", "gnss_delay",
    "barometer_delay", "magnetometer_delay", "lever_arm",
]  # fmt: skip
"""Noises whose gain is measured together."""


class Estimate(NamedTuple):
    """A fitted number.

    >>> Estimate(0.21, 0.004).error
    0.004
    """

    value: float
    """The number."""
    error: float | None = None
    """Its standard error; None if unknown."""


@dataclass(frozen=True)
class NavigationNoise:
    """What a navigation filter fitted to a log without truth; None where it did not.

    >>> noise = NavigationNoise(
    ...     gnss_delay=Estimate(0.21, 0.004), gain={"gnss_delay": Gain(0.4, 0.2, 0.6, "nats a fix")}
    ... )
    >>> [(row.name, row.value) for row in navigation_settings(noise, Vehicle("PX4 1.16.1", {}))]
    [('EKF2_GPS_DELAY', 210.0)]
    """

    gyro_density: Estimate | None = None
    """rad/s/√Hz, with what vibration adds."""
    accelerometer_density: Estimate | None = None
    """m/s²/√Hz, likewise."""
    gyro_walk: Estimate | None = None
    """rad/s²/√Hz"""
    accelerometer_walk: Estimate | None = None
    """m/s³/√Hz"""
    gnss_position_std: tuple[Estimate | None, Estimate | None] = (None, None)
    """m: horizontal, vertical."""
    gnss_velocity_std: tuple[Estimate | None, Estimate | None] = (None, None)
    """m/s: horizontal, vertical."""
    barometer_std: Estimate | None = None
    """m"""
    magnetometer_std: Estimate | None = None
    """gauss"""
    airspeed_std: Estimate | None = None
    """m/s"""
    gnss_delay: Estimate | None = None
    """s, by which the receiver is late against the IMU."""
    barometer_delay: Estimate | None = None
    """s"""
    magnetometer_delay: Estimate | None = None
    """s"""
    lever_arm: tuple[Estimate | None, Estimate | None, Estimate | None] = (None, None, None)
    """m from the IMU to the antenna: forward, right, down."""
    gain: Mapping[Group, Gain] = field(default_factory=dict)
    """On held-out data, by group; what has no gain is not significant."""


class _Row(NamedTuple):
    group: Group
    names: Mapping[str, str]
    """Of the parameter, by firmware."""
    wanted: Estimate | None
    factor: float
    """From the unit of the estimate to that of the parameter."""
    why: str


def navigation_settings(noise: NavigationNoise, vehicle: Vehicle) -> tuple[Suggestion, ...]:
    """Settings of the estimator of the vehicle's own firmware.

    Args:
        noise: fitted.
        vehicle: whose parameters they become; without EKF2 or EKF3 there are none.

    Returns:
        Suggestions with their gains, significant or not (:func:`fwnkf.settings.significant`). What the log has within
        two standard errors is left out.

    >>> vehicle = Vehicle("PX4 1.16.1", {"EKF2_GYR_NOISE": 0.015, "EKF2_PREDICT_US": 10000})
    >>> noise = NavigationNoise(gyro_density=Estimate(0.003))
    >>> [(row.name, row.value, row.current) for row in navigation_settings(noise, vehicle)]
    [('EKF2_GYR_NOISE', 0.03, 0.015)]
    """
    firmware = vehicle.firmware
    if firmware is None or firmware not in PREDICTION:
        return ()
    results = []
    for row in _rows(noise, _prediction(vehicle, PREDICTION[firmware]), firmware):
        name = row.names.get(firmware)
        if row.wanted is None or name is None or not vehicle.has(name):
            continue
        parameter, current = find(name), vehicle.value(name)
        value = row.factor * row.wanted.value
        error = None if row.wanted.error is None else row.factor * row.wanted.error
        if current is not None and error is not None and abs(value - current) <= DISTINCT * error:
            continue
        results.append(
            Suggestion.of(
                parameter, value, why=row.why, current=current, name=vehicle.spelled(parameter),
                gain=noise.gain.get(row.group), group=row.group,
            )
        )  # fmt: skip
    return tuple(results)


def _prediction(vehicle: Vehicle, usual: float) -> float:
    """Seconds between predictions of the estimator."""
    period = vehicle.value("EKF2_PREDICT_US")
    return 1e-6 * period if period is not None and period > 0 else usual


def _rows(noise: NavigationNoise, dt: float, firmware: str) -> Iterator[_Row]:
    step = 1 / math.sqrt(dt)
    at = f"density in flight over the root of {1e3 * dt:.3g} ms between predictions."
    yield _Row("imu", {"PX4": "EKF2_GYR_NOISE", "ArduPilot": "EK3_GYRO_P_NSE"}, noise.gyro_density, step, f"Gyro {at}")
    yield _Row(
        "imu", {"PX4": "EKF2_ACC_NOISE", "ArduPilot": "EK3_ACC_P_NSE"}, noise.accelerometer_density, step,
        f"Accelerometer {at}",
    )  # fmt: skip
    walk = "bias, random walk over the root of the same interval."
    yield _Row(
        "bias", {"PX4": "EKF2_GYR_B_NOISE", "ArduPilot": "EK3_GBIAS_P_NSE"}, noise.gyro_walk, step, f"Gyro {walk}"
    )
    yield _Row(
        "bias", {"PX4": "EKF2_ACC_B_NOISE", "ArduPilot": "EK3_ABIAS_P_NSE"}, noise.accelerometer_walk, step,
        f"Accelerometer {walk}",
    )  # fmt: skip
    least = "The firmware takes the accuracy that the receiver reports where that is larger."
    horizontal, _ = noise.gnss_position_std
    yield _Row(
        "gnss_position", {"PX4": "EKF2_GPS_P_NOISE", "ArduPilot": "EK3_POSNE_M_NSE"}, horizontal, 1.0,
        f"Horizontal error of GNSS positions; height has 1.5 times as much. {least}",
    )  # fmt: skip
    horizontal, vertical = noise.gnss_velocity_std
    climb = "; the climb rate has 1.5 times as much" if firmware == "PX4" else ""
    yield _Row(
        "gnss_velocity", {"PX4": "EKF2_GPS_V_NOISE", "ArduPilot": "EK3_VELNE_M_NSE"}, horizontal, 1.0,
        f"Horizontal error of GNSS velocities{climb}. {least}",
    )  # fmt: skip
    yield _Row("gnss_velocity", {"ArduPilot": "EK3_VELD_M_NSE"}, vertical, 1.0, f"Error of GNSS climb rates. {least}")
    yield _Row(
        "barometer", {"PX4": "EKF2_BARO_NOISE", "ArduPilot": "EK3_ALT_M_NSE"}, noise.barometer_std, 1.0,
        "Error of barometer heights.",
    )  # fmt: skip
    yield _Row(
        "magnetometer", {"PX4": "EKF2_MAG_NOISE", "ArduPilot": "EK3_MAG_M_NSE"}, noise.magnetometer_std, 1.0,
        "Error of the magnetometer.",
    )  # fmt: skip
    yield _Row(
        "airspeed", {"PX4": "EKF2_EAS_NOISE", "ArduPilot": "EK3_EAS_M_NSE"}, noise.airspeed_std, 1.0,
        "Error of the airspeed.",
    )  # fmt: skip
    late = "is late against the IMU by this."
    usual = " 0 stands for the usual delay of the receiver's type." if firmware == "ArduPilot" else ""
    yield _Row(
        "gnss_delay", {"PX4": "EKF2_GPS_DELAY", "ArduPilot": "GPS1_DELAY_MS"}, noise.gnss_delay, 1e3,
        f"The GNSS receiver {late}{usual}",
    )  # fmt: skip
    yield _Row(
        "barometer_delay", {"PX4": "EKF2_BARO_DELAY", "ArduPilot": "EK3_HGT_DELAY"}, noise.barometer_delay, 1e3,
        f"The barometer {late}",
    )  # fmt: skip
    yield _Row(
        "magnetometer_delay", {"PX4": "EKF2_MAG_DELAY"}, noise.magnetometer_delay, 1e3, f"The magnetometer {late}"
    )
    for axis, arm in zip("XYZ", noise.lever_arm, strict=True):
        yield _Row(
            "lever_arm", {"PX4": f"EKF2_GPS_POS_{axis}", "ArduPilot": f"GPS1_POS_{axis}"}, arm, 1.0,
            "Place of the antenna from the IMU, as the turns of the flight show it.",
        )  # fmt: skip
