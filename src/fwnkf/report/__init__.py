"""Reports on a filter: learned frequency response and noise as plain values, and plots of its performance."""

from ..lazy import attach

__getattr__ = attach(__name__, dict.fromkeys(("diagnosis_page", "drawing", "page", "plots"), ()))

__all__ = ["diagnosis_page", "drawing", "page", "plots"]
