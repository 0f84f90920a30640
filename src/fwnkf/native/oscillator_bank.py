"""A bank of damped oscillators over recordings, as compiled code."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..shapes import Float
from .compilers import shared_library

SOURCE = """
#include <math.h>
#include <stdint.h>

void oscillator_bank(int64_t records, int64_t steps, int64_t count, int64_t channels, int64_t outputs,
                     const double *radius, const double *frequency, const double *gain, const double *weights,
                     const double *drive, const double *ratio, double *turn, double *state, double *before)
{
    int64_t size = 2 * count * channels;
    double turned = NAN;
    for (int64_t b = 0; b < records; b++) {
        double *z = state + b * size;
        for (int64_t t = b * steps; t < (b + 1) * steps; t++) {
            if (ratio[t] != turned)
                for (int64_t k = 0; k < count; k++) {
                    double scale = pow(radius[k], ratio[t]);
                    turn[2 * k] = scale * cos(frequency[k] * ratio[t]);
                    turn[2 * k + 1] = scale * sin(frequency[k] * ratio[t]);
                }
            turned = ratio[t];
            double *out = before + t * outputs;
            for (int64_t i = 0; i < outputs; i++) out[i] = 0.0;
            for (int64_t k = 0; k < count; k++) {
                double c = turn[2 * k], s = turn[2 * k + 1];
                double *first = z + 2 * k * channels, *second = first + channels;
                for (int64_t i = 0; i < channels; i++) {
                    double a = first[i], d = second[i];
                    first[i] = c * a - s * d;
                    second[i] = s * a + c * d;
                }
            }
            for (int64_t j = 0; j < size; j++)
                for (int64_t i = 0; i < outputs; i++) out[i] += z[j] * weights[j * outputs + i];
            for (int64_t k = 0; k < count; k++)
                for (int64_t i = 0; i < channels; i++)
                    z[2 * k * channels + i] += gain[k] * drive[t * channels + i];
        }
    }
}
"""


@cache
def _function() -> Any:
    function = shared_library(SOURCE).oscillator_bank
    function.argtypes = [ctypes.c_int64] * 5 + [ctypes.c_void_p] * 9
    function.restype = None
    return function


def run_bank(
    radius: Float[Tensor, " k"],
    frequency: Float[Tensor, " k"],
    gain: Float[Tensor, " k"],
    weights: Float[Tensor, "d s"],
    state: Float[Tensor, "B k 2 m"],
    drive: Float[Tensor, "B T m"],
    ratio: Float[Tensor, "B T"],
) -> tuple[Float[Tensor, "B T d"], Float[Tensor, "B T d"], Float[Tensor, "B k 2 m"]]:
    """What a bank adds up to before and after each input, and its last state; raises ConfigError without a compiler.

    Every step turns the oscillators by ``ratio`` and then adds ``gain · drive`` to their first components.

    >>> half, one = torch.tensor([0.5]), torch.ones(1, 3, 1)
    >>> weights, rest = torch.tensor([[1.0, 0.0]]), torch.zeros(1, 1, 2, 1)
    >>> run_bank(half, 0 * half, half / half, weights, rest, one, one[..., 0])[1].flatten()
    tensor([1.0000, 1.5000, 1.7500])
    """
    (records, steps, m), (d, k) = drive.shape, (len(weights), len(radius))
    given = (radius, frequency, gain, weights.mT, drive, ratio)
    items = [item.detach().double().contiguous() for item in given]
    last = state.detach().double().clone(memory_format=torch.contiguous_format)
    turn, before = last.new_empty(k, 2), last.new_empty(records, steps, d)
    _function()(records, steps, k, m, d, *(item.data_ptr() for item in (*items, turn, last, before)))
    # an input acts on the first components, and at once
    direct = torch.einsum("k,kmd->md", items[2], items[3].unflatten(0, (k, 2, m))[:, 0])
    return before.to(drive), (before + items[4] @ direct).to(drive), last.to(state)
