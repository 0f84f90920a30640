"""Scoring filters: one row for one filter, its baselines beside it, and training runs compared."""

from ..lazy import attach

_MODULES = ("baselines", "bootstrap", "evaluate", "gaps", "runs", "timing")
__getattr__ = attach(__name__, dict.fromkeys(_MODULES, ()))

__all__ = ["baselines", "bootstrap", "evaluate", "gaps", "runs", "timing"]
