"""Parameters of PX4, ArduPilot and Betaflight: their units, allowed ranges and defaults.

Read from the sources of the releases named in :data:`RELEASES`: PX4's ``src/modules/ekf2/*.yaml`` and
``src/modules/sensors/vehicle_angular_velocity``, from which its parameter reference is generated; ArduPilot's
``@Range`` and ``@Values`` in ``AP_NavEKF3``, ``AP_InertialSensor``, ``HarmonicNotchFilter`` and ``AP_GPS``, likewise;
Betaflight's ``cli/settings.c`` with the defaults of ``pg/`` and ``sensors/gyro.c``. What a source does not state is
None. Ranges of other releases differ little; a parameter that a log does not list is not in its firmware.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from ..errors import ConfigError

Firmware = Literal["PX4", "ArduPilot", "Betaflight"]
RELEASES: Mapping[Firmware, str] = MappingProxyType(
    {"PX4": "PX4 1.16.2", "ArduPilot": "ArduCopter 4.6.3", "Betaflight": "Betaflight 4.5.5"}
)
"""The releases whose ranges and defaults these are."""
DIGITS = 2
"""Significant digits of a noise: more than a log can support."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a firmware.

    >>> Parameter("IMU_GYRO_NF0_BW", "PX4", "Hz", 0.0, 100.0, 20.0).typed(143.2)
    100.0
    """

    name: str
    """As the firmware spells it."""
    firmware: Firmware
    """Whose parameter it is."""
    unit: str = ""
    """Of its value; empty for switches and counts."""
    minimum: float | None = None
    """Documented, or None."""
    maximum: float | None = None
    """Documented, or None."""
    default: float | None = None
    """Of the release; of ArduPilot's, that of copters."""
    whole: bool = False
    """Whether it is an integer."""
    former: tuple[str, ...] = ()
    """Names in older releases."""
    step: float | None = None
    """Values are multiples of it; None for two significant digits."""

    def rounded(self, value: float) -> float:
        """As a person would type it.

        Args:
            value: in the unit of the parameter.

        Returns:
            The value with a few digits.

        >>> find("EKF2_GYR_NOISE").rounded(0.012345)
        0.012
        """
        step = 1.0 if self.whole else self.step
        if step is None:
            return float(f"{value:.{DIGITS}g}")
        return round(round(value / step) * step, 9)

    def typed(self, value: float) -> float:
        """:meth:`rounded`, and inside the range.

        Args:
            value: in the unit of the parameter.

        Returns:
            What to type.

        >>> find("EKF2_GPS_DELAY").typed(412.3)
        300.0
        """
        low = -math.inf if self.minimum is None else self.minimum
        high = math.inf if self.maximum is None else self.maximum
        return min(max(self.rounded(value), low), high)


def _px4() -> list[Parameter]:
    rows = [
        Parameter("EKF2_GYR_NOISE", "PX4", "rad/s", 0.0001, 0.1, 0.015),
        Parameter("EKF2_ACC_NOISE", "PX4", "m/s²", 0.01, 1.0, 0.35),
        Parameter("EKF2_GYR_B_NOISE", "PX4", "rad/s²", 0.0, 0.01, 0.001),
        Parameter("EKF2_ACC_B_NOISE", "PX4", "m/s³", 0.0, 0.01, 0.003),
        Parameter("EKF2_GPS_P_NOISE", "PX4", "m", 0.01, 10.0, 0.5),
        Parameter("EKF2_GPS_V_NOISE", "PX4", "m/s", 0.01, 5.0, 0.3),
        Parameter("EKF2_BARO_NOISE", "PX4", "m", 0.01, 15.0, 3.5),
        Parameter("EKF2_MAG_NOISE", "PX4", "gauss", 0.001, 1.0, 0.05),
        Parameter("EKF2_EAS_NOISE", "PX4", "m/s", 0.5, 5.0, 1.4),
        Parameter("EKF2_GPS_DELAY", "PX4", "ms", 0.0, 300.0, 110.0, step=1.0),
        Parameter("EKF2_BARO_DELAY", "PX4", "ms", 0.0, 300.0, 0.0, step=1.0),
        Parameter("EKF2_MAG_DELAY", "PX4", "ms", 0.0, 300.0, 0.0, step=1.0),
        Parameter("EKF2_PREDICT_US", "PX4", "µs", 1000.0, 20000.0, 10000.0, whole=True),
        Parameter("IMU_GYRO_CUTOFF", "PX4", "Hz", 0.0, 1000.0, 40.0, step=1.0),
        Parameter("IMU_DGYRO_CUTOFF", "PX4", "Hz", 0.0, 1000.0, 30.0, step=1.0),
        Parameter("IMU_GYRO_DNF_EN", "PX4", "", 0.0, 3.0, 0.0, whole=True),
        Parameter("IMU_GYRO_DNF_BW", "PX4", "Hz", 5.0, 30.0, 15.0, step=1.0),
        Parameter("IMU_GYRO_DNF_HMC", "PX4", "", 1.0, 7.0, 3.0, whole=True),
        Parameter("IMU_GYRO_DNF_MIN", "PX4", "Hz", None, None, 25.0, step=1.0),
        Parameter("IMU_GYRO_FFT_EN", "PX4", "", 0.0, 1.0, 0.0, whole=True),
    ]
    rows += [Parameter(f"EKF2_GPS_POS_{axis}", "PX4", "m", None, None, 0.0, step=0.01) for axis in "XYZ"]
    for number in range(2):
        rows.append(Parameter(f"IMU_GYRO_NF{number}_FRQ", "PX4", "Hz", 0.0, 1000.0, 0.0, step=1.0))
        rows.append(Parameter(f"IMU_GYRO_NF{number}_BW", "PX4", "Hz", 0.0, 100.0, 20.0, step=1.0))
    return rows


