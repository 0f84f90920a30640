"""Density over time: short spectra between the gaps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .result import Waterfall
from .spectra import Grid, detrended

Array = NDArray[np.float64]

SECONDS = 1.0
"""Length of a window: lines of rotors move by less than a bin in it."""
ROWS = 400
"""Most rows; powers of neighbouring windows are averaged above it."""


def grid_waterfall(
    grid: Grid,
    column: int,
    *,
    channel: str = "",
    unit: str = "",
    seconds: float = SECONDS,
    rows: int = ROWS,
    tracks: Mapping[str, tuple[Array, Array]] | None = None,
) -> Waterfall:
    """Density of one column in Hann windows of ``seconds`` that overlap by half.

    >>> from fwnkf.diagnosis.spectra import even_grid
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
