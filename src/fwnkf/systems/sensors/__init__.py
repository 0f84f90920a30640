"""One sensor, one file; each is imported when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import attach
from ...registry import SENSORS

if TYPE_CHECKING:
    from .airspeed import Airspeed, AirspeedConfig
    from .barometer import Barometer, BarometerConfig
    from .bounded_position import BoundedPosition, BoundedPositionConfig
    from .gyro_bias import GyroBias, GyroBiasConfig
    from .magnetometer import LevelMagnetometer, LevelMagnetometerConfig, Magnetometer, MagnetometerConfig
    from .position import Position, PositionConfig
    from .range import Range, RangeConfig
    from .regressed import Regressed, RegressedConfig
    from .roll_pitch_yaw import RollPitchYaw, RollPitchYawConfig
    from .rolling import Rolling, RollingConfig
    from .rotor_drag import RotorDrag, RotorDragConfig, VelocityAcross, VelocityAcrossConfig
    from .velocity import Velocity, VelocityConfig

SENSORS.declare(
    __name__,
    airspeed="airspeed",
    barometer="barometer",
    bounded_position="bounded_position",
    gyro_bias="gyro_bias",
    level_magnetometer="magnetometer",
    magnetometer="magnetometer",
    position="position",
    range="range",
    regressed="regressed",
    roll_pitch_yaw="roll_pitch_yaw",
    rolling="rolling",
    rotor_drag="rotor_drag",
    velocity="velocity",
    velocity_across="rotor_drag",
)
__getattr__ = attach(
    __name__,
    {
        "airspeed": ("Airspeed", "AirspeedConfig"),
        "barometer": ("Barometer", "BarometerConfig"),
        "bounded_position": ("BoundedPosition", "BoundedPositionConfig"),
        "gyro_bias": ("GyroBias", "GyroBiasConfig"),
        "magnetometer": ("LevelMagnetometer", "LevelMagnetometerConfig", "Magnetometer", "MagnetometerConfig"),
        "position": ("Position", "PositionConfig"),
        "range": ("Range", "RangeConfig"),
        "regressed": ("Regressed", "RegressedConfig"),
        "roll_pitch_yaw": ("RollPitchYaw", "RollPitchYawConfig"),
        "rolling": ("Rolling", "RollingConfig"),
        "rotor_drag": ("RotorDrag", "RotorDragConfig", "VelocityAcross", "VelocityAcrossConfig"),
        "velocity": ("Velocity", "VelocityConfig"),
    },
)

__all__ = [
    "Airspeed",
    "AirspeedConfig",
    "Barometer",
    "BarometerConfig",
    "BoundedPosition",
    "BoundedPositionConfig",
    "GyroBias",
    "GyroBiasConfig",
    "LevelMagnetometer",
    "LevelMagnetometerConfig",
    "Magnetometer",
    "MagnetometerConfig",
    "Position",
    "PositionConfig",
    "Range",
    "RangeConfig",
    "Regressed",
    "RegressedConfig",
    "RollPitchYaw",
    "RollPitchYawConfig",
    "Rolling",
    "RollingConfig",
    "RotorDrag",
    "RotorDragConfig",
    "Velocity",
    "VelocityAcross",
    "VelocityAcrossConfig",
    "VelocityConfig",
]
