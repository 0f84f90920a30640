"""What the logs of ROS 1 and ROS 2 have in common: topics of typed messages, their stamps and standard signals."""

from __future__ import annotations

import difflib
import json
import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .definitions import Definitions, parse, parse_idl, short
from .log import BLOCK, Log, Source, Stream, Topic
from .messages import LIST_LIMIT, Decoder
from .ros_signals import signals
from .work import Work

RAW_LIMIT = 1 << 25
"""Bytes of messages that are held before they are decoded."""
JSON_LIMIT = 1 << 24
"""Bytes of a JSON message; as Python objects it takes about thirty times as much memory."""

NOTE_LIMIT = 20

Batch = Mapping[str, tuple[list[int], list[bytes]]]
"""Receive times in nanoseconds and messages by topic."""


class Channel(NamedTuple):
    """How the messages of a topic are encoded; without a decoder, ``trouble`` says why."""

    kind: str
    decoder: Decoder | None
    encoding: str = ""
    trouble: str = ""


class MessageLog(Log):
    """A log whose messages carry ROS or JSON encodings. A subclass provides channels and :meth:`_batches`."""

    _channels: dict[str, Channel]
    _size: int
    """Bytes of the file."""
    _parsed: dict[tuple[str, str], Definitions]
    """Definitions by type and text; channels share them."""

    def _work(self) -> Work:
        """What one pass over the file may take."""
        return Work(self.path, self._size)

    def _parse(self, kind: str, text: str, where: str, work: Work, *, idl: bool = False) -> Definitions:
        """The definition of a type of messages. Raises DataError if it cannot be read."""
        if (kind, text) not in self._parsed:
            work.count("characters of definitions in IDL" if idl else "characters of definitions", len(text))
            self._parsed[kind, text] = (parse_idl if idl else parse)(kind, text, where)
        return self._parsed[kind, text]

    def _note(self, text: str) -> None:
        """Add to the notes; a file that is damaged everywhere does not fill the memory with them."""
        if text not in self.notes and len(self.notes) < NOTE_LIMIT:
            self.notes = (*self.notes, text)

    def _describe(
        self,
        channels: dict[str, Channel],
        counts: Mapping[str, int],
        first_of: Callable[[set[str], Work], Mapping[str, bytes]],
        work: Work,
    ) -> None:
        """Set the topics; the fields of a topic are those of its first message, which ``first_of`` finds."""
        self._channels = channels
        named = {name for name, channel in channels.items() if counts.get(name) and not channel.trouble}
        first = first_of(named, work)
        topics = {}
        for name, channel in list(channels.items()):
            try:
                fields = fields_of(channel, first.get(name), work)
            except DataError as error:
                channels[name] = channel._replace(decoder=None, trouble=str(error))
                fields = ()
            topics[name] = Topic(name, channel.kind, fields, counts.get(name, 0))
        self.topics = topics

    @abstractmethod
    def _batches(
        self, topics: Collection[str], work: Work, start_ns: int | None = None, stop_ns: int | None = None
    ) -> Iterator[Batch]:
        """Messages of the topics in the order of the file, in batches of bounded memory.

        With times, batches that lie outside of them as a whole may be left out.
        """

    def read(self, topic: str, fields: Sequence[str] | None = None) -> Stream:
        return self._whole(topic, fields)

    def windows(self, topic: str, fields: Sequence[str] | None, spans: Sequence[tuple[float, float]]) -> list[Stream]:
        """Reads only the chunks of these times."""
        return [self._whole(topic, fields, start, stop) for start, stop in spans]

    def _whole(
        self, topic: str, fields: Sequence[str] | None, start: float | None = None, stop: float | None = None
    ) -> Stream:
        names = self._fields(topic, fields)
        parts = [part[topic] for part in self._decoded({topic: names}, BLOCK, start, stop) if topic in part]
        return joined(topic, names, parts)

    def blocks(self, wanted: Mapping[str, Sequence[str]], samples: int = BLOCK) -> Iterator[Mapping[str, Stream]]:
        return self._decoded({topic: self._fields(topic, names) for topic, names in wanted.items()}, samples)

    def sources(self) -> tuple[Source, ...]:
        return signals(self.topics)

    def _fields(self, topic: str, fields: Sequence[str] | None) -> tuple[str, ...]:
        if topic not in self.topics:
            raise DataError(f"{self.path}: no topic {topic!r} in this log{_nearest(topic, self.topics)}")
        channel = self._channels[topic]
        if channel.trouble:
            where = "" if channel.trouble.startswith(str(self.path)) else f"{self.path}, topic {topic}: "
            raise DataError(f"{where}{channel.trouble}")
        if fields is None:
            return self.topics[topic].fields
        for name in fields:
            if name not in self.topics[topic].fields and "[" not in name:
                raise DataError(
                    f"{self.path}, topic {topic}: no field {name!r}{_nearest(name, self.topics[topic].fields)}"
                )
        return tuple(dict.fromkeys(fields))

    def _decoded(
        self,
        wanted: Mapping[str, tuple[str, ...]],
        samples: int,
        start: float | None = None,
        stop: float | None = None,
    ) -> Iterator[dict[str, Stream]]:
        limits = [None if limit is None else self.start_ns + round(limit * 1e9) for limit in (start, stop)]
        times: dict[str, list[int]] = {topic: [] for topic in wanted}
        raw: dict[str, list[bytes]] = {topic: [] for topic in wanted}
        held = 0
        work = self._work()

        def flush(count: int | None) -> dict[str, Stream]:
            streams = {}
            for topic, names in wanted.items():
                if raw[topic]:
                    streams[topic] = self._stream(topic, names, times[topic][:count], raw[topic][:count], work)
                    del times[topic][:count], raw[topic][:count]
            return streams

        for batch in self._batches(set(wanted), work, *limits):
            for topic, (stamps, messages) in batch.items():
                if limits != [None, None]:
                    low, high = limits
                    inside = [(low is None or t >= low) and (high is None or t < high) for t in stamps]
                    stamps = [t for t, keep in zip(stamps, inside, strict=True) if keep]
                    messages = [m for m, keep in zip(messages, inside, strict=True) if keep]
                times[topic] += stamps
                raw[topic] += messages
                held += sum(map(len, messages))
            while any(len(messages) >= samples for messages in raw.values()):
                yield flush(samples)
                held = sum(len(message) for messages in raw.values() for message in messages)
            if held >= RAW_LIMIT:
                yield flush(None)
                held = 0
        if any(raw.values()):
            yield flush(None)

    def _stream(
        self, topic: str, names: tuple[str, ...], times: list[int], messages: list[bytes], work: Work
    ) -> Stream:
        """Decode messages; incomplete ones are left out, with a note."""
        channel = self._channels[topic]
        received = _since(np.array(times, np.uint64), self.start_ns) / 1e9
        stamp = stamp_fields(channel, self.topics[topic].fields)
        try:
            columns, whole = _columns(channel, messages, (*names, *stamp), work)
        except DataError as error:
            raise DataError(f"{self.path}, topic {topic}: {error}") from error
        notes: tuple[str, ...] = ()
        if not whole.all():
            notes = (f"{topic}: {int((~whole).sum())} message(s) do not have the fields of {channel.kind}; left out",)
            columns = {name: values[whole] for name, values in columns.items()}
            received = received[whole]
        time, stamped = self._time(columns, stamp, received)
        values = {name: np.asarray(columns[name], np.float64) for name in names}
        return Stream(topic, time, values, {}, received if stamped else None, topic, "", notes)

    def _time(
        self, columns: Mapping[str, NDArray[Any]], stamp: Sequence[str], received: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], bool]:
        """The stamps of the messages, or the receive times if they are not set."""
        if len(stamp) == 2:
            with np.errstate(invalid="ignore"):
                seconds, nanoseconds = (columns[name].astype(np.int64) for name in stamp)
            if seconds.any() or nanoseconds.any():
                stamps = (seconds * 1_000_000_000 + nanoseconds).view(np.uint64)
                return _since(stamps, self.start_ns) / 1e9, True
        elif stamp and columns[stamp[0]].any():
            microseconds = columns[stamp[0]].astype(np.int64)
            since_boot = bool(microseconds.max() < 10**14)
            return (microseconds - (0 if since_boot else self.start_ns // 1000)) / 1e6, True
        return received, False


def _since(stamps: NDArray[np.uint64], start: int) -> NDArray[np.int64]:
    """Nanoseconds since a start, both of 64 bits; of stamps that cannot be right, the difference turns over.

    >>> _since(np.array([5, 2**64 - 1], np.uint64), 2**64 - 2).tolist()
    [7, 1]
    """
    return (stamps - np.uint64(start % 2**64)).view(np.int64)


def stamp_fields(channel: Channel, fields: Sequence[str]) -> tuple[str, ...]:
    """The fields of a topic with the time of measurement: seconds and nanoseconds, or PX4's microseconds."""
    for pair in (
        ("header.stamp.sec", "header.stamp.nanosec"),
        ("timestamp.sec", "timestamp.nsec"),
        ("stamp.sec", "stamp.nanosec"),
    ):
        if all(name in fields for name in pair):
            return pair
    return ("timestamp",) if channel.kind.startswith("px4_msgs/") and "timestamp" in fields else ()


def joined(topic: str, names: Sequence[str], parts: Sequence[Stream]) -> Stream:
    """Parts of a stream one behind the other."""
    if not parts:
        return Stream(topic, np.empty(0), {name: np.empty(0) for name in names}, {}, None, topic)
    time = np.concatenate([part.time for part in parts])
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in names}
    stamped = [part.received for part in parts if part.received is not None]
    received = np.concatenate(stamped) if len(stamped) == len(parts) else None
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    return Stream(topic, time, columns, {}, received, topic, "", notes)


def channel_of(kind: str, encoding: str, definitions: Definitions | None) -> Channel:
    """A channel of ROS messages; ``encoding`` is ``cdr`` or ``ros1``."""
    if definitions is None:
        what = f"the log has no definition of {kind[:80]}, and it is not a standard type; convert the bag to MCAP"
        return Channel(kind, None, encoding, f"{what} where its package is installed: ros2 bag convert")
    return Channel(kind, Decoder(short(kind), definitions, aligned=encoding == "cdr"), encoding)


def fields_of(channel: Channel, data: bytes | None, work: Work) -> tuple[str, ...]:
    """The names of the numbers of a topic, from one of its messages."""
    if data is None or channel.trouble:
        return ()
    if channel.decoder is None:
        return tuple(_flat(data, work) or ())
    return channel.decoder.fields(data, work)


def _columns(
    channel: Channel, messages: Sequence[bytes], names: Sequence[str], work: Work
) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
    if channel.decoder is not None:
        return channel.decoder.columns(messages, names, work)
    rows = [_flat(message, work) for message in messages]
    columns: dict[str, NDArray[Any]] = {
        name: np.array([math.nan if row is None else row.get(name, math.nan) for row in rows]) for name in names
    }
    return columns, np.array([row is not None for row in rows])


def _flat(data: bytes, work: Work) -> dict[str, float] | None:
    """The numbers of a JSON message by dotted path; None if it is not a JSON object, or too long."""
    if len(data) > JSON_LIMIT:
        return None
    work.count("bytes of JSON", len(data))
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    numbers: dict[str, float] = {}
    pending: list[tuple[str, Any]] = [("", value)]
    while pending and len(numbers) < LIST_LIMIT:
        path, item = pending.pop()
        if isinstance(item, dict):
            pending += [(f"{path}.{key}" if path else str(key), part) for key, part in reversed(list(item.items()))]
        elif isinstance(item, list):
            pending += [(f"{path}[{index}]", part) for index, part in reversed(list(enumerate(item[:LIST_LIMIT])))]
        elif isinstance(item, (bool, int, float)):
            try:
                numbers[path] = float(item)
            except OverflowError:
                numbers[path] = math.nan
    return numbers if isinstance(value, dict) else None


def _nearest(name: str, names: Collection[str]) -> str:
    near = difflib.get_close_matches(name, [str(other) for other in list(names)[:1000]], 3, 0.4)
    return f"; did you mean {' or '.join(near)}?" if near else f"; there are: {', '.join(list(names)[:20]) or 'none'}"
