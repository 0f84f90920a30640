"""One store of results: a row for each run, as lines of JSON in the order of their keys.

The whole file is replaced at once, under a lock: a command that is killed leaves the rows written before, and several
commands may write to one store. The order of the rows does not depend on the order in which runs end.
"""

from __future__ import annotations

import contextlib
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


class Store:
    """Rows by key in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self) -> dict[str, Row]:
        """All rows by key; none if there is no file yet."""
        if not self.path.is_file():
            return {}
        rows = {}
        for count, line in enumerate(self.path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                row = _numbers(json.loads(line))
                if row["format"] != FORMAT:
                    raise DataError(f"{self.path}, line {count}: format {row['format']!r}, this version has {FORMAT}")
                rows[str(row["key"])] = row
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f"{self.path}, line {count} is not a row of results ({error}); restore the file with git"
                ) from error
        return rows

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows; one with the key of an earlier row replaces it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked():
            stored = self.rows() | {str(row["key"]): {"format": FORMAT, **row} for row in rows}
            lines = (json.dumps(plain(row), allow_nan=False, ensure_ascii=False) for _, row in sorted(stored.items()))
            temporary = self.path.with_name(self.path.name + ".part")
            with temporary.open("w", encoding="utf-8") as file:
                file.writelines(line + "\n" for line in lines)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """A lock on the folder, which the system releases when its owner ends, however it ends."""
        import fcntl  # here, because Windows has none: only writing needs it

        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


def _numbers(value: Any) -> Any:
    """Words for infinity as numbers, at every depth."""
    if isinstance(value, dict):
        return {name: _numbers(item) for name, item in value.items()}
    return [_numbers(item) for item in value] if isinstance(value, list) else number(value)
