"""Recordings, simulations and tables as records for filters; loaders are registered by name."""

from __future__ import annotations

from ..registry import DATA

DATA.declare(__name__, lorenz="loaders", pendulum="loaders", simulated="loaders", tables="loaders")
