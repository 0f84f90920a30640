"""One store of results: a row for each run, as lines of JSON in the order of their keys, a file for each table.

A file is replaced at once, under a lock: a command that is killed leaves the rows written before, and several
commands may write to one store. The order of the rows does not depend on the order in which runs end.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fwnkf.errors import DataError
from fwnkf.plain import number, plain

FORMAT = 1
Row = dict[str, Any]
RUNTIME = "runtime"
"""The kind of rows that say how long a step takes."""


def short_name(values: Any) -> str:
    """A short name for plain values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]


class Store:
    """Rows by key in the files of a folder, those of each data set and protocol in one of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def rows(self) -> dict[str, Row]:
        """All rows by key, in the order of their keys; none if there is no folder yet."""
        rows = {key: row for path in self.folder.glob("*.jsonl") for key, row in _read(path).items()}
        return dict(sorted(rows.items()))

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows; one with the key of an earlier row replaces it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        new: dict[Path, dict[str, Row]] = {}
        for row in rows:
            key = str(row["key"])
            new.setdefault(self._file(key), {})[key] = {"format": FORMAT, **row}
        with self._locked():
            for path, added in new.items():
                _write(path, _read(path) | added)

    def _file(self, key: str) -> Path:
        """``lorenz-strict.jsonl`` for ``lorenz/strict/kf/0/1``, ``runtime.jsonl`` for ``runtime/kf``."""
        *table, _ = key.split("/")
        return self.folder / f"{'-'.join(table[:2])}.jsonl"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """A lock on the folder, which the system releases when its owner ends, however it ends."""
        import fcntl  # here, because Windows has none: only writing needs it

        folder = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


def _read(path: Path) -> dict[str, Row]:
    """The rows of a file; none if there is none."""
    if not path.is_file():
        return {}
    rows = {}
    for count, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = _numbers(json.loads(line))
            if row["format"] != FORMAT:
                raise DataError(f"{path}, line {count}: format {row['format']!r}, this version has {FORMAT}")
            rows[str(row["key"])] = row
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path}, line {count} is not a row of results ({error}); restore the file with git"
            ) from error
    return rows


def _write(path: Path, rows: Mapping[str, Row]) -> None:
    """Replace a file at once."""
    lines = (json.dumps(plain(row), allow_nan=False, ensure_ascii=False) for _, row in sorted(rows.items()))
    temporary = path.with_name(path.name + ".part")
    with temporary.open("w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _numbers(value: Any) -> Any:
    """Words for infinity as numbers, at every depth."""
    if isinstance(value, dict):
        return {name: _numbers(item) for name, item in value.items()}
    return [_numbers(item) for item in value] if isinstance(value, list) else number(value)
