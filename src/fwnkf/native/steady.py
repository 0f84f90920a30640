"""Squared errors of one-step predictions with constant gains, of many models of one channel, as compiled code."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compilers import shared_library

Array = NDArray[np.float64]

SOURCE = Path(__file__).with_suffix(".c")
LANES = 8
"""Models that are run at a time."""


@cache
def _function() -> Any:
    function = shared_library(SOURCE.read_text(encoding="utf-8")).squared_errors
    function.argtypes = [ctypes.c_int64] * 2 + [ctypes.c_void_p] * 8
    function.restype = None
    return function


def squared_errors(matrix: Array, gain: Array, output: Array, y: Array, present: Array, counted: Array) -> Array:
    """The sums over all steps that count of the squared errors of each model; raises ConfigError without a compiler.

    Args:
        matrix: ``[models, pairs, 2, 2]``, how the pairs of states move.
        gain: ``[models, pairs, 2]``, of the update.
        output: ``[models, pairs]``, by which the first states of the pairs are measured.
        y, present, counted: ``[records, steps]``; errors of steps that are not present are zero.

    Returns:
        ``[models]``.
    """
    function = _function()
    models, pairs = output.shape
    totals = np.zeros(models)
    records = [(np.ascontiguousarray(item, dtype=float)) for item in (y, present, counted)]
    state, total = np.empty((pairs, 2, LANES)), np.empty(LANES)
    for first in range(0, models, LANES):
        rows = np.minimum(np.arange(first, first + LANES), models - 1)  # the last one fills the lanes
        lanes = [
            np.ascontiguousarray(np.moveaxis(item[rows].reshape(LANES, pairs, -1), 0, -1))
            for item in (matrix, gain, output)
        ]
        total[:] = 0.0
        for row in zip(*records, strict=True):
            pointers = [item.ctypes.data for item in (*lanes, *row, state, total)]
            function(len(row[0]), pairs, *pointers)
        last = min(first + LANES, models)
        totals[first:last] = total[: last - first]
    return totals
