"""A log of arrays in memory: simulated logs, and signals that a program already holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import DataError
from .log import BLOCK, Dropout, Log, Source, Stream, Topic


class MemoryLog(Log):
    """Streams as a log. Their names are topics; a stream with a role is a standard signal of that role.

    >>> import numpy as np
    >>> time = np.arange(100) / 50
    >>> gyro = {f"gyro_{axis}": np.zeros(100) for axis in "xyz"}
    >>> log = MemoryLog([Stream("gyro", time, gyro, role="gyro")])
    >>> log.signal("gyro").units["gyro_x"], log.seconds
    ('rad/s', 1.98)
    """

    format = "memory"

    def __init__(
        self,
        streams: Sequence[Stream],
        *,
        name: str = "memory",
        airborne: Sequence[tuple[float, float]] = (),
        dropouts: Sequence[Dropout] = (),
        facts: Mapping[str, float | str] | None = None,
    ) -> None:
        """Take the streams as they are.

        Args:
            streams: with names that differ; the best of a role first.
            name: of the log, for reports.
            airborne: from and to seconds; empty where unknown.
            dropouts: times that the recorder says it lost.
            facts: vehicle, firmware and the like.

        Raises:
            DataError: two streams have the same name.
        """
        self.path = Path(name)
        self._streams = {stream.name: stream for stream in streams}
        if len(self._streams) != len(streams):
            raise DataError(f"{name}: two streams have the same name: {', '.join(stream.name for stream in streams)}")
        self.topics = {
            stream.name: Topic(stream.name, stream.role or "table", tuple(stream.columns), len(stream))
            for stream in streams
        }
        self.parameters = {}
        self.dropouts = tuple(dropouts)
        self.facts = dict(facts or {})
        self._airborne = tuple(airborne)

    @property
    def seconds(self) -> float:
        """From the first to the last stamp of all streams."""
        times = [stream.time for stream in self._streams.values() if len(stream)]
        return float(max(time.max() for time in times) - min(time.min() for time in times)) if times else 0.0

    def read(self, topic: str, fields: Sequence[str] | None = None) -> Stream:
        if topic not in self._streams:
            raise DataError(f"{self.path}: no topic {topic!r}; there are: {', '.join(self._streams)}")
        stream = self._streams[topic]
        names = list(stream.columns) if fields is None else list(fields)
        unknown = [name for name in names if name not in stream.columns]
        if unknown:
            raise DataError(f"{self.path}: {topic} has no {', '.join(unknown)}; fields: {', '.join(stream.columns)}")
        return replace(stream, columns={name: stream.columns[name] for name in names})

    def blocks(self, wanted: Mapping[str, Sequence[str]], samples: int = BLOCK) -> Iterator[Mapping[str, Stream]]:
        streams = {topic: self.read(topic, fields) for topic, fields in wanted.items()}
        for begin in range(0, max((len(stream) for stream in streams.values()), default=0), samples):
            yield {topic: stream.take(slice(begin, begin + samples)) for topic, stream in streams.items()}

    def airborne(self) -> tuple[tuple[float, float], ...]:
        return self._airborne

    def sources(self) -> tuple[Source, ...]:
        return tuple(
            Source(stream.name, stream.role, stream.name, {column: (column, 1.0) for column in stream.columns})
            for stream in self._streams.values()
            if stream.role
        )
