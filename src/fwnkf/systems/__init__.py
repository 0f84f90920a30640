"""Motions and systems, one a file, their sensors, and disturbances; each is imported when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import attach
from ..registry import MOTIONS, SYSTEMS
from . import sensors

if TYPE_CHECKING:
    from . import noise
    from .attitude import Handheld, HandheldConfig, HandheldMotion, HandheldMotionConfig
    from .gravity_attitude import GravityAttitude, GravityAttitudeConfig
    from .heading import Heading, HeadingConfig, HeadingMotion, HeadingMotionConfig
    from .inertial_calibrated import (
        CalibratedStrapdown,
        CalibratedStrapdownConfig,
        CalibratedStrapdownMotion,
        CalibratedStrapdownMotionConfig,
    )
    from .inertial_drag import DragStrapdown, DragStrapdownConfig
    from .learned import LearnedConfig, LearnedSystem
    from .lorenz import Lorenz, LorenzConfig
    from .motion import (
        ConstantVelocity,
        ConstantVelocityConfig,
        ConstantVelocityMotion,
        ConstantVelocityMotionConfig,
    )
    from .multirotor import Multirotor, MultirotorConfig, MultirotorMotion, MultirotorMotionConfig
    from .navigation import Navigation, NavigationConfig, NavigationMotion, NavigationMotionConfig
    from .pendulum import Pendulum, PendulumConfig
    from .regression import RegressedMotion, RegressedMotionConfig
    from .strapdown import Strapdown, StrapdownConfig, StrapdownMotion, StrapdownMotionConfig

SYSTEMS.declare(
    __name__,
    handheld="attitude",
    gravity_attitude="gravity_attitude",
    heading="heading",
    calibrated_strapdown="inertial_calibrated",
    drag_strapdown="inertial_drag",
    learned="learned",
    lorenz="lorenz",
    constant_velocity="motion",
    multirotor="multirotor",
    navigation="navigation",
    pendulum="pendulum",
    strapdown="strapdown",
)
MOTIONS.declare(
    __name__,
    calibrated_strapdown="inertial_calibrated",
    constant_velocity="motion",
    handheld="attitude",
    heading="heading",
    multirotor="multirotor",
    navigation="navigation",
    polynomial="regression",
    strapdown="strapdown",
)
SYSTEMS.declare("fwnkf.core", linear="linear", composed="composed")
__getattr__ = attach(
    __name__,
    {
        "attitude": ("Handheld", "HandheldConfig", "HandheldMotion", "HandheldMotionConfig"),
        "gravity_attitude": ("GravityAttitude", "GravityAttitudeConfig"),
        "heading": ("Heading", "HeadingConfig", "HeadingMotion", "HeadingMotionConfig"),
        "inertial_calibrated": (
            "CalibratedStrapdown",
            "CalibratedStrapdownConfig",
            "CalibratedStrapdownMotion",
            "CalibratedStrapdownMotionConfig",
        ),
        "inertial_drag": ("DragStrapdown", "DragStrapdownConfig"),
        "learned": ("LearnedConfig", "LearnedSystem"),
        "lorenz": ("Lorenz", "LorenzConfig"),
        "motion": (
            "ConstantVelocity",
            "ConstantVelocityConfig",
            "ConstantVelocityMotion",
            "ConstantVelocityMotionConfig",
        ),
        "multirotor": ("Multirotor", "MultirotorConfig", "MultirotorMotion", "MultirotorMotionConfig"),
        "navigation": ("Navigation", "NavigationConfig", "NavigationMotion", "NavigationMotionConfig"),
        "pendulum": ("Pendulum", "PendulumConfig"),
        "regression": ("RegressedMotion", "RegressedMotionConfig"),
        "strapdown": ("Strapdown", "StrapdownConfig", "StrapdownMotion", "StrapdownMotionConfig"),
        "noise": (),
    },
)

__all__ = [
    "CalibratedStrapdown",
    "CalibratedStrapdownConfig",
    "CalibratedStrapdownMotion",
    "CalibratedStrapdownMotionConfig",
    "ConstantVelocity",
    "ConstantVelocityConfig",
    "ConstantVelocityMotion",
    "ConstantVelocityMotionConfig",
    "DragStrapdown",
    "DragStrapdownConfig",
    "GravityAttitude",
    "GravityAttitudeConfig",
    "Handheld",
    "HandheldConfig",
    "HandheldMotion",
    "HandheldMotionConfig",
    "Heading",
    "HeadingConfig",
    "HeadingMotion",
    "HeadingMotionConfig",
    "LearnedConfig",
    "LearnedSystem",
    "Lorenz",
    "LorenzConfig",
    "Multirotor",
    "MultirotorConfig",
    "MultirotorMotion",
    "MultirotorMotionConfig",
    "Navigation",
    "NavigationConfig",
    "NavigationMotion",
    "NavigationMotionConfig",
    "Pendulum",
    "PendulumConfig",
    "RegressedMotion",
    "RegressedMotionConfig",
    "Strapdown",
    "StrapdownConfig",
    "StrapdownMotion",
    "StrapdownMotionConfig",
    "noise",
    "sensors",
]
