"""MCAP files, with and without index.

The file is read here and not by the ``mcap`` package, because a damaged or unfinished file must be read as far as it
goes, with lengths checked against the file before memory is taken, and because decoding whole chunks is faster.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ..errors import DataError
from .chunked import Chunk, ChunkedLog, Wanted
from .compressed import CHUNK_LIMIT
from .log import LOG_READERS
from .ros import Channel, channel_of
from .work import Work

MAGIC = b"\x89MCAP0\r\n"
SUMMARY_LIMIT = 1 << 27
HEADER, FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK, CHUNK_INDEX, STATISTICS, DATA_END = 1, 2, 3, 4, 5, 6, 8, 11, 15
_MESSAGE = struct.Struct("<BQHIQ")
_HEADER = 31
"""Bytes in front of the data of a message: opcode, length, channel, sequence, log time, publish time."""


class _Schema(NamedTuple):
    name: str
    encoding: str
    text: str


class _DamageError(Exception):
    """A record does not have the fields of its type."""


class _Fields:
    """The fields of a record, one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def numbers(self, form: str) -> tuple[int, ...]:
        size = struct.calcsize("<" + form)
        if self.at + size > len(self.data):
            raise _DamageError
        self.at += size
        return struct.unpack_from("<" + form, self.data, self.at - size)

    def block(self, form: str = "I") -> bytes:
        (size,) = self.numbers(form)
        if self.at + size > len(self.data):
            raise _DamageError
        self.at += size
        return self.data[self.at - size : self.at]

    def text(self) -> str:
        return self.block().decode("utf-8", "replace")


