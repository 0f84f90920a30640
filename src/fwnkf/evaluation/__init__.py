"""Scoring filters: one row for one filter, its baselines beside it, and training runs compared."""

from ..lazy import attach

_MODULES = ("baselines", "evaluate", "runs", "timing")
__getattr__ = attach(__name__, dict.fromkeys(_MODULES, ()))

__all__ = ["baselines", "evaluate", "runs", "timing"]
