"""Models of a log's channels with levels that hold on other parts of the flight, chosen on the part used to fit.

A flight is never quite the same later on, and figures from the samples of a fit would not say so. Everything that is
chosen is therefore tried on time that the fit has not seen: models of the first two thirds of a series on its last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..filters.base import Filter
from ..filters.parts.level import HIGHEST, LOWEST, Level, freedom
from ..identify.channels import ChannelModel, Line, channels_filter
from .default_filter import channel_models
from .innovations import innovations
from .motion import fit_motion, fit_widths, innovation_variances, squared_prediction_error
from .series import Series
from .thresholds import THRESHOLDS, Thresholds

Array = NDArray[np.float64]

TRIED = 5_000
"""Samples that a filter runs over to choose models and levels."""
HALF_LIVES = (8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
"""Steps in which the level forgets half, as tried."""
MOTION_GAIN = 0.02
"""Gain in log-density per sample for which the motion is fitted to the samples instead of the spectrum."""
FEWEST_SQUARES = 48
"""Squares within a half-life, at least: of fewer, the level scatters so much that NIS is off by more than 2 %."""


def split(series: Series, share: float) -> tuple[Series, Series]:
    """The first part of a series in time, and the rest."""
    middle = float(series.time[0] + share * (series.time[-1] - series.time[0]))
    return series.part(-math.inf, middle), series.part(middle, math.inf)


class Way(NamedTuple):
    """How many lines a model may have, and what of it is fitted to the samples, and not to the spectrum."""

    motion: bool = False
    widths: bool = False
    lines: int = 0


class Trial(NamedTuple):
    """Channels on time that was not used to fit their models; NaN where a channel was not measured."""

    squares: Array
    """Innovations squared over their variance, ``[samples, channels]``."""
    log_variance: Array

    @property
    def level(self) -> Array:
        """The mean square of each channel; one where nothing was measured."""
        count = np.isfinite(self.squares).sum(0)
        return np.where(count > 0, np.maximum(np.nansum(self.squares, 0) / np.maximum(count, 1), LOWEST), 1.0)

    def at_their_level(self) -> Trial:
        """With variances as large as the squares are on average."""
        return Trial(self.squares / self.level, self.log_variance + np.log(self.level))

    def density(self, level: Array | float = 1.0) -> Array:
        """Log-density of every channel of every sample."""
        return -0.5 * (math.log(2 * math.pi) + self.log_variance + np.log(level) + self.squares / level)


@dataclass(frozen=True)
class Calibrated:
    """Models of the channels, how fast their common level is followed, and how well they predict."""

    models: tuple[ChannelModel, ...]
    half_life: float | None
    """Steps; None where the level does not change."""
    score: float
    """Log-density of a sample on the last third of the series that they were fitted to, by the fit to the rest."""
    from_samples: tuple[bool, ...] = ()
    """For which channels the motion was fitted to the samples, because the spectrum does not show it."""

    def filter(self, channels: Sequence[str]) -> Filter:
        """The filter whose measurements have these names."""
        seconds = None if self.half_life is None else self.half_life / math.log(2) / self.models[0].rate
        return channels_filter(self.models, channels, level_seconds=seconds)


def calibrated(series: Series, *, lines: int = 0, thresholds: Thresholds = THRESHOLDS) -> list[Calibrated]:
    """Models without lines and, if ``lines`` are allowed, with them where they help; each with the level of its noise.

    A channel gets lines, and as many of them, if it is predicted better with them. Its motion and the widths of its
    lines are fitted to the spectrum, or to the samples where that predicts better (:mod:`fwnkf.diagnosis.motion`). Its
    variances are scaled, up or down, to its innovations; the half-life of the level that all channels share is the one
    that predicts best, or none.
    """
    lowest = min(thresholds.line_lowest, 0.1 * series.rate)
    early, late = split(series, 2 / 3)
    late = late.first(TRIED)

    def fitted(part: Series, lines: int) -> list[ChannelModel]:
        return channel_models(part, lines=lines, lowest_hz=lowest)

    def refitted(models: Sequence[ChannelModel], part: Series, way: Way) -> Sequence[ChannelModel]:
        models = fit_widths(models, part) if way.widths else models
        models = fit_motion(models, part) if way.motion else models
        if not way.widths:
            return models
        # the spectrum gave the levels of a model with other widths
        ratios = squared_prediction_error(models, part) / innovation_variances(models)
        return [scaled(model, ratio) for model, ratio in zip(models, ratios.tolist(), strict=True)]

    def fitted_early(lines: int) -> tuple[list[ChannelModel], list[Way]]:
        """Models of the first two thirds, and for each channel its number of lines and what is fitted to the samples.

        To the spectrum of a pure tone, which has the shape of a window, several lines are fitted where there is one.
        """
        most = fitted(early, lines)
        counts = range(1, max((len(model.lines) for model in most), default=0))
        tried: list[Sequence[ChannelModel]] = [*(fitted(early, count) for count in counts), most]
        models, used = _best(tried, late)
        # widths alone last: a line of the right width hides a motion that is not that of the signal from predictions
        ways = [Way(), Way(motion=True)] + ([Way(motion=True, widths=True), Way(widths=True)] if lines else [])
        models, best = _best([refitted(models, early, way) for way in ways], late)
        given = [*counts, lines]
        return models, [ways[way]._replace(lines=given[place]) for way, place in zip(best, used, strict=True)]

    def fitted_channel(column: int, way: Way) -> ChannelModel:
        channel = series.columns([column])
        return refitted(fitted(channel, way.lines), channel, way)[0]

    def at_level(models: Sequence[ChannelModel], trial: Trial, ways: Sequence[Way]) -> Calibrated:
        half_life, score = followed(trial.at_their_level())
        pairs = zip(models, trial.level.tolist(), strict=True)
        moved = tuple(way.motion for way in ways)
        return Calibrated(tuple(scaled(model, level) for model, level in pairs), half_life, score, moved)

    models, ways = fitted_early(0)
    white = [fitted_channel(column, way) for column, way in enumerate(ways)]
    trial = tried(channels_filter(models, series.channels), late)
    found = [at_level(white, trial, ways)]
    if lines:
        models, with_lines = fitted_early(lines)
        other = tried(channels_filter(models, series.channels), late)
        better = _own_score(other) > _own_score(trial)
        mixed = Trial(*(np.where(better, new, old) for new, old in zip(other, trial, strict=True)))
        models = [
            fitted_channel(column, with_lines[column]) if gain else white[column] for column, gain in enumerate(better)
        ]
        kept = [new if gain else old for new, old, gain in zip(with_lines, ways, better, strict=True)]
        found.append(at_level(models, mixed, kept))
    return found


def _best(tried: Sequence[Sequence[ChannelModel]], series: Series) -> tuple[list[ChannelModel], list[int]]:
    """Of every channel the model that predicts a series best, and its place; a later one must gain something."""
    errors = np.stack([squared_prediction_error(models, series) for models in tried])
    best = np.zeros(errors.shape[1], int)
    for place in range(1, len(tried)):
        least = errors[best, np.arange(errors.shape[1])]
        best = np.where(math.exp(2 * MOTION_GAIN) * errors[place] < least, place, best)
    return [tried[place][column] for column, place in enumerate(best.tolist())], best.tolist()


def tried(model: Filter, series: Series) -> Trial:
    """A filter with channels apart over a series."""
    result = innovations(model, series)
    return Trial(result.values**2 / result.variance, np.log(result.variance))


def followed(trial: Trial) -> tuple[float | None, float]:
    """The half-life of a common level that predicts best, and its log-density of a sample."""
    known = np.isfinite(trial.squares)
    share = known.mean(1, keepdims=True)
    squares = np.nansum(trial.squares, 1, keepdims=True) / np.maximum(known.sum(1, keepdims=True), 1)
    scores: dict[float | None, float] = {None: _per_sample(trial.density())}
    for half_life in HALF_LIVES:
        if half_life * known.shape[1] >= FEWEST_SQUARES:
            level = running_level(squares, share, half_life, known.shape[1])
            scores[half_life] = _per_sample(trial.density(level))
    best = max(scores, key=lambda half_life: scores[half_life])
    return best, scores[best]


def running_level(squares: Array, share: Array, half_life: float, channels: int = 1) -> Array:
    """The level before each sample, ``[samples, k]``, as ``Level(of="all")`` of these channels follows it from one."""
    kept = 0.5 ** (share / half_life)
    free = freedom(Level(half_life / math.log(2), of="all"), 1.0, channels)
    squares = squares * free / (free - 2)
    levels = np.empty_like(squares)
    level = np.ones(squares.shape[1:])
    for step in range(len(squares)):
        levels[step] = level
        level = np.clip(kept[step] * level + (1 - kept[step]) * squares[step], LOWEST, HIGHEST)
    return levels


def scaled(model: ChannelModel, factor: float) -> ChannelModel:
    """All covariances times a factor, which leaves the gains as they are."""
    root = math.sqrt(factor)
    lines = tuple(Line(line.hz, line.bandwidth_hz, line.std * root) for line in model.lines)
    return replace(model, drive=model.drive * factor, white=model.white * factor, lines=lines)


def _per_sample(density: Array) -> float:
    return float(np.nansum(density, 1).mean())


def _own_score(trial: Trial) -> Array:
    """Mean log-density of each channel at a level of its own, at the half-life that suits it."""
    trial = trial.at_their_level()
    known = np.isfinite(trial.squares)
    squares = np.where(known, trial.squares, 0.0)
    densities = [trial.density()]
    densities += [
        trial.density(running_level(squares, known.astype(float), half_life))
        for half_life in HALF_LIVES
        if half_life >= FEWEST_SQUARES
    ]
    means = [np.nansum(density, 0) / np.maximum(known.sum(0), 1) for density in densities]
    return np.asarray(np.max(means, axis=0))
