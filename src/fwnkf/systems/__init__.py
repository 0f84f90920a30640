"""One system, one file, and the disturbances of its sensors. Importing this package registers the systems."""

from . import noise
from .attitude import Handheld, HandheldConfig
from .heading import Heading, HeadingConfig
from .inertial_calibrated import CalibratedStrapdown, CalibratedStrapdownConfig
from .inertial_drag import DragStrapdown, DragStrapdownConfig
from .lorenz import Lorenz, LorenzConfig
from .motion import ConstantVelocity, ConstantVelocityConfig
from .multirotor import Multirotor, MultirotorConfig
from .pendulum import Pendulum, PendulumConfig
from .strapdown import Strapdown, StrapdownConfig

# fmt: off
__all__ = [
    "CalibratedStrapdown", "CalibratedStrapdownConfig", "ConstantVelocity", "ConstantVelocityConfig", "DragStrapdown",
    "DragStrapdownConfig", "Handheld", "HandheldConfig", "Heading", "HeadingConfig", "Lorenz", "LorenzConfig",
    "Multirotor", "MultirotorConfig", "Pendulum", "PendulumConfig", "Strapdown", "StrapdownConfig", "noise",
]
# fmt: on