@LOG_READERS.register("mcap")
class Mcap(ChunkedLog):
    """An MCAP file with messages in CDR (ROS 2), ROS 1 or JSON encoding."""

    format = "MCAP"

    def __init__(self, path: str | Path) -> None:
        self._schemas: dict[int, _Schema] = {}
        self._ids: dict[int, tuple[str, int, str]] = {}
        super().__init__(path)

    # ---- what is in the file ----------------------------------------------------------------------------------------

    def _check_start(self, file: BinaryIO) -> None:
        if file.read(8) != MAGIC:
            raise DataError(f"{self.path} is not an MCAP file: its first bytes differ; download or record it again")

    def _read_index(self, file: BinaryIO) -> bool:
        """Read the summary at the end of the file; False if there is none, or if it is not complete."""
        tail = self._size - 8 - 29
        if tail < 8:
            self._note("the file ends without a footer: it was not closed, or is cut off; read as far as it goes")
            return False
        file.seek(tail)
        end = file.read(37)
        if end[29:] != MAGIC or end[0] != FOOTER:
            self._note("the file ends without a footer: it was not closed, or is cut off; read as far as it goes")
            return False
        start, _, checksum = struct.unpack_from("<QQI", end, 9)
        if not 8 <= start <= tail or tail - start > SUMMARY_LIMIT:
            return False
        file.seek(start)
        data = file.read(tail - start)
        if checksum and zlib.crc32(end[:25], zlib.crc32(data)) != checksum:
            self._note("the summary of the file has a wrong checksum; it is not used")
            return False
        statistics = False
        try:
            for opcode, content in _records(data, self._work()):
                self._summary_record(opcode, content)
                statistics |= opcode == STATISTICS
        except _DamageError:
            self._note("the summary of the file is damaged; it is not used")
            return False
        return statistics and all(number in self._ids for number, count in self._counts.items() if count)

    def _summary_record(self, opcode: int, content: bytes) -> None:
        if opcode in (SCHEMA, CHANNEL):
            self._declare(opcode, content)
        elif opcode == CHUNK_INDEX:
            fields = _Fields(content)
            first, last, offset, _ = fields.numbers("QQQQ")
            pairs = fields.block()
            channels = frozenset(number for number, _ in struct.iter_unpack("<HQ", pairs[: len(pairs) // 10 * 10]))
            self._chunks[offset] = Chunk(channels, first, last)
        elif opcode == STATISTICS:
            fields = _Fields(content)
            count, _, _, _, _, _, first, last = fields.numbers("QHIIIIQQ")
            pairs = fields.block()
            self._counts.update(struct.iter_unpack("<HQ", pairs[: len(pairs) // 10 * 10]))
            if count:
                self._chunks[0] = Chunk(frozenset(), first, last)  # messages outside of chunks have no index

    def _declare(self, opcode: int, content: bytes) -> None:
        """Remember a schema or a channel."""
        fields = _Fields(content)
        if opcode == SCHEMA:
            (number,) = fields.numbers("H")
            name, encoding = fields.text(), fields.text()
            self._schemas.setdefault(number, _Schema(name, encoding, fields.text()))
        else:
            number, schema = fields.numbers("HH")
            self._ids.setdefault(number, (fields.text(), schema, fields.text()))

    def _survey(self, work: Work) -> None:
        """Read the whole file once, for channels, counts and times."""
        for offset, data in self._contents(None, work):
            counts: dict[int, int] = {}
            stamps: list[int] = []
            for opcode, at, size, channel, stamp in _walk(data, work):
                if opcode == MESSAGE:
                    counts[channel] = counts.get(channel, 0) + 1
                    stamps.append(stamp)
                elif opcode in (SCHEMA, CHANNEL):
                    try:
                        self._declare(opcode, data[at + 9 : at + 9 + size])
                    except _DamageError:
                        self._note(f"a damaged record near byte {offset:,} was left out")
            self._count(offset, counts, stamps)

    def _declared(self, work: Work) -> Iterator[tuple[int, str, Channel]]:
        for number, (name, schema, encoding) in sorted(self._ids.items()):
            yield number, name, self._channel(name, schema, encoding, work)

    def _channel(self, topic: str, schema: int, encoding: str, work: Work) -> Channel:
        kind, language, text = self._schemas.get(schema, _Schema("", "", ""))
        if encoding == "json":
            return Channel(kind or "json", None, encoding)
        if encoding not in ("cdr", "ros1"):
            return Channel(
                kind or encoding, None, encoding, f"messages in the encoding {encoding[:40]!r} are not read "
                "(cdr, ros1 and json are); convert the topic to one of these",
            )  # fmt: skip
        where = f"{self.path}, topic {topic}"
        try:
            if language in ("ros2msg", "ros1msg"):
                return channel_of(kind, encoding, self._parse(kind, text, where, work))
            if language in ("ros2idl", "omgidl"):
                return channel_of(kind, encoding, self._parse(kind, text, where, work, idl=True))
        except DataError as error:
            return Channel(kind, None, encoding, str(error))
        return Channel(kind, None, encoding, f"its schema is in the language {language[:40]!r}, which is not read")

    # ---- messages ---------------------------------------------------------------------------------------------------

    def _contents(
        self, wanted: set[int] | None, work: Work, start_ns: int | None = None, stop_ns: int | None = None
    ) -> Iterator[tuple[int, bytes]]:
        """The contents of chunks, and records outside of chunks, with their position in the file.

        Chunks that are known to hold nothing that is wanted are left out.
        """
        loose: list[bytes] = []
        held, since = 0, 8
        with self._open() as file:
            at = 8
            while at + 9 <= self._size:
                file.seek(at)
                head = file.read(9)
                opcode, size = head[0], int.from_bytes(head[1:], "little")
                if opcode in (DATA_END, FOOTER):
                    break
                after = at + 9 + size
                if after > self._size or opcode == 0:
                    after = self._behind(at)
                    rest = self._size - at - 9
                    cut = opcode == CHUNK and after == self._size and rest <= CHUNK_LIMIT
                    if cut and (content := self._chunk(file.read(rest), at, work, whole=False)):
                        yield at, content
                elif opcode == CHUNK and self._needed(at, wanted, start_ns, stop_ns):
                    if size > CHUNK_LIMIT + 100:
                        self._note(f"the chunk at byte {at:,} has {size:,} bytes, too many; left out")
                    elif (content := self._chunk(file.read(size), at, work)) is not None:
                        yield at, content
                elif opcode in (SCHEMA, CHANNEL, MESSAGE):
                    if size > CHUNK_LIMIT:
                        self._note(f"the record at byte {at:,} has {size:,} bytes, too many; left out")
                    else:
                        loose.append(head + file.read(size))
                        held += size
                        if held > 1 << 22:
                            yield since, b"".join(loose)
                            loose, held, since = [], 0, after
                at = after
            else:
                if at < self._size:
                    self._note(f"the file is cut off at byte {at:,}")
        if loose:
            yield since, b"".join(loose)

    def _chunk(self, record: bytes, at: int, work: Work, *, whole: bool = True) -> bytes | None:
        """The content of a chunk; None if it is damaged."""
        fields = _Fields(record)
        try:
            _, _, size, checksum = fields.numbers("QQQI")
            compression = fields.text()
            (stored,) = fields.numbers("Q")
        except _DamageError:
            self._note(f"the chunk at byte {at:,} is damaged; left out")
            return None
        data = record[fields.at : fields.at + stored]
        content = self._unpack(compression, data, size, at, work)
        if content is not None and whole and (len(content) != size or (checksum and zlib.crc32(content) != checksum)):
            self._note(f"the chunk at byte {at:,} has a wrong length or checksum; left out")
            return None
        return content

    @staticmethod
    def _collect(data: bytes, wanted: Wanted, work: Work) -> bool:
        """The loop that reading a long log spends its time in."""
        unpack = _MESSAGE.unpack_from
        at, end = 0, len(data)
        records, most, whole = 0, work.left("messages"), True
        while at + _HEADER <= end and records <= most:
            records += 1
            opcode, size, channel, _, stamp = unpack(data, at)
            after = at + 9 + size
            if after > end or (opcode == MESSAGE and size < _HEADER - 9) or opcode == 0:
                whole = False
                break
            if opcode == MESSAGE and channel in wanted:
                stamps, messages = wanted[channel]
                stamps.append(stamp)
                messages.append(data[at + _HEADER : after])
            at = after
        work.count("messages", records)
        return whole and (at + 9 > end or at == end or data[at] != MESSAGE)


def _walk(data: bytes, work: Work) -> Iterator[tuple[int, int, int, int, int]]:
    """Opcode, position, size and, for messages, channel and log time of the records; ends at damage."""
    at, end = 0, len(data)
    records, most = 0, work.left("messages")
    while at + 9 <= end and records <= most:
        records += 1
        opcode, size = data[at], int.from_bytes(data[at + 1 : at + 9], "little")
        if at + 9 + size > end or opcode == 0:
            break
        channel = stamp = 0
        if opcode == MESSAGE and size >= _HEADER - 9:
            _, _, channel, _, stamp = _MESSAGE.unpack_from(data, at)
        yield opcode, at, size, channel, stamp
        at += 9 + size
    work.count("messages", records)


def _records(data: bytes, work: Work) -> Iterator[tuple[int, bytes]]:
    last = 0
    for opcode, at, size, _, _ in _walk(data, work):
        last = at + 9 + size
        yield opcode, data[at + 9 : last]
    if last != len(data):
        raise _DamageError
