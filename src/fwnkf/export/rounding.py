"""Weights as integers times a scale: less flash for filters whose networks are most of it.

A matrix of weights has one scale, the largest weight over the largest integer. The filter itself is rounded, so that
everything that is compared with it, golden vectors included, has the same weights; the generator then finds the
constants that are integers times a known scale. C99 has no half precision, and integers of 16 bits have more digits.
"""

from __future__ import annotations

import copy

import numpy as np
import torch

from ..errors import ConfigError
from ..filters.base import Filter
from ..native.weights import SMALLEST, Grid

WEIGHTS = {"float": None, "int16": np.int16, "int8": np.int8}
"""Types of weights by name; ``float`` leaves them as they are."""


def rounded(model: Filter, weights: str, precision: str = "float") -> tuple[Filter, Grid | None]:
    """A copy of a filter with rounded matrices, and their grid; the filter itself and None for ``"float"``.

    >>> import torch, fwnkf
    >>> model = fwnkf.FWNKF(fwnkf.systems.LearnedSystem.of(state_dim=2, observation_dim=1), encoder=fwnkf.GRU(16))
    >>> _, grid = rounded(model, "int8")
    >>> grid.number.__name__, len(grid.scales) > 0
    ('int8', True)
    """
    if weights not in WEIGHTS:
        raise ConfigError(f"weights {weights!r}: wanted one of {', '.join(WEIGHTS)}")
    number = WEIGHTS[weights]
    if number is None:
        return model, None
    if precision != "float":
        raise ConfigError(f"weights {weights!r} are for single precision; leave precision at 'float'")
    model = copy.deepcopy(model).float()
    scales = []
    with torch.no_grad():
        for parameter in model.parameters():
            largest = float(parameter.abs().max()) if parameter.numel() else 0.0
            if parameter.ndim < 2 or parameter.numel() < SMALLEST or not largest:
                continue
            scale = torch.tensor(largest / np.iinfo(number).max)
            parameter.copy_((parameter / scale).round() * scale)
            scales.append(float(scale))
    return model, Grid(number, tuple(scales))
