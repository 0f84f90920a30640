"""The filters, one per file. Importing this package registers them."""

from . import (
    adaptive,
    autoregressive,
    bayesian_kalmannet,
    extended,
    fwnkf,
    hypotheses,
    kalman,
    kalmannet,
    recursive_kalmannet,
    rkn,
    unscented,
)
from .base import Filter, available, build

__all__ = [
    "Filter",
    "adaptive",
    "autoregressive",
    "available",
    "bayesian_kalmannet",
    "build",
    "extended",
    "fwnkf",
    "hypotheses",
    "kalman",
    "kalmannet",
    "recursive_kalmannet",
    "rkn",
    "unscented",
]
