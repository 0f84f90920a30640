"""A filter for a device: traced once, written as C, ONNX or a compiled package."""
