"""What a viewer shows, without any viewer: signals with intervals, tracks, pictures and remarks, in pieces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SIGMAS = 1.96
"""Of a 95 % interval."""
MOST_POINTS = 4000
"""Points of the line of a track."""
MOST_ELLIPSOIDS = 60
"""Ellipsoids along a track."""
UNSETTLED = 10
"""A filter has not settled where its interval is so many times the usual one: at the first samples."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""The palette of the reports ..."""
COLOUR_NAMES = ("blue", "orange", "green", "pink", "yellow", "light blue")
"""... and what its colours are called."""


@dataclass(frozen=True, eq=False)
class Signals:
    """Channels of one unit over time, drawn in one plot; a next piece of the same name is appended."""

    name: str
    """``family/group``, of :func:`safe` names."""
    channels: tuple[str, ...]
    time: Array
    """Seconds of the log."""
    values: Array
    """``[T, channels]``; NaN where there is no value."""
    low: Array | None = None
    """Ends of the 95 % interval of every value: around it, or around what was expected ..."""
    high: Array | None = None
    """... and None without an interval."""
    unit: str = ""

    @property
    def title(self) -> str:
        """Above the plot."""
        return f"{self.family}: {self.group}{f' ({self.unit})' if self.unit else ''}"

    @property
    def family(self) -> str:
        return self.name.split("/")[0]

    @property
    def group(self) -> str:
        return self.name.split("/")[-1]

    def settled(self) -> tuple[float, float] | None:
        """The smallest and the largest number in the plot once the filter has settled; None without any.

        >>> wide = np.array([[100.0], [1.0], [1.0]])
        >>> Signals("state/a", ("a",), np.arange(3.0), np.array([[50.0], [2.0], [3.0]]), -wide, wide).settled()
        (-1.0, 3.0)
        """
        shown = np.stack([part for part in (self.values, self.low, self.high) if part is not None])
        if self.low is not None and self.high is not None:
            width = self.high - self.low
            usual = np.ma.median(np.ma.masked_invalid(width), axis=0).filled(np.inf)
            shown = np.where(width <= UNSETTLED * usual, shown, np.nan)
        finite = shown[np.isfinite(shown)]
        return (float(finite.min()), float(finite.max())) if len(finite) else None

    def outline(self) -> Signals:
        """The same without rows; whether there is an interval stays known."""
        none = np.zeros((0, len(self.channels)))
        ends = None if self.low is None else none
        return replace(self, time=np.zeros(0), values=none, low=ends, high=ends)


@dataclass(frozen=True, eq=False)
class Track:
    """Where something was, in a frame whose third axis is up; a next piece of the same name is appended."""

    name: str
    time: Array
    position: Array
    """``[T, 3]`` (m)."""
    orientation: Array | None = None
    """Quaternions (x, y, z, w) from forward, left, up to the frame."""
    cov: Array | None = None
    """Of the position, ``[T, 3, 3]``."""
    main: bool = False
    """Whether the vehicle is drawn on it; of several tracks one is."""


@dataclass(frozen=True, eq=False)
class Picture:
    """A spectrogram as colours, with frequencies over time that are drawn above it."""

    name: str
    title: str
    image: NDArray[np.uint8]
    """``[rows, columns, 3]``, the highest frequency in the first row."""
    extent: tuple[float, float, float, float]
    """First and last second, lowest and highest frequency."""
    lines: dict[str, tuple[Array, Array]] = field(default_factory=dict)
    """Seconds and Hz by name."""

    def pixels(self, time: Array, frequency: Array) -> Array:
        """Columns and rows of the image, ``[T, 2]``."""
        left, right, bottom, top = self.extent
        rows, columns = self.image.shape[:2]
        across = (np.asarray(time, float) - left) / (right - left) * columns
        return np.stack((across, (top - np.asarray(frequency, float)) / (top - bottom) * rows), -1)

    def ticks(self) -> list[tuple[str, Array]]:
        """Labels of both axes, and where they are."""
        left, right, bottom, top = self.extent
        moments = [(f"{at:g} s", self.pixels(np.array(at), np.array(bottom))) for at in _round(left, right)]
        return moments + [(f"{at:g} Hz", self.pixels(np.array(left), np.array(at))) for at in _round(bottom, top)]


@dataclass(frozen=True)
class Remark:
    """A sentence or a page of text: a finding, a verdict."""

    title: str
    text: str
    level: str = "info"
    """``info``, ``warning`` or ``failure``."""
    time: float = 0.0


Item: TypeAlias = "Signals | Track | Picture | Remark"


