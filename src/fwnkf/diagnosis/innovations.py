"""Innovations of a filter over a log, from pieces that run side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.gaussian import factored_density
from ..core.trajectory import Trajectory
from ..errors import DataError
from ..filters.base import Filter
from ..filters.steps import step_for
from ..identify.start import starting_belief
from ..logs.clock import RATE_TOLERANCE
from ..runtime.inputs import absolute
from ..runtime.recordings import Steps, run_steps
from .pieces import Pieces, batches
from .result import ChannelSpectrum
from .series import Series
from .spectra import Spectrum

Array = NDArray[np.float64]

PIECES = 64
"""How many pieces run side by side: a step of a batch takes little longer than one of a single run."""
BATCH = 2 * PIECES
"""Most pieces side by side, where gaps make more of them."""
SHORTEST = 256
OUTPUTS = ("mean", "innovation", "innovation_cov")
STEPS = 128
"""Steps whose covariances are held at a time."""
STEP_TOLERANCE = 1e-3
"""Relative difference of the rate of a log from that of a filter up to which a filter that takes steps of any length
takes its own."""
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


def innovation_spectra(results: Innovations, measured: Spectrum, floor: Array) -> list[ChannelSpectrum]:
    """Densities of innovations channel by channel, beside the level that they would have if they were white."""
    return [
        ChannelSpectrum(
            channel, unit, "innovation", measured.frequency, measured.density[:, column], floor[:, column],
            2 * float(np.nanmean(results.variance[:, column])) / measured.rate,
        )
        for column, (channel, unit) in enumerate(zip(results.series.channels, results.series.units, strict=True))
    ]  # fmt: skip


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
    parts = [_counted(cut, tracks) for cut, tracks in runs(model, series, OUTPUTS)]
    chosen = series.columns(match_channels(model, series))
    at, values, variance, nis, log_likelihood, states, failed = (
        np.concatenate(items) for items in zip(*parts, strict=True)
    )
    states = absolute(states, model.layout.origins)
    order = np.argsort(at)
    at = at[order]
    measured = np.isfinite(chosen.values[at])
    names = [part.name for part in model.layout.parts]
    means = np.full(measured.shape, np.nan)
    if all(part.size == 1 for part in model.layout.parts):
        for column, name in enumerate(chosen.channels):
            if name in names:
                means[:, column] = states[order, names.index(name)]
    return Innovations(
        chosen,
        chosen.time[at],
        np.where(measured, values[order], np.nan),
        np.where(measured, variance[order], np.nan),
        nis[order],
        log_likelihood[order],
        means,
        int(failed.sum()),
    )


def warm_up(rate: float) -> int:
    """Steps of the warm-up of each piece."""
    return min(max(round(WARM_SECONDS * rate), WARM_STEPS), 4 * WARM_STEPS)


def _step(model: Filter, series: Series) -> float | None:
    """Seconds between samples, if the filter needs them as ``dt``."""
    if model.system is None:
        return 1 / series.rate
    tolerance = STEP_TOLERANCE if model.takes_dt else RATE_TOLERANCE
    return step_for(model, 1 / series.rate, tolerance=tolerance, name=series.name)


@torch.no_grad()
def runs(
    model: Filter, series: Series, outputs: Sequence[str] | None = None
) -> Iterator[tuple[Pieces, Iterator[tuple[slice, Trajectory]]]]:
    """Run a filter over the pieces of a series; the steps of each batch of pieces come in parts, with their place."""
    if model.preprocess is not None:
        raise DataError(
            f"the filter {model.name!r} preprocesses its measurements, so that its innovations are not those of "
            f"{series.name}; give the filter without preprocessing, or none"
        )
    chosen = series.columns(match_channels(model, series))
    step = _step(model, series)
    warm = warm_up(series.rate)
    length = max(SHORTEST, math.ceil(len(series) / PIECES))
    for cut in batches(chosen, length=length, warm=warm, most=BATCH):
        y = model.observation_layout.relative(cut.y, torch.zeros((), dtype=model.dtype))
        dt = None if step is None else torch.full(y.shape[:2], step, dtype=y.dtype)
        prior = None if model.initial_steps else starting_belief(model, y, None, cut.mask, dt)
        # in parts, because the covariances of all steps would take a hundred times the memory of the samples
        count = max(STEPS, model.initial_steps)
        parts = Steps(y, None, cut.mask, dt, {"prior": prior}).parts(count)
        places = (slice(first, first + count) for first in range(0, y.shape[1], count))
        yield cut, zip(places, run_steps(model, parts, outputs=outputs, steps=y.shape[1]), strict=True)


def _counted(cut: Pieces, tracks: Iterable[tuple[slice, Trajectory]]) -> tuple[NDArray[Any], ...]:
    """Of the samples that count: their places, innovations, variances, NIS, log-densities, means; and failed steps."""
    parts = []
    for place, track in tracks:
        density = factored_density(track.innovation, track.innovation_cov, cut.mask[:, place].to(track.innovation))
        variance = track.innovation_cov.diagonal(dim1=-2, dim2=-1).clone()
        log_prob = torch.where(density.ok, density.log_prob, torch.nan)
        squares = density.white.square().sum(-1)
        parts.append((track.innovation, variance, squares, log_prob, track.mean, track.status))
    innovation, variance, squares, log_prob, mean, status = (torch.cat(items, 1) for items in zip(*parts, strict=True))
    keep = cut.sample >= 0
    nis = squares / cut.mask.sum(-1).clamp_min(1)
    values = (item.double().numpy()[keep] for item in (innovation, variance, nis, log_prob, mean))
    return cut.sample[keep], *values, np.array([int((status != 0).sum())])
