"""The cells of a CSV file as numbers: missing values, and dates as seconds."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError

MISSING = frozenset(("", "nan", "-nan", "null", "none", "na", "n/a", "#n/a"))
"""Spellings of a missing value, in lower case."""
_ISO = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(\.\d{1,12})?\s*(Z|[+-]\d\d:?\d\d)?")


def is_number(cell: str) -> bool:
    """Whether a cell is a number as a file writes it."""
    if "_" in cell or not cell.isascii():  # float() accepts 1_000 and digits of other scripts
        return False
    try:
        float(cell)
    except ValueError:
        return False
    return True


def to_numbers(
    path: Path, cells: list[str], places: list[int], where: str, dated: set[int], index: int
) -> NDArray[np.float64]:
    """Convert cells to numbers; columns with dates are added to ``dated``."""
    whole = "".join(cells)
    if whole.isascii() and "_" not in whole:
        try:
            return np.fromiter(map(float, cells), np.float64, len(cells))
        except ValueError:
            pass  # an empty cell, a date or an invalid cell: convert cell by cell
    values = np.empty(len(cells))
    for row, cell in enumerate(cells):
        text = cell.strip()
        if is_number(text):
            values[row] = float(text)
        elif text.lower() in MISSING:
            values[row] = np.nan
        elif (seconds := since_1970(text)) is not None:
            values[row] = seconds
            dated.add(index)
        else:
            comma = re.fullmatch(r"[+-]?\d+,\d+", text) is not None
            hint = "write decimals with a point" if comma else "write a number, or leave the cell empty"
            raise DataError(f"{path}, line {places[row]}, {where}: {text[:40]!r} is not a number; {hint}")
    return values


def since_1970(text: str) -> float | None:
    """Seconds since 1970 of a date with time (UTC without an offset), or None."""
    match = _ISO.fullmatch(text)
    if match is None or not text.isascii():
        return None
    try:
        moment = datetime.fromisoformat(f"{match[1]}T{match[2]}").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    zone = (match[4] or "Z").replace(":", "")
    if zone != "Z":
        shift = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:5]))
        offset = shift.total_seconds() * (-1 if zone[0] == "-" else 1)
    else:
        offset = 0.0
    return moment.timestamp() - offset + float(match[3] or 0.0)
