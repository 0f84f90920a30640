"""Parts of a log that is too long to be held in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from .log import BLOCK, OWN, Dropout, Log, Source, Stream

SAMPLES = 100_000
"""Samples of the fastest signal of a log up to which it is read as a whole."""
PARTS = 8


class Excerpt(Log):
    """A log of which only some stretches of time are read."""

    def __init__(self, log: Log, samples: int, parts: int, count: int) -> None:
        self.log = log
        self.path, self.format, self.start_ns, self.stop_ns = log.path, log.format, log.start_ns, log.stop_ns
        self.topics, self.parameters, self.asked = log.topics, log.parameters, log.asked
        self.messages, self.dropouts, self.facts = log.messages, log.dropouts, log.facts
        total = (log.stop_ns - log.start_ns) / 1e9
        length = total * samples / count / parts
        starts = np.linspace(0.0, total - length, parts)
        self._stretches = [(float(start), float(start + length)) for start in starts]
        self._stretches[-1] = (self._stretches[-1][0], total + 1.0)
        pairs = zip(self._stretches[:-1], self._stretches[1:], strict=True)
        self.left_out = tuple(Dropout(stop, begin - stop) for (_, stop), (begin, _) in pairs)
        self._note = (
            f"the log has {count:,} samples of its fastest signal in {total:,.0f} s: {parts} parts of {length:.3g} s, "
            "spread over it, are examined"
        )

    @property
    def notes(self) -> tuple[str, ...]:  # type: ignore[override]  # notes grow while the log is read
        return (*self.log.notes, self._note)

    def airborne(self) -> tuple[tuple[float, float], ...]:
        return self.log.airborne()

    def read(self, topic: str, fields: Sequence[str] | None = None) -> Stream:
        parts = self.log.windows(topic, fields, self._stretches)
        received = [part.received for part in parts if part.received is not None]
        return replace(
            parts[0],
            time=np.concatenate([part.time for part in parts]),
            columns={name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns},
            received=np.concatenate(received) if len(received) == len(parts) else None,
            notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        )

    def blocks(self, wanted: Mapping[str, Sequence[str]], samples: int = BLOCK) -> Iterator[Mapping[str, Stream]]:
        """All of the log: blocks need no excerpt."""
        return self.log.blocks(wanted, samples)

    def sources(self) -> tuple[Source, ...]:
        return self.log.sources()


def excerpt(log: Log, samples: int = SAMPLES, parts: int = PARTS) -> Log:
    """The log itself, or parts of it with about ``samples`` samples of its fastest signal, if it has more.

    ``left_out`` are the times in between, which are no gaps of the log.
    """
    sources = [source for source in log.sources() if source.topic in log.topics]
    standard = [source for source in sources if source.role != OWN or source.name in log.asked]
    counts = [log.topics[source.topic].count or 0 for source in standard or sources]
    count = max(counts, default=0)
    if count <= samples or log.stop_ns <= log.start_ns:
        return log
    return Excerpt(log, samples, parts, count)