@dataclass
class Outline:
    """What a scene has, without its numbers: what a layout is made of."""

    title: str
    signals: dict[str, Signals] = field(default_factory=dict)
    tracks: dict[str, bool] = field(default_factory=dict)
    """By name, whether a track has ellipsoids."""
    main: str | None = None
    """The track with the vehicle."""
    turns: bool = False
    """Whether the vehicle has an orientation."""
    pictures: dict[str, str] = field(default_factory=dict)
    """Titles by name."""
    remarks: int = 0

    def add(self, item: Item) -> bool:
        """Take note of an item; whether a layout changes with it."""
        if isinstance(item, Signals):
            new = item.name not in self.signals
            self.signals.setdefault(item.name, item.outline())
        elif isinstance(item, Track):
            new = item.name not in self.tracks
            self.tracks[item.name] = self.tracks.get(item.name, False) or item.cov is not None
            if item.main:
                self.main, self.turns = item.name, item.orientation is not None
        elif isinstance(item, Picture):
            new = item.name not in self.pictures
            self.pictures[item.name] = item.title
        else:
            new = self.remarks == 0
            self.remarks += 1
        return new

    def families(self) -> dict[str, list[Signals]]:
        """Groups of signals by the first word of their names, in the order in which they came."""
        found: dict[str, list[Signals]] = {}
        for group in self.signals.values():
            found.setdefault(group.family, []).append(group)
        return found


class Writer(Protocol):
    """A viewer, or a file for one."""

    where: str
    """What a user is told of it."""

    def add(self, item: Item) -> None:
        """Append an item."""

    def arrange(self, outline: Outline) -> None:
        """Lay out what there is so far; called again when there is more."""

    def refresh(self) -> None:
        """Draw whole tracks up to now."""

    def close(self, outline: Outline) -> None:
        """Finish."""


class Scene:
    """Passes what is shown on to viewers. Use it as a context: leaving it finishes the files."""

    def __init__(self, title: str, writers: Sequence[Writer]) -> None:
        self.writers = tuple(writers)
        self.outline = Outline(title)

    def add(self, items: Item | Iterable[Item]) -> None:
        """Append items."""
        for item in items if isinstance(items, Iterable) else (items,):
            new = self.outline.add(item)
            for writer in self.writers:
                writer.add(item)
                if new:
                    writer.arrange(self.outline)

    def refresh(self) -> None:
        """Show what is otherwise drawn at the end, such as the lines of tracks."""
        for writer in self.writers:
            writer.refresh()

    def __enter__(self) -> Scene:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish the files."""
        for writer in self.writers:
            writer.close(self.outline)


# ---- names ----------------------------------------------------------------------------------------------------------


def safe(name: str) -> str:
    """A name that needs no quotes in any viewer's path.

    >>> safe("/adc.values[3]"), safe("2 m")
    ('adc_values_3', '_2_m')
    """
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or "signal"
    return f"_{plain}" if plain[0].isdigit() else plain


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Safe names that differ from each other.

    >>> distinct(["a.b", "a b", "c"])
    ('a_b', 'a_b_2', 'c')
    """
    found: list[str] = []
    for name in map(safe, names):
        count, tried = 1, name
        while tried in found:
            count += 1
            tried = f"{name}_{count}"
        found.append(tried)
    return tuple(found)


def stem(name: str) -> str:
    """A name without its axis or number.

    >>> stem("gyro_x"), stem("bias")
    ('gyro', 'bias')
    """
    return re.sub(r"_(?:[xyzw]|north|east|down|\d+)$", "", name)


def grouped(names: Sequence[str]) -> dict[str, list[int]]:
    """Places of names that differ in their last part only, by what they have in common.

    >>> grouped(["gyro_x", "gyro_y", "bias"])
    {'gyro': [0, 1], 'bias': [2]}
    """
    stems = [stem(name) for name in names]
    found: dict[str, list[int]] = {}
    for place, (name, common) in enumerate(zip(names, stems, strict=True)):
        found.setdefault(common if stems.count(common) > 1 else name, []).append(place)
    return found


def split(
    family: str,
    names: Sequence[str],
    time: Array,
    values: Array,
    interval: tuple[Array, Array] | None = None,
    *,
    units: Sequence[str] | None = None,
) -> list[Signals]:
    """Columns as groups of signals, each of which has a plot; ``interval`` are its ends."""
    known = distinct(names)
    low, high = (None, None) if interval is None else interval
    return [
        Signals(
            f"{family}/{common}", tuple(known[place] for place in places), time, values[:, places],
            None if low is None else low[:, places], None if high is None else high[:, places],
            "" if units is None else units[places[0]],
        )
        for common, places in grouped(known).items()
    ]  # fmt: skip


def around(middle: Array | float, std: Array) -> tuple[Array, Array]:
    """Ends of the 95 % interval around a mean, or around zero for an innovation.

    >>> [end.tolist() for end in around(0.0, np.ones(1))]
    [[-1.96], [1.96]]
    """
    return middle - SIGMAS * std, middle + SIGMAS * std


# ---- geometry -------------------------------------------------------------------------------------------------------


