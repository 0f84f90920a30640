"""The headers of tables: names and units of columns, and the choice of some of them."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ..errors import DataError

COLUMN_LIMIT = 10_000
NAME_LIMIT = 500
"""Characters of the header of a column."""


def split_unit(header: str) -> tuple[str, str]:
    """Split a column header into name and unit.

    >>> split_unit("gps_x [m]"), split_unit("speed (m/s)"), split_unit("t")
    (('gps_x', 'm'), ('speed', 'm/s'), ('t', ''))
    """
    brackets = {"]": "[", ")": "("}.get(header[-1:], "")  # one pair at the end: "gps_x [m]", "gps_x(m)"
    name, opened, unit = header[:-1].rpartition(brackets) if brackets else ("", "", "")
    if not opened or not name.strip() or header[-1] in unit:
        return header, ""
    return name.rstrip(), unit.strip()


def name_columns(path: Path, header: Sequence[str]) -> list[tuple[str, str]]:
    """Name and unit of every column; a column without a name (such as an index) cannot be selected."""
    if len(header) > COLUMN_LIMIT:
        raise DataError(f"{path} has {len(header):,} columns, more than {COLUMN_LIMIT:,}; check the separator")
    seen: dict[str, int] = {}
    for number, name in enumerate(header, 1):
        if len(name) > NAME_LIMIT:
            raise DataError(
                f"{path}: the name of column {number} has {len(name):,} characters, more than {NAME_LIMIT}: "
                f"{name[:40]!r}…; shorten it, or check the separator and quotation marks"
            )
        if name and name in seen:
            raise DataError(
                f"{path}: columns {seen[name]} and {number} are both named {name[:80]!r}; rename one of them"
            )
        seen[name] = number
    pairs = [split_unit(name) for name in header]
    bare = Counter(name for name, _ in pairs)
    # in "speed (left)" and "speed (right)" the brackets are part of the name, not units
    return [(name, unit) if bare[name] == 1 else (full, "") for (name, unit), full in zip(pairs, header, strict=True)]


def choose_columns(
    path: Path, header: Sequence[str], named: list[tuple[str, str]], wanted: Sequence[str] | None
) -> list[int]:
    """Indices of the selected columns."""
    if wanted is None:
        return [index for index, (name, _) in enumerate(named) if name]
    indices = {full: index for index, full in enumerate(header) if full}
    indices.update({name: index for index, (name, _) in enumerate(named) if name})
    for name in wanted:
        if name not in indices:
            raise missing_column(path, name, header)
    return list(dict.fromkeys(indices[name] for name in wanted))


def missing_column(path: Path, name: str, header: Sequence[str]) -> DataError:
    known = {key: full for full in header if full for key in (full.lower(), split_unit(full)[0].lower())}
    similar = list(dict.fromkeys(known[key] for key in difflib.get_close_matches(name.lower(), known, 3, 0.5)))
    hint = f"; did you mean {' or '.join(repr(full[:80]) for full in similar)}?" if similar else ""
    shown = ", ".join(full[:40] for full in header[:20] if full) + (", …" if len(header) > 20 else "")
    return DataError(f"{path}: no column named {name[:80]!r}{hint} Columns: {shown}")
