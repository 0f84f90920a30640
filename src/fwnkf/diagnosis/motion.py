"""Motion and lines of channel models fitted to the samples, for logs whose spectrum is too short to show them.

The spectrum of a short log starts above a slow motion: of 9 s at 1 kHz, the first bin that is compared is at 3.6 Hz.
Drive and decay of the signal are then not determined by the spectrum, and a filter with them lags behind the
motion by more than the noise that it removes. The errors of one-step predictions contain the motion at any rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.riccati import steady_state
from ..errors import ConfigError
from ..identify.channel_likelihood import SLOWEST
from ..identify.channels import ChannelModel, stacked_matrices
from ..native.steady import squared_errors
from .innovations import PIECES, SHORTEST, warm_up
from .pieces import Pieces, pieces
from .series import Series

Array = NDArray[np.float64]

LONGEST = 20_000
"""Samples that are predicted."""
DRIVES = (-6.0, -3.0, 0.0, 3.0, 6.0, 9.0)
"""Drives tried first: logarithms of their ratios to that of the spectrum."""
DECAYS = (SLOWEST, 1.0, 20.0)
"""Decays tried first, 1/s."""
FIRST_STEP, LAST_STEP = 2.0, 0.25
"""Steps of the search in the logarithms of drive and decay, halved from the first to the last."""
WIDTHS = (0.5, 0.25, 0.1, 0.03, 0.01)
"""Widths of lines that are tried, over those of the spectrum."""
NEIGHBOURS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1), (1, -1), (-1, 1))
LEVEL = 16
"""Samples whose mean is the level that a piece starts from."""


def fit_motion(models: Sequence[ChannelModel], series: Series) -> list[ChannelModel]:
    """The models with the drive and decay that predict the next sample of a series with the smallest error.

    Noise and lines stay as they are. After a coarse grid, each channel moves to the best of the eight neighbours of its
    values, or halves its step where none is better.
    """
    cut = _cut(series)
    tried = [
        [model, *(_moved(model, drive, math.log(decay / model.decay)) for drive in DRIVES for decay in DECAYS)]
        for model in models
    ]
    best, smallest = list(models), np.full(len(models), np.inf)
    steps = np.full(len(models), FIRST_STEP)
    while (steps >= LAST_STEP).any():
        errors = _squared_errors(tried, cut)
        for channel, place in enumerate(errors.argmin(1).tolist()):
            if errors[channel, place] < smallest[channel]:
                best[channel], smallest[channel] = tried[channel][place], errors[channel, place]
            else:
                steps[channel] /= 2
        tried = [
            [_moved(model, step * drive, step * decay) for drive, decay in NEIGHBOURS]
            for model, step in zip(best, steps.tolist(), strict=True)
        ]
    return best


def fit_widths(models: Sequence[ChannelModel], series: Series) -> list[ChannelModel]:
    """The models with the widths of lines that predict the next sample of a series with the smallest error.

    A line is never narrower in a spectrum than its resolution; a pure tone is.
    """
    cut = _cut(series)
    best = list(models)
    for number in range(max(len(model.lines) for model in models)):
        tried = [[model, *(_narrowed(model, number, factor) for factor in WIDTHS)] for model in best]
        best = [row[place] for row, place in zip(tried, _squared_errors(tried, cut).argmin(1).tolist(), strict=True)]
    return best


@torch.no_grad()
def innovation_variances(models: Sequence[ChannelModel]) -> Array:
    """What the models state as the mean squares of their one-step prediction errors."""
    return np.asarray(steady_state(*stacked_matrices(models)).innovation_cov[:, 0, 0].numpy())


def _narrowed(model: ChannelModel, number: int, factor: float) -> ChannelModel:
    """With another width of one line, if it has so many."""
    lines = list(model.lines)
    if number < len(lines):
        lines[number] = replace(lines[number], bandwidth_hz=factor * lines[number].bandwidth_hz)
    return replace(model, lines=tuple(lines))


def squared_prediction_error(models: Sequence[ChannelModel], series: Series) -> Array:
    """Mean square of the one-step prediction errors of each channel."""
    return _squared_errors([[model] for model in models], _cut(series))[:, 0]


def _moved(model: ChannelModel, drive: float, decay: float) -> ChannelModel:
    """Drive and decay changed by so much in their logarithms."""
    decay = min(max(model.decay * math.exp(decay), SLOWEST), 2 * model.rate)
    return replace(model, drive=model.drive * math.exp(drive), decay=decay)


def _cut(series: Series) -> Pieces:
    """Pieces that run side by side, each from its own level."""
    series = series.first(LONGEST)
    cut = pieces(series, length=max(SHORTEST, math.ceil(len(series) / PIECES)), warm=warm_up(series.rate))
    known = cut.mask & (cut.mask.cumsum(1) <= LEVEL)
    level = torch.where(known, cut.y, 0.0).sum(1, keepdim=True) / known.sum(1, keepdim=True).clamp_min(1)
    return cut._replace(y=torch.where(cut.mask, cut.y - level, 0.0))


@torch.no_grad()
def _squared_errors(models: Sequence[Sequence[ChannelModel]], cut: Pieces) -> Array:
    """Mean square of one-step prediction errors with the steady-state gain, ``[channels, models of each]``."""
    F, H, Q, R = stacked_matrices([model for row in models for model in row])
    shape = (len(models), len(models[0]))
    F, H, gain = (item.unflatten(0, shape) for item in (F, H, steady_state(F, H, Q, R).gain))
    counted = cut.mask & torch.from_numpy(cut.sample >= 0).unsqueeze(-1)
    try:
        total = _compiled(F, H, gain, cut.y, cut.mask, counted)
    except ConfigError:  # no compiler
        total = _looped(F, H, gain, cut.y, cut.mask, counted)
    mean = total / counted.sum((0, 1)).clamp_min(1).unsqueeze(-1).numpy()
    return np.where(np.isfinite(mean), mean, np.inf)


def _compiled(F: Tensor, H: Tensor, gain: Tensor, y: Tensor, known: Tensor, counted: Tensor) -> Array:
    """The sums of squares of all channels; states move in pairs, the blocks of the diagonal of ``F``."""
    pairs = torch.arange(F.shape[-1]).unflatten(0, (-1, 2))
    matrix, output = F[..., pairs[:, :, None], pairs[:, None, :]], H[..., 0, pairs[:, 0]]
    each = (
        matrix,
        gain.unflatten(-2, (-1, 2)).squeeze(-1),
        output,
        *(item.movedim(-1, 0) for item in (y, known, counted)),
    )
    return np.stack([squared_errors(*channel) for channel in zip(*(item.numpy() for item in each), strict=True)])


def _looped(F: Tensor, H: Tensor, gain: Tensor, y: Tensor, known: Tensor, counted: Tensor) -> Array:
    """As :func:`_compiled`, step by step in PyTorch."""
    forward, ahead, by = F.mT, (H @ F).mT, gain.mT
    steps = (item.permute(1, 2, 0)[:, :, None, :, None].to(F) for item in (y, known, counted))  # [T, C, 1, B, 1]
    x = torch.zeros(*F.shape[:2], len(y), F.shape[-1], dtype=F.dtype)
    total = torch.zeros(F.shape[:2], dtype=F.dtype)
    for sample, present, counts in zip(*steps, strict=True):
        error = (sample - x @ ahead) * present
        total += (counts * error.square()).sum((-2, -1))
        x = x @ forward + error @ by
    return total.numpy()
