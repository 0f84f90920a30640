"""A fleet"s logs: batch filtering and fits over many devices, on one machine or on a Ray cluster."""

from ..lazy import attach

__getattr__ = attach(__name__, dict.fromkeys(("batch",), ()))

__all__ = ["batch"]
