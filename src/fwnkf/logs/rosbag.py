"""Bags of ROS 1, without ROS installed.

They are read here and not by the ``rosbags`` package, because bags without an index (recordings that were not
closed) are read as well, and lengths are checked against the file before memory is taken.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from ..errors import DataError
from .chunked import Chunk, ChunkedLog, Wanted
from .compressed import CHUNK_LIMIT
from .log import LOG_READERS
from .ros import Channel, channel_of
from .work import Work

MAGIC = b"#ROSBAG V2.0\n"
HEADER_LIMIT = 1 << 22
MESSAGE, BAG, CHUNK, CHUNK_INFO, CONNECTION = 2, 3, 5, 6, 7


def _header(data: bytes) -> dict[bytes, bytes] | None:
    """The fields of a record header, or None if it is damaged."""
    fields: dict[bytes, bytes] = {}
    at = 0
    while at < len(data):
        if at + 4 > len(data):
            return None
        size = int.from_bytes(data[at : at + 4], "little")
        name, equals, value = data[at + 4 : at + 4 + size].partition(b"=")
        if not equals or at + 4 + size > len(data):
            return None
        fields[name] = value
        at += 4 + size
    return fields


def _number(fields: Mapping[bytes, bytes], name: bytes) -> int:
    return int.from_bytes(fields.get(name, b""), "little")


def _stamp(value: bytes) -> int:
    """Nanoseconds of a time of ROS 1."""
    if len(value) != 8:
        return 0
    seconds, nanoseconds = struct.unpack("<II", value)
    return int(seconds * 1_000_000_000 + nanoseconds)


@LOG_READERS.register("bag")
class Bag(ChunkedLog):
    """A bag of ROS 1."""

    format = "ROS 1 bag"

    def __init__(self, path: str | Path) -> None:
        self._types: dict[int, tuple[str, str, str]] = {}
        super().__init__(path)

    def _check_start(self, file: BinaryIO) -> None:
        magic = file.read(len(MAGIC))
        if magic != MAGIC:
            version = magic[9:12].decode("ascii", "replace") if magic.startswith(b"#ROSBAG") else ""
            what = f"is a bag of version {version}" if version else "is not a ROS 1 bag: its first bytes differ"
            raise DataError(f"{self.path} {what}; convert it with `rosbag fix`, or record it again")

    def _record(self, file: BinaryIO, at: int) -> tuple[dict[bytes, bytes], int, int] | None:
        """Header, position and size of the data of the record at ``at``; None at the end and at damage."""
        file.seek(at)
        size = int.from_bytes(file.read(4), "little")
        if at + 8 + size > self._size or not 0 < size <= HEADER_LIMIT:
            return None
        fields = _header(file.read(size))
        length = int.from_bytes(file.read(4), "little")
        if fields is None or b"op" not in fields or at + 8 + size + length > self._size:
            return None
        return fields, at + 8 + size, length

    def _read_index(self, file: BinaryIO) -> bool:
        first = self._record(file, len(MAGIC))
        if first is None or _number(first[0], b"op") != BAG:
            return False
        at = _number(first[0], b"index_pos")
        if not len(MAGIC) < at <= self._size:
            return False
        while at < self._size:
            record = self._record(file, at)
            if record is None or record[2] > HEADER_LIMIT:
                return False
            fields, place, length = record
            file.seek(place)
            data = file.read(length)
            if _number(fields, b"op") == CONNECTION:
                self._declare(fields, data)
            elif _number(fields, b"op") == CHUNK_INFO:
                counts = dict(struct.iter_unpack("<II", data[: len(data) // 8 * 8]))
                times = _stamp(fields.get(b"start_time", b"")), _stamp(fields.get(b"end_time", b""))
                self._chunks[_number(fields, b"chunk_pos")] = Chunk(frozenset(counts), *times)
                for number, count in counts.items():
                    self._counts[number] = self._counts.get(number, 0) + count
            at = place + length
        return bool(self._types) or not self._chunks

    def _declare(self, fields: Mapping[bytes, bytes], data: bytes) -> None:
        details = _header(data) or {}
        topic = (fields.get(b"topic") or details.get(b"topic", b"")).decode("utf-8", "replace")
        kind, text = (details.get(name, b"").decode("utf-8", "replace") for name in (b"type", b"message_definition"))
        self._types.setdefault(_number(fields, b"conn"), (topic, kind, text))

    def _survey(self, work: Work) -> None:
        self._note("the bag has no index (it was not closed): read from its start; `rosbag reindex` adds one")
        for offset, data in self._contents(None, work):
            counts: dict[int, int] = {}
            stamps: list[int] = []
            for fields, at, size in _records(data, work):
                if _number(fields, b"op") == CONNECTION:
                    self._declare(fields, data[at : at + size])
                elif _number(fields, b"op") == MESSAGE:
                    number = _number(fields, b"conn")
                    counts[number] = counts.get(number, 0) + 1
                    stamps.append(_stamp(fields.get(b"time", b"")))
            self._count(offset, counts, stamps)

    def _declared(self, work: Work) -> Iterator[tuple[int, str, Channel]]:
        for number, (topic, kind, text) in sorted(self._types.items()):
            try:
                definitions = self._parse(kind, text, f"{self.path}, topic {topic}", work)
                yield number, topic, channel_of(kind, "ros1", definitions)
            except DataError as error:
                yield number, topic, Channel(kind, None, "ros1", str(error))

    def _contents(
        self, wanted: set[int] | None, work: Work, start_ns: int | None = None, stop_ns: int | None = None
    ) -> Iterator[tuple[int, bytes]]:
        with self._open() as file:
            at = len(MAGIC)
            while at < self._size:
                record = self._record(file, at)
                if record is None:
                    at = self._behind(at)
                    continue
                fields, place, length = record
                kind = _number(fields, b"op")
                if kind == CHUNK and self._needed(at, wanted, start_ns, stop_ns):
                    content = self._chunk(file, fields, at, length, work)
                    if content is not None:
                        yield at, content
                elif kind == CHUNK_INFO:
                    break
                at = place + length

    def _chunk(self, file: BinaryIO, fields: Mapping[bytes, bytes], at: int, length: int, work: Work) -> bytes | None:
        """The content of a chunk; None if it cannot be read."""
        if length > CHUNK_LIMIT:
            self._note(f"the chunk at byte {at:,} has {length:,} bytes; at most {CHUNK_LIMIT:,} are read; left out")
            return None
        kind, size = fields.get(b"compression", b"none").decode("ascii", "replace"), _number(fields, b"size")
        data = self._unpack(kind, file.read(length), size, at, work)
        if data is not None and len(data) != size:
            self._note(f"the chunk at byte {at:,} has {len(data):,} bytes instead of {size:,}")
        return data

    @staticmethod
    def _collect(data: bytes, wanted: Wanted, work: Work) -> bool:
        """The headers of messages nearly always have the same layout, which is found once and then only compared."""
        unpack, stamp_of = struct.Struct("<I").unpack_from, struct.Struct("<II").unpack_from
        layouts: dict[int, tuple[int, int, int]] = {}
        at, end = 0, len(data)
        records, most = 0, work.left("messages")
        while at + 8 <= end and records <= most:
            records += 1
            (size,) = unpack(data, at)
            place = at + 8 + size
            if place > end:
                break
            (length,) = unpack(data, place - 4)
            if place + length > end:
                break
            op, conn, time = layouts.get(size, (-1, -1, -1))
            start = at + 4
            if not (
                op >= 0
                and data[start + op : start + op + 8] == b"\x04\x00\x00\x00op=\x02"
                and data[start + conn : start + conn + 9] == b"\x09\x00\x00\x00conn="
                and data[start + time : start + time + 9] == b"\x0d\x00\x00\x00time="
            ):
                header = data[start : place - 4]
                fields = _header(header)
                if fields is None:
                    break
                if fields.get(b"op") == b"\x02":
                    number, stamp = _number(fields, b"conn"), _stamp(fields.get(b"time", b""))
                    if number in wanted:
                        wanted[number][0].append(stamp)
                        wanted[number][1].append(data[place : place + length])
                    layouts[size] = (
                        header.find(b"\x04\x00\x00\x00op="),
                        header.find(b"conn=") - 4,
                        header.find(b"time=") - 4,
                    )
            else:
                (number,) = unpack(data, start + conn + 9)
                if number in wanted:
                    seconds, nanoseconds = stamp_of(data, start + time + 9)
                    wanted[number][0].append(seconds * 1_000_000_000 + nanoseconds)
                    wanted[number][1].append(data[place : place + length])
            at = place + length
        work.count("messages", records)
        return at == end


def _records(data: bytes, work: Work) -> Iterator[tuple[dict[bytes, bytes], int, int]]:
    """Header, position and size of the records of a chunk; ends at damage."""
    at, end = 0, len(data)
    records, most = 0, work.left("messages")
    while at + 8 <= end and records <= most:
        records += 1
        size = int.from_bytes(data[at : at + 4], "little")
        place = at + 8 + size
        if place > end:
            break
        fields = _header(data[at + 4 : at + 4 + size])
        length = int.from_bytes(data[place - 4 : place], "little")
        if fields is None or b"op" not in fields or place + length > end:
            break
        yield fields, place, length
        at = place + length
    work.count("messages", records)
