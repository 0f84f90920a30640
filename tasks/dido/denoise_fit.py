"""How the filter of ``dido`` is fitted: vibration model, correction by the innovations, level and error bars.

Everything that is chosen (the correction, the level, the factors of the error bars) is chosen on training flights left
out in turn, each with a filter fitted to the others.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fwnkf import FWNKF, Correction
from fwnkf.identify import CorrectionChoice, choose_correction, cross_spectra, fit_correction, fit_model, levels_of
from tasks.dido.baselines import OPTIONS
from tasks.dido.protocol import RATE, TRAIN, VALIDATION
from tasks.interface import Say

WARM_UP = 400
"""Samples in which a filter forgets its start, not counted when errors and levels of covariances are measured."""
CANDIDATES = (
    Correction(16, seconds=0.025),
    Correction(32, seconds=0.025),
    Correction(32, seconds=0.035),
    Correction(48, seconds=0.035),
)
RIDGES = (1e-4, 1e-3, 1e-2, 3e-2)
MOTION_HZ = 10.0
"""Below this a quadrotor moves; all that is known of the motion in a fit without truth."""


class Chosen(NamedTuple):
    """What training flights left out in turn say."""

    correction: CorrectionChoice
    level: float
    """Of all covariances."""
    factors: Tensor
    """Of the reported variances of each axis, beyond the level."""
    left_out: list[dict[str, Any]]

    def plain(self) -> dict[str, Any]:
        """As values of a results file."""
        part, ridge, errors = self.correction
        tried = {f"count {k}, seconds {s}, ridge {r:g}": error for (k, s, r), error in errors.items()}
        options = None if part is None else {"count": part.count, "seconds": part.seconds, "ridge": ridge}
        return {"correction": options, "squared error over that without correction, flights left out": tried}


def fit_filter(y: Tensor, truth: Tensor, seed: int, level: float = 1.0) -> FWNKF:
    """The vibration model alone, at a level of all covariances."""
    spectra = cross_spectra(y, truth)
    model = fit_model(spectra, RATE, OPTIONS, seed).to_filter(spectra.scale, level)
    assert isinstance(model, FWNKF)
    return model


def with_correction(model: FWNKF, y: Tensor, truth: Tensor, choice: CorrectionChoice) -> FWNKF:
    """The filter with the correction that was chosen; as it is if none was."""
    if choice.part is None:
        return model
    return fit_correction(model, y, truth, part=choice.part, ridge=choice.ridge, skip=WARM_UP)


def choose(y: Tensor, truth: Tensor, seed: int, say: Say) -> Chosen:
    """The correction, the level of all covariances and the factors of the error bars."""
    others = [torch.arange(len(y)) != out for out in range(len(y))]
    models = [fit_filter(y[rest], truth[rest], seed) for rest in others]
    choice = choose_correction(models, y, truth, candidates=CANDIDATES, ridges=RIDGES, skip=WARM_UP)
    say(f"dido, correction: {choice.part}, ridge {choice.ridge:g}")
    runs = [
        with_correction(model, y[rest], truth[rest], choice).run for model, rest in zip(models, others, strict=True)
    ]
    levels = levels_of(runs, y, truth, skip=WARM_UP)
    level = float(levels.nis.mean())
    left_out = [
        {"flight": number, "nis": float(nis), "variance_ratio": ratios.tolist(), "rmse": errors.sqrt().tolist()}
        for number, nis, ratios, errors in zip((*TRAIN, *VALIDATION), *levels, strict=True)
    ]
    factors = levels.variance_ratio.mean(0) / level
    say(f"dido, flights left out: level {level:.4f}, variance factors {factors.tolist()}")
    return Chosen(choice, level, factors, left_out)


def build(y: Tensor, truth: Tensor, seed: int, chosen: Chosen) -> FWNKF:
    """The whole filter; a slope's error bars are scaled like those of its signal."""
    model = with_correction(fit_filter(y, truth, seed, chosen.level), y, truth, chosen.correction)
    model.calibrate_covariance(chosen.factors.repeat(2))
    return model.requires_grad_(False)
