"""Writers of minimal valid logs, for tests: simulated flights in every format that is read."""

from __future__ import annotations

import importlib
from pathlib import Path

from fwnkf.data.flights import Flight

FORMATS = {
    "ulog": "ulog",
    "dataflash": "dataflash",
    "blackbox": "blackbox",
    "mcap": "ros",
    "ros1": "ros",
    "ros2": "ros",
    "csv": "tables",
    "parquet": "tables",
}
"""Formats, and the module that writes each of them."""


def write_flight(folder: Path, format: str, flight: Flight) -> Path:
    """Write a flight as a log of one of :data:`FORMATS`; returns its path."""
    module = importlib.import_module(f"{__name__}.{FORMATS[format]}")
    path: Path = getattr(module, f"write_{format}")(folder, flight)
    return path
