"""Logs that hold their messages in chunks with an index: what MCAP files and ROS 1 bags have in common."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ..errors import DataError
from .compressed import CHUNK_LIMIT, decompress
from .ros import Batch, Channel, MessageLog
from .work import Work

Wanted = Mapping[int, tuple[list[int], list[bytes]]]
"""Where to put receive times and messages, by the number of the channel."""


class Chunk(NamedTuple):
    """What is known of a chunk before it is read."""

    channels: frozenset[int]
    """Empty if it is not known."""
    start: int
    stop: int


class ChunkedLog(MessageLog):
    """A subclass reads the index, or surveys the file, and walks over the chunks."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.parameters = {}
        self._chunks: dict[int, Chunk] = {}
        self._counts: dict[int, int] = {}
        self._offsets: list[int] = []
        self._names: dict[int, str] = {}
        self._parsed = {}
        with self._open() as file:
            self._size = file.seek(0, 2)
            file.seek(0)
            self._check_start(file)
            indexed = self._read_index(file)
        if not indexed:
            for store in (self._chunks, self._counts):
                store.clear()
            self._survey(self._work())
        self.start_ns = min((chunk.start for chunk in self._chunks.values()), default=0)
        self.stop_ns = max((chunk.stop for chunk in self._chunks.values()), default=0)
        channels: dict[str, Channel] = {}
        counts: dict[str, int] = {}
        work = self._work()
        for number, name, channel in self._declared(work):
            work.count("topics")
            if name in channels and channels[name].kind != channel.kind:
                name = f"{name} ({channel.kind})"
            channels.setdefault(name, channel)
            self._names[number] = name
            counts[name] = counts.get(name, 0) + self._counts.get(number, 0)
        self._describe(channels, counts, self._first, work)

    @abstractmethod
    def _check_start(self, file: BinaryIO) -> None:
        """Raise DataError if the first bytes are not those of the format."""

    @abstractmethod
    def _read_index(self, file: BinaryIO) -> bool:
        """Read channels, counts and chunks from the index; False if there is none, or if it cannot be trusted."""

    @abstractmethod
    def _survey(self, work: Work) -> None:
        """Find channels, counts and chunks by reading the whole file."""

    @abstractmethod
    def _declared(self, work: Work) -> Iterator[tuple[int, str, Channel]]:
        """Number, topic and encoding of the channels."""

    @abstractmethod
    def _contents(
        self, wanted: set[int] | None, work: Work, start_ns: int | None = None, stop_ns: int | None = None
    ) -> Iterator[tuple[int, bytes]]:
        """The contents of the chunks, with their position in the file; those with nothing wanted are left out.

        Channels may be taken out of ``wanted`` on the way.
        """

    @staticmethod
    @abstractmethod
    def _collect(data: bytes, wanted: Wanted, work: Work) -> bool:
        """Append the messages of the wanted channels; False at damage."""

    def _open(self) -> BinaryIO:
        try:
            return self.path.open("rb", buffering=1 << 20)
        except OSError as error:
            raise DataError(f"{self.path} cannot be read: {error}") from error

    def _count(self, offset: int, counts: Mapping[int, int], stamps: Collection[int]) -> None:
        """Remember what a survey met in a chunk."""
        for number, count in counts.items():
            self._counts[number] = self._counts.get(number, 0) + count
        if stamps:
            self._chunks[offset] = Chunk(frozenset(counts), min(stamps), max(stamps))

    def _unpack(self, kind: str, data: bytes, size: int, at: int, work: Work) -> bytes | None:
        """The content of the chunk at ``at``; None, with a note, if it cannot be read."""
        work.count("bytes of unpacked messages", min(size, CHUNK_LIMIT))
        try:
            return decompress(kind, data, size, f"{self.path}, byte {at:,}")
        except DataError as error:
            self._note(f"{error}; left out")
            return None

    def _needed(self, offset: int, wanted: set[int] | None, start_ns: int | None, stop_ns: int | None) -> bool:
        chunk = self._chunks.get(offset)
        if chunk is None:
            return True
        if wanted is not None and chunk.channels and not chunk.channels & wanted:
            return False
        early = start_ns is not None and chunk.stop < start_ns
        return not early and (stop_ns is None or chunk.start < stop_ns)

    def _behind(self, at: int) -> int:
        """Where to read on after damage at ``at``: the next chunk of the index, or the end of the file."""
        if len(self._offsets) != len(self._chunks):
            self._offsets = sorted(self._chunks)
        following = bisect_right(self._offsets, at)
        after = self._offsets[following] if following < len(self._offsets) else self._size
        resumed = "; read on at the next chunk of the index" if after < self._size else ""
        self._note(f"the file is damaged or cut off at byte {at:,} of {self._size:,}{resumed}")
        return after

    def _inside(self, offset: int, wanted: set[int]) -> set[int]:
        """The wanted channels that a chunk may hold."""
        chunk = self._chunks.get(offset)
        return wanted if chunk is None or not chunk.channels else set(chunk.channels & wanted)

    def _first(self, topics: set[str], work: Work) -> dict[str, bytes]:
        """The first message of every topic."""
        missing = {number for number, name in self._names.items() if name in topics}
        first: dict[str, bytes] = {}
        for offset, data in self._contents(missing, work):  # chunks without the topics that are missing are left out
            found: dict[int, tuple[list[int], list[bytes]]] = {
                number: ([], []) for number in self._inside(offset, missing)
            }
            self._collect(data, found, work)
            for number, (_, messages) in found.items():
                if messages:
                    first.setdefault(self._names[number], messages[0])
                    missing.discard(number)
            if not missing:
                break
        return first

    def _batches(
        self, topics: Collection[str], work: Work, start_ns: int | None = None, stop_ns: int | None = None
    ) -> Iterator[Batch]:
        wanted = {number for number, name in self._names.items() if name in topics}
        for offset, data in self._contents(wanted, work, start_ns, stop_ns):
            inside = {number: self._names[number] for number in self._inside(offset, wanted)}
            batch: dict[str, tuple[list[int], list[bytes]]] = {name: ([], []) for name in inside.values()}
            if not self._collect(data, {number: batch[name] for number, name in inside.items()}, work):
                self._note(f"the messages near byte {offset:,} are damaged; they are read up to the damage")
            batch = {name: pair for name, pair in batch.items() if pair[0]}
            if batch:
                yield batch
