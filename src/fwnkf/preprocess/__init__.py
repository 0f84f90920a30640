"""Preprocessing of raw samples for particular sensors, one kind a file. Importing this package registers them all."""

from .magnetometer import TiltCompensatedMagnetometer, TiltCompensatedMagnetometerConfig
from .pooled_imu import PooledIMU, PooledIMUConfig
from .preintegration import PreintegratedIMU, PreintegratedIMUConfig
from .rotor_drag import RotorDrag, RotorDragConfig
from .strapdown_imu import StrapdownIMU, StrapdownIMUConfig

__all__ = [
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
