"""The filter of a log that comes without one: every channel a signal with a slope, in white noise.

Its innovations are what one sample says beyond the samples before it, at the full rate of the sensor. Everything that
a vibration adds to the noise is left in them, because the model has no place for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..identify.channels import ChannelModel, fit_channel
from .series import Series
from .spectra import Spectrum, spectrum_to_fit

LINES = 3
"""Lines of each channel at most, where a model has lines."""


def channel_models(
    series: Series, spectra: Spectrum | None = None, *, lines: int = 0, places: Sequence[Sequence[float]] = (),
    lowest_hz: float = 0.0,
) -> list[ChannelModel]:  # fmt: skip
    """A model for every channel of a series, with up to ``lines`` lines; ``places`` (Hz) are tried first."""
    spectra = spectrum_to_fit(series.time, series.values) if spectra is None else spectra
    # from one-sided density per Hz to power per sample, in which white noise has its variance
    omega = torch.from_numpy(2 * math.pi * spectra.frequency / spectra.rate)
    density = torch.from_numpy(0.5 * spectra.rate * spectra.density)
    return [
        fit_channel(
            omega, density[:, channel], rate=series.rate, samples=len(series), lines=lines,
            places=places[channel] if places else (), lowest_hz=lowest_hz,
        )
        for channel in range(len(series.channels))
    ]  # fmt: skip
