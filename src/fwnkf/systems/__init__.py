"""One system, one file, and the disturbances of its sensors; each is imported when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import attach
from ..registry import SYSTEMS

if TYPE_CHECKING:
    from . import noise
    from .attitude import Handheld, HandheldConfig
    from .heading import Heading, HeadingConfig
    from .inertial_calibrated import CalibratedStrapdown, CalibratedStrapdownConfig
    from .inertial_drag import DragStrapdown, DragStrapdownConfig
    from .learned import LearnedConfig, LearnedSystem
    from .lorenz import Lorenz, LorenzConfig
    from .motion import ConstantVelocity, ConstantVelocityConfig
    from .multirotor import Multirotor, MultirotorConfig
    from .pendulum import Pendulum, PendulumConfig
    from .strapdown import Strapdown, StrapdownConfig

SYSTEMS.declare(
    __name__,
    handheld="attitude",
    heading="heading",
    calibrated_strapdown="inertial_calibrated",
    drag_strapdown="inertial_drag",
    learned="learned",
    lorenz="lorenz",
    constant_velocity="motion",
    multirotor="multirotor",
    pendulum="pendulum",
    strapdown="strapdown",
)
SYSTEMS.declare("fwnkf.core", linear="linear")
__getattr__ = attach(
    __name__,
    {
        "attitude": ("Handheld", "HandheldConfig"),
        "heading": ("Heading", "HeadingConfig"),
        "inertial_calibrated": ("CalibratedStrapdown", "CalibratedStrapdownConfig"),
        "inertial_drag": ("DragStrapdown", "DragStrapdownConfig"),
        "learned": ("LearnedConfig", "LearnedSystem"),
        "lorenz": ("Lorenz", "LorenzConfig"),
        "motion": ("ConstantVelocity", "ConstantVelocityConfig"),
        "multirotor": ("Multirotor", "MultirotorConfig"),
        "pendulum": ("Pendulum", "PendulumConfig"),
        "strapdown": ("Strapdown", "StrapdownConfig"),
        "noise": (),
    },
)

__all__ = [
    "CalibratedStrapdown",
    "CalibratedStrapdownConfig",
    "ConstantVelocity",
    "ConstantVelocityConfig",
    "DragStrapdown",
    "DragStrapdownConfig",
    "Handheld",
    "HandheldConfig",
    "Heading",
    "HeadingConfig",
    "LearnedConfig",
    "LearnedSystem",
    "Lorenz",
    "LorenzConfig",
    "Multirotor",
    "MultirotorConfig",
    "Pendulum",
    "PendulumConfig",
    "Strapdown",
    "StrapdownConfig",
    "noise",
]
