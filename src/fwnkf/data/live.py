"""Samples as they arrive: lines of standard input or of a growing file, a Redis stream, or a log that is being written.

A source yields rows by the names of its columns, and None at least every :data:`TICK` seconds while it waits, so that
who follows it can draw, or end.
"""

from __future__ import annotations

import csv
import json
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from ..errors import ConfigError, DataError
from ..extras import need
from ..logs.choice import Pick
from ..logs.table import split_unit
from ..logs.table_time import time_column, time_unit

TICK = 0.2
"""Seconds that a source waits for the next sample before it yields None."""
LONGEST = 1_000_000
"""Bytes of a line."""
AHEAD = 10_000
"""Lines that are read before they are used."""
BLOCK = 1 << 16
BATCH = 1000
"""Entries of a Redis stream at a time."""


class Row(NamedTuple):
    """Numbers by column at one time."""

    values: Mapping[str, float]
    time: float | None = None
    """In seconds, where the source and not a column says it."""


Rows = Iterator["Row | DataError | None"]
"""A row, what was wrong with one, or None while there is none."""


# ---- lines ----------------------------------------------------------------------------------------------------------


class LineReader:
    """Rows of lines: JSON objects, or CSV below a header.

    >>> reader = LineReader()
    >>> reader("t [s],gyro_x") is None, reader("0.5,2").values
    (True, {'t': 0.5, 'gyro_x': 2.0})
    >>> LineReader()('{"t": 1, "gyro_x": null}').values["t"]
    1.0
    """

    def __init__(self) -> None:
        self.units: dict[str, str] = {}
        """Of the columns of a header."""
        self._header: list[str] | None = None
        self._lines = 0

    def __call__(self, line: str) -> Row | DataError | None:
        self._lines += 1
        line = line.strip()
        if not line or (line.startswith("#") and self._header is not None):
            return None
        try:
            return self._object(line) if line.startswith("{") else self._cells(line)
        except (ValueError, RecursionError, csv.Error) as error:
            return DataError(f"line {self._lines} is not used: {error}")

    def _object(self, line: str) -> Row:
        found = json.loads(line)
        return Row({str(name): _number(value, name) for name, value in found.items()})

    def _cells(self, line: str) -> Row | None:
        cells = next(csv.reader([line.lstrip("#").strip()], delimiter=_delimiter(line)))
        if self._header is None:
            if all(_is_number(cell) for cell in cells):
                raise ValueError("a table begins with the names of its columns, and this line has numbers only")
            pairs = [split_unit(cell.strip()) for cell in cells]
            self._header, self.units = [name for name, _ in pairs], dict(pairs)
            return None
        if len(cells) != len(self._header):
            raise ValueError(f"it has {len(cells)} values, and the header {len(self._header)} names")
        return Row({name: _number(cell.strip(), name) for name, cell in zip(self._header, cells, strict=True)})


def _delimiter(line: str) -> str:
    return max(",;\t", key=line.count)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _number(value: Any, name: str) -> float:
    """A cell as a number; empty and null are missing."""
    if value is None or value == "":
        return math.nan
    if isinstance(value, (list, dict)):
        raise ValueError(f"{name} is not a number")
    return float(value)


def read_lines(file: IO[bytes]) -> Iterator[str | None]:
    """Lines of a pipe, read by a thread, because a pipe cannot be asked whether it has one; None while it has none."""
    waiting: queue.Queue[bytes | None] = queue.Queue(AHEAD)

    def read() -> None:
        try:
            while line := file.readline(LONGEST):
                waiting.put(line)
        except (OSError, ValueError):  # closed
            pass
        waiting.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = waiting.get(timeout=TICK)
        except queue.Empty:
            yield None
            continue
        if line is None:
            return
        yield line.decode("utf-8", errors="replace")


def follow_file(path: Path, *, new: bool = False) -> Iterator[str | None]:
    """Whole lines of a file, then those that are appended; a file that became shorter is read from its start.

    With ``new``, of the lines that are there only the first, which may be a header.
    """
    held, place = b"", 0
    if new:
        with path.open("rb") as file:
            first = file.readline(LONGEST)
            place = file.seek(0, 2)
        if not first.lstrip().startswith(b"{"):
            yield first.decode("utf-8", errors="replace")
    while True:
        size = path.stat().st_size
        if size < place:
            held, place = b"", 0
        if size == place:
            yield None
            time.sleep(TICK)
            continue
        with path.open("rb") as file:
            file.seek(place)
            while block := file.read(BLOCK):
                place += len(block)
                *lines, held = (held + block).split(b"\n")
                for line in lines:
                    yield line.decode("utf-8", errors="replace")
                if len(held) > LONGEST:
                    raise DataError(f"{path}: a line has more than {LONGEST:,} bytes; this is not a table of lines")


