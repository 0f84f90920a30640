"""Frequency-weighted neural Kalman filters: frequency-aware and consistent state estimation.

Names are imported on first use, so that the command line starts without loading torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .lazy import attach

if TYPE_CHECKING:
    from . import airframes, filters, systems
    from .checkpoint import dump_state, load, load_state, save
    from .core.layout import Layout, Part
    from .core.linear import LinearSystem
    from .core.motion import Motion
    from .core.preprocess import Preprocess
    from .core.sensor import Sensor
    from .core.sensor_definition import SensorDefinition, SensorState
    from .core.system import System
    from .core.trajectory import Trajectory
    from .filters.adaptive import AdaptiveKalmanFilter as AdaptiveKF
    from .filters.base import Filter
    from .filters.baselines.autoregressive import AutoregressiveKalmanFilter as ARKF
    from .filters.baselines.bayesian_kalmannet import BayesianKalmanNet
    from .filters.baselines.kalmannet import KalmanNet
    from .filters.baselines.recursive_kalmannet import RecursiveKalmanNet
    from .filters.baselines.rkn import RecurrentKalmanNetwork as RKN
    from .filters.extended import ExtendedKalmanFilter as EKF
    from .filters.factory import build
    from .filters.fwnkf import FrequencyWeightedNeuralKalmanFilter as FWNKF
    from .filters.kalman import KalmanFilter as KF
    from .filters.parts import GRU, MLP, Correction, Drift, Hypotheses, Level, Lines, LocallyLinear, Modes, Orders, Phi
    from .filters.smoothing import Smoothed, smooth
    from .filters.unscented import UnscentedKalmanFilter as UKF
    from .hub import from_pretrained
    from .identify import fit
    from .registry import DATA, FEATURES, FILTERS, MOTIONS, PREPROCESS, SENSORS, SYSTEMS
    from .runtime.compiled import compile_step
    from .runtime.recordings import smooth_in_chunks
    from .runtime.stream import Stream
    from .types import Gaussian, Status, StepOutput

    register_data = DATA.register
    register_feature = FEATURES.register
    register_filter = FILTERS.register
    register_motion = MOTIONS.register
    register_preprocess = PREPROCESS.register
    register_sensor = SENSORS.register
    register_system = SYSTEMS.register

__version__ = "0.3.0"

_attribute = attach(
    __name__,
    {
        "airframes": (),
        "checkpoint": ("dump_state", "load", "load_state", "save"),
        "core.layout": ("Layout", "Part"),
        "core.preprocess": ("Preprocess",),
        "core.linear": ("LinearSystem",),
        "core.motion": ("Motion",),
        "core.sensor": ("Sensor",),
        "core.sensor_definition": ("SensorDefinition", "SensorState"),
        "core.system": ("System",),
        "core.trajectory": ("Trajectory",),
        "filters": (),
        "filters.base": ("Filter",),
        "filters.factory": ("build",),
        "filters.adaptive": {"AdaptiveKF": "AdaptiveKalmanFilter"},
        "filters.baselines.autoregressive": {"ARKF": "AutoregressiveKalmanFilter"},
        "filters.baselines.bayesian_kalmannet": ("BayesianKalmanNet",),
        "filters.extended": {"EKF": "ExtendedKalmanFilter"},
        "filters.fwnkf": {"FWNKF": "FrequencyWeightedNeuralKalmanFilter"},
        "filters.kalman": {"KF": "KalmanFilter"},
        "filters.baselines.kalmannet": ("KalmanNet",),
        "filters.baselines.recursive_kalmannet": ("RecursiveKalmanNet",),
        "filters.baselines.rkn": {"RKN": "RecurrentKalmanNetwork"},
        "filters.unscented": {"UKF": "UnscentedKalmanFilter"},
        "filters.parts": (
            "GRU",
            "MLP",
            "Correction",
            "Drift",
            "Hypotheses",
            "Level",
            "Lines",
            "LocallyLinear",
            "Modes",
            "Orders",
            "Phi",
        ),
        "filters.smoothing": ("Smoothed", "smooth"),
        "hub": ("from_pretrained",),
        "identify": ("fit",),
        "runtime.compiled": ("compile_step",),
        "runtime.recordings": ("smooth_in_chunks",),
        "runtime.stream": ("Stream",),
        "systems": (),
        "types": ("Gaussian", "Status", "StepOutput"),
    },
)
_REGISTRIES = {
    "register_data": "DATA",
    "register_feature": "FEATURES",
    "register_filter": "FILTERS",
    "register_motion": "MOTIONS",
    "register_preprocess": "PREPROCESS",
    "register_sensor": "SENSORS",
    "register_system": "SYSTEMS",
}

__all__ = [
    "ARKF",
    "EKF",
    "FWNKF",
    "GRU",
    "KF",
    "MLP",
    "RKN",
    "UKF",
    "AdaptiveKF",
    "BayesianKalmanNet",
    "Correction",
    "Drift",
    "Filter",
    "Gaussian",
    "Hypotheses",
    "KalmanNet",
    "Layout",
    "Level",
    "LinearSystem",
    "Lines",
    "LocallyLinear",
    "Modes",
    "Motion",
    "Orders",
    "Part",
    "Phi",
    "Preprocess",
    "RecursiveKalmanNet",
    "Sensor",
    "SensorDefinition",
    "SensorState",
    "Smoothed",
    "Status",
    "StepOutput",
    "Stream",
    "System",
    "Trajectory",
    "airframes",
    "build",
    "compile_step",
    "dump_state",
    "filters",
    "fit",
    "from_pretrained",
    "load",
    "load_state",
    "register_data",
    "register_feature",
    "register_filter",
    "register_motion",
    "register_preprocess",
    "register_sensor",
    "register_system",
    "save",
    "smooth",
    "smooth_in_chunks",
    "systems",
]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # Python asks for __path__ and the like while the package is being imported
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # the names of the package's filters, systems and preprocessing must be known before anything is built by name
    for part in ("filters", "systems", "preprocess", "data"):
        importlib.import_module(f".{part}", __name__)
    if name in _REGISTRIES:
        return getattr(importlib.import_module(".registry", __name__), _REGISTRIES[name]).register
    return _attribute(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
