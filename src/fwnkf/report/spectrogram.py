"""The cells of a spectrogram, for figures and for viewers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..diagnosis.result import Waterfall

Array = NDArray[np.float64]

RASTER = (420, 260)
"""Columns and rows of a waterfall's image."""


def raster(result: Waterfall) -> tuple[Array, tuple[float, float, float, float]]:
    """The largest ``log₁₀ √density`` of every cell ``[row, column]``, NaN where there are no samples; the extent."""
    time, frequency = result.time, result.frequency
    step = float(np.median(np.diff(time))) if len(time) > 1 else 1.0
    spacing = float(np.median(np.diff(frequency))) if len(frequency) > 1 else 1.0
    left, right = float(time[0]) - step / 2, float(time[-1]) + step / 2
    bottom, top = float(frequency[0]) - spacing / 2, float(frequency[-1]) + spacing / 2
    columns = max(1, min(RASTER[0], round((right - left) / step)))
    rows = min(RASTER[1], len(frequency))
    column = np.clip(((time - left) / (right - left) * columns).astype(np.int64), 0, columns - 1)
    row = np.clip(((frequency - bottom) / (top - bottom) * rows).astype(np.int64), 0, rows - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        level = 0.5 * np.log10(result.density)
    level[~np.isfinite(level)] = -np.inf
    image = np.full((rows, columns), -np.inf)
    np.maximum.at(image, (row[None, :], column[:, None]), level)
    return np.where(np.isfinite(image), image, np.nan), (left, right, bottom, top)
