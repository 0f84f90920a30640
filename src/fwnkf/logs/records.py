"""Logs whose samples are records of fixed layout at known places of a file, which is mapped and not copied.

A subclass scans its file once and notes the place of every record; numbers are gathered when they are asked for. Memory
is thereby bounded by eight bytes for a record, whatever the lengths in a damaged file say.
"""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .log import BLOCK, Array, Log, Stream, Topic
from .work import Work

NOTES = 5
"""Damaged places that are named one by one."""


def map_file(path: Path) -> mmap.mmap:
    """The bytes of a file, read when they are used."""
    try:
        if path.stat().st_size == 0:
            raise DataError(f"{path} is empty; copy it again from the vehicle")
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise DataError(f"{path} cannot be opened ({error.strerror or error}); check the path") from error


class Field(NamedTuple):
    """A number in a record."""

    offset: int
    dtype: str
    """As numpy writes it, such as ``<f4``."""
    factor: float = 1.0
    unit: str = ""


@dataclass
class Series:
    """Records of one topic: places of their first bytes, and the fields behind them."""

    name: str
    kind: str
    fields: dict[str, Field]
    clock: str
    """Field with the time of a sample."""
    received: str | None = None
    """Field with the time at which it was published, where that is another one."""
    tick: float = 1e-6
    """Seconds of one unit of the clock."""
    places: array[int] = field(default_factory=lambda: array("q"))
    instance: str = ""
    """Field with the number of the sensor, where a message has one."""


@dataclass(frozen=True)
class Derived:
    """A topic computed from others, such as the samples of FIFO packets."""

    topic: Topic
    compute: Callable[[], Stream]


