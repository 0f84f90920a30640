"""The noises that autopilots ship, in the units of :class:`fwnkf.systems.NavigationConfig`.

EKF2 and EKF3 state the noise of a rate or force as the standard deviation of a sample of their filter, which steps
every 10 ms (EKF2) or 12 ms (EKF3): a density is that times the square root of the step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..systems import NavigationConfig

FLIGHT = NavigationConfig(gnss_drift_std=0.5, velocity_drift_std=0.1)
"""Where a fit to a real recording starts: receivers smooth, so that errors of fixes last."""
PX4_STEP, ARDUPILOT_STEP = 0.010, 0.012
"""Seconds of a step of EKF2 and of EKF3."""
MICROTESLA = 100.0
"""In a gauss."""

PX4: Mapping[str, Any] = {
    "gyro_density": 0.015 * math.sqrt(PX4_STEP),
    "accelerometer_density": 0.35 * math.sqrt(PX4_STEP),
    "gyro_walk": 0.001 * math.sqrt(PX4_STEP),
    "accelerometer_walk": 0.003 * math.sqrt(PX4_STEP),
    "gnss_position_std": 0.5,
    "gnss_height_std": 0.75,
    "gnss_velocity_std": 0.3,
    "gnss_climb_std": 0.45,
    "barometer_std": 3.5,
    "magnetometer_std": 0.05 * MICROTESLA,
    "airspeed_std": 1.4,
}
"""EKF2_GYR_NOISE, _ACC_NOISE, _GYR_B_NOISE, _ACC_B_NOISE, _GPS_P_NOISE, _GPS_V_NOISE, _BARO_NOISE, _MAG_NOISE and
_EAS_NOISE; vertical ones are one and a half times the horizontal ones, as EKF2 has it."""
PX4_DELAY = 0.110
"""EKF2_GPS_DELAY (s)."""

ARDUPILOT: Mapping[str, Any] = {
    "gyro_density": 0.015 * math.sqrt(ARDUPILOT_STEP),
    "accelerometer_density": 0.35 * math.sqrt(ARDUPILOT_STEP),
    "gyro_walk": 0.001 * math.sqrt(ARDUPILOT_STEP),
    "accelerometer_walk": 0.02 * math.sqrt(ARDUPILOT_STEP),
    "gnss_position_std": 0.5,
    "gnss_height_std": 0.75,
    "gnss_velocity_std": 0.3,
    "gnss_climb_std": 0.5,
    "barometer_std": 2.0,
    "magnetometer_std": 0.05 * MICROTESLA,
    "airspeed_std": 1.4,
}
"""EK3_GYRO_P_NSE, _ACC_P_NSE, _GBIAS_P_NSE, _ABIAS_P_NSE, _POSNE_M_NSE, _VELNE_M_NSE, _VELD_M_NSE, _ALT_M_NSE,
_MAG_M_NSE and _EAS_M_NSE of copters."""
ARDUPILOT_DELAY = 0.220
"""What EKF3 takes for a receiver whose delay it does not know (s)."""
USUAL: Mapping[str, tuple[Mapping[str, Any], float]] = {
    "PX4": (PX4, PX4_DELAY),
    "ArduPilot": (ARDUPILOT, ARDUPILOT_DELAY),
}
"""Noises and delay of GNSS by autopilot."""
