"""The type of all recordings: time, measurements with a mask, truth with a mask, and provenance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from ..core.layout import Layout
from ..errors import DataError
from ..shapes import Bool, Float

__all__ = ["Channel", "Recording", "Span", "assert_disjoint"]


class Channel(NamedTuple):
    """A column of the observations.

    >>> Channel("gyro_x", "rad/s").unit
    'rad/s'
    """

    name: str
    """Its name."""
    unit: str
    """Its unit."""


class Span(NamedTuple):
    """Samples ``start`` to ``stop - 1`` of a source, by which splits are checked for common samples.

    >>> Span("walk", "", 0, 100).overlaps(Span("walk", "", 99, 120))
    True
    """

    source: str
    """Name of the source."""
    digest: str
    """Its checksum."""
    start: int
    """First sample."""
    stop: int
    """Sample after the last."""

    def overlaps(self, other: Span) -> bool:
        """Whether two spans have a sample in common.

        Args:
            other: the other span.

        Returns:
            True if they do.
        """
        same = (self.source, self.digest) == (other.source, other.digest)
        return same and self.start < other.stop and other.start < self.stop


@runtime_checkable
class Spanned(Protocol):
    """Anything with a name and a span of samples."""

    @property
    def name(self) -> str: ...

    @property
    def span(self) -> Span: ...


@dataclass(frozen=True, eq=False)
class Recording:
    """A recording, or a part of one. Tensors are float64. A part shares memory with its source: do not modify it.

    >>> time, rates = torch.arange(4).double() / 100, torch.zeros(4, 1).double()
    >>> walk = Recording("walk", time, rates, (Channel("gyro_x", "rad/s"),), rates == 0)
    >>> walk.rate, [part.name for part in walk.windows(2, 2)]
    (100.0, ['walk[0:2]', 'walk[2:4]'])
    """

    name: str
    """Name, for messages and tables."""
    time: Float[Tensor, " T"]
    """Seconds since the first sample of the source, strictly increasing; a part has the time of its source."""
    observations: Float[Tensor, "T m"]
    """Measurements; missing ones may be NaN."""
    channels: tuple[Channel, ...]
    """Names and units of the columns."""
    mask: Bool[Tensor, "T m"]
    """True where there is a measurement."""
    truth: Float[Tensor, "T n"] | None = None
    """True states, where there are any."""
    layout: Layout | None = None
    """The parts of ``truth``."""
    truth_mask: Bool[Tensor, " T"] | None = None
    """True where the truth is known; elsewhere it is NaN."""
    conventions: str = ""
    """Frames, units and clocks, as text."""
    notes: tuple[str, ...] = ()
    """Jumps, gaps and repairs of this recording, with their times."""
    digest: str = ""
    """SHA-256 of the source file, or of the digests of several source files."""
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    """Further tensors with one row per sample: biases, flags, other references."""
    epoch_ns: int | None = None
    """The clock of the source at ``time == 0`` in nanoseconds, if it has one."""
    source: str = ""
    """Name of the recording of which this is a part."""
    start: int = 0
    """Index of the first sample within the source."""

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        if self.truth is not None and self.truth_mask is None:
            put("truth_mask", torch.ones(len(self.truth), dtype=torch.bool))
        put("source", self.source or self.name)
        put("extras", MappingProxyType(dict(self.extras)))
        put("channels", tuple(Channel(*channel) for channel in self.channels))
        put("notes", tuple(self.notes))
        self._check()

    def _fail(self, what: str) -> DataError:
        return DataError(f"recording {self.name!r}: {what}")

    def _check(self) -> None:
        T = len(self.time) if self.time.ndim == 1 else 0
        if T == 0:
            raise self._fail(f"time has shape {tuple(self.time.shape)}; wanted [T] with at least one sample")
        self._check_tensor("time", self.time, (T,), torch.float64)
        self._check_tensor("observations", self.observations, (T, len(self.channels)), torch.float64)
        self._check_tensor("mask", self.mask, (T, len(self.channels)), torch.bool)
        if not bool(self.time.isfinite().all()):
            raise self._fail("time holds NaN or infinity")
        steps = self.time.diff()
        if bool((steps <= 0).any()):
            at = int((steps <= 0).nonzero()[0]) + 1
            raise self._fail(
                f"time must increase strictly, but sample {at} at {float(self.time[at])!r} s follows "
                f"{float(self.time[at - 1])!r} s; sort the recording or drop the repeated samples"
            )
        bad = (self.mask & ~self.observations.isfinite()).nonzero()
        if len(bad):
            row, column = (int(i) for i in bad[0])
            raise self._fail(
                f"channel {self.channels[column].name} is not finite at sample {row}, where its mask is True "
                f"({len(bad)} such values); set the mask to False there, or drop the samples"
            )
        names = [channel.name for channel in self.channels]
        if len(set(names)) != len(names):
            raise self._fail(f"channel names repeat: {', '.join(names)}")
        for name, extra in self.extras.items():
            if extra.ndim == 0 or len(extra) != T:
                raise self._fail(
                    f"extra {name!r} has shape {tuple(extra.shape)}; wanted one row for each of the {T} samples"
                )
        self._check_truth(T)

    def _check_truth(self, T: int) -> None:
        if self.truth is None or self.truth_mask is None:
            if self.layout is not None or self.truth_mask is not None:
                raise self._fail("a layout or a truth mask was given without truth; give truth too")
            return
        if self.layout is None:
            raise self._fail("truth needs a layout with its parts; give layout too")
        self._check_tensor("truth", self.truth, (T, self.layout.size), torch.float64)
        self._check_tensor("truth_mask", self.truth_mask, (T,), torch.bool)
        bad = (self.truth_mask & ~self.truth.isfinite().all(-1)).nonzero()
        if len(bad):
            raise self._fail(
                f"the truth is not finite at sample {int(bad[0])}, where truth_mask is True; set it to False there"
            )
        start = 0
        for part in self.layout.parts:
            if part.kind == "quaternion":
                norms = self.truth[:, start : start + 4].norm(dim=-1)
                bad = (self.truth_mask & ((norms - 1).abs() > 1e-6)).nonzero()
                if len(bad):
                    raise self._fail(
                        f"quaternion {part.name} has length {float(norms[bad[0]])} at sample {int(bad[0])}; normalise"
                    )
            start += part.size

    def _check_tensor(self, name: str, value: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        if tuple(value.shape) != shape or value.dtype != dtype:
            raise self._fail(f"{name} is {value.dtype} {tuple(value.shape)}; wanted {dtype} {shape}")

    def __len__(self) -> int:
        return len(self.time)

    def __repr__(self) -> str:
        truth = "no truth" if self.layout is None else f"truth {'+'.join(part.name for part in self.layout.parts)}"
        return f"<Recording {self.name!r}: {len(self)} samples, {len(self.channels)} channels, {truth}>"

    @property
    def dt(self) -> Float[Tensor, " T"]:
        """Seconds since the previous sample; zero for the first."""
        return torch.cat((self.time.new_zeros(1), self.time.diff()))

    @property
    def rate(self) -> float:
        """Samples per second: the inverse of the median step. Needs two samples."""
        if len(self) < 2:
            raise self._fail("a single sample has no rate")
        return 1.0 / float(self.time.diff().median())

    @property
    def span(self) -> Span:
        """The source and the samples of it."""
        return Span(self.source, self.digest, self.start, self.start + len(self))

    def column(self, name: str) -> Float[Tensor, " T"]:
        """The samples of a channel, by its name.

        Args:
            name: the name.

        Returns:
            The samples.

        Raises:
            DataError: no channel is called so.
        """
        names = [channel.name for channel in self.channels]
        if name not in names:
            raise self._fail(f"no channel is called {name!r}; there are: {', '.join(names)}")
        return self.observations[:, names.index(name)]

    def slice(self, start: int, stop: int) -> Recording:
        """Samples ``start`` to ``stop - 1`` as views, with the time and provenance of the source.

        Args:
            start: first sample.
            stop: sample after the last.

        Returns:
            A part that shares memory with this recording.

        Raises:
            DataError: the samples do not lie within the recording.
        """
        if not 0 <= start < stop <= len(self):
            raise self._fail(f"slice {start}:{stop} does not lie within its {len(self)} samples")
        first, last = self.start + start, self.start + stop
        return replace(
            self,
            name=f"{self.source}[{first}:{last}]",
            time=self.time[start:stop],
            observations=self.observations[start:stop],
            mask=self.mask[start:stop],
            truth=None if self.truth is None else self.truth[start:stop],
            truth_mask=None if self.truth_mask is None else self.truth_mask[start:stop],
            extras={name: extra[start:stop] for name, extra in self.extras.items()},
            start=first,
        )

    def windows(self, length: int, stride: int) -> list[Recording]:
        """Every complete window of ``length`` samples, ``stride`` samples apart; none if the recording is shorter.

        Args:
            length: samples of a window.
            stride: samples from one window to the next.

        Returns:
            The windows.
        """
        if length < 1 or stride < 1:
            raise self._fail(f"windows of {length} samples every {stride}: both must be at least 1")
        return [self.slice(start, start + length) for start in range(0, len(self) - length + 1, stride)]


def assert_disjoint(*splits: Iterable[Spanned]) -> None:
    """Raise :class:`DataError` if two splits have a sample of a source in common, naming the two recordings.

    Args:
        *splits: recordings, or parts of recordings, of each split.

    >>> time, rates = torch.arange(4).double() / 100, torch.zeros(4, 1).double()
    >>> whole = Recording("walk", time, rates, (Channel("gyro_x", "rad/s"),), rates == 0)
    >>> assert_disjoint(whole.windows(2, 2)[:1], whole.windows(2, 2)[1:])
    """
    by_source: dict[tuple[str, str], list[tuple[int, int, int, str]]] = {}
    for number, split in enumerate(splits):
        for recording in split:
            span = recording.span
            key = (span.source, span.digest)
            by_source.setdefault(key, []).append((span.start, span.stop, number, recording.name))
    for spans in by_source.values():
        reached: dict[int, tuple[int, str]] = {}  # the last sample of each split so far, and the recording it is in
        for start, stop, number, name in sorted(spans):
            for other, (end, holder) in reached.items():
                if other != number and start < end:
                    raise DataError(
                        f"splits {other} and {number} share samples: {holder} and {name}; "
                        "split by complete recordings, or leave a gap of one window length between splits"
                    )
            if number not in reached or stop > reached[number][0]:
                reached[number] = (stop, name)
