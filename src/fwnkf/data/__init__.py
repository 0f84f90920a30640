"""Recordings, simulations and tables as records for filters; loaders are registered by name."""

from __future__ import annotations

from ..lazy import attach
from ..registry import DATA

DATA.declare(__name__, lorenz="loaders", pendulum="loaders", simulated="loaders", tables="loaders")
_MODULES = ("log_recording", "log_writing", "protocols", "recording", "simulate", "tables")
__getattr__ = attach(__name__, dict.fromkeys(_MODULES, ()))

__all__ = ["log_recording", "log_writing", "protocols", "recording", "simulate", "tables"]
