"""The figures of the paper's tables, transcribed to ``published.json``."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).parent / "published.json"


class Figure(NamedTuple):
    """A published figure; ``spread`` is None where the paper has none."""

    value: float
    spread: float | None = None


@functools.cache
def _tables() -> dict[str, Any]:
    tables: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))["tables"]
    return tables


def columns(table: str) -> tuple[str, ...]:
    """The columns of a table: ``lorenz``, ``pendulum``, ``euroc``, ``uipdb`` or ``runtime``.

    >>> columns("runtime")
    ('parameters', 'ms')
    """
    return tuple(_tables()[table]["columns"])


def has(table: str) -> bool:
    """Whether the paper has a table of these data.

    >>> has("euroc"), has("lorenz_full")
    (True, False)
    """
    return table in _tables()


def rows(table: str) -> list[dict[str, Any]]:
    """The rows of a table: recipe, weight of the spectral loss, and a :class:`Figure` for each column."""
    return [
        {name: _figure(value) if name in columns(table) else value for name, value in row.items()}
        for row in _tables()[table]["rows"]
    ]


def figure(table: str, recipe: str, weight: float | None, column: str) -> Figure | None:
    """One cell, None if there is no such table or row.

    >>> figure("lorenz", "fwnkf", 0.01, "mse")
    Figure(value=0.58, spread=0.36)
    """
    if not has(table):
        return None
    matching = (row for row in rows(table) if row["recipe"] == recipe and row.get("weight") == weight)
    return next((row[column] for row in matching), None)


def best(table: str, column: str, *, without: str | None = None) -> dict[str, Any]:
    """The row with the least value of a column, rows of the recipe ``without`` left out."""
    return min((row for row in rows(table) if row["recipe"] != without), key=lambda row: float(row[column].value))


def _figure(value: Any) -> Figure:
    return Figure(*value) if isinstance(value, list) else Figure(float(value))
