"""Noise by airframe: what gyroscope and accelerometer of a vehicle measure beside its motion, as small files."""

from .entry import Airframe, Line, Spectrum, list_airframes, read, shipped

__all__ = ["Airframe", "Line", "Spectrum", "list_airframes", "read", "shipped"]