def line_rows(lines: Iterator[str | None], reader: LineReader) -> Rows:
    """Rows of lines."""
    for line in lines:
        yield None if line is None else reader(line)


# ---- a Redis stream -------------------------------------------------------------------------------------------------


def redis_rows(url: str, stream: str, *, start: str = "$") -> Rows:
    """Entries of a Redis stream whose fields are numbers; their time is that of the server unless a field says it.

    Raises:
        ConfigError: the server cannot be reached.
    """
    redis = need("redis", "live")
    client = redis.Redis.from_url(url)
    try:
        if start == "$":  # what comes between two calls must not be missed
            newest = client.xrevrange(stream, count=1)
            start = newest[0][0].decode() if newest else "0"
        while True:
            answer = client.xread({stream: start}, count=BATCH, block=int(1000 * TICK))
            if not answer:
                yield None
                continue
            entries = answer[0][1] if isinstance(answer, list) else next(iter(answer.values()))[0]
            for number, fields in entries:
                start = number.decode()
                yield _entry(start, fields)
    except redis.exceptions.RedisError as error:
        place = urlsplit(url)  # without a password
        where = f"{place.hostname or 'localhost'}:{place.port or 6379}"
        raise ConfigError(f"the Redis server at {where} cannot be used: {error}") from error


def _entry(number: str, fields: Mapping[bytes, bytes]) -> Row | DataError:
    try:
        values = {name.decode(): _number(value.decode(), name.decode()) for name, value in fields.items()}
    except (ValueError, UnicodeDecodeError) as error:
        return DataError(f"entry {number} is not used: {error}")
    return Row(values, int(number.split("-")[0]) / 1000)


# ---- a log that is being written ------------------------------------------------------------------------------------


def log_rows(path: Path, blocks: Callable[[], Iterator[tuple[Any, Any]]], names: Sequence[str]) -> Rows:
    """Samples of a log of any format: it is opened again when it has grown, and read on behind the last sample."""
    last, size = -math.inf, -1
    while True:
        now = path.stat().st_size
        if now == size:
            yield None
            time.sleep(TICK)
            continue
        size = now
        try:
            for stamps, values in blocks():
                fresh = stamps > last
                for at, row in zip(stamps[fresh].tolist(), values[fresh].tolist(), strict=True):
                    last = at
                    yield Row(dict(zip(names, row, strict=True)), at)
        except DataError as error:  # as long as the start of the log is not complete
            if last > -math.inf:
                raise
            yield error if now else None
        time.sleep(TICK)


# ---- samples of a filter --------------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """What a stream takes."""

    time: float
    y: Any
    u: Any


class Columns:
    """Finds the time, the channels and the controls of a filter in rows."""

    def __init__(
        self, channels: Sequence[str], controls: Sequence[str], fields: Sequence[str] = (), time: str | None = None
    ) -> None:
        self._picks = {pick.name: pick for pick in map(Pick.parse, fields)}
        self.channels, self.controls = [self._pick(name) for name in channels], [self._pick(name) for name in controls]
        self._time = Pick.parse(f"time={time}") if time else None
        self._seconds: Pick | None = None

    def _pick(self, name: str) -> Pick:
        return self._picks.get(name, Pick(name, name))

    def sample(self, row: Row, units: Mapping[str, str]) -> Sample:
        """A row for a filter; channels that it has not are missing. Raises DataError."""
        y = np.array([pick.factor * row.values.get(pick.place, math.nan) for pick in self.channels])
        if not np.isfinite(y).any() and not any(pick.place in row.values for pick in self.channels):
            wanted = ", ".join(pick.place for pick in self.channels)
            raise DataError(f"a row has {', '.join(row.values) or 'nothing'}, and none of the channels: {wanted}")
        u = np.array([pick.factor * row.values.get(pick.place, math.nan) for pick in self.controls])
        return Sample(self._when(row, units), y, u if len(u) and np.isfinite(u).all() else None)

    def _when(self, row: Row, units: Mapping[str, str]) -> float:
        if self._seconds is None:
            self._seconds = self._time or self._found(row, units)
        if self._seconds is None:
            if row.time is None:
                raise DataError(f"no column of {', '.join(row.values)} is the time; name it: --time COLUMN")
            return row.time
        at = self._seconds.factor * row.values.get(self._seconds.place, math.nan)
        if not math.isfinite(at):
            raise DataError(f"the time in {self._seconds.place} is missing")
        return at

    def _found(self, row: Row, units: Mapping[str, str]) -> Pick | None:
        """The column of the time by its name, with the unit that its name, the header or its first value tells."""
        name = time_column({name: units.get(name, "") for name in row.values})
        if name is None or (row.time is not None and not math.isfinite(row.values[name])):
            return None
        unit = time_unit(name, units.get(name, ""), np.array([row.values[name]]))
        return None if unit is None else Pick("time", name, unit.factor)
