"""Frequency-weighted neural Kalman filters: frequency-aware and consistent state estimation."""

from . import filters
from .checkpoint import dump_state, load, load_state, save
from .core.layout import Layout, Part
from .core.system import LinearSystem, System
from .filters.base import Filter, build
from .registry import FILTERS, SYSTEMS
from .types import Gaussian, Status, StepOutput, Trajectory

register_filter = FILTERS.register
register_system = SYSTEMS.register

__version__ = "0.1.0.dev0"
__all__ = [
    "Filter",
    "Gaussian",
    "Layout",
    "LinearSystem",
    "Part",
    "Status",
    "StepOutput",
    "System",
    "Trajectory",
    "build",
    "dump_state",
    "filters",
    "load",
    "load_state",
    "register_filter",
    "register_system",
    "save",
]
