"""Fitting models to recordings: by the likelihood of innovations, vibration modes, calibrations, covariance levels."""

from typing import TYPE_CHECKING

from ..lazy import attach

if TYPE_CHECKING:
    from .band import below
    from .correction import CorrectionChoice, choose_correction, fit_correction
    from .fit_report import FitReport
    from .fitting import Fit, fit
    from .levels import Levels, levels_left_out, levels_of
    from .modes import VibrationModel, VibrationOptions, fit_model, fit_vibration
    from .realization import subspace
    from .regression import Regression, fit_observation, fit_regression
    from .regression_em import constant_velocity_start, fit_regression_em
    from .spectra import Spectra, cross_spectra
    from .start import starting_belief

__getattr__ = attach(
    __name__,
    {
        "band": ("below",),
        "correction": ("CorrectionChoice", "choose_correction", "fit_correction"),
        "fit_report": ("FitReport",),
        "fitting": ("Fit", "fit"),
        "levels": ("Levels", "levels_left_out", "levels_of"),
        "modes": ("VibrationModel", "VibrationOptions", "fit_model", "fit_vibration"),
        "realization": ("subspace",),
        "regression": ("Regression", "fit_observation", "fit_regression"),
        "regression_em": ("constant_velocity_start", "fit_regression_em"),
        "spectra": ("Spectra", "cross_spectra"),
        "start": ("starting_belief",),
    },
)

__all__ = [
    "CorrectionChoice",
    "Fit",
    "FitReport",
    "Levels",
    "Regression",
    "Spectra",
    "VibrationModel",
    "VibrationOptions",
    "below",
    "choose_correction",
    "constant_velocity_start",
    "cross_spectra",
    "fit",
    "fit_correction",
    "fit_model",
    "fit_observation",
    "fit_regression",
    "fit_regression_em",
    "fit_vibration",
    "levels_left_out",
    "levels_of",
    "starting_belief",
    "subspace",
]
