"""The filters, one per file. Importing this package makes their names known; each is imported when it is used."""

from ..lazy import attach
from ..registry import FILTERS
from .base import Filter
from .factory import available, build, with_solve

_MODULES = {
    "adaptive_kf": "adaptive",
    "arkf": "baselines.autoregressive",
    "bayesian_kalmannet": "baselines.bayesian_kalmannet",
    "ekf": "extended",
    "fwnkf": "fwnkf",
    "fwnkf_public_code": "baselines.fwnkf_public_code",
    "kalmannet": "baselines.kalmannet",
    "kf": "kalman",
    "recursive_kalmannet": "baselines.recursive_kalmannet",
    "rkn": "baselines.rkn",
    "ukf": "unscented",
}
FILTERS.declare(__name__, **_MODULES)
__getattr__ = attach(__name__, dict.fromkeys(_MODULES.values(), ()))

__all__ = ["Filter", "available", "build", "with_solve"]
