"""Preprocessing of raw samples for particular sensors, one kind a file; each is imported when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import attach
from ..registry import PREPROCESS

if TYPE_CHECKING:
    from .corrected_imu import CorrectedIMU, CorrectedIMUConfig
    from .last_sample import LastSample, LastSampleConfig
    from .magnetometer import TiltCompensatedMagnetometer, TiltCompensatedMagnetometerConfig
    from .pooled_imu import PooledIMU, PooledIMUConfig
    from .preintegration import PreintegratedIMU, PreintegratedIMUConfig
    from .rotor_drag import RotorDrag, RotorDragConfig
    from .strapdown_imu import StrapdownIMU, StrapdownIMUConfig

PREPROCESS.declare(
    __name__,
    corrected_imu="corrected_imu",
    last_sample="last_sample",
    tilt_compensated_magnetometer="magnetometer",
    pooled_imu="pooled_imu",
    preintegrated_imu="preintegration",
    rotor_drag="rotor_drag",
    strapdown_imu="strapdown_imu",
)
__getattr__ = attach(
    __name__,
    {
        "corrected_imu": ("CorrectedIMU", "CorrectedIMUConfig"),
        "last_sample": ("LastSample", "LastSampleConfig"),
        "magnetometer": ("TiltCompensatedMagnetometer", "TiltCompensatedMagnetometerConfig"),
        "pooled_imu": ("PooledIMU", "PooledIMUConfig"),
        "preintegration": ("PreintegratedIMU", "PreintegratedIMUConfig"),
        "rotor_drag": ("RotorDrag", "RotorDragConfig"),
        "strapdown_imu": ("StrapdownIMU", "StrapdownIMUConfig"),
    },
)

__all__ = [
    "CorrectedIMU",
    "CorrectedIMUConfig",
    "LastSample",
    "LastSampleConfig",
    "PooledIMU",
    "PooledIMUConfig",
    "PreintegratedIMU",
    "PreintegratedIMUConfig",
    "RotorDrag",
    "RotorDragConfig",
    "StrapdownIMU",
    "StrapdownIMUConfig",
    "TiltCompensatedMagnetometer",
    "TiltCompensatedMagnetometerConfig",
]
