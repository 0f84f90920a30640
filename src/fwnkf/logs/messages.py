"""Messages of ROS 1 and ROS 2 as columns of numbers.

A message has no fixed layout: strings and sequences move what follows them. But the messages of one topic hardly differ
in the lengths of these, so the layout of one message serves for all with the same lengths. They are decoded together,
as rows of an array; a message with other lengths gets a layout of its own.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .definitions import NUMBERS, Definitions, Field
from .work import Work

DEPTH_LIMIT = 32
NODE_LIMIT = 200_000
"""Fields of one message that are visited before it is given up."""
LIST_LIMIT = 512
"""Fields of a topic that are listed."""
ELEMENT_LIMIT = 64
"""Elements of an array that are listed; any other can be read by its index."""
VISITS = "visited fields of messages"
LAYOUT_LIMIT = 64
"""Layouts for messages of one length that are remembered; messages that fit none of them are decoded one by one."""

Array = NDArray[np.float64]

TIMES: Mapping[str, tuple[Field, ...]] = {
    "time": (Field("sec", "uint32"), Field("nanosec", "uint32")),
    "duration": (Field("sec", "int32"), Field("nanosec", "int32")),
}
"""Built-in types of ROS 1, with the field names of ROS 2."""

_ELEMENT = re.compile(r"(.*)\[(\d{1,9})\]")


class Layout(NamedTuple):
    """Where the fields are in messages of one length: bytes from the start, and numpy type."""

    columns: Mapping[str, tuple[int, str]]
    guards: tuple[tuple[int, str, int], ...]
    """Values that a message must have for this layout: byte order and the lengths of strings and sequences."""
    complete: bool = True
    """False if the message ends before the wanted fields."""


class _ShortError(Exception):
    """A message ends before its fields do."""


@dataclass
class _Walk:
    """One pass over a message."""

    data: bytes
    definitions: Definitions
    aligned: bool
    order: str
    largest: int
    """Largest alignment in bytes."""
    wanted: set[str] | None
    """Fields to find; None lists all."""
    base: int
    """The byte from which alignment counts."""
    arrays: Mapping[str, Sequence[int]]
    """Wanted elements of arrays by the path of the array."""
    columns: dict[str, tuple[int, str]] = field(default_factory=dict)
    guards: list[tuple[int, str, int]] = field(default_factory=list)
    nodes: int = 0
    most: int = NODE_LIMIT
    """Fields that are visited, at most."""

    def message(self, kind: str, at: int, path: str, depth: int = 0) -> int:
        fields = TIMES.get(kind) or self.definitions.get(kind)
        if fields is None:
            raise DataError(f"type {kind[:80]} of field {path.rstrip('.')[:80] or '(all)'} is not defined in the log")
        if depth > DEPTH_LIMIT:
            raise DataError(f"type {kind[:80]} is nested more than {DEPTH_LIMIT} times")
        if not fields and self.aligned:
            return at + 1  # ROS 2 sends one byte for a message without fields
        for part in fields:
            if self.done:
                return at
            at = self.part(part, at, path + part.name, depth)
        return at

    @property
    def done(self) -> bool:
        return self.wanted is not None and len(self.columns) == len(self.wanted)

    def part(self, part: Field, at: int, path: str, depth: int) -> int:
        self.visit()
        if part.length is None:
            return self.value(part.kind, at, path, depth)
        count = part.length
        if count < 0:
            at, count = self.length(at)
        if part.kind in NUMBERS:
            return self.numbers(part.kind, count, at, path)
        if part.kind == "string":
            return self.strings(count, at)
        for index in range(count):
            if self.done:
                return at
            at = self.value(part.kind, at, f"{path}[{index}]", depth)
        return at

    def visit(self) -> None:
        self.nodes += 1
        if self.nodes > self.most or (self.wanted is None and len(self.columns) >= LIST_LIMIT):
            raise _ShortError

    def value(self, kind: str, at: int, path: str, depth: int) -> int:
        self.visit()
        if kind in NUMBERS:
            return self.number(kind, at, path)
        if kind == "string":
            at, count = self.length(at)
            return self.skip(at, count)
        if kind == "wstring":
            raise _ShortError  # its encoding depends on the sender: nothing behind it can be found
        return self.message(kind, at, f"{path}.", depth + 1)

    def align(self, at: int, size: int) -> int:
        if not self.aligned:
            return at
        step = min(size, self.largest)
        return at + (self.base - at) % step

    def skip(self, at: int, count: int) -> int:
        if at + count > len(self.data):
            raise _ShortError
        return at + count

    def length(self, at: int) -> tuple[int, int]:
        """The length in front of a string or a sequence, and what is behind it."""
        at = self.align(at, 4)
        end = self.skip(at, 4)
        (count,) = struct.unpack_from(f"{self.order}I", self.data, at)
        self.guards.append((at, f"{self.order}u4", count))
        return end, count

    def strings(self, count: int, at: int) -> int:
        """Skip an array of strings, in a loop of its own: those of diagnostics have hundreds."""
        end = len(self.data)
        if 4 * count > end - at or self.nodes + count > self.most:
            raise _ShortError
        self.nodes += count
        unpack, code = struct.Struct(f"{self.order}I").unpack_from, f"{self.order}u4"
        for _ in range(count):
            at = self.align(at, 4) if self.aligned else at
            if at + 4 > end:
                raise _ShortError
            (size,) = unpack(self.data, at)
            self.guards.append((at, code, size))
            at += 4 + size
        return self.skip(at, 0)

    def number(self, kind: str, at: int, path: str) -> int:
        code = NUMBERS[kind]
        at = self.align(at, int(code[1]))
        end = self.skip(at, int(code[1]))
        if self.wanted is None or path in self.wanted:
            self.columns[path] = (at, f"{self.order}{code}")
        return end

    def numbers(self, kind: str, count: int, at: int, path: str) -> int:
        if count == 0:
            return at
        code = NUMBERS[kind]
        size = int(code[1])
        at = self.align(at, size)
        end = self.skip(at, count * size)
        if self.wanted is None:
            room = max(0, LIST_LIMIT - len(self.columns))
            chosen: Sequence[int] = range(min(count, ELEMENT_LIMIT, room))
        else:
            chosen = [index for index in self.arrays.get(path, ()) if index < count]
        for index in chosen:
            self.columns[f"{path}[{index}]"] = (at + index * size, f"{self.order}{code}")
        return end


class Decoder:
    """Decodes messages of one type.

    >>> decoder = Decoder("a/B", {"a/B": (Field("name", "string"), Field("x", "float32"))}, aligned=False)
    >>> rows = [struct.pack("<I2sf", 2, b"up", 1.5), struct.pack("<I4sf", 4, b"down", 2.5)]
    >>> work = Work("run.bag", 100)
    >>> decoder.fields(rows[0], work), decoder.columns(rows, ["x"], work)[0]["x"]
    (('x',), array([1.5, 2.5], dtype=float32))
    """

    def __init__(self, kind: str, definitions: Definitions, *, aligned: bool) -> None:
        self.kind = kind
        self.definitions = definitions
        self.aligned = aligned
        """True for the CDR of ROS 2, False for the messages of ROS 1."""
        self._layouts: dict[tuple[tuple[str, ...], int], list[Layout]] = {}

    def fields(self, data: bytes, work: Work) -> tuple[str, ...]:
        """The names of the numbers in a message."""
        return tuple(self._layout(data, None, work).columns)

    def columns(
        self, messages: Sequence[bytes], wanted: Sequence[str], work: Work
    ) -> tuple[dict[str, NDArray[np.generic]], NDArray[np.bool_]]:
        """Columns of a row for each message, and which messages are complete.

        A column has the type of its field if every message has the field; else it is float64 with NaN where it is
        missing.
        """
        names = tuple(dict.fromkeys(wanted))
        lengths = np.fromiter(map(len, messages), np.int64, len(messages))
        whole = np.ones(len(messages), bool)
        parts: list[tuple[NDArray[np.int64], NDArray[Any]]] = []
        for length in np.unique(lengths):
            rows = np.flatnonzero(lengths == length)
            if length == 0:
                whole[rows] = not names
                continue
            chosen = messages if len(rows) == len(messages) else [messages[row] for row in rows.tolist()]
            parts += self._group(b"".join(chosen), int(length), rows, names, whole, work)
        return {name: _column(name, parts, len(messages)) for name in names}, whole

    def _group(
        self,
        joined: bytes,
        length: int,
        rows: NDArray[np.int64],
        names: tuple[str, ...],
        whole: NDArray[np.bool_],
        work: Work,
    ) -> list[tuple[NDArray[np.int64], NDArray[Any]]]:
        """Decode messages of equal length; every layout takes those that have its lengths of strings and sequences."""
        parts = []
        left = np.arange(len(rows))
        known = self._layouts.setdefault((names, length), [])
        attempt = 0
        while len(left):
            data = joined[left[0] * length : (left[0] + 1) * length]
            if attempt < len(known):
                layout = known[attempt]
            else:
                layout = self._layout(data, set(names), work)
                if len(known) < LAYOUT_LIMIT:
                    known.append(layout)
            if attempt < LAYOUT_LIMIT:
                records = np.frombuffer(joined, _record(layout, length))
                records = records if len(left) == len(rows) else records[left]
                fits = np.ones(len(left), bool)
                for number, (_, _, value) in enumerate(layout.guards):
                    fits &= records[f"guard {number}"] == value
                taken, left = rows[left[fits]], left[~fits]
                records = records if fits.all() else records[fits]
            else:
                alone = layout._replace(guards=())
                records, taken, left = np.frombuffer(data, _record(alone, length)), rows[left[:1]], left[1:]
            attempt += 1
            if layout.complete:
                parts.append((taken, records))
            else:
                whole[taken] = False
        return parts

    def _layout(self, data: bytes, wanted: set[str] | None, work: Work) -> Layout:
        arrays: dict[str, list[int]] = {}
        for name in wanted or ():
            if match := _ELEMENT.fullmatch(name):
                arrays.setdefault(match[1], []).append(int(match[2]))
        walk = _Walk(data, self.definitions, self.aligned, "<", 8, wanted, 0, arrays)
        walk.most = min(NODE_LIMIT, work.left(VISITS))
        at = 0
        if self.aligned:
            if len(data) < 4 or data[0] != 0 or data[1] not in (0, 1, 6, 7):
                return Layout({}, tuple((at, "u1", value) for at, value in enumerate(data[:2])), complete=False)
            walk.order, walk.largest = "><"[data[1] & 1], 8 if data[1] < 2 else 4
            walk.guards = [(0, "u1", data[0]), (1, "u1", data[1])]
            at = walk.base = 4
        try:
            walk.message(self.kind, at, "")
            work.count(VISITS, walk.nodes)
        except _ShortError:
            work.count(VISITS, walk.nodes)
            return Layout(walk.columns, tuple(walk.guards), complete=wanted is None)
        return Layout(walk.columns, tuple(walk.guards))


def _record(layout: Layout, length: int) -> np.dtype[np.void]:
    names = [f"guard {number}" for number in range(len(layout.guards))] + list(layout.columns)
    places = [(at, code) for at, code, _ in layout.guards] + list(layout.columns.values())
    return np.dtype(
        {"names": names, "formats": [code for _, code in places], "offsets": [at for at, _ in places],
         "itemsize": length}
    )  # fmt: skip


def _column(name: str, parts: Sequence[tuple[NDArray[np.int64], NDArray[Any]]], count: int) -> NDArray[np.generic]:
    have = [part for part in parts if name in (part[1].dtype.names or ())]
    if len(have) == len(parts) == 1 and len(parts[0][0]) == count:
        return np.array(parts[0][1][name])
    if have and len(have) == len(parts) and sum(len(rows) for rows, _ in parts) == count:
        values = np.empty(count, have[0][1].dtype[name].newbyteorder("="))
    else:
        values = np.full(count, np.nan)
    for rows, records in have:
        values[rows] = records[name]
    return values
