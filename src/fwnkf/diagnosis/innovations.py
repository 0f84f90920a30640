"""Innovations of a filter over a log, from pieces that run side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.gaussian import factored_density
from ..errors import DataError
from ..filters.base import Filter
from ..identify.starting_belief import starting_belief
from ..shapes import Bool, Float
from ..types import Gaussian
from .series import Series, pieces

Array = NDArray[np.float64]

PIECES = 64
"""How many pieces run side by side: a step of a batch takes little longer than one of a single run."""
SHORTEST = 256
STEPS = 128
"""Steps whose covariances are held at a time."""
WARM_SECONDS, WARM_STEPS = 2.0, 200
"""Warm-up of each piece: this long, and at least and at most (times four) so many steps."""


@dataclass(frozen=True, eq=False)
class Innovations:
    """Innovations of the samples that count, in the order of time."""

    series: Series
    time: Array
    values: Array
    """``[samples, channels]``; NaN where a channel was not measured."""
    variance: Array
    """Diagonal of ``S``."""
    nis: Array
    """Of all channels of a sample together, divided by their number."""
    log_likelihood: Array
    """Log-density of each sample under its one-step prediction."""
    mean: Array
    """Estimates of the measured channels after the update, or NaN where the filter's states are not the signals."""
    failed: int = 0
    """Steps whose update failed."""


def match_channels(model: Filter, series: Series) -> list[int]:
    """For each measurement of the filter the column of the series with its name."""
    names = [part.name for part in model.observation_layout.parts for _ in range(part.size)]
    if all(name in series.channels for name in names):
        return [series.channels.index(name) for name in names]
    if len(names) == len(series.channels) and len(model.observation_layout.parts) == 1:
        return list(range(len(names)))  # a filter without names takes the columns in their order
    raise DataError(
        f"the filter measures {', '.join(names)}, but {series.name} has {', '.join(series.channels)}; choose another "
        "signal with --topic, or fit a filter to this log with --fix"
    )


@torch.no_grad()
def innovations(model: Filter, series: Series) -> Innovations:
    """Run a filter over a series, cut at gaps.

    Pieces overlap by a warm-up, so that each starts in the steady state of the filter; what differs from one long run
    is below the warm-up's decay.
    """
    chosen = series.columns(match_channels(model, series))
    warm = min(max(round(WARM_SECONDS * series.rate), WARM_STEPS), 4 * WARM_STEPS)
    length = max(SHORTEST, math.ceil(len(series) / PIECES))
    cut = pieces(chosen, length=length, warm=warm)
    y = cut.y.to(model.dtype)
    dt = None
    if model.takes_dt and abs(float(getattr(model.config, "dt", 0.0)) * series.rate - 1) > 1e-3:
        dt = torch.full(y.shape[:2], 1 / series.rate, dtype=y.dtype)
    prior = None if model.initial_steps else starting_belief(model, y, None, cut.mask, dt)
    innovation, variance, squares, log_prob, mean, status = _run(model, y, cut.mask, dt, prior)
    keep = cut.sample >= 0
    order = np.argsort(cut.sample[keep])
    at = cut.sample[keep][order]

    def picked(item: Any) -> Array:
        return np.asarray(item.double().numpy(), float)[keep][order]

    measured = np.isfinite(chosen.values[at])
    names = [part.name for part in model.layout.parts]
    means = np.full(measured.shape, np.nan)
    if all(part.size == 1 for part in model.layout.parts):
        for column, name in enumerate(chosen.channels):
            if name in names:
                means[:, column] = picked(mean[..., names.index(name)])
    return Innovations(
        chosen,
        chosen.time[at],
        np.where(measured, picked(innovation), np.nan),
        np.where(measured, picked(variance), np.nan),
        picked(squares / cut.mask.sum(-1).clamp_min(1)),
        picked(log_prob),
        means,
        int((status != 0).sum()),
    )


def _run(
    model: Filter,
    y: Float[Tensor, "B T m"],
    mask: Bool[Tensor, "B T m"],
    dt: Float[Tensor, "B T"] | None,
    prior: Gaussian | None,
) -> tuple[Tensor, ...]:
    """Innovations, their variances, squares and log-densities, means and status.

    In parts, because the covariances of all steps would take a hundred times the memory of the samples.
    """
    prepared, steps = model.prepare(), max(STEPS, model.initial_steps)
    start: dict[str, Any] = {"prior": prior}
    parts = []
    for first in range(0, y.shape[1], steps):
        part = slice(first, first + steps)
        track = model.run(
            y[:, part], mask=mask[:, part], dt=None if dt is None else dt[:, part], prepared=prepared, **start
        )
        start = {"state": track.state}
        density = factored_density(track.innovation, track.innovation_cov, mask[:, part].to(y))
        variance = track.innovation_cov.diagonal(dim1=-2, dim2=-1).clone()
        log_prob = torch.where(density.ok, density.log_prob, torch.nan)
        squares = density.white.square().sum(-1)
        parts.append((track.innovation, variance, squares, log_prob, track.mean, track.status))
    return tuple(torch.cat(items, 1) for items in zip(*parts, strict=True))
