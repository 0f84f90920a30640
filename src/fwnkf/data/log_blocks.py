"""The samples of a log in blocks, for logs of any length: chosen channels of one or more signals side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..logs.choice import find_columns
from ..logs.clock import AHEAD, ahead
from ..logs.log import BLOCK, Log, Source, Stream, standard
from ..logs.stamps import examine

Array = NDArray[np.float64]
MOST_LOST = 0.01
"""Share of the samples of a signal that may be left out before it is called lost."""


class Samples(NamedTuple):
    """Consecutive samples; NaN where a channel was not measured."""

    time: Array
    """Seconds since ``Log.start_ns``, ascending."""
    values: Array
    """``[samples, channels]``"""


@dataclass
class _Pending:
    """Samples of one signal that wait for the other signals."""

    source: Source
    columns: tuple[str, ...]
    time: Array = field(default_factory=lambda: np.empty(0))
    values: Array = field(default_factory=lambda: np.empty((0, 0)))
    last: float = -np.inf
    factor: float | None = None
    repeated: int = 0
    """Samples with the stamp of the one before ..."""
    lost: int = 0
    """... and others that were left out."""
    count: int = 0
    unsure: tuple[Array, Array] | None = None
    """The newest samples, as they came: the next ones say whether their stamps are right."""
    before: Array = field(default_factory=lambda: np.empty(0))
    """Stamps of the samples before them, as they came."""

    @property
    def dropped(self) -> int:
        return self.repeated + self.lost

    def add(self, stream: Stream) -> None:
        """Append samples; the unit of the stamps is that of the first block."""
        stream = standard(stream, self.source)
        if self.factor is None:
            with np.errstate(over="ignore"):  # a wrong stamp may be of any size
                self.factor = examine(stream).factor
        time, values = stream.time * self.factor, stream.stack(self.columns)
        self.count += len(time)
        if self.unsure is not None:
            time, values = np.concatenate([self.unsure[0], time]), np.concatenate([self.unsure[1], values])
        self.unsure = time, values
        self._accept(max(len(time) - AHEAD, 0))

    def finish(self) -> None:
        """Append the newest samples too, without waiting for others."""
        if self.unsure is not None:
            self._accept(len(self.unsure[0]))

    def _accept(self, count: int) -> None:
        """Append ``count`` samples; those whose stamps are far ahead, not later or not finite are left out."""
        assert self.unsure is not None
        time, values = self.unsure
        with np.errstate(invalid="ignore"):
            other_clock = ahead(np.concatenate([self.before, time]))[len(self.before) :]
            usable = np.where(np.isfinite(time) & ~other_clock, time, -np.inf)[:count]
            before = np.maximum.accumulate(np.concatenate([[self.last], usable]))
            ascending = usable > before[:-1]
        self.unsure = time[count:], values[count:]
        self.before = np.concatenate([self.before, time[:count]])[-AHEAD:]
        time, values = time[:count], values[:count]
        repeated = int((~ascending & (time == before[:-1])).sum())
        self.repeated += repeated
        self.lost += int((~ascending).sum()) - repeated
        self.last = float(before[-1])
        self.time = np.concatenate([self.time, time[ascending]])
        values = values[ascending]
        self.values = values if len(self.values) == 0 else np.concatenate([self.values, values])

    def take(self, stop: float) -> tuple[Array, Array]:
        """Remove and return the samples up to ``stop`` seconds."""
        count = int(np.searchsorted(self.time, stop, side="right"))
        part = self.time[:count], self.values[:count].reshape(count, len(self.columns))
        self.time, self.values = self.time[count:], self.values[count:]
        return part


class SampleBlocks:
    """Iterate over the samples of channels in the time of the fastest signal among those that have them.

    The samples of the slower ones are taken at the first sample of the fastest that is not earlier, and are NaN in
    between. Samples whose time stamp is not later than the one before, or later than most of those after it, are left
    out; ``notes`` says how many.
    """

    def __init__(self, log: Log, names: Sequence[str], samples: int = BLOCK) -> None:
        if not names:
            raise DataError(f"{log.path}: no channels were asked for")
        self.log, self.names, self.samples = log, tuple(names), samples
        self._signals = [_Pending(source, columns) for source, columns in find_columns(log, names)]
        rates = [log.topics[signal.source.topic].count or 0 for signal in self._signals]
        self._signals.insert(0, self._signals.pop(rates.index(max(rates))))
        self.count = max(rates) or None
        """Number of samples of the fastest signal, where the log says so."""

    @property
    def dropped(self) -> int:
        """Samples that were left out so far."""
        return sum(signal.dropped for signal in self._signals)

    @property
    def many_lost(self) -> tuple[str, ...]:
        """A sentence for each signal of which more than a hundredth was left out, repeated stamps not counted."""
        return tuple(
            f"{signal.source.name}: {signal.lost:,} of {signal.count:,} samples were lost, because their time stamps "
            "are not those of one clock that goes forwards; examine them with fwnkf diagnose, and correct them"
            for signal in self._signals
            if signal.lost > MOST_LOST * signal.count
        )

    @property
    def notes(self) -> tuple[str, ...]:
        dropped = [
            f"{signal.source.name}: {signal.dropped:,} of {signal.count:,} samples were left out, because their time "
            "stamp is not later than the one before, or later than most of those after it"
            for signal in self._signals
            if signal.dropped
        ]
        factors = [
            f"{signal.source.name}: time stamps were multiplied by {signal.factor:g} to be seconds"
            for signal in self._signals
            if signal.factor not in (None, 1.0)
        ]
        return (*self.log.notes, *factors, *dropped)

    def __iter__(self) -> Iterator[Samples]:
        wanted: dict[str, list[str]] = {}
        for signal in self._signals:
            fields = [signal.source.columns[column][0] for column in signal.source.columns]
            wanted.setdefault(signal.source.topic, []).extend(fields)
        main, others = self._signals[0], self._signals[1:]
        for block in self.log.blocks(
            {topic: list(dict.fromkeys(names)) for topic, names in wanted.items()}, self.samples
        ):
            for signal in self._signals:
                if signal.source.topic in block:
                    signal.add(block[signal.source.topic])
            # a signal that ended, or never began, must not hold back the rest of the log
            waiting = len(main.time) <= 4 * self.samples
            for signal in [] if waiting else others:
                signal.finish()
            stop = min((signal.last for signal in others), default=np.inf) if waiting else np.inf
            yield from self._joined(stop)
        for signal in self._signals:
            signal.finish()
        yield from self._joined(np.inf)

    def _joined(self, stop: float) -> Iterator[Samples]:
        main, others = self._signals[0], self._signals[1:]
        time, values = main.take(stop)
        if len(time) == 0:
            return
        joined = np.full((len(time), len(self.names)), np.nan)
        joined[:, self._places(main)] = values
        for signal in others:
            moments, measured = signal.take(float(time[-1]))
            rows = np.searchsorted(time, moments)
            joined[rows[:, None], self._places(signal)] = measured
        yield Samples(time, joined)

    def _places(self, signal: _Pending) -> NDArray[np.intp]:
        return np.array([self.names.index(column) for column in signal.columns], np.intp)
