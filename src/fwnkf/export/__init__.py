"""A filter for a device: traced once, written as C, ONNX or a compiled package."""

from ..lazy import attach

__getattr__ = attach(__name__, dict.fromkeys(("c", "onnx", "pt2", "ros2"), ()))

__all__ = ["c", "onnx", "pt2", "ros2"]
