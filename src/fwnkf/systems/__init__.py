"""One system, one file, and the disturbances its sensors meet. Importing this package registers the systems."""

from . import lorenz, motion, noise, pendulum, strapdown
from .lorenz import Lorenz, LorenzConfig
from .motion import ConstantVelocity, ConstantVelocityConfig
from .pendulum import Pendulum, PendulumConfig
from .strapdown import Strapdown, StrapdownConfig

__all__ = [
    "ConstantVelocity",
    "ConstantVelocityConfig",
    "Lorenz",
    "LorenzConfig",
    "Pendulum",
    "PendulumConfig",
    "Strapdown",
    "StrapdownConfig",
    "lorenz",
    "motion",
    "noise",
    "pendulum",
    "strapdown",
]
