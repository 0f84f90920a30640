"""Rows as strict JSON has them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """NaN, which says that there is nothing to say, becomes null; infinity, which says a lot, the word ``"inf"``.

    >>> plain({"nees": float("nan"), "mse": [float("inf"), 1]})
    {'nees': None, 'mse': ['inf', 1]}
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def number(value: Any) -> Any:
    """Back from :func:`plain`: the words for infinity as the number.

    >>> number("-inf"), number("fast"), number(None)
    (-inf, 'fast', None)
    """
    return float(value) if value in ("inf", "-inf") else value
