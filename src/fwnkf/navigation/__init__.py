"""Inertial navigation on recordings: sensors as one sequence of steps, start, fit, filter, smoother and comparison."""

from ..lazy import attach

_MODULES = ("compare", "estimate", "from_log", "recording", "start", "timeline")
__getattr__ = attach(__name__, dict.fromkeys(_MODULES, ()))

__all__ = ["compare", "estimate", "from_log", "recording", "start", "timeline"]
