"""Allan deviation over gaps, and the noise that is read from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from .result import AllanDeviation
from .spectra import Grid

Array = NDArray[np.float64]

POINTS = 40
"""Averaging times, evenly spaced in their logarithm."""
PARTS = 9
"""An average over τ counts if the log is this many times longer."""


def allan(grid: Grid, channels: Sequence[str], units: Sequence[str]) -> list[AllanDeviation]:
    """Overlapping Allan deviation of every channel, averaged over the runs between gaps.

    The variance is fitted by ``N²/τ + B² 2 ln2/π + K² τ/3`` (white noise, bias instability, random walk of the bias),
    with no term below zero; a term that the log does not show is None. In flight, motion is part of it.

    >>> from fwnkf.diagnosis.spectra import even_grid
    >>> noise = np.random.default_rng(0).normal(size=(20000, 1)) * 0.1
    >>> (result,) = allan(even_grid(np.arange(20000) / 100, noise), ["gyro_x"], ["rad/s"])
    >>> round(result.white, 3)
    0.01
    """
    longest = max(len(run) for run in grid.runs)
    lengths = np.unique(np.geomspace(1, max(longest // PARTS, 1), POINTS).astype(int))
    tau = lengths / grid.rate
    variance, weight = _variances(grid, lengths)
    results = []
    for column, (channel, unit) in enumerate(zip(channels, units, strict=True)):
        white, instability, walk = fit_terms(tau, variance[:, column], weight)
        results.append(AllanDeviation(channel, unit, tau, np.sqrt(variance[:, column]), white, instability, walk))
    return results


def _variances(grid: Grid, lengths: NDArray[np.int64]) -> tuple[Array, Array]:
    """Allan variance ``[lengths, channels]`` and the number of independent averages behind each."""
    totals = np.zeros((len(lengths), grid.runs[0].shape[1]))
    counts, independent = np.zeros(len(lengths)), np.zeros(len(lengths))
    for run in grid.runs:
        sums = np.concatenate((np.zeros((1, run.shape[1])), np.cumsum(run - run.mean(0), axis=0)))
        for row, length in enumerate(lengths):
            if len(run) < 2 * length:
                continue
            second = sums[2 * length :] - 2 * sums[length:-length] + sums[: -2 * length]
            totals[row] += (second**2).sum(0)
            counts[row] += len(second)
            independent[row] += len(run) / length - 1
    return totals / (2 * lengths[:, None] ** 2 * counts[:, None]), np.maximum(independent, 1)


def fit_terms(tau: Array, variance: Array, weight: Array) -> tuple[float | None, float | None, float | None]:
    """White noise N, bias instability B and random walk K by weighted least squares, without negative terms.

    >>> tau = np.geomspace(0.01, 100, 30)
    >>> [round(term, 6) for term in fit_terms(tau, 4e-4 / tau + 9e-6 * tau / 3 + 1e-4 * 2 * np.log(2) / np.pi, tau**0)]
    [0.02, 0.01, 0.003]
    """
    # a period of a disturbance averages to nothing: its Allan variance there is zero, or rounding, and says nothing
    known = variance > np.finfo(float).eps * variance.max(initial=0.0)
    tau, variance, weight = tau[known], variance[known], weight[known]
    terms = np.stack([1 / tau, np.full_like(tau, 2 * math.log(2) / math.pi), tau / 3], -1)
    # relative errors have the standard deviation 1/√weight: every decade counts
    scale = np.sqrt(weight) / variance
    best, smallest = np.zeros(3), math.inf
    for size in (1, 2, 3):
        for chosen in combinations(range(3), size):
            columns = terms[:, chosen] * scale[:, None]
            solution = np.linalg.lstsq(columns, variance * scale, rcond=None)[0]
            error = float(((columns @ solution - variance * scale) ** 2).sum())
            if (solution > 0).all() and error < smallest:
                best, smallest = np.zeros(3), error
                best[list(chosen)] = solution
    white, instability, walk = (math.sqrt(term) if term > 0 else None for term in best)
    return white, instability, walk
