"""Files of unknown origin: read with limits on their size, and with errors that name the file."""

from __future__ import annotations

import hashlib
import math
import pickletools
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...errors import ConfigError, DataError
from ...extras import need

CSV_LIMIT = 1 << 28
"""Bytes of a table; those of the supported data sets are far smaller."""
ROW_LIMIT = 5_000_000
LINE_LIMIT = 4096
MAT_LIMIT = 1 << 28
"""Bytes of a MAT-file."""
MAT_INFLATED_LIMIT = 1 << 29
"""Bytes of all variables of a MAT-file, decompressed."""
ARRAY_LIMIT = 1 << 30
"""Bytes of one array of an ``.npz`` file, decompressed."""
_MAT_COMPRESSED, _MAT_COMPLEX = 15, 0x800
_MAT_NUMERIC = range(6, 16)
"""Classes of arrays: double, single, int8 to uint64."""
_MAT_NUMBERS = (1, 2, 3, 4, 5, 6, 7, 9, 12, 13)
"""Types in which the values of such arrays are stored."""
_PT_GLOBALS = re.compile(r"torch\._utils _rebuild_tensor_v2|collections OrderedDict|torch \w+Storage")
# a plain decimal with at most a small exponent: the conversion to nanoseconds cannot overflow or take long
_STAMP = re.compile(r"[+-]?\d{1,19}(\.\d{0,18})?([eE][+-]?\d{1,2})?")


def brief(error: Exception) -> str:
    """Type and message of an exception, shortened: a library may quote the file, or as torch, explain at length."""
    message = " ".join(str(error).split()).rpartition("WeightsUnpickler error: ")[2]
    return f"{type(error).__name__}: {message[:160]}"


@contextmanager
def _reading(path: Path, kind: str) -> Iterator[None]:
    """Turn the errors of a library into one that names the file; a damaged file raises almost any exception."""
    if not path.is_file():
        raise DataError(f"{path} does not exist or is not a file")
    try:
        yield
    except ConfigError:  # a missing extra
        raise
    except Exception as error:
        raise DataError(f"{path} is not a {kind}, or is damaged: {brief(error)}") from error


def read_bytes(path: Path, limit: int) -> bytes:
    """Content of a regular file of at most ``limit`` bytes."""
    with _reading(path, "readable file"):
        if path.stat().st_size <= limit:
            return path.read_bytes()
    raise DataError(f"{path} is larger than the limit of {limit:,} bytes for this kind of file")


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with _reading(path, "readable file"), path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def joint_digest(digests: Iterable[str]) -> str:
    """One digest for a recording of several files; for a single file, its own."""
    digests = list(digests)
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()


# ---- binary formats -------------------------------------------------------------------------------------------------


def read_mat(path: Path, names: Sequence[str]) -> tuple[dict[str, NDArray[Any]], str]:
    """The real numeric arrays with these names from a MAT-file of version 5, and the digest of the file."""
    data = read_bytes(path, MAT_LIMIT)
    with _reading(path, "MAT-file of version 5 (MATLAB -v6 or -v7)"):
        arrays = need("scipy.io", extra="data").loadmat(BytesIO(_numeric_variables(data)), variable_names=names)
    return {name: arrays[name] for name in names if name in arrays}, hashlib.sha256(data).hexdigest()


def _numeric_variables(data: bytes) -> bytes:
    """The MAT-file with only its real numeric variables, decompressed.

    scipy neither limits the size of a decompressed variable, nor the depth of nested cells, and ends the process with
    a segmentation fault on a number type it does not know.
    """
    if data[124:128] != b"\x00\x01IM":
        raise ValueError("no header of a little-endian file of version 5")
    parts, at, left = [data[:128]], 128, MAT_INFLATED_LIMIT
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        part = data[at : at + 8 + size]
        at += 8 + size
        if kind == _MAT_COMPRESSED:
            stream = zlib.decompressobj()
            part = stream.decompress(part[8:], left + 1)
            if not stream.eof and len(part) <= left:
                raise ValueError("a compressed variable is truncated")
        left -= len(part)
        if left < 0:
            raise ValueError(f"the variables have more than {MAT_INFLATED_LIMIT:,} bytes")
        flags = struct.unpack_from("<I", part, 16)[0]
        if flags & 0xFF not in _MAT_NUMERIC or flags & _MAT_COMPLEX:
            continue
        field = 24
        for _ in ("dimensions", "name", "values"):
            kind, size = struct.unpack_from("<II", part, field)
            field += 8 if kind >> 16 else 8 + size + -size % 8  # a small field lies within its tag
        if kind & 0xFFFF not in _MAT_NUMBERS or field > len(part):
            raise ValueError("a variable has an unknown number type or is truncated")
        parts.append(part)
    return b"".join(parts)