def _ardupilot() -> list[Parameter]:
    rows = [
        Parameter("EK3_GYRO_P_NSE", "ArduPilot", "rad/s", 0.0001, 0.1, 0.015),
        Parameter("EK3_ACC_P_NSE", "ArduPilot", "m/s²", 0.01, 1.0, 0.35),
        Parameter("EK3_GBIAS_P_NSE", "ArduPilot", "rad/s²", 0.00001, 0.001, 0.001),
        Parameter("EK3_ABIAS_P_NSE", "ArduPilot", "m/s³", 0.00001, 0.02, 0.02),
        Parameter("EK3_POSNE_M_NSE", "ArduPilot", "m", 0.1, 10.0, 0.5),
        Parameter("EK3_VELNE_M_NSE", "ArduPilot", "m/s", 0.05, 5.0, 0.3),
        Parameter("EK3_VELD_M_NSE", "ArduPilot", "m/s", 0.05, 5.0, 0.5),
        Parameter("EK3_ALT_M_NSE", "ArduPilot", "m", 0.1, 100.0, 2.0),
        Parameter("EK3_MAG_M_NSE", "ArduPilot", "gauss", 0.01, 0.5, 0.05),
        Parameter("EK3_EAS_M_NSE", "ArduPilot", "m/s", 0.5, 5.0, 1.4),
        Parameter("EK3_HGT_DELAY", "ArduPilot", "ms", 0.0, 250.0, 60.0, whole=True),
        Parameter("GPS1_DELAY_MS", "ArduPilot", "ms", 0.0, 250.0, 0.0, whole=True, former=("GPS_DELAY_MS",)),
        Parameter("INS_GYRO_FILTER", "ArduPilot", "Hz", 0.0, 256.0, 20.0, whole=True),
    ]
    for axis in "XYZ":
        former = (f"GPS_POS1_{axis}",)
        rows.append(Parameter(f"GPS1_POS_{axis}", "ArduPilot", "m", -5.0, 5.0, 0.0, former=former, step=0.01))
    for group in ("INS_HNTCH", "INS_HNTC2"):
        rows += [
            Parameter(f"{group}_ENABLE", "ArduPilot", "", 0.0, 1.0, 0.0, whole=True),
            Parameter(f"{group}_FREQ", "ArduPilot", "Hz", 10.0, 495.0, 80.0, step=1.0),
            Parameter(f"{group}_BW", "ArduPilot", "Hz", 5.0, 250.0, 40.0, step=1.0),
            Parameter(f"{group}_ATT", "ArduPilot", "dB", 5.0, 50.0, 40.0, step=1.0),
            Parameter(f"{group}_HMNCS", "ArduPilot", "", None, None, 3.0, whole=True),
            Parameter(f"{group}_REF", "ArduPilot", "", 0.0, 1.0, 0.0),
            Parameter(f"{group}_MODE", "ArduPilot", "", 0.0, 5.0, 1.0, whole=True),
            Parameter(f"{group}_OPTS", "ArduPilot", "", None, None, 0.0, whole=True),
        ]
    return rows


def _betaflight() -> list[Parameter]:
    rows = (
        ("rpm_filter_harmonics", "", 0.0, 3.0, 3.0),
        ("rpm_filter_q", "", 250.0, 3000.0, 500.0),
        ("rpm_filter_min_hz", "Hz", 30.0, 200.0, 100.0),
        ("rpm_filter_fade_range_hz", "Hz", 0.0, 1000.0, 50.0),
        ("rpm_filter_lpf_hz", "Hz", 100.0, 500.0, 150.0),
        ("dyn_notch_count", "", 0.0, 5.0, 3.0),
        ("dyn_notch_q", "", 1.0, 1000.0, 300.0),
        ("dyn_notch_min_hz", "Hz", 20.0, 250.0, 100.0),
        ("dyn_notch_max_hz", "Hz", 200.0, 1000.0, 600.0),
        ("gyro_lpf1_static_hz", "Hz", 0.0, 1000.0, 250.0),
        ("gyro_lpf2_static_hz", "Hz", 0.0, 1000.0, 500.0),
        ("gyro_notch1_hz", "Hz", 0.0, 1000.0, 0.0),
        ("gyro_notch1_cutoff", "Hz", 0.0, 1000.0, 0.0),
        ("gyro_notch2_hz", "Hz", 0.0, 1000.0, 0.0),
        ("gyro_notch2_cutoff", "Hz", 0.0, 1000.0, 0.0),
    )
    return [Parameter(name, "Betaflight", unit, low, high, usual, True) for name, unit, low, high, usual in rows]


