"""Read tables of numbers from CSV and Parquet files: named columns, units, and errors with file and line.

CSV needs only the standard library and numpy; Parquet needs ``pip install 'fwnkf[tables]'``.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..extras import need
from .work import Work

FILE_LIMIT = 1 << 29
"""Largest file size in bytes; larger files are refused."""
ROW_LIMIT = 20_000_000
LINE_LIMIT = 1 << 20
BATCH = 1 << 16
"""Rows of a Parquet file that are converted at a time."""
BLOCK = 1 << 11
"""Rows converted to numbers at a time, so that a long file is never held in memory as Python strings."""
SUFFIXES = (".csv", ".parquet")
COLUMN_LIMIT = 10_000
NAME_LIMIT = 500
"""Characters of the header of a column."""
MISSING = frozenset(("", "nan", "-nan", "null", "none", "na", "n/a", "#n/a"))
"""Spellings of a missing value, in lower case."""
_ISO = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(\.\d{1,12})?\s*(Z|[+-]\d\d:?\d\d)?")


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of equal length by name without unit; missing values are NaN.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "run.csv"
    >>> _ = path.write_text("t [s],gps_x [m]\\n0.0,1.5\\n0.1,\\n")
    >>> table = read_table(path)
    >>> table.column("gps_x [m]"), table.units
    (array([1.5, nan]), {'t': 's', 'gps_x': 'm'})
    """

    name: str
    """Name of the file without suffix."""
    path: Path
    """The file."""
    columns: dict[str, NDArray[np.float64]]
    """Values by name."""
    units: dict[str, str]
    """Units as written in the file, for the columns that have one."""
    digest: str
    """SHA-256 of the file, if it was asked for."""
    header: tuple[str, ...] = ()
    """All column headers of the file, including columns that were not read."""
    text: tuple[str, ...] = ()
    """Columns of text, which are left out where that is allowed."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def find(self, name: str) -> str:
        """The key of a column, given its name with or without unit.

        Args:
            name: the name.

        Returns:
            The key in :attr:`columns`.

        Raises:
            DataError: there is no such column; the message names those that there are.
        """
        if name in self.columns:
            return name
        bare = split_unit(name)[0]
        if bare in self.columns and name in self.header:
            return bare
        raise missing_column(self.path, name, self.header or tuple(self.columns))

    def column(self, name: str) -> NDArray[np.float64]:
        """The values of a column.

        Args:
            name: its name with or without unit.

        Returns:
            The values.
        """
        return self.columns[self.find(name)]

    def unit(self, name: str) -> str:
        """The unit of a column; empty if the file has none.

        Args:
            name: its name with or without unit.

        Returns:
            The unit as the file writes it.
        """
        return self.units.get(self.find(name), "")


def read_table(
    path: str | Path, columns: Sequence[str] | None = None, *, digest: bool = True, leave_text_out: bool = False
) -> Table:
    r"""Read a ``.csv`` or ``.parquet`` file.

    CSV files have a header line and rows of numbers, separated by commas, semicolons or tabs. Lines that start with
    ``#`` are comments; the last comment before the numbers may be the header. Dates such as
    ``2024-05-01T12:00:00.25Z`` are converted to seconds.

    Args:
        path: the file.
        columns: which columns, with or without unit; by default all.
        digest: whether to compute the checksum of the file, which takes longer than reading Parquet.
        leave_text_out: leave out columns of text (:attr:`Table.text`), which are an error otherwise.

    Returns:
        The columns and their units.

    Raises:
        DataError: the file cannot be read; the message names line and column.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "run.csv"
    >>> _ = path.write_text("t [s],gps_x [m]\n0.0,1.5\n0.1,2.5\n")
    >>> read_table(path, ["gps_x"]).columns
    {'gps_x': array([1.5, 2.5])}
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(f"{path}: a table must be a {' or '.join(SUFFIXES)} file; convert or rename it")
    data = _read_bytes(path)
    read = _read_csv if suffix == ".csv" else _read_parquet
    header, values, units, text = read(path, data, columns, leave_text_out)
    checksum = hashlib.sha256(data).hexdigest() if digest else ""
    return Table(path.stem, path, values, units, checksum, tuple(header), text)


def read_header(path: str | Path) -> dict[str, str]:
    r"""The names of the columns of a table, each with its unit.

    Args:
        path: the file.

    Returns:
        Units by name; empty where the file states none.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "run.csv"
    >>> _ = path.write_text("t [s],gps_x\n0.0,1.5\n")
    >>> read_header(path)
    {'t': 's', 'gps_x': ''}
    """
    path = Path(path)
    if path.suffix.lower() == ".parquet":
        arrow, parquet = need("pyarrow", "tables"), need("pyarrow.parquet", "tables")
        try:
            header = [
                str(name) for name in parquet.ParquetFile(arrow.BufferReader(_read_bytes(path))).schema_arrow.names
            ]
        except DataError:
            raise
        except Exception as error:  # pyarrow raises many kinds of errors for damaged files
            raise _unreadable(path, error) from error
    else:
        lines = _Lines(path, _read_bytes(path))
        try:
            header = _csv_header(path, lines, iter(lines))[1]
        except csv.Error as error:
            raise _open_quote(path, lines, error) from error
    return {name: unit for name, unit in name_columns(path, header) if name}


