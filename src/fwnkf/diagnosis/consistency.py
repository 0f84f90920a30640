"""Whether innovations are as large as a filter states, and white: NIS with the band of its mean, whiteness, gates.

Both sides count: innovations far smaller than stated mean that a filter trusts its sensors too little, which no gate
ever shows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..logs.log import Stream
from ..logs.stamps import segments
from .chi_square import chi_square_tail, mean_square_quantile
from .result import ALL_CHANNELS, Consistency

if TYPE_CHECKING:
    from .innovations import Innovations

Array = NDArray[np.float64]

LAGS = 20
GATE = 5.0
"""Standard deviations at which a gate rejects, as in PX4."""
MAGNETIC, MAGNETIC_GATE = re.compile(r"^IM[XYZ]$|mag", re.IGNORECASE), 3.0
"""Innovations of magnetometers, and their gate in PX4 and ArduPilot."""
BINS = 300
"""Points of the course over time."""
FEWEST = 20


class Whiteness(NamedTuple):
    """Autocorrelation of a series within its runs."""

    p: float
    """p-value of the Ljung-Box test."""
    largest: float
    """The autocorrelation that is farthest from zero, with its sign."""
    effective: float
    """Share of the samples that independent squares with the same information would be."""


def whiteness(values: Array, runs: list[slice], lags: int = LAGS) -> Whiteness:
    """Ljung-Box test and largest autocorrelation; neighbours on either side of a gap do not count as neighbours.

    >>> noise = np.random.default_rng(0).normal(size=4000)
    >>> whiteness(noise, [slice(0, 4000)]).p > 0.01, whiteness(noise.cumsum(), [slice(0, 4000)]).p > 0.01
    (True, False)
    """
    centred = values - np.nanmean(values)
    known = np.isfinite(centred)
    centred = np.where(known, centred, 0.0)
    count = int(known.sum())
    correlations, pairs = [], []
    for lag in range(1, lags + 1):
        product, left, right, number = 0.0, 0.0, 0.0, 0
        for run in runs:
            a, b = slice(run.start, max(run.start, run.stop - lag)), slice(min(run.start + lag, run.stop), run.stop)
            both = known[a] & known[b]
            product += float(centred[a] @ centred[b])
            # the power of these pairs and not of the series: short runs may hold its largest values alone
            left += float(centred[a][both] @ centred[a][both])
            right += float(centred[b][both] @ centred[b][both])
            number += int(both.sum())
        if number < FEWEST or left * right <= 0:
            break
        correlations.append(product / math.sqrt(left * right))
        pairs.append(number)
    if not correlations:
        return Whiteness(math.nan, 0.0, 1.0)
    statistic = sum(number * r * r for number, r in zip(pairs, correlations, strict=True)) * (count + 2) / count
    squared = sum(r * r for r in correlations if abs(r) > 2 / math.sqrt(count))
    return Whiteness(chi_square_tail(statistic, len(correlations)), max(correlations, key=abs), 1 / (1 + 2 * squared))


def band(count: float, level: float = 0.95) -> tuple[float, float]:
    """Between which values the mean of ``count`` squared standard normal variables lies with probability ``level``.

    >>> low, high = band(100)
    >>> round(low, 3), round(high, 3)  # chi-square quantiles of 100 degrees of freedom, over 100
    (0.742, 1.296)
    """
    z, count = NormalDist().inv_cdf((1 + level) / 2), max(count, 1.0)
    return mean_square_quantile(-z, count), mean_square_quantile(z, count)


def gate(name: str) -> float:
    """Standard deviations at which an autopilot rejects an innovation, by the usual settings.

    >>> gate("IVN"), gate("IMX"), gate("mag_field[0]")
    (5.0, 3.0, 3.0)
    """
    return MAGNETIC_GATE if MAGNETIC.search(name) else GATE


def course(time: Array, values: Array) -> tuple[Array, Array]:
    """Means over at most :data:`BINS` equal parts of the time."""
    known = np.isfinite(values)
    time, values = time[known], values[known]
    if len(time) <= BINS:
        return time, values
    edges = np.linspace(time[0], time[-1], BINS + 1)
    place = np.clip(np.searchsorted(edges, time, side="right") - 1, 0, BINS - 1)
    number = np.bincount(place, minlength=BINS)
    filled = number > 0
    return (
        np.bincount(place, time, BINS)[filled] / number[filled],
        np.bincount(place, values, BINS)[filled] / number[filled],
    )


def channel_consistency(name: str, kind: str, time: Array, normalised: Array, *, channels: int = 1) -> Consistency:
    """NIS of one series of normalised innovations ``ν / √S``."""
    squares = np.square(normalised)
    known = np.isfinite(squares)
    runs = segments(time)
    white = whiteness(normalised, runs)
    low, high = band(channels * float(known.sum()) * white.effective)
    return Consistency(
        name, kind, float(squares[known].mean()) if known.any() else math.nan, low, high, int(known.sum()),
        None if math.isnan(white.p) else white.p,
        float((squares[known] > GATE**2).mean()) if known.any() else None,
        *course(time, squares), correlation=white.largest,
    )  # fmt: skip


def consistency(found: Innovations) -> list[Consistency]:
    """Of each channel, and of all channels together where there are several."""
    normalised = found.values / np.sqrt(found.variance)
    rows = [
        channel_consistency(name, "NIS", found.time, normalised[:, column])
        for column, name in enumerate(found.series.channels)
    ]
    if len(rows) > 1:
        shares = [row.count * whiteness_share(row) for row in rows]
        low, high = band(sum(shares))
        known = np.isfinite(found.nis)
        p = [row.white_p for row in rows if row.white_p is not None]
        rows.insert(
            0,
            Consistency(
                ALL_CHANNELS, "NIS", float(found.nis[known].mean()), low, high, int(known.sum()),
                # Bonferroni: the smallest of several p-values
                min(1.0, len(p) * min(p)) if p else None,
                float((found.nis[known] > GATE**2).mean()), *course(found.time, found.nis),
                correlation=max((row.correlation or 0.0 for row in rows), key=abs),
            ),
        )  # fmt: skip
    return rows


def whiteness_share(row: Consistency) -> float:
    """Effective share of the samples, from the band of a row."""
    width = row.high - row.low
    return min(1.0, 8 * 1.96**2 / max(width, 1e-9) ** 2 / max(row.count, 1))


def logged_names(stream: Stream) -> list[str]:
    """Names of innovations in a stream, without their variances and ratios."""
    return [name for name in stream.columns if not name.endswith(("_variance", "_ratio"))]


class LoggedInnovation(NamedTuple):
    """One innovation as an autopilot logged it, without repetitions."""

    name: str
    time: Array
    values: Array
    variance: Array | None
    ratio: Array | None


def logged_innovations(stream: Stream, inside: NDArray[np.bool_]) -> Iterator[LoggedInnovation]:
    """The innovations of a stream, one by one.

    A log may repeat an innovation until the next measurement; repeated values count once. Innovations of sensors that
    were not used are zero throughout and left out.
    """
    for name in logged_names(stream):
        values = stream.columns[name]
        variance = stream.columns.get(f"{name}_variance")
        ratio = stream.columns.get(f"{name}_ratio")
        fresh = inside & np.isfinite(values) & np.r_[True, np.diff(values) != 0] & (values != 0)
        if variance is not None:
            fresh &= np.isfinite(variance) & (variance > 0)
        if fresh.sum() >= FEWEST:
            chosen = (None if item is None else item[fresh] for item in (variance, ratio))
            yield LoggedInnovation(name, stream.time[fresh], values[fresh], *chosen)


def logged_consistency(stream: Stream, inside: NDArray[np.bool_]) -> list[Consistency]:
    """What an autopilot's logged innovations say: NIS where variances are logged, test ratios where only these are."""
    rows = []
    for name, time, values, variance, ratio in logged_innovations(stream, inside):
        if variance is not None:
            rows.append(channel_consistency(name, "NIS", time, values / np.sqrt(variance)))
        elif ratio is not None:
            used = np.where(np.isfinite(ratio), ratio, np.nan)
            low, high = (edge / gate(name) ** 2 for edge in band(float(len(values))))
            white = whiteness(values, segments(time))
            rows.append(
                Consistency(
                    name, "test ratio", float(np.nanmean(used)), low, high, int(np.isfinite(used).sum()),
                    None if math.isnan(white.p) else white.p, float((used > 1).mean()), *course(time, used),
                    correlation=white.largest,
                )
            )  # fmt: skip
    return rows
