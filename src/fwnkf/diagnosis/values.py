"""Results as plain values that strict JSON can hold."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

DIGITS = 6
"""Significant digits of floats: more than a log can support, and half the size of a file."""


def plain_values(value: Any, *, arrays: bool = True) -> Any:
    """Dataclasses and named tuples as dictionaries, arrays as lists; without ``arrays``, their shape instead.

    NaN becomes None, infinity the word ``"inf"``, as in the other JSON of this package.

    >>> plain_values({"density": np.array([1.0, np.nan, np.inf]), "peak": 96.8765432})
    {'density': [1.0, None, 'inf'], 'peak': 96.8765}
    >>> plain_values({"density": np.zeros((2, 3))}, arrays=False)
    {'density': {'shape': [2, 3]}}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: plain_values(getattr(value, name), arrays=arrays) for name in names}
    if isinstance(value, Mapping):
        return {str(name): plain_values(item, arrays=arrays) for name, item in value.items()}
    if isinstance(value, np.ndarray) and value.ndim:
        return plain_values(value.tolist()) if arrays else {"shape": list(value.shape)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: plain_values(item, arrays=arrays) for name, item in zip(value._fields, value, strict=True)}
    if isinstance(value, list | tuple):
        return [plain_values(item, arrays=arrays) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain_values(value.item())
    if isinstance(value, float):
        return _number(value)
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _number(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(value)
