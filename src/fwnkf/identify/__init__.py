"""Fitting models to recordings: by the likelihood of innovations, vibration modes, calibrations, covariance levels."""

from .fit_report import FitReport
from .fitting import Fit, fit
from .levels import Levels, levels_left_out
from .modes import VibrationModel, VibrationOptions, fit_model, fit_vibration
from .spectra import Spectra, cross_spectra
from .starting_belief import starting_belief
from .subspace import subspace

__all__ = [
    "Fit",
    "FitReport",
    "Levels",
    "Spectra",
    "VibrationModel",
    "VibrationOptions",
    "cross_spectra",
    "fit",
    "fit_model",
    "fit_vibration",
    "levels_left_out",
    "starting_belief",
    "subspace",
]