def read_npz(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Numeric arrays from an ``.npz`` file; numpy allocates what a header claims, so that is checked first."""
    with _reading(path, "readable .npz file"):
        with zipfile.ZipFile(path) as archive:
            for name in names:
                member = archive.getinfo(f"{name}.npy")
                with archive.open(member) as file:
                    version = np.lib.format.read_magic(file)
                    read_header = getattr(np.lib.format, "read_array_header_{}_{}".format(*version))
                    shape, _, dtype = read_header(file)
                    size = file.tell() + math.prod(shape) * dtype.itemsize
                if dtype.kind not in "fiub" or size != member.file_size or size > ARRAY_LIMIT:
                    raise ValueError(f"array {name!r} of {dtype} and shape {shape} in {member.file_size:,} bytes")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in names}


def read_pt(path: Path) -> Any:
    """Tensors in lists and dicts from a ``.pt`` file, by ``torch.load`` with ``weights_only``: no code is executed.

    The checks before it are those torch lacks: it ignores the checksums of the file, and allows calls of any size,
    such as ``Counter(bytearray(10**10))``.
    """
    with _reading(path, "file of tensors written by torch.save"):
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if any(member.compress_type != zipfile.ZIP_STORED for member in members) or (
                sum(member.file_size for member in members) > path.stat().st_size
            ):
                raise ValueError("it contains compressed or overlapping members")
            if damaged := archive.testzip():
                raise ValueError(f"the checksum of {damaged} is wrong")
            for name in archive.namelist():
                calls = pickletools.genops(archive.read(name)) if name.endswith("data.pkl") else ()
                names = {str(argument) for opcode, argument, _ in calls if "GLOBAL" in opcode.name}
                if refused := {name for name in names if not _PT_GLOBALS.fullmatch(name)}:
                    raise ValueError(f"it uses {', '.join(sorted(refused))}; refused, nothing was executed")
        return torch.load(path, map_location="cpu", mmap=True, weights_only=True)


# ---- tables ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column of a table: its name, its unit as written in brackets after the name, and alternative names."""

    name: str
    unit: str = ""
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """Content of a table: exact time stamps, the other columns as numbers, and the line number of the first row."""

    path: Path
    digest: str
    stamps_ns: NDArray[np.int64]
    values: NDArray[np.float64]
    columns: tuple[Column, ...]
    first_line: int
    has_header: bool

    def place(self, row: int, column: int) -> str:
        """``file, line 12, column 3 (w_RS_S_y)``; columns count from 1 and include the time stamp."""
        return f"{self.path}, line {self.first_line + row}, column {column + 2} ({self.columns[column].name})"


def read_table(path: Path, columns: tuple[Column, ...], unit_ns: int, unit_name: str) -> Table:
    """Read a comma-separated table whose first column is a time stamp in units of ``unit_ns`` nanoseconds.

    The first line may be a header, with or without ``#``; its names and units must be the expected ones. Line endings
    may be LF or CRLF, spaces around cells are ignored, and ``nan`` is a valid number.
    """
    data = read_bytes(path, CSV_LIMIT)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, byte {error.start}: not UTF-8 text; the file is damaged or not a CSV file") from error
    if not text.strip():
        raise DataError(f"{path} is empty; download it again")
    lines = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    if len(lines) > ROW_LIMIT:
        raise DataError(f"{path} has more than {ROW_LIMIT:,} lines, the limit for a recording")
    header = _is_header(lines[0])
    if header:
        _check_header(path, lines[0], columns, unit_name)
    rows = lines[1:] if header else lines
    first = 2 if header else 1
    if len(rows) < 2:
        raise DataError(f"{path} contains {len(rows)} row(s) of data; the file is empty or truncated")
    commas = len(columns)
    for number, row in enumerate(rows, first):
        if row.count(",") != commas or len(row) > LINE_LIMIT:
            raise DataError(
                f"{path}, line {number}: {row.count(',') + 1} columns, expected {commas + 1} "
                f"(timestamp, {', '.join(column.name for column in columns)}); the file is truncated or of another kind"
            )
    stamps = np.array([_stamp(path, number, row, unit_ns) for number, row in enumerate(rows, first)], dtype=np.int64)
    late = np.flatnonzero(np.diff(stamps) <= 0)
    if len(late):
        raise DataError(
            f"{path}, line {first + int(late[0]) + 1}: the time stamp is not later than the previous one "
            f"({len(late)} such rows); rows are unordered or repeated, or the stamps are not in {unit_name}"
        )
    values = _numbers(path, rows, first, columns)
    return Table(path, hashlib.sha256(data).hexdigest(), stamps, values, columns, first, header)


def _is_header(line: str) -> bool:
    return line.lstrip("\ufeff \t").startswith("#") or _STAMP.fullmatch(line.split(",", 1)[0].strip()) is None


def _check_header(path: Path, line: str, columns: tuple[Column, ...], unit_name: str) -> None:
    cells = [cell.strip() for cell in line.lstrip("\ufeff \t#").split(",")]
    if len(cells) != len(columns) + 1:
        raise DataError(
            f"{path}, line 1: the header has {len(cells)} columns, expected {len(columns) + 1} "
            f"(timestamp, {', '.join(column.name for column in columns)})"
        )
    expected = (Column("timestamp", unit_name, ("time(ns)", "time")), *columns)
    for number, (cell, column) in enumerate(zip(cells, expected, strict=True), 1):
        name, bracket, unit = cell.partition("[")
        unit = unit.rstrip("] \t")
        if name.strip().lower() not in {alias.lower() for alias in (column.name, *column.aliases)}:
            raise DataError(f"{path}, line 1, column {number}: the name is {cell[:80]!r}, expected {column.name!r}")
        if bracket and unit != column.unit:
            raise DataError(
                f"{path}, line 1, column {number} ({column.name}): the unit is {unit[:40]!r}, expected "
                f"{column.unit!r}; convert the column"
            )


def _stamp(path: Path, number: int, row: str, unit_ns: int) -> int:
    cell = row.split(",", 1)[0].strip()
    if _STAMP.fullmatch(cell) is None:
        raise DataError(f"{path}, line {number}, column 1 (timestamp): {cell[:40]!r} is not a time")
    # exact: float64 resolves only some 200 ns of a Unix time
    nanoseconds = int(cell) * unit_ns if cell.isdigit() else int((Decimal(cell) * unit_ns).to_integral_value())
    if not -(2**62) < nanoseconds < 2**62:
        raise DataError(f"{path}, line {number}, column 1 (timestamp): {cell} is out of range; check its unit")
    return nanoseconds


def _numbers(path: Path, rows: list[str], first: int, columns: tuple[Column, ...]) -> NDArray[np.float64]:
    try:
        return np.loadtxt(
            rows, delimiter=",", comments=None, dtype=np.float64, ndmin=2, usecols=range(1, len(columns) + 1)
        )
    except (ValueError, OverflowError, UnicodeError):
        pass  # numpy does not report the line: find it cell by cell
    for number, row in enumerate(rows, first):
        for column, cell in zip(columns, row.split(",")[1:], strict=True):
            try:
                float(cell)
            except ValueError:
                place = f"{path}, line {number} ({column.name})"
                raise DataError(f"{place}: {cell.strip()[:40]!r} is not a number") from None
    raise DataError(f"{path}: a cell is not a plain number (digits with underscores, or non-ASCII digits)")