CATALOGUE: Mapping[str, Parameter] = MappingProxyType(
    {row.name: row for row in (*_px4(), *_ardupilot(), *_betaflight())}
)
"""All of them by name."""


def find(name: str) -> Parameter:
    """One parameter.

    Args:
        name: as the firmware spells it, or spelled it in an older release.

    Returns:
        The parameter.

    Raises:
        ConfigError: the catalogue has no such parameter.

    >>> find("GPS_DELAY_MS").name
    'GPS1_DELAY_MS'
    """
    for row in CATALOGUE.values():
        if name == row.name or name in row.former:
            return row
    raise ConfigError(f"no parameter {name} in the catalogue of {', '.join(RELEASES.values())}")


def firmware_of(text: str | float | None) -> Firmware | None:
    """Whose firmware a log names in its facts.

    Args:
        text: ``facts["firmware"]`` of a log.

    Returns:
        The firmware; None if it is unknown, or another one (INAV, Rotorflight and others log in the same formats).

    >>> firmware_of("ArduCopter V4.3.6"), firmware_of("INAV 7.1.0 (a1b2c3)")
    ('ArduPilot', None)
    """
    for start, name in _STARTS.items():
        if str(text).startswith(start):
            return name
    return None


_STARTS: dict[str, Firmware] = {
    "PX4": "PX4",
    "Betaflight": "Betaflight",
    "Ardu": "ArduPilot",
    "APM:": "ArduPilot",
}


class Vehicle:
    """The parameters in a log, under the names and in the units of the catalogue.

    >>> vehicle = Vehicle("ArduCopter V4.3.6", {"GPS_DELAY_MS": 0.0, "INS_HNTCH_ENABLE": 0.0})
    >>> vehicle.spelled(find("GPS1_DELAY_MS")), vehicle.has("INS_HNTCH_FREQ"), vehicle.has("IMU_GYRO_CUTOFF")
    ('GPS_DELAY_MS', True, False)
    """

    def __init__(self, firmware: str | float | None, parameters: Mapping[str, float | str]) -> None:
        """Take what a log says.

        Args:
            firmware: ``log.facts["firmware"]``.
            parameters: ``log.parameters``.
        """
        self.firmware = firmware_of(firmware)
        self.described = str(firmware or "unknown firmware")
        self._values = dict(parameters)
        for kind in ("hz", "cutoff"):  # Betaflight logs its two static notches as one line
            parts = str(parameters.get(f"gyro_notch_{kind}", "")).split(",")
            if len(parts) == 2 and self.firmware == "Betaflight":
                self._values |= {f"gyro_notch{number}_{kind}": part for number, part in enumerate(parts, 1)}

    @property
    def mavlink_ids(self) -> tuple[int, int]:
        """System and component id, as far as the log has them; else 1 and 1.

        >>> Vehicle("PX4 1.16.1", {"MAV_SYS_ID": 8}).mavlink_ids
        (8, 1)
        """
        system = next((n for n in map(self.value, ("MAV_SYS_ID", "MAV_SYSID", "SYSID_THISMAV")) if n is not None), 1)
        return int(system), int(self.value("MAV_COMP_ID") or 1)

    def spelled(self, parameter: Parameter) -> str:
        """The name of a parameter in this vehicle's release.

        Args:
            parameter: of the catalogue.

        Returns:
            The name that the log has; without any, that of the catalogue.
        """
        return next((name for name in (parameter.name, *parameter.former) if name in self._values), parameter.name)

    def has(self, name: str) -> bool:
        """Whether this vehicle's firmware has a parameter, as far as the log tells.

        Args:
            name: of the catalogue.

        Returns:
            True if the log lists it, hides it behind a switch that is off (ArduPilot), or lists no parameter at all.
        """
        if find(name).firmware != self.firmware:
            return False
        switch = f"{name.rpartition('_')[0]}_ENABLE"
        return not self._values or self.spelled(find(name)) in self._values or switch in self._values

    def value(self, name: str) -> float | None:
        """The value of a parameter in the log.

        Args:
            name: of the catalogue, or any other of the firmware.

        Returns:
            The value; None if the log does not have it, or it is not a number.

        >>> Vehicle("Betaflight 4.5.1", {"gyro_notch_hz": "180,0"}).value("gyro_notch1_hz")
        180.0
        """
        spelled = self.spelled(CATALOGUE[name]) if name in CATALOGUE else name
        try:
            number = float(self._values[spelled])
        except (KeyError, ValueError):
            return None
        return number if math.isfinite(number) else None
