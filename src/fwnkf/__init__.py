"""Frequency-weighted neural Kalman filters: frequency-aware and consistent state estimation.

Names are imported on first use, so that the command line starts without loading torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .lazy import attach

if TYPE_CHECKING:
    from . import filters
    from .checkpoint import dump_state, load, load_state, save
    from .core.layout import Layout, Part
    from .core.linear import LinearSystem
    from .core.preprocess import Preprocess
    from .core.system import System
    from .core.trajectory import Trajectory
    from .filters.adaptive import AdaptiveKalmanFilter as AdaptiveKF
    from .filters.autoregressive import AutoregressiveKalmanFilter as ARKF
    from .filters.base import Filter
    from .filters.bayesian_kalmannet import BayesianKalmanNet
    from .filters.extended import ExtendedKalmanFilter as EKF
    from .filters.factory import build
    from .filters.fwnkf import FrequencyWeightedNeuralKalmanFilter as FWNKF
    from .filters.hypotheses import FrequencyHypotheses as FWNKFHypotheses
    from .filters.kalman import KalmanFilter as KF
    from .filters.kalmannet import KalmanNet
    from .filters.level import AdaptiveLevelFilter as FWNKFAdaptive
    from .filters.orders import OrderTrackingFilter as OrderTracking
    from .filters.recursive_kalmannet import RecursiveKalmanNet
    from .filters.rkn import RecurrentKalmanNetwork as RKN
    from .filters.smoothing import Smoothed, smooth
    from .filters.unscented import UnscentedKalmanFilter as UKF
    from .identify import fit
    from .registry import DATA, FILTERS, PREPROCESS, SYSTEMS
    from .runtime.compiled import compile_step
    from .runtime.recordings import smooth_in_chunks
    from .runtime.stream import Stream
    from .types import Gaussian, Status, StepOutput

    register_data = DATA.register
    register_filter = FILTERS.register
    register_preprocess = PREPROCESS.register
    register_system = SYSTEMS.register

__version__ = "0.2.0"

_attribute = attach(
    __name__,
    {
        "checkpoint": ("dump_state", "load", "load_state", "save"),
        "core.layout": ("Layout", "Part"),
        "core.preprocess": ("Preprocess",),
        "core.linear": ("LinearSystem",),
        "core.system": ("System",),
        "core.trajectory": ("Trajectory",),
        "filters": (),
        "filters.base": ("Filter",),
        "filters.factory": ("build",),
        "filters.adaptive": {"AdaptiveKF": "AdaptiveKalmanFilter"},
        "filters.autoregressive": {"ARKF": "AutoregressiveKalmanFilter"},
        "filters.bayesian_kalmannet": ("BayesianKalmanNet",),
        "filters.extended": {"EKF": "ExtendedKalmanFilter"},
        "filters.fwnkf": {"FWNKF": "FrequencyWeightedNeuralKalmanFilter"},
        "filters.hypotheses": {"FWNKFHypotheses": "FrequencyHypotheses"},
        "filters.level": {"FWNKFAdaptive": "AdaptiveLevelFilter"},
        "filters.kalman": {"KF": "KalmanFilter"},
        "filters.kalmannet": ("KalmanNet",),
        "filters.orders": {"OrderTracking": "OrderTrackingFilter"},
        "filters.recursive_kalmannet": ("RecursiveKalmanNet",),
        "filters.rkn": {"RKN": "RecurrentKalmanNetwork"},
        "filters.unscented": {"UKF": "UnscentedKalmanFilter"},
        "filters.smoothing": ("Smoothed", "smooth"),
        "identify": ("fit",),
        "runtime.compiled": ("compile_step",),
        "runtime.recordings": ("smooth_in_chunks",),
        "runtime.stream": ("Stream",),
        "types": ("Gaussian", "Status", "StepOutput"),
    },
)
_REGISTRIES = {
    "register_data": "DATA",
    "register_filter": "FILTERS",
    "register_preprocess": "PREPROCESS",
    "register_system": "SYSTEMS",
}

__all__ = [
    "ARKF",
    "EKF",
    "FWNKF",
    "KF",
    "RKN",
    "UKF",
    "AdaptiveKF",
    "BayesianKalmanNet",
    "FWNKFAdaptive",
    "FWNKFHypotheses",
    "Filter",
    "Gaussian",
    "KalmanNet",
    "Layout",
    "LinearSystem",
    "OrderTracking",
    "Part",
    "Preprocess",
    "RecursiveKalmanNet",
    "Smoothed",
    "Status",
    "StepOutput",
    "Stream",
    "System",
    "Trajectory",
    "build",
    "compile_step",
    "dump_state",
    "filters",
    "fit",
    "load",
    "load_state",
    "register_data",
    "register_filter",
    "register_preprocess",
    "register_system",
    "save",
    "smooth",
    "smooth_in_chunks",
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
