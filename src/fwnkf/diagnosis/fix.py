"""The cure: noise states fitted to the first part of a log, compared with what was before on the rest.

Every method is scored by the log-density of the same raw measurements, each given the ones before. A notch is causal
and invertible: it multiplies the density of the next sample by its leading coefficient ``b₀``, so that the density of
what comes out of it, plus ``log b₀`` for each notch and channel, is that of the raw sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checkpoint import save
from ..errors import DataError
from ..filters.base import Filter
from ..identify.channels import ChannelModel, Line, channels_filter
from .consistency import consistency
from .default_filter import channel_models
from .innovations import Innovations, innovation_spectra, innovations, match_channels
from .notch import Biquad, notch, notch_bandwidth
from .peaks import find_peaks, group_peaks
from .result import Fix
from .series import Series
from .spectra import ORDER, even_grid, linear_prediction, noise_floor, spectrum
from .thresholds import THRESHOLDS, Thresholds

TRAIN = 0.6
LINES = 3
"""Lines of each channel at most."""
NOTCHES = 3
LONGEST, TRIED = 10_000, 5_000
"""Samples that a filter runs over to be tested, and to choose models and levels."""


def split(series: Series, share: float = TRAIN) -> tuple[Series, Series]:
    """The first part of a series in time, and the rest."""
    middle = float(series.time[0] + share * (series.time[-1] - series.time[0]))
    return series.part(-math.inf, middle), series.part(middle, math.inf)


def fitted_models(series: Series, *, lines: int = LINES, thresholds: Thresholds = THRESHOLDS) -> list[ChannelModel]:
    """Models with lines where these help, at levels that make innovations as large as stated.

    A flight is never quite the same later on, and a level from the samples of the fit would not say so. Models of the
    first two thirds are therefore tried on the last one: a channel gets lines if it is predicted better with them, and
    the level that it has there, if that is above the one of the fit.
    """
    lowest = min(thresholds.line_lowest, 0.1 * series.rate)
    early, late = split(series, 2 / 3)
    late = late.first(TRIED)
    plain = channel_models(early, lowest_hz=lowest)
    levels, scores = _tried(plain, late)
    chosen = [0] * len(plain)
    if lines:
        lined = channel_models(early, lines=lines, lowest_hz=lowest)
        higher, better = _tried(lined, late)
        chosen = [lines if gain else 0 for gain in better > scores]
        levels = np.where(better > scores, higher, levels)
    models = [
        channel_models(series.columns([column]), lines=count, lowest_hz=lowest)[0]
        for column, count in enumerate(chosen)
    ]
    return [scaled(model, max(1.0, float(level))) for model, level in zip(models, levels, strict=True)]


def _tried(models: Sequence[ChannelModel], series: Series) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """NIS of every channel under its model, and the mean log-density of its samples at that level."""
    result = innovations(channels_filter(models, series.channels), series)
    level = np.nanmean(result.values**2 / result.variance, 0)
    raised = np.maximum(level, 1.0)
    return level, -0.5 * (np.log(raised) + np.nanmean(np.log(result.variance), 0) + level / raised)


def scaled(model: ChannelModel, factor: float) -> ChannelModel:
    """All covariances times a factor, which leaves the gains as they are."""
    root = math.sqrt(factor)
    lines = tuple(Line(line.hz, line.bandwidth_hz, line.std * root) for line in model.lines)
    return replace(model, drive=model.drive * factor, white=model.white * factor, lines=lines)


def tuned_notches(series: Series, thresholds: Thresholds = THRESHOLDS) -> list[Biquad]:
    """Notches at the strongest lines, as an engineer sets them from the spectrum; the same for all channels."""
    measured = spectrum(series.time, series.values)
    peaks = find_peaks(measured, series.channels, thresholds=thresholds)
    sections = []
    for group in group_peaks(peaks)[:NOTCHES]:
        hz = group[0].frequency
        if hz < 0.48 * series.rate:
            sections.append(notch(hz, notch_bandwidth(hz, group[0].width, series.rate), series.rate))
    return sections


def notched(series: Series, sections: Sequence[Biquad], past: Series) -> Series:
    """A series behind notches; missing samples are predicted before, from those before them, and missing again after.

    A notch on board knows no later samples, and its score would not be that of the raw samples with them. The
    prediction is fitted to ``past``.
    """
    values = series.values.copy()
    known = max(even_grid(past.time, past.values).runs, key=len)
    level = known.mean(0)
    order = min(ORDER, len(known) // 10)
    weights = [linear_prediction(known[:, column] - level[column], order)[1:] for column in range(known.shape[1])]
    for run in series.runs():
        place = series.index[run] - series.index[run.start]
        even = np.full((int(place[-1]) + 1, values.shape[1]), np.nan)
        even[place] = series.values[run]
        for step, column in np.argwhere(np.isnan(even)).tolist():
            before = even[max(step - order, 0) : step, column][::-1] - level[column]
            even[step, column] = level[column] - weights[column][: len(before)] @ before
        for section in sections:
            even = section.apply(even)
        values[run] = np.where(np.isfinite(series.values[run]), even[place], np.nan)
    return replace(series, values=values)


def fix(
    series: Series, *, given: Filter | None = None, folder: Path | str | None = None,
    thresholds: Thresholds = THRESHOLDS,
) -> Fix:  # fmt: skip
    """Fit noise states to the first 60 % of a series and compare on the rest; saves the filter to ``folder``.

    Densities can be compared only of the same measurements: with a filter given, those that it measures.
    """
    if given is not None:
        series = series.columns(match_channels(given, series))
    train, test = split(series)
    if min(len(train), len(test)) < 500:
        raise DataError(f"{series.name}: {len(series)} samples are too few to fit on one part and test on the rest")
    rows: list[dict[str, Any]] = []
    shown = test.first(LONGEST)
    if given is not None:
        rows.append(_row("the filter given", innovations(given, shown)))
    plain = fitted_models(train, lines=0, thresholds=thresholds)
    rows.append(_row("white noise", innovations(channels_filter(plain, series.channels), shown)))
    sections = tuned_notches(train, thresholds)
    if sections:
        whole = notched(series, sections, train)
        before, after = split(whole)
        models = fitted_models(before, lines=0, thresholds=thresholds)
        result = innovations(channels_filter(models, series.channels), after.first(LONGEST))
        jacobian = len(series.channels) * sum(math.log(section.b[0]) for section in sections)
        delay = 1e3 * sum(section.delay(series.rate) for section in sections)
        rows.append(_row(f"{len(sections)} notch(es), then white noise", result, jacobian, delay))
    models = fitted_models(train, thresholds=thresholds)
    model = channels_filter(models, series.channels)
    result = innovations(model, shown)
    rows.append(_row("noise states", result))
    parameters = {
        f"{name}_{what}": value
        for name, part in zip(series.channels, models, strict=True)
        for what, value in _parameters(part)
    }
    notes = [
        f"fitted to the first {100 * TRAIN:.0f} % of the time, compared on the rest"
        + (f", of which the first {LONGEST:,} samples" if len(test) > LONGEST else "")
    ]
    saved = None if folder is None else str(save(model, folder))
    measured = spectrum(result.time, result.values)
    spectra = innovation_spectra(result, measured, noise_floor(measured))
    return Fix(tuple(rows), tuple(spectra), parameters, saved, tuple(notes))


def _row(method: str, result: Innovations, jacobian: float = 0.0, delay: float = 0.0) -> dict[str, Any]:
    rows = consistency(result)
    top = rows[0]
    return {
        "method": method,
        "log_likelihood": float(np.nanmean(result.log_likelihood)) + jacobian,
        "nis": top.mean,
        "white_p": top.white_p,
        "autocorrelation": top.correlation,
        "delay_ms": delay,
    }


def _parameters(model: ChannelModel) -> list[tuple[str, float]]:
    values = [("drive", model.drive), ("decay", model.decay), ("white_std", math.sqrt(model.white))]
    for number, line in enumerate(model.lines, 1):
        values += [
            (f"line{number}_hz", line.hz),
            (f"line{number}_bandwidth_hz", line.bandwidth_hz),
            (f"line{number}_std", line.std),
        ]
    return values