def ellipsoids(cov: Array) -> tuple[Array, Array]:
    """Half axes of 95 % ellipsoids ``[T, 3]``, and quaternions (x, y, z, w) of their directions ``[T, 4]``.

    >>> half, turn = ellipsoids(np.diag([1.0, 4.0, 9.0])[None])
    >>> np.round(half / half[0, 0], 6).tolist()
    [[1.0, 2.0, 3.0]]
    """
    finite: NDArray[np.bool_] = np.isfinite(cov).all((1, 2)).reshape(-1)
    squares, axes = np.linalg.eigh(np.where(finite[:, None, None], cov, 0.0))
    axes = axes * np.sign(np.linalg.det(axes))[:, None, None]  # a rotation, not a reflection
    half = np.sqrt(CHI_SQUARE_3 * np.maximum(squares, 0.0))
    return np.where(finite[:, None], half, np.nan), quaternions(axes)


CHI_SQUARE_3 = 7.814727903251179
"""The 95 % quantile of χ² with three degrees of freedom."""


def quaternions(matrices: Array) -> Array:
    """Unit quaternions (x, y, z, w) of rotation matrices ``[T, 3, 3]``.

    >>> quaternions(np.eye(3)[None]).tolist()
    [[0.0, 0.0, 0.0, 1.0]]
    """
    m = matrices
    diagonal = m[:, [0, 1, 2], [0, 1, 2]]
    trace = diagonal.sum(1)
    # the largest of the four components is found from the diagonal, the others by division by it
    squares = np.concatenate((1 + 2 * diagonal - trace[:, None], 1 + trace[:, None]), 1)
    largest = squares.argmax(1)
    sums = np.stack((m[:, 0, 1] + m[:, 1, 0], m[:, 0, 2] + m[:, 2, 0], m[:, 1, 2] + m[:, 2, 1]), 1)
    turns = np.stack((m[:, 2, 1] - m[:, 1, 2], m[:, 0, 2] - m[:, 2, 0], m[:, 1, 0] - m[:, 0, 1]), 1)
    rows = np.stack(
        (
            np.stack((squares[:, 0], sums[:, 0], sums[:, 1], turns[:, 0]), 1),
            np.stack((sums[:, 0], squares[:, 1], sums[:, 2], turns[:, 1]), 1),
            np.stack((sums[:, 1], sums[:, 2], squares[:, 2], turns[:, 2]), 1),
            np.stack((turns[:, 0], turns[:, 1], turns[:, 2], squares[:, 3]), 1),
        ),
        1,
    )
    chosen = rows[np.arange(len(m)), largest]
    length: Array = np.linalg.norm(chosen, axis=1, keepdims=True)
    unit: Array = chosen / np.maximum(length, 1e-300)
    return unit


def east_north_up(position: Array, rotation: Array | None = None) -> tuple[Array, Array | None]:
    """Positions in north, east, down as viewers want them, and rotations of forward, right, down as quaternions.

    >>> east_north_up(np.array([[1.0, 2.0, 3.0]]))[0].tolist()
    [[2.0, 1.0, -3.0]]
    """
    turned: Array = position @ TURN.T
    if rotation is None:
        return turned, None
    return turned, quaternions(TURN @ rotation @ np.diag([1.0, -1.0, -1.0]))


TURN = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -1.0]])
"""From north, east, down to east, north, up."""


class Thinned:
    """Rows of which at most so many are kept, evenly: where there are more, every second one is dropped."""

    def __init__(self, most: int) -> None:
        self.most, self.every, self.seen = most, 1, 0
        self.rows: list[tuple[Array, ...]] = []

    def add(self, *columns: Array) -> None:
        """Append rows of several arrays side by side."""
        for row in zip(*columns, strict=True):
            if self.seen % self.every == 0:
                self.rows.append(row)
            self.seen += 1
            if len(self.rows) > self.most:
                self.rows, self.every = self.rows[::2], 2 * self.every

    def columns(self) -> list[Array]:
        """The rows that are kept, as arrays."""
        return [np.stack(items) for items in zip(*self.rows, strict=True)]


def every(time: Array, seconds: float) -> NDArray[np.int64]:
    """Places of rows that are at least so far apart in time.

    >>> every(np.arange(10) * 0.1, 0.25).tolist()
    [0, 3, 5, 8]
    """
    if not len(time):
        return np.zeros(0, np.int64)
    slot = np.floor((time - time[0]) / seconds + 1e-9)
    return np.flatnonzero(np.r_[True, np.diff(slot) > 0]).astype(np.int64)


def _round(low: float, high: float, count: int = 6) -> list[float]:
    """Round numbers between two."""
    step = 10.0 ** np.floor(np.log10(max(high - low, 1e-9) / count))
    step = next(factor * step for factor in (1, 2, 5, 10) if (high - low) / (factor * step) <= count)
    return [float(value) for value in np.arange(np.ceil(low / step), np.floor(high / step) + 1) * step + 0.0]
