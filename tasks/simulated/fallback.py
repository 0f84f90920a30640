"""Trained filters beside the hypotheses that the disturbance is absent, and that all noise is white."""

from __future__ import annotations

from typing import Any

import torch

from fwnkf import FWNKF, Hypotheses
from fwnkf.core import spectral
from fwnkf.core.gaussian import dense
from fwnkf.data.protocols import Records
from fwnkf.training.noise_start import noise_of


def with_fallback(model: FWNKF, **options: Any) -> FWNKF:
    """The filter with ``Hypotheses(fallback=True, **options)``; the frequencies that it has are kept."""
    own = model.config.hypotheses
    return model.with_parts(hypotheses=Hypotheses(1 if own is None else own.frequencies, fallback=True, **options))


@torch.no_grad()
def floor_of(model: FWNKF, records: Records) -> float:
    """The least power of the noise of training records at any frequency, in units of the filter's white noise.

    What is left where a disturbance has no power is the noise that stays when it ends.
    """
    least = spectral.periodogram(noise_of(model, records)).mean((0, 2)).min()
    white = dense(model.prepare().R).diagonal(dim1=-2, dim2=-1).mean()
    return float(least / white)