def find_tables(folder: str | Path) -> list[Path]:
    r"""The tables in a folder, without subfolders, sorted by name.

    Args:
        folder: the folder, or a file.

    Returns:
        The files; the file itself if one was given.

    Raises:
        DataError: there is none.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "b.csv").write_text("x\n1\n"), (folder / "a.csv").write_text("x\n1\n")
    >>> [path.name for path in find_tables(folder)]
    ['a.csv', 'b.csv']
    """
    folder = Path(folder)
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise DataError(f"{folder} does not exist; give a folder of {' or '.join(SUFFIXES)} files, or one such file")
    try:
        # macOS and editors leave hidden files behind
        paths = sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error}") from error
    if not paths:
        raise DataError(f"{folder} contains no {' or '.join(SUFFIXES)} file; subfolders are not searched")
    return paths


def _read_bytes(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise DataError(f"{path} does not exist, or is not a file")
        with path.open("rb") as file:
            data = file.read(FILE_LIMIT + 1)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if len(data) > FILE_LIMIT:
        raise DataError(f"{path} is larger than {FILE_LIMIT:,} bytes; split it into one file per run")
    if not data.strip():
        raise DataError(f"{path} is empty; write it again, or remove it from the folder")
    return data


# ---- CSV ------------------------------------------------------------------------------------------------------------


class _Lines:
    """Iterator over the lines with data; keeps the line number and the last comment before the first of them."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self.number, self.comment, self.started = path, 0, "", False
        self._file = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", newline="")

    def __iter__(self) -> Iterator[str]:
        while True:
            try:
                line = self._file.readline(LINE_LIMIT)
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{self.path}, near line {self.number + 1}: this is not UTF-8 text ({error.reason}); "
                    "save the table as CSV with UTF-8 encoding, or check whether the file is damaged"
                ) from error
            if not line:
                return
            self.number += 1
            if len(line) >= LINE_LIMIT:
                raise DataError(
                    f"{self.path}, line {self.number}: more than {LINE_LIMIT:,} characters; is this a CSV file?"
                )
            if line.lstrip().startswith("#"):
                self.comment = self.comment if self.started else line.strip().lstrip("# \t")
            elif line.strip():
                self.started = True
                yield line


Content = tuple[list[str], dict[str, NDArray[np.float64]], dict[str, str], tuple[str, ...]]
"""Header, values and units by name, and columns of text that were left out."""


def _read_csv(path: Path, data: bytes, wanted: Sequence[str] | None, leave_text_out: bool) -> Content:
    lines = _Lines(path, data)
    try:
        return _parse_csv(path, lines, wanted, leave_text_out)
    except csv.Error as error:
        raise _open_quote(path, lines, error) from error


def _open_quote(path: Path, lines: _Lines, error: csv.Error) -> DataError:
    return DataError(f"{path}, line {lines.number}: {str(error)[:160]}; check for an open quotation mark")


def _csv_header(path: Path, lines: _Lines, source: Iterator[str]) -> tuple[str, list[str], Iterator[str]]:
    """The separator, the header, and the lines after it."""
    first = next(source, None)
    if first is None:
        raise DataError(f"{path} contains comments only; add a header line and rows of numbers")
    separator, header = _cells(first)
    numbers = all(is_number(cell) or cell.strip().lower() in MISSING for cell in header)
    if numbers:
        header_separator, header = _cells(lines.comment) if lines.comment else ("", [])
        if header_separator != separator or any(is_number(cell) for cell in header):
            raise DataError(
                f"{path}, line {lines.number}: numbers instead of the names of the columns; "
                "add a header line such as t [s],gps_x [m]"
            )
        source = chain([first], source)
    return separator, [cell.strip() for cell in header], source


def _parse_csv(path: Path, lines: _Lines, wanted: Sequence[str] | None, leave_text_out: bool) -> Content:
    separator, header, source = _csv_header(path, lines, iter(lines))
    named = name_columns(path, header)
    chosen = choose_columns(path, header, named, wanted)
    blocks: list[list[NDArray[np.float64]]] = [[] for _ in chosen]
    dated: set[int] = set()
    rows: list[list[str]] = []
    places: list[int] = []
    text: list[int] = []

    def flush() -> None:
        if leave_text_out and not any(blocks):
            text.extend(index for index in chosen if _is_text([row[index] for row in rows]))
            chosen[:] = [index for index in chosen if index not in text]
            del blocks[len(chosen) :]
        for block, index in zip(blocks, chosen, strict=True):
            cells = [row[index] for row in rows]
            block.append(to_numbers(path, cells, places, f"column {index + 1} ({named[index][0][:80]})", dated, index))
        rows.clear()
        places.clear()

    count = 0
    for row in csv.reader(source, delimiter=separator, skipinitialspace=True):
        if len(row) != len(header):
            raise DataError(
                f"{path}, line {lines.number}: {len(row)} cell(s), but the header has {len(header)} columns; "
                "the line is incomplete, or a cell contains a separator (write decimals with a point)"
            )
        count += 1
        if count > ROW_LIMIT:
            raise DataError(f"{path} has more than {ROW_LIMIT:,} rows; split it into one file per run")
        rows.append(row)
        places.append(lines.number)
        if len(rows) == BLOCK:
            flush()
    flush()
    if count == 0:
        raise DataError(f"{path} has a header but no rows; write it again, or remove it from the folder")
    columns = {named[index][0]: np.concatenate(block) for block, index in zip(blocks, chosen, strict=True)}
    units = {named[i][0]: "s" if i in dated else named[i][1] for i in chosen if i in dated or named[i][1]}
    return header, columns, units, tuple(named[index][0] for index in text)


def _is_text(cells: list[str]) -> bool:
    """Whether the first cell of a column that is not empty is neither a number nor a date."""
    first = next((cell.strip() for cell in cells if cell.strip().lower() not in MISSING), "0")
    return not is_number(first) and since_1970(first) is None and re.fullmatch(r"[+-]?\d+,\d+", first) is None


def _cells(line: str) -> tuple[str, list[str]]:
    """The separator of a line, which is the most frequent candidate, and its cells."""
    separator = max(",;\t", key=line.count)
    return separator, next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])


# ---- Parquet --------------------------------------------------------------------------------------------------------


def _read_parquet(path: Path, data: bytes, wanted: Sequence[str] | None, leave_text_out: bool) -> Content:
    arrow, parquet = need("pyarrow", "tables"), need("pyarrow.parquet", "tables")
    try:
        file = parquet.ParquetFile(arrow.BufferReader(data), page_checksum_verification=True)
        schema = file.schema_arrow
        header = [str(name) for name in schema.names]
        groups = [int(file.metadata.row_group(index).num_rows) for index in range(file.metadata.num_row_groups)]
        rows = int(file.metadata.num_rows)
        if rows != sum(groups) or min(groups, default=0) < 0:
            raise DataError(f"{path}: {sum(groups):,} rows in groups, but {rows:,} in all; the file is damaged")
        named = name_columns(path, header)
        chosen = choose_columns(path, header, named, wanted)
        if not 0 < rows <= ROW_LIMIT:
            raise DataError(f"{path} has {rows:,} rows; a table has 1 to {ROW_LIMIT:,}, split it into one file per run")
        text = [index for index in chosen if leave_text_out and not _has_numbers(arrow, schema.field(index).type)]
        chosen = [index for index in chosen if index not in text]
        kinds = {index: _number_kind(arrow, schema.field(index).type, path, named[index][0]) for index in chosen}
        Work(path, len(data)).count("numbers in a table", rows * len(chosen))
        columns, units = {}, {}
        for index in chosen:  # one by one, in batches: what is not yet a number takes little memory
            field = schema.field(index)
            name, unit = named[index]
            values, of_type, filled = np.empty(rows), kinds[index][1], 0
            for batch in file.iter_batches(BATCH, columns=[header[index]]):
                part = batch.column(header[index]).cast(kinds[index][0], safe=False).cast(arrow.float64(), safe=False)
                values[filled : filled + len(part)] = part.to_numpy(zero_copy_only=False)[: rows - filled]
                filled += len(part)
            if filled != rows:
                raise DataError(f"{path}, column {name!r}: {filled} values in {rows} rows; the file is damaged")
            columns[name] = values
            metadata = field.metadata or {}
            declared = (metadata.get(b"unit") or metadata.get(b"units") or b"").decode("utf-8", "replace")
            if unit := declared or unit or of_type:
                units[name] = unit[:80]
        return header, columns, units, tuple(named[index][0] for index in text)
    except DataError:
        raise
    except Exception as error:  # pyarrow raises many kinds of errors for damaged files
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> DataError:
    brief = f"{type(error).__name__}: {str(error)[:160]}"
    return DataError(f"{path} cannot be read as Parquet ({brief}); write or download it again")


def _has_numbers(arrow: Any, kind: Any) -> bool:
    types = arrow.types
    numbers = (types.is_integer, types.is_floating, types.is_decimal, types.is_null, types.is_boolean)
    return any(is_kind(kind) for is_kind in (*numbers, types.is_timestamp, types.is_duration))


def _number_kind(arrow: Any, kind: Any, path: Path, name: str) -> tuple[Any, str]:
    """The type from which a column is converted to float64, and the unit of its type (ms or ns for time stamps)."""
    types = arrow.types
    if types.is_timestamp(kind) or types.is_duration(kind):
        return arrow.int64(), kind.unit
    if types.is_boolean(kind):
        return arrow.uint8(), ""
    if not _has_numbers(arrow, kind):
        raise DataError(
            f"{path}, column {name!r} holds {str(kind)[:80]}, not numbers; select the columns to read, or convert it "
            "to float64"
        )
    # integers beyond 2**53 (nanoseconds since 1970) lose their last digits in float64
    return kind, ""


# ---- headers: names and units of columns ----------------------------------------------------------------------------


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


# ---- cells of a CSV file as numbers ---------------------------------------------------------------------------------


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
