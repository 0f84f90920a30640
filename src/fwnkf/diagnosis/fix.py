"""``--fix``: filters fitted to the first part of a log, compared with what was before on the rest.

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

from ..checkpoint import save
from ..errors import DataError
from ..filters.base import Filter
from .calibrate import TRIED, Calibrated, calibrated, split
from .consistency import consistency
from .default_filter import LINES
from .innovations import Innovations, innovation_spectra, innovations, match_channels
from .notch import Biquad, notch, notch_bandwidth
from .peaks import find_peaks, group_peaks
from .result import Fix, Outcome
from .series import Series
from .spectra import ORDER, even_grid, linear_prediction, noise_floor, spectrum
from .thresholds import THRESHOLDS, Thresholds

TRAIN = 0.6
NOTCHES = 3
LONGEST = 10_000
"""Samples that a filter runs over to be tested."""
BLOCKS = 20
"""Blocks of neighbours that the standard error of a difference is computed from."""
GIVEN, WHITE, NOISE = "the filter given", "white noise", "noise states"
"""Methods that can be kept."""


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
    """Fit filters to the first 60 % of a series, keep the one that predicts best there, and compare on the rest.

    The filter that is kept is chosen on the last third of the part used to fit, so that the rest is a test of it. It is
    saved to ``folder``, unless it predicts worse on the rest than the one before: the one given, else white noise.
    Densities can be compared only of the same measurements: with a filter given, those that it measures.
    """
    if given is not None:
        series = series.columns(match_channels(given, series))
    train, test = split(series, TRAIN)
    if min(len(train), len(test)) < 500:
        raise DataError(
            f"{series.name}: {len(series)} samples are too few to fit a filter to one part and test it on the "
            "rest; use a longer log"
        )
    shown = test.first(LONGEST)
    white, lined = calibrated(train, lines=LINES, thresholds=thresholds)
    filters = {WHITE: white.filter(series.channels), NOISE: lined.filter(series.channels)}
    scores = {WHITE: white.score, NOISE: lined.score if any(model.lines for model in lined.models) else -math.inf}
    if given is not None:
        filters = {GIVEN: given, **filters}
        scores[GIVEN] = float(np.nanmean(innovations(given, split(train, 2 / 3)[1].first(TRIED)).log_likelihood))
    results = {method: innovations(model, shown) for method, model in filters.items()}
    rows = {method: _row(method, result) for method, result in results.items()}
    notched_row = _notched_row(series, train, thresholds)
    table = [*rows.values()] if notched_row is None else [*list(rows.values())[:-1], notched_row, rows[NOISE]]
    kept, before = max(scores, key=lambda method: scores[method]), next(iter(filters))
    gain, error = _difference(results[kept], results[before])
    outcome: Outcome = "unchanged" if kept == before else "better" if gain > 0 else "worse"
    saved = None
    if folder is not None and kept != GIVEN and outcome != "worse":
        saved = str(save(filters[kept], folder))
    after = results[kept]
    measured = spectrum(after.time, after.values)
    notes = [
        f"fitted to the first {100 * TRAIN:.0f} % of the log, compared on the held-out rest"
        + (f" (its first {LONGEST:,} samples)" if len(test) > LONGEST else ""),
        *_verdict(kept, before, outcome, gain, error),
    ]
    fitted = {WHITE: white, NOISE: lined}.get(kept)
    moved = [] if fitted is None else [n for n, m in zip(series.channels, fitted.from_samples, strict=True) if m]
    if moved:
        notes.append(
            f"motion of {', '.join(moved)}: fitted to the samples, because the spectrum of a log this short does not "
            "resolve it"
        )
    if notched_row is not None and notched_row["log_likelihood"] > rows[kept]["log_likelihood"]:
        notes.append(f"notch filters before the filter with white noise predict the held-out part better than {kept}")
    return Fix(
        tuple(table), tuple(innovation_spectra(after, measured, noise_floor(measured))),
        {} if fitted is None else _parameters(fitted, series.channels),
        saved, tuple(notes), kept, outcome, gain, error,
    )  # fmt: skip


def _notched_row(series: Series, train: Series, thresholds: Thresholds) -> dict[str, Any] | None:
    """Notches at the lines of the part used to fit, then white noise; None where there is no line."""
    sections = tuned_notches(train, thresholds)
    if not sections:
        return None
    before, after = split(notched(series, sections, train), TRAIN)
    model = calibrated(before, thresholds=thresholds)[0].filter(series.channels)
    result = innovations(model, after.first(LONGEST))
    jacobian = len(series.channels) * sum(math.log(section.b[0]) for section in sections)
    delay = 1e3 * sum(section.delay(series.rate) for section in sections)
    return _row(f"{len(sections)} notch(es), then white noise", result, jacobian, delay)


def _difference(one: Innovations, other: Innovations) -> tuple[float, float]:
    """Mean difference of the log-densities of a sample, and its standard error from blocks of neighbours."""
    both = one.log_likelihood - other.log_likelihood
    blocks = [float(np.nanmean(block)) for block in np.array_split(both, BLOCKS) if np.isfinite(block).any()]
    return float(np.nanmean(both)), float(np.std(blocks, ddof=1) / math.sqrt(len(blocks))) if len(blocks) > 1 else 0.0


def _verdict(kept: str, before: str, outcome: Outcome, gain: float, error: float) -> list[str]:
    """What was kept, and how it compares on the held-out part."""
    if outcome == "unchanged":
        return [
            f"kept: {kept}; no fitted filter predicts the validation part (the last third of the fitted part) better"
        ]
    if outcome == "better":
        return [
            f"kept: {kept}; it predicts the held-out part better than {before}, by {gain:.2g} ± {error:.1g} nats per "
            "sample"
        ]
    return [
        f"not saved: {kept} was selected on the fitted part, but predicts the held-out part worse than {before}, by "
        f"{-gain:.2g} ± {error:.1g} nats per sample. The noise differs between the two parts: use a longer log, or one "
        "with the manoeuvres of interest"
    ]


def _row(method: str, result: Innovations, jacobian: float = 0.0, delay: float = 0.0) -> dict[str, Any]:
    top = consistency(result)[0]
    return {
        "method": method,
        "log_likelihood": float(np.nanmean(result.log_likelihood)) + jacobian,
        "nis": top.mean,
        "white_p": top.white_p,
        "autocorrelation": top.correlation,
        "delay_ms": delay,
    }


def _parameters(fitted: Calibrated, channels: Sequence[str]) -> dict[str, float]:
    values: dict[str, float] = {}
    for name, model in zip(channels, fitted.models, strict=True):
        values |= {
            f"{name}_drive": model.drive, f"{name}_decay": model.decay, f"{name}_white_std": math.sqrt(model.white),
        }  # fmt: skip
        for number, line in enumerate(model.lines, 1):
            values |= {
                f"{name}_line{number}_hz": line.hz,
                f"{name}_line{number}_bandwidth_hz": line.bandwidth_hz,
                f"{name}_line{number}_std": line.std,
            }
    if fitted.half_life is not None:
        values["level_half_life_steps"] = fitted.half_life
    return values
