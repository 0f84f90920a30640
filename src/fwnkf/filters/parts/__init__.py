"""The parts of which an FW-NKF is composed: each has options of its own, its own state, and a file."""

from .correction import Correction
from .drift import Drift
from .encoder import GRU
from .hypotheses import Hypotheses
from .level import Level
from .lines import Lines
from .locally_linear import LocallyLinear
from .modes import Modes
from .orders import Orders
from .phi import Phi
from .residual import MLP

__all__ = [
    "GRU",
    "MLP",
    "Correction",
    "Drift",
    "Hypotheses",
    "Level",
    "Lines",
    "LocallyLinear",
    "Modes",
    "Orders",
    "Phi",
]
