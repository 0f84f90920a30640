"""A running mean within bounds over recordings, as compiled code."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..shapes import Float
from .compilers import shared_library

SOURCE = """
#include <stdint.h>

void running_mean(int64_t records, int64_t steps, double lowest, double highest, const double *kept,
                  const double *values, const double *start, double *after)
{
    for (int64_t b = 0; b < records; b++) {
        double mean = start[b];
        for (int64_t t = b * steps; t < (b + 1) * steps; t++) {
            mean = kept[t] * mean + (1.0 - kept[t]) * values[t];
            mean = mean < lowest ? lowest : mean > highest ? highest : mean;
            after[t] = mean;
        }
    }
}
"""


@cache
def _function() -> Any:
    function = shared_library(SOURCE).running_mean
    function.argtypes = [ctypes.c_int64] * 2 + [ctypes.c_double] * 2 + [ctypes.c_void_p] * 4
    function.restype = None
    return function


def running_mean(
    kept: Float[Tensor, "B T"], values: Float[Tensor, "B T"], start: Float[Tensor, " B"], lowest: float, highest: float
) -> Float[Tensor, "B T"]:
    """``m ← k m + (1 - k) v`` after every step; raises ConfigError without a compiler.

    >>> half = torch.full((1, 3), 0.5)
    >>> running_mean(half, torch.tensor([[1.0, 1.0, 9.0]]), torch.zeros(1), 0.0, 4.0)
    tensor([[0.5000, 0.7500, 4.0000]])
    """
    items = [item.detach().double().contiguous() for item in (kept, values, start)]
    after = torch.empty_like(items[0])
    _function()(*kept.shape, lowest, highest, *(item.data_ptr() for item in (*items, after)))
    return after.to(values)
