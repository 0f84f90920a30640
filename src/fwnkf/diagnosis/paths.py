"""Lines that move, found without knowing their source: the best smooth path through a plane, fitted and held out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .plane import Plane

Array = NDArray[np.float64]

JUMP = 6
"""Bins by which a path moves from one window to the next, at most."""
JUMP_COST = 0.5
"""Loss of log-likelihood for every bin that it moves."""


def best_path(plane: Plane, low: float = 0.0, high: float = np.inf) -> Array:
    """The path (Hz) through all windows with the largest likelihood, less the cost of its moves, inside a band."""
    return _path(plane, np.arange(len(plane.time)), _band(plane, low, high))


def held_out_path(plane: Plane, low: float = 0.0, high: float = np.inf) -> Array:
    """As :func:`best_path`, but what is said of a window comes from its neighbours alone.

    Paths through every other window, interpolated between them.
    """
    band, result = _band(plane, low, high), np.empty(len(plane.time))
    for fold in (0, 1):
        train, test = np.arange(1 - fold, len(plane.time), 2), np.arange(fold, len(plane.time), 2)
        result[test] = np.interp(plane.time[test], plane.time[train], _path(plane, train, band))
    return result


def held_out_centre(plane: Plane, low: float, high: float) -> Array:
    """The centre of power (Hz) inside a band, smooth over time, from the neighbours of each window alone."""
    band = _band(plane, low, high)
    scores = np.maximum(plane.scores[:, band], 0)
    sums = np.stack((scores.sum(1), scores @ plane.frequency[band]), -1)
    padded = np.pad(sums, ((3, 3), (0, 0)))
    weight, first = (padded[:-6] + padded[2:-4] + padded[4:-2] + padded[6:]).T  # three and one before and after
    return np.where(weight > 0, first / np.maximum(weight, 1e-12), 0.5 * (low + high))


def _path(plane: Plane, rows: NDArray[np.int64], band: slice) -> Array:
    score = plane.scores[rows, band]
    return (_refined(score, _dynamic(score)) + band.start) * plane.resolution


def _band(plane: Plane, low: float, high: float) -> slice:
    """The bins of a band, of those that are not motion; five at least."""
    first, last = np.searchsorted(plane.frequency, (max(low, plane.lowest), high))
    first = int(min(first, len(plane.frequency) - 5))
    return slice(first, int(max(last, first + 5)))


def _dynamic(score: Array) -> NDArray[np.int64]:
    """The bins of the best path, by dynamic programming."""
    count, bins = score.shape
    moves = np.arange(-JUMP, JUMP + 1)
    cost = JUMP_COST * np.abs(moves)
    padded = np.full(bins + 2 * JUMP, -np.inf)
    options = np.lib.stride_tricks.sliding_window_view(padded, 2 * JUMP + 1)
    inner = padded[JUMP : JUMP + bins]
    inner[:] = score[0]
    back = np.zeros((count, bins), np.int64)
    place = np.arange(bins)
    for row in range(1, count):
        moved = options - cost
        choice = moved.argmax(1)
        back[row] = choice - JUMP
        inner[:] = moved[place, choice] + score[row]
    path = np.empty(count, np.int64)
    path[-1] = inner.argmax()
    for row in range(count - 1, 0, -1):
        path[row - 1] = path[row] + back[row, path[row]]
    return path


def _refined(score: Array, path: NDArray[np.int64]) -> Array:
    """Between bins: the centre of the scores about the path, then smoothed over three windows."""
    if score.shape[1] < 5:
        return path.astype(np.float64)
    middle = np.clip(path, 2, score.shape[1] - 3)
    offsets = np.arange(-2, 3)
    weight = np.maximum(score[np.arange(len(path))[:, None], middle[:, None] + offsets], 1e-9)
    place = middle + (weight * offsets).sum(1) / weight.sum(1)
    if len(place) < 3:
        return np.asarray(place)
    padded = np.pad(place, 1, mode="edge")
    return np.asarray(np.median(np.stack([padded[:-2], padded[1:-1], padded[2:]]), axis=0))
