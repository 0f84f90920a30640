"""Fitting models to recordings: vibration modes, causal FIR filters, calibrations, covariance levels."""

from .fir import apply_fir, choose_ridge, fit_fir
from .levels import Levels, levels_left_out
from .modes import VibrationModel, VibrationOptions, fit_model, fit_vibration
from .spectra import Spectra, cross_spectra

__all__ = [
    "Levels",
    "Spectra",
    "VibrationModel",
    "VibrationOptions",
    "apply_fir",
    "choose_ridge",
    "cross_spectra",
    "fit_fir",
    "fit_model",
    "fit_vibration",
    "levels_left_out",
]
