"""Reading files from outside: bounded, digested, and never trusted."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError

CSV_LIMIT = 1 << 28
"""No table of the known sets comes near 256 MB; anything larger is refused unread."""
ROW_LIMIT = 5_000_000
LINE_LIMIT = 4096
# a plain decimal with at most a small exponent: what follows cannot overflow, nor take long
_STAMP = re.compile(r"[+-]?\d{1,19}(\.\d{0,18})?([eE][+-]?\d{1,2})?")


def read_bytes(path: Path, limit: int) -> bytes:
    """The bytes of a regular file no larger than ``limit``."""
    try:
        if not path.is_file():
            raise DataError(f"{path} does not exist, or is no file")
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if len(data) > limit:
        raise DataError(f"{path} is larger than {limit:,} bytes; that is no file of this kind")
    return data


def brief(error: Exception) -> str:
    """What a library says of a damaged file, which may quote all of it, in a few words."""
    return f"{type(error).__name__}: {str(error)[:160]}"


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in pieces."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    return digest.hexdigest()


def joint_digest(digests: Iterable[str]) -> str:
    """One digest for a recording of several files; that of a single file is its own."""
    digests = list(digests)
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()


@dataclass(frozen=True)
class Column:
    """A column of a table: the names it goes by, and its unit as written in brackets behind the name."""

    name: str
    unit: str = ""
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """A table read: exact stamps, the other columns as numbers, and the line of the file each row stands on."""

    path: Path
    digest: str
    stamps_ns: NDArray[np.int64]
    values: NDArray[np.float64]
    columns: tuple[Column, ...]
    first_line: int
    has_header: bool

    def place(self, row: int, column: int | None = None) -> str:
        """``file, line 12, column 3 (w_RS_S_y)``; column counts from 1 and includes the stamp."""
        where = f"{self.path}, line {self.first_line + row}"
        return where if column is None else f"{where}, column {column + 2} ({self.columns[column].name})"


def read_table(path: Path, columns: tuple[Column, ...], unit_ns: int, unit_name: str) -> Table:
    """A comma-separated table whose first column is a stamp in units of ``unit_ns`` nanoseconds.

    The first line may be a header, with or without ``#``; if there is one, names and units must be the expected ones.
    Ends of line may be LF or CRLF, spaces around cells do not matter, ``nan`` is a number.
    """
    data = read_bytes(path, CSV_LIMIT)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, byte {error.start}: this is no text; the file is damaged or no CSV") from error
    if not text.strip():
        raise DataError(f"{path} is empty; get it again")
    lines = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    if len(lines) > ROW_LIMIT:
        raise DataError(f"{path} has more than {ROW_LIMIT:,} lines; that is no recording of this kind")
    header = _is_header(lines[0])
    if header:
        _check_header(path, lines[0], columns, unit_name)
    rows = lines[1:] if header else lines
    first = 2 if header else 1
    if len(rows) < 2:
        raise DataError(f"{path} holds {len(rows)} row(s) of data; the file is empty or cut short")
    commas = len(columns)
    for number, row in enumerate(rows, first):
        if row.count(",") != commas or len(row) > LINE_LIMIT:
            raise DataError(
                f"{path}, line {number}: {row.count(',') + 1} columns, wanted {commas + 1} "
                f"(stamp, {', '.join(column.name for column in columns)}); the file is cut short or of another kind"
            )
    stamps = np.array([_stamp(path, number, row, unit_ns) for number, row in enumerate(rows, first)], dtype=np.int64)
    late = np.flatnonzero(np.diff(stamps) <= 0)
    if len(late):
        raise DataError(
            f"{path}, line {first + int(late[0]) + 1}: the stamp does not come after the one before "
            f"({len(late)} such rows); rows are out of order, repeated, or the stamps are not in {unit_name}"
        )
    values = _numbers(path, rows, first, columns)
    return Table(path, hashlib.sha256(data).hexdigest(), stamps, values, columns, first, header)


def _is_header(line: str) -> bool:
    return line.lstrip("\ufeff \t").startswith("#") or _STAMP.fullmatch(line.split(",", 1)[0].strip()) is None


def _check_header(path: Path, line: str, columns: tuple[Column, ...], unit_name: str) -> None:
    cells = [cell.strip() for cell in line.lstrip("\ufeff \t#").split(",")]
    if len(cells) != len(columns) + 1:
        raise DataError(
            f"{path}, line 1: the header names {len(cells)} columns, wanted {len(columns) + 1} "
            f"(stamp, {', '.join(column.name for column in columns)})"
        )
    expected = (Column("timestamp", unit_name, ("time(ns)", "time")), *columns)
    for number, (cell, column) in enumerate(zip(cells, expected, strict=True), 1):
        name, bracket, unit = cell.partition("[")
        unit = unit.rstrip("] \t")
        if name.strip().lower() not in {known.lower() for known in (column.name, *column.aliases)}:
            raise DataError(
                f"{path}, line 1, column {number}: it is called {cell[:80]!r}, wanted {column.name!r}; "
                "columns in another order would be read as something else"
            )
        if bracket and unit != column.unit:
            raise DataError(
                f"{path}, line 1, column {number} ({column.name}): the unit is {unit[:40]!r}, wanted "
                f"{column.unit!r}; convert the column"
            )


def _stamp(path: Path, number: int, row: str, unit_ns: int) -> int:
    cell = row.split(",", 1)[0].strip()
    if _STAMP.fullmatch(cell) is None:
        raise DataError(f"{path}, line {number}, column 1 (timestamp): {cell[:40]!r} is no time")
    # exact: a float64 keeps only some 200 ns of a time of day since 1970
    nanoseconds = int(cell) * unit_ns if cell.isdigit() else int((Decimal(cell) * unit_ns).to_integral_value())
    if not -(2**62) < nanoseconds < 2**62:
        raise DataError(f"{path}, line {number}, column 1 (timestamp): {cell} is out of range; is it in another unit?")
    return nanoseconds


def _numbers(path: Path, rows: list[str], first: int, columns: tuple[Column, ...]) -> NDArray[np.float64]:
    try:
        return np.loadtxt(
            rows, delimiter=",", comments=None, dtype=np.float64, ndmin=2, usecols=range(1, len(columns) + 1)
        )
    except (ValueError, OverflowError, UnicodeError):
        pass  # numpy says what, but not where: look again, slowly
    for number, row in enumerate(rows, first):
        for column, cell in zip(columns, row.split(",")[1:], strict=True):
            try:
                float(cell)
            except ValueError:
                raise DataError(f"{path}, line {number} ({column.name}): {cell.strip()[:40]!r} is no number") from None
    raise DataError(f"{path}: a cell is no plain number (digits with underscores, or letters of another script)")
