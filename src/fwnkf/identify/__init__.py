"""Fitting models to recordings: vibration modes, calibrations, covariance levels."""

from .levels import Levels, levels_left_out
from .modes import VibrationModel, VibrationOptions, fit_model, fit_vibration
from .spectra import Spectra, cross_spectra

__all__ = [
    "Levels",
    "Spectra",
    "VibrationModel",
    "VibrationOptions",
    "cross_spectra",
    "fit_model",
    "fit_vibration",
    "levels_left_out",
]
