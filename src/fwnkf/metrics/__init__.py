"""Metrics of estimates: accuracy, consistency, orientation errors and innovation spectra."""

from ..lazy import attach

__getattr__ = attach(__name__, {"accuracy": (), "consistency": (), "orientation": (), "spectrum": ()})

__all__ = ["accuracy", "consistency", "orientation", "spectrum"]