class Damage:
    """Parts of a file that could not be read, as notes."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, int, str]] = []

    def add(self, start: int, stop: int, why: str) -> None:
        """Note a part; neighbouring parts become one."""
        if self.parts and self.parts[-1][1] >= start:
            self.parts[-1] = (self.parts[-1][0], stop, self.parts[-1][2])
        else:
            self.parts.append((start, stop, why))

    def notes(self) -> list[str]:
        """One line for each of the first parts, and one for all others."""
        lines = [
            f"damaged at byte {start:,}: {why}; {stop - start:,} bytes were skipped"
            for start, stop, why in self.parts[:NOTES]
        ]
        if len(self.parts) > NOTES:
            rest = self.parts[NOTES:]
            size = sum(stop - start for start, stop, _ in rest)
            lines.append(f"damaged at {len(rest):,} more places, {size:,} bytes in all were skipped")
        return lines


class RecordLog(Log):
    """Base class of logs with fixed records."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.data = map_file(self.path)
        self.work = Work(self.path, len(self.data))
        self.parameters = {}
        self.topics = {}
        self._raw = np.frombuffer(self.data, np.uint8)
        self.series: dict[str, Series] = {}
        self._derived: dict[str, Derived] = {}
        self._zero = 0
        """Clock of the file at time zero, in its ticks."""

    def __enter__(self) -> RecordLog:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the file; nothing can be read afterwards."""
        del self._raw
        self.data.close()

    def _name_topics(self) -> None:
        topics = {
            name: Topic(name, series.kind, tuple(series.fields), len(series.places))
            for name, series in sorted(self.series.items())
            if series.places and series.clock
        }
        self.topics = topics | {name: derived.topic for name, derived in self._derived.items()}
        self.work.count("topics", len(self.topics))

    def derive(self, name: str, fields: Sequence[str], compute: Callable[[], Stream]) -> None:
        """Add a topic that is computed from others."""
        self._derived[name] = Derived(Topic(name, "computed", tuple(fields)), compute)

    def _numbers_at(self, places: NDArray[np.int64], entry: Field) -> NDArray[Any]:
        """The numbers behind some places, as the file has them."""
        dtype = np.dtype(entry.dtype)
        every = np.ndarray((max(len(self._raw) - dtype.itemsize + 1, 0),), dtype, self._raw, strides=(1,))
        return np.asarray(every[places + entry.offset])

    def _gather(self, places: NDArray[np.int64], entry: Field) -> Array:
        values = self._numbers_at(places, entry)
        with np.errstate(invalid="ignore", over="ignore"):  # numbers of damaged samples
            numbers = values.astype(np.float64)
            return numbers if entry.factor == 1.0 else numbers * entry.factor

    def _clock(self, places: NDArray[np.int64], entry: Field, tick: float) -> Array:
        """Seconds since time zero, subtracted as integers, because an epoch in µs leaves float64 few digits."""
        values = self._numbers_at(places, entry)
        if values.dtype.kind == "f":
            return (values.astype(np.float64) - self._zero) * tick
        ticks = (values.astype(np.uint64) - np.uint64(self._zero)).view(np.int64)
        return ticks.astype(np.float64) * tick

    def read(self, topic: str, fields: Sequence[str] | None = None) -> Stream:
        """All samples of a topic, in the order of the file."""
        return self._read(topic, fields, None)

    def _read(self, topic: str, fields: Sequence[str] | None, rows: slice | None) -> Stream:
        if topic in self._derived:
            stream = self._derived[topic].compute()
            names = list(stream.columns) if fields is None else list(fields)
            self._check(topic, names, stream.columns)
            columns = {name: stream.columns[name] for name in names}
            stream = replace(stream, columns=columns, topic=topic)
            return stream if rows is None else stream.take(rows)
        series = self.series.get(topic)
        if series is None or not series.places or not series.clock:
            known = ", ".join(list(self.topics)[:40]) or "none"
            raise DataError(f"{self.path}: no topic {topic!r:.80}; topics of this log: {known}")
        names = list(series.fields) if fields is None else list(fields)
        self._check(topic, names, series.fields)
        places = np.frombuffer(series.places, np.int64)
        places = places if rows is None else places[rows]
        time = self._clock(places, series.fields[series.clock], series.tick)
        received = None
        if series.received is not None:
            received = self._clock(places, series.fields[series.received], series.tick)
            empty = self._gather(places, series.fields[series.clock]) == 0.0
            time = np.where(empty, received, time)  # drivers leave a sample's own time at zero
        columns = {name: self._gather(places, series.fields[name]) for name in names}
        units = {name: series.fields[name].unit for name in names if series.fields[name].unit}
        return Stream(topic, time, columns, units, received, topic)

    def _check(self, topic: str, names: Sequence[str], known: Mapping[str, object]) -> None:
        for name in names:
            if name not in known:
                listed = ", ".join(list(known)[:40])
                raise DataError(f"{self.path}: topic {topic} has no field {name!r:.80}; fields: {listed}")

    def blocks(self, wanted: Mapping[str, Sequence[str]], samples: int = BLOCK) -> Iterator[Mapping[str, Stream]]:
        """Samples of several topics in blocks that end at the same place of the file.

        Topics that are computed from others are divided by time.
        """
        whole = {name: self.read(name, fields) for name, fields in wanted.items() if name in self._derived}
        marks = {name: _increasing(stream.time) for name, stream in whole.items()}
        placed = {name: np.frombuffer(self.series[name].places, np.int64) for name in wanted if name in self.series}
        if marks:
            times = {name: _increasing(self.read(name, []).time) for name in placed}
            yield from self._blocks(wanted, whole, marks | times, samples)
        else:
            yield from self._blocks(wanted, whole, placed, samples)

    def _blocks(
        self,
        wanted: Mapping[str, Sequence[str]],
        whole: Mapping[str, Stream],
        marks: Mapping[str, NDArray[np.float64] | NDArray[np.int64]],
        samples: int,
    ) -> Iterator[Mapping[str, Stream]]:
        for name in wanted:
            if name not in marks:
                self.read(name, wanted[name])  # names the topics there are
        start = dict.fromkeys(marks, 0)
        while any(start[name] < len(mark) for name, mark in marks.items()):
            ends = [
                mark[start[name] + samples - 1] for name, mark in marks.items() if start[name] + samples < len(mark)
            ]
            last = min(ends) if ends else None
            block = {}
            for name, mark in marks.items():
                first = start[name]
                stop = len(mark) if last is None else min(first + samples, len(mark))
                if last is not None:
                    later = np.flatnonzero(mark[first:stop] > last)
                    stop = first + int(later[0]) if len(later) else stop
                rows = slice(first, stop)
                block[name] = whole[name].take(rows) if name in whole else self._read(name, wanted[name], rows)
                start[name] = stop
            yield block


def _increasing(time: Array) -> Array:
    """The latest time so far; a block cannot end in front of a sample whose clock went back."""
    return np.fmax.accumulate(time)


def instances(log: RecordLog, kind: str, field: str = "") -> list[str]:
    """Topics of one kind of message, which have a certain field, in the order of their instances."""
    names = [
        name
        for name, series in log.series.items()
        if series.kind == kind and series.places and series.clock and (not field or field in series.fields)
    ]
    return sorted(names, key=lambda name: (len(name), name))
