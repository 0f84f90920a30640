"""One type for every recording: stamps, measurements with a mask, truth with a mask, and where they came from."""

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


class Channel(NamedTuple):
    """What one column of the observations holds: ``Channel("gyro_x", "rad/s")``."""

    name: str
    unit: str


class Span(NamedTuple):
    """Samples ``start`` to ``stop - 1`` of one source, so that a split can prove that it shares none."""

    source: str
    digest: str
    start: int
    stop: int

    def overlaps(self, other: Span) -> bool:
        same = (self.source, self.digest) == (other.source, other.digest)
        return same and self.start < other.stop and other.start < self.stop


@runtime_checkable
class Spanned(Protocol):
    """Anything that knows which samples it holds."""

    @property
    def name(self) -> str: ...

    @property
    def span(self) -> Span: ...


@dataclass(frozen=True, eq=False)
class Recording:
    """A recording, or a part of one. Tensors are float64; a part shares memory with the whole: never write into it.

    >>> time, rates = torch.arange(4).double() / 100, torch.zeros(4, 1).double()
    >>> walk = Recording("walk", time, rates, (Channel("gyro_x", "rad/s"),), rates == 0)
    >>> walk.rate, [part.name for part in walk.windows(2, 2)]
    (100.0, ['walk[0:2]', 'walk[2:4]'])
    """

    name: str
    time: Float[Tensor, " T"]
    """Seconds since the first sample of the source, strictly increasing; a part keeps the time of its source."""
    observations: Float[Tensor, "T m"]
    """Measurements; what the mask marks as missing may be NaN."""
    channels: tuple[Channel, ...]
    mask: Bool[Tensor, "T m"]
    """True where there is a measurement."""
    truth: Float[Tensor, "T n"] | None = None
    layout: Layout | None = None
    """The parts of ``truth``."""
    truth_mask: Bool[Tensor, " T"] | None = None
    """True where the truth is known; elsewhere it is NaN."""
    conventions: str = ""
    """Frames, units and clocks, in words."""
    notes: tuple[str, ...] = ()
    """What a user of this recording should know: jumps, gaps, repairs, with their times."""
    digest: str = ""
    """SHA-256 of the file, or of the digests of the files, this was read from."""
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    """Further tensors with one row per sample: biases, flags, other references."""
    epoch_ns: int | None = None
    """The clock of the source at ``time == 0``, in nanoseconds, where it has one."""
    source: str = ""
    """Name of the whole recording of which this is a part."""
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
        return DataError(f"sequence {self.name!r}: {what}")

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
                f"time must increase strictly, but sample {at} is {float(self.time[at])!r} s after "
                f"{float(self.time[at - 1])!r} s; sort the recording or drop the repeated samples"
            )
        bad = (self.mask & ~self.observations.isfinite()).nonzero()
        if len(bad):
            row, column = (int(i) for i in bad[0])
            raise self._fail(
                f"channel {self.channels[column].name} is not finite at sample {row} though its mask says "
                f"measured ({len(bad)} such values); mask it or drop it"
            )
        names = [channel.name for channel in self.channels]
        if len(set(names)) != len(names):
            raise self._fail(f"channel names repeat: {', '.join(names)}")
        for name, extra in self.extras.items():
            if extra.ndim == 0 or len(extra) != T:
                raise self._fail(
                    f"extra {name!r} has shape {tuple(extra.shape)}; wanted one row for each of {T} samples"
                )
        self._check_truth(T)

    def _check_truth(self, T: int) -> None:
        if self.truth is None or self.truth_mask is None:
            if self.layout is not None or self.truth_mask is not None:
                raise self._fail("a layout or a truth mask without truth means nothing; give truth too")
            return
        if self.layout is None:
            raise self._fail("truth needs a layout that names its parts")
        self._check_tensor("truth", self.truth, (T, self.layout.size), torch.float64)
        self._check_tensor("truth_mask", self.truth_mask, (T,), torch.bool)
        bad = (self.truth_mask & ~self.truth.isfinite().all(-1)).nonzero()
        if len(bad):
            raise self._fail(f"the truth is not finite at sample {int(bad[0])} though its mask says known")
        at = 0
        for part in self.layout.parts:
            if part.kind == "quaternion":
                norms = self.truth[:, at : at + 4].norm(dim=-1)
                off = (self.truth_mask & ((norms - 1).abs() > 1e-6)).nonzero()
                if len(off):
                    raise self._fail(
                        f"quaternion {part.name} has length {float(norms[off[0]])} at sample {int(off[0])}"
                    )
            at += part.size

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
        """Seconds since the sample before; zero for the first."""
        return torch.cat((self.time.new_zeros(1), self.time.diff()))

    @property
    def rate(self) -> float:
        """Samples a second: one over the median step. Needs two samples."""
        if len(self) < 2:
            raise self._fail("one sample has no rate")
        return 1.0 / float(self.time.diff().median())

    @property
    def span(self) -> Span:
        """Which samples of which source these are."""
        return Span(self.source, self.digest, self.start, self.start + len(self))

    def column(self, name: str) -> Float[Tensor, " T"]:
        """One channel by its name."""
        names = [channel.name for channel in self.channels]
        if name not in names:
            raise self._fail(f"no channel is called {name!r}; there are: {', '.join(names)}")
        return self.observations[:, names.index(name)]

    def slice(self, start: int, stop: int) -> Recording:
        """Samples ``start`` to ``stop - 1``, as views; time and provenance stay those of the source."""
        if not 0 <= start < stop <= len(self):
            raise self._fail(f"a slice {start}:{stop} does not lie within its {len(self)} samples")
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
        """Every whole window of ``length`` samples, one each ``stride`` samples; none if the sequence is shorter."""
        if length < 1 or stride < 1:
            raise self._fail(f"windows of {length} samples every {stride}: both must be at least 1")
        return [self.slice(at, at + length) for at in range(0, len(self) - length + 1, stride)]


def assert_disjoint(*splits: Iterable[Spanned]) -> None:
    """Raise :class:`DataError` if two splits share a sample of any source, naming the two sequences.

    >>> time, rates = torch.arange(4).double() / 100, torch.zeros(4, 1).double()
    >>> whole = Recording("walk", time, rates, (Channel("gyro_x", "rad/s"),), rates == 0)
    >>> assert_disjoint(whole.windows(2, 2)[:1], whole.windows(2, 2)[1:])
    """
    placed: dict[tuple[str, str], list[tuple[int, int, int, str]]] = {}
    for number, split in enumerate(splits):
        for sequence in split:
            span = sequence.span
            key = (span.source, span.digest)
            placed.setdefault(key, []).append((span.start, span.stop, number, sequence.name))
    for spans in placed.values():
        reached: dict[int, tuple[int, str]] = {}  # for each split, how far it has got in this source, and by whom
        for start, stop, number, name in sorted(spans):
            for other, (end, holder) in reached.items():
                if other != number and start < end:
                    raise DataError(
                        f"splits {other} and {number} share samples: {holder} and {name}; "
                        "split by whole sequences, or leave a gap of one window length between splits"
                    )
            if number not in reached or stop > reached[number][0]:
                reached[number] = (stop, name)
