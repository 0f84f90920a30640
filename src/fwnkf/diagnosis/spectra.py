"""Spectra of samples with gaps: Welch's method on the runs between gaps, at the rate at which the sensor sampled.

The sampling rate is that of the clock behind the time stamps. The mean rate is lower wherever samples are missing,
and it would move every line by the same per cent. Samples that are missing one by one are restored from a linear
prediction of their neighbours, longer gaps separate runs, and no segment of the average reaches over a gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..logs.clock import fitted_step, step_counts
from .chi_square import mean_square_quantile
from .result import Waterfall

Array = NDArray[np.float64]

FILL = 4
"""Missing samples in a row that are restored; longer gaps separate runs."""
ORDER = 24
"""Order of the linear prediction that restores missing samples."""
RESOLUTION = 0.5
"""Hz between bins where the log is long enough for it."""
SEGMENTS = 16
"""Segments wanted in the average: fewer bins before fewer segments."""
SHORTEST = 64
"""Samples below which a segment is not shortened for the sake of more segments."""
SHORTEST_TO_FIT, COVERED = 512, 0.8
"""The same where a model is fitted to the spectrum; still shorter ones only if less of the samples would be covered."""
FLOOR_SHARE, FLOOR_BINS = 0.3, 12
"""Half-width of the running median of the floor: a share of the frequency, or this many bins."""


class Spectrum(NamedTuple):
    """One-sided density of each channel; ``Σ density · resolution`` over a line is half the square of its amplitude."""

    frequency: Array
    """Hz"""
    density: Array
    """``[frequency]`` or ``[frequency, channels]``: the square of the unit, per Hz."""
    averages: float
    """Independent periodograms in the average: ``2 · averages`` degrees of freedom."""
    rate: float
    """Hz at which the sensor sampled."""

    @property
    def resolution(self) -> float:
        """Hz between bins."""
        return float(self.frequency[1] - self.frequency[0])

    @property
    def amplitude(self) -> Array:
        """Amplitude of a sine at each bin that has the density of that bin."""
        # a sine at the centre of a bin has 2/3 of its power there: the noise bandwidth of the Hann window is 1.5 bins
        return np.sqrt(2 * self.density * 1.5 * self.resolution)


class Grid(NamedTuple):
    """Samples on an even grid: runs of values without a long gap, ``[samples, channels]`` each, and when they start."""

    rate: float
    runs: tuple[Array, ...]
    starts: tuple[float, ...]
    """Seconds, time of the first sample of each run."""
    restored: int
    """Samples that were missing and are predicted from their neighbours."""


def sampling_rate(time: Array) -> float:
    """The rate of the clock behind the stamps (:func:`fwnkf.logs.clock.fitted_step`): missing samples are counted.

    >>> time = np.delete(np.arange(1000) * 0.005, np.arange(0, 1000, 10))
    >>> round(sampling_rate(time), 6), round(float((len(time) - 1) / (time[-1] - time[0])), 1)
    (200.0, 180.2)
    """
    step = fitted_step(time)
    if not step > 0:
        raise DataError("a sampling rate needs at least two samples at different times; check the time stamps")
    return 1 / step


def even_grid(time: Array, values: Array, *, fill: int = FILL) -> Grid:
    """Count the steps between samples, restore up to ``fill`` missing ones in a row, and split at longer gaps.

    Samples that are not finite, or not after the one before, count as missing.
    """
    values = values[:, None] if values.ndim == 1 else values
    usable = np.isfinite(time) & np.isfinite(values).all(1)
    time, values = time[usable], values[usable]
    if len(time):
        later = np.r_[True, time[1:] > np.maximum.accumulate(time)[:-1]]
        time, values = time[later], values[later]
    if len(time) < 3:
        raise DataError(f"a spectrum needs at least 3 samples in the order of time, not {len(time)}")
    rate = sampling_rate(time)
    counts = step_counts(time, rate)
    edges = np.r_[0, np.flatnonzero(counts > fill + 1) + 1, len(time)]
    runs, starts, restored = [], [], 0
    for first, last in pairwise(edges):
        index = np.r_[0, np.cumsum(counts[first : last - 1])]
        run = np.full((index[-1] + 1, values.shape[1]), np.nan)
        run[index] = values[first:last]
        restored += len(run) - len(index)
        runs.append(restore(run))
        starts.append(float(time[first]))
    return Grid(rate, tuple(runs), tuple(starts), restored)


def restore(run: Array, *, order: int = ORDER) -> Array:
    """Replace missing (NaN) samples by those that a linear prediction of the channel makes most likely (Janssen 1986).

    Linear interpolation would weaken lines and add power elsewhere. Runs that are too short for a prediction are
    interpolated linearly.

    >>> time = np.arange(4000) / 200
    >>> tone = np.sin(2 * np.pi * 37.3 * time)[:, None]
    >>> holes = tone + np.random.default_rng(0).normal(size=tone.shape, scale=0.1)
    >>> holes[7::14] = np.nan
    >>> error = (restore(holes) - tone)[7::14]
    >>> bool(error.std() < 0.05)
    True
    """
    missing: NDArray[np.bool_] = np.asarray(np.isnan(run).any(1))
    if not missing.any():
        return run
    position = np.arange(len(run))
    result = run.copy()
    for channel in range(run.shape[1]):
        values = np.interp(position, position[~missing], run[~missing, channel])
        if len(run) > 10 * order:
            mean = values.mean()
            values -= mean
            for _ in range(3):  # the prediction and the missing samples in turn
                values = _most_likely(values, missing, linear_prediction(values, order))
            values += mean
        result[missing, channel] = values[missing]
    return result


def linear_prediction(values: Array, order: int) -> Array:
    """Coefficients ``[1, a₁, …]`` of the prediction error, by least squares on the autocorrelation."""
    size = 1 << int(len(values) + order).bit_length()
    power = np.abs(np.fft.rfft(values, size)) ** 2
    correlation = np.fft.irfft(power, size)[: order + 1]
    correlation[0] *= 1 + 1e-9
    lags = np.abs(np.arange(order)[:, None] - np.arange(order))
    tiny = np.finfo(float).tiny
    solution = np.linalg.lstsq(correlation[lags] + tiny * np.eye(order), -correlation[1:], rcond=1e-12)[0]
    return np.r_[1.0, solution]


def _most_likely(values: Array, missing: NDArray[np.bool_], prediction: Array) -> Array:
    """Missing samples with the smallest sum of squared prediction errors, by conjugate gradients."""
    kernel = np.convolve(prediction, prediction[::-1])

    def gradient(signal: Array) -> Array:
        return np.where(missing, np.convolve(signal, kernel, "same"), 0.0)

    residual = -gradient(values)
    direction, power = residual, float(residual @ residual)
    limit = 1e-16 * power
    result = values.copy()
    for _ in range(50):
        if power <= limit:
            break
        product = gradient(direction)
        step = power / float(direction @ product)
        result += step * direction
        residual = residual - step * product
        power, last = float(residual @ residual), power
        direction = residual + power / last * direction
    return result


def spectrum(time: Array, values: Array, *, resolution: float = RESOLUTION, fill: int = FILL) -> Spectrum:
    """Welch's averaged periodogram with Hann windows that overlap by half, a line removed from each segment.

    The bins are ``resolution`` Hz apart, or as far as needed for enough segments between the gaps. Powers are averaged,
    never decibels.

    >>> time = np.delete(np.arange(12000) / 200, np.arange(0, 12000, 9))
    >>> noise = np.random.default_rng(0).normal(size=len(time), scale=0.1)
    >>> welch = spectrum(time, 0.5 * np.sin(2 * np.pi * 40 * time) + noise)
    >>> power = welch.density[np.abs(welch.frequency - 40) < 2].sum() * welch.resolution
    >>> round(welch.rate, 3), round(float(np.sqrt(2 * power)), 2)
    (200.0, 0.5)
    """
    grid = even_grid(time, values, fill=fill)
    result = grid_spectrum(grid, resolution=resolution)
    return result._replace(density=result.density[:, 0]) if values.ndim == 1 else result


def spectrum_to_fit(time: Array, values: Array) -> Spectrum:
    """As :func:`spectrum`, with longer segments where the log is short or its rate is low.

    A likelihood averages over the bins by itself and needs no smooth spectrum. It needs the frequencies at which the
    signal stands out from the noise, and the first bins of short segments may be above them.
    """
    grid = even_grid(time, values)
    length = min(max(round(grid.rate / RESOLUTION), SHORTEST_TO_FIT), max(len(run) for run in grid.runs))
    total = sum(len(run) for run in grid.runs)

    def enough(length: int) -> bool:
        if length > SHORTEST_TO_FIT:
            return _segments(grid, length) >= SEGMENTS
        return _segments(grid, length) > 1 and sum(len(r) for r in grid.runs if len(r) >= length) >= COVERED * total

    while length > SHORTEST and not enough(length):
        length = length * 3 // 4
    return _welch(grid, _even(grid, length))


def grid_spectrum(grid: Grid, *, resolution: float = RESOLUTION) -> Spectrum:
    """:func:`spectrum` of samples that are on a grid already; ``density`` is ``[frequency, channels]``."""
    return _welch(grid, segment_length(grid, resolution))


def _welch(grid: Grid, length: int) -> Spectrum:
    window = np.hanning(length + 1)[:-1]
    total = np.zeros((length // 2 + 1, grid.runs[0].shape[1]))
    count = 0
    for run in grid.runs:
        for start in range(0, len(run) - length + 1, length - length // 2):
            piece = detrended(run[start : start + length])
            total += np.abs(np.fft.rfft(piece * window[:, None], axis=0)) ** 2
            count += 1
    density = total * 2 / (count * grid.rate * (window**2).sum())
    density[0] /= 2
    if length % 2 == 0:
        density[-1] /= 2
    # neighbouring segments share a sixth of the window's correlation: 1/36 of the variance
    averages = count / (1 + 2 * (count - 1) / count / 36)
    return Spectrum(np.arange(length // 2 + 1) * grid.rate / length, density, averages, grid.rate)


def segment_length(grid: Grid, resolution: float) -> int:
    """Samples in a segment: those of the resolution, halved until the runs hold enough segments."""
    longest = max(len(run) for run in grid.runs)
    length = min(round(grid.rate / resolution), longest)
    while length > SHORTEST and _segments(grid, length) < SEGMENTS:
        length = length * 3 // 4
    return _even(grid, length)


def _segments(grid: Grid, length: int) -> int:
    """How many segments of a length there are between the gaps; neighbours overlap by half."""
    return sum(max(2 * len(run) // length - 1, 0) for run in grid.runs)


def _even(grid: Grid, length: int) -> int:
    """An even number of samples; raises DataError where no run is long enough for a spectrum."""
    longest = max(len(run) for run in grid.runs)
    if length < 8:
        raise DataError(
            f"the longest run of samples without a gap has {longest} samples: too short for a spectrum; "
            "see the report on time stamps"
        )
    return length - length % 2


def detrended(piece: Array) -> Array:
    """Without its mean and slope."""
    position = np.arange(len(piece)) - (len(piece) - 1) / 2
    slope = position @ piece / (position @ position)
    return piece - piece.mean(0) - position[:, None] * slope


def noise_floor(spectrum: Spectrum) -> Array:
    """Running median of the log density: what the spectrum would be without its lines.

    The median over a band about each bin leaves every monotone spectrum as it is. The band is mirrored at the Nyquist
    frequency, where spectra of samples are symmetric, and it shrinks towards zero, where motion is.

    >>> white = spectrum(np.arange(20000) / 200, np.random.default_rng(0).normal(size=20000))
    >>> round(float(noise_floor(white).mean()), 3)
    0.01
    """
    density = spectrum.density if spectrum.density.ndim == 2 else spectrum.density[:, None]
    bins = len(density)
    log = np.log(np.maximum(density, np.finfo(float).tiny))
    log = np.concatenate((log, log[-2::-1]))
    result = np.empty_like(density)
    half = np.minimum(np.maximum(FLOOR_BINS, (FLOOR_SHARE * np.arange(bins)).astype(int)), np.arange(bins))
    # the median over a third of the frequency changes little within a fiftieth of it
    places = np.unique(
        np.r_[np.arange(min(bins, 64)), np.geomspace(64, bins - 1, 160).astype(int) if bins > 64 else []]
    )
    places = places.astype(int)
    middle = np.stack([np.median(log[k - half[k] : k + half[k] + 1], axis=0) for k in places])
    for column in range(density.shape[1]):
        result[:, column] = np.interp(np.arange(bins), places, middle[:, column])
    # the median of a chi-square variable is below its mean
    floor = np.exp(result) / mean_square_quantile(0.0, 2 * spectrum.averages)
    return floor.reshape(spectrum.density.shape)


# ---- density over time ----------------------------------------------------------------------------------------------

WINDOW_SECONDS = 1.0
"""Length of a window: lines of rotors move by less than a bin in it."""
ROWS = 400
"""Most rows; powers of neighbouring windows are averaged above it."""


def grid_waterfall(
    grid: Grid,
    column: int,
    *,
    channel: str = "",
    unit: str = "",
    seconds: float = WINDOW_SECONDS,
    rows: int = ROWS,
    tracks: Mapping[str, tuple[Array, Array]] | None = None,
) -> Waterfall:
    """Density of one column in Hann windows of ``seconds`` that overlap by half.

    >>> time = np.arange(4000) / 200
    >>> result = grid_waterfall(even_grid(time, np.sin(2 * np.pi * (20 + time) * time)), 0)
    >>> result.density.shape == (len(result.time), len(result.frequency))
    True
    """
    length = max(2 * round(grid.rate * seconds / 2), 8)
    window = np.hanning(length + 1)[:-1]
    scale = 2 / (grid.rate * (window**2).sum())
    centres, densities = [], []
    for run, start in zip(grid.runs, grid.starts, strict=True):
        for first in range(0, len(run) - length + 1, length // 2):
            piece = detrended(run[first : first + length, column : column + 1])[:, 0]
            densities.append(scale * np.abs(np.fft.rfft(piece * window)) ** 2)
            centres.append(start + (first + length / 2) / grid.rate)
    frequency = np.arange(length // 2 + 1) * grid.rate / length
    density = np.array(densities).reshape(-1, len(frequency))
    centre = np.array(centres)
    if len(centre) > rows:
        bounds = np.unique(np.linspace(0, len(centre), rows + 1).astype(int))[:-1]
        counts = np.diff(np.r_[bounds, len(centre)])
        density = np.add.reduceat(density, bounds) / counts[:, None]
        centre = np.add.reduceat(centre, bounds) / counts
    return Waterfall(channel, unit, centre, frequency, density, dict(tracks or {}))
