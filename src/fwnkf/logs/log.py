"""Logs of any format: topics of time-stamped samples, and the standard signals among them.

A reader is a subclass of :class:`Log` in a file of its own (``ulog.py``, ``mcap.py``, …). It names the topics of the
file, reads chosen fields of them as arrays, and says which of them are the standard signals of :data:`ROLES`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..registry import Registry

Array = NDArray[np.float64]

BLOCK = 1 << 16
"""Samples of a topic that :meth:`Log.blocks` holds at a time."""

ROLES: Mapping[str, str] = {
    "imu": "gyro_x … gyro_z (rad/s) and accel_x … accel_z (m/s²) with common time stamps",
    "gyro": "gyro_x … gyro_z (rad/s) alone, such as FIFO samples or a gyro before its filters",
    "accel": "accel_x … accel_z (m/s²) alone",
    "gyro_filtered": "gyro_x … gyro_z (rad/s) after the filters of the autopilot",
    "rotor": "rotor_1 … rotor_n: rotations per second of each rotor (Hz)",
    "motor": "motor_1 … motor_n: motor commands from 0 to 1",
    "pose": "position_x … position_z (m) and, where known, orientation_w … orientation_z",
    "attitude": "orientation_w … orientation_z alone",
    "velocity": "velocity_x … velocity_z (m/s)",
    "gnss": "position_x … position_z (m) and velocity_x … velocity_z (m/s) as a receiver reports them",
    "mag": "mag_x … mag_z (µT)",
    "power": "current (A) and voltage (V) of the battery",
    "temperature": "temperature (°C) of the inertial sensor",
    "innovation": "innovations of the autopilot by name, with NAME_variance and NAME_ratio where they are logged",
    "estimate": "position_x … or velocity_x … of an estimator, with NAME_variance or NAME_std as it states them",
    "truth": "position_x …, orientation_w …, velocity_x … of a reference: motion capture, a simulator",
    "vibration": "vibration_x … vibration_z (m/s²) as the autopilot computes it, and clip_… counts",
    "peak": "peak_x … peak_z: frequencies (Hz) of the strongest gyro lines as measured on board",
    "column": "columns that no other role has, under their own names and in their own units",
}
"""Standard signals: the names and units of their columns."""
OWN = "column"
"""The role of columns under their own names."""


@dataclass(frozen=True)
class Topic:
    """A series of samples in a log.

    >>> Topic("/imu", "sensor_msgs/msg/Imu", ("angular_velocity.x",)).count is None
    True
    """

    name: str
    """Unique in a log."""
    kind: str
    """Type of its messages, such as ``sensor_msgs/msg/Imu``."""
    fields: tuple[str, ...]
    """Names of its numbers, such as ``angular_velocity.x``."""
    count: int | None = None
    """Number of samples, where the file says so."""


@dataclass(frozen=True, eq=False)
class Stream:
    """Samples of one topic or signal: time stamps as they are in the file, in its order, and columns of that length.

    >>> stream = Stream("imu", np.array([0.0, 0.1]), {"gyro_x": np.array([1.0, 2.0])})
    >>> len(stream), stream.stack().shape
    (2, (2, 1))
    """

    name: str
    """Name of the topic or signal."""
    time: Array
    """Seconds since ``Log.start_ns``; neither sorted nor checked, see :mod:`fwnkf.logs.stamps`."""
    columns: Mapping[str, Array]
    """Values by name."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Units by name, where they are known."""
    received: Array | None = None
    """When the recorder received each sample, in the same seconds, where that is another clock."""
    topic: str = ""
    """The topic that a signal was read from."""
    role: str = ""
    """The role of a signal, one of :data:`ROLES`."""
    notes: tuple[str, ...] = ()
    """Oddities of these samples, for people."""
    nominal: float | None = None
    """Step between samples (s) as the log itself states it, which may differ from its time stamps."""

    def __len__(self) -> int:
        return len(self.time)

    def take(self, rows: slice | NDArray[Any]) -> Stream:
        """Some of the samples.

        Args:
            rows: a slice, a mask or places.

        Returns:
            A new stream.
        """
        columns = {name: values[rows] for name, values in self.columns.items()}
        received = None if self.received is None else self.received[rows]
        return replace(self, time=self.time[rows], columns=columns, received=received)

    def stack(self, names: Sequence[str] | None = None) -> Array:
        """Columns side by side.

        Args:
            names: which columns, in this order; by default all.

        Returns:
            ``[samples, columns]``.
        """
        chosen = list(self.columns) if names is None else list(names)
        return np.stack([self.columns[name] for name in chosen], -1)


class Source(NamedTuple):
    """Where a standard signal is in a log.

    >>> Source("imu", "imu", "/imu", {"gyro_x": ("angular_velocity.x", 1.0)}).topic
    '/imu'
    """

    name: str
    """Unique in a log: the role, with a suffix for further instances (``imu``, ``imu_1``, ``gyro_fifo``)."""
    role: str
    """One of :data:`ROLES`."""
    topic: str
    """The topic it is read from."""
    columns: Mapping[str, tuple[str, float]]
    """The standard name of each column, with the field of the topic and the factor to the standard unit."""


class Message(NamedTuple):
    """A line of text in a log.

    >>> Message(12.5, "warning", "low battery").text
    'low battery'
    """

    time: float
    """Seconds since ``Log.start_ns``."""
    level: str
    """``"info"``, ``"warning"`` and the like, as the log says it."""
    text: str
    """The line."""


class Dropout(NamedTuple):
    """A time for which the recorder itself says that it lost data.

    >>> Dropout(12.5, 0.2).seconds
    0.2
    """

    time: float
    """When it began, in seconds since ``Log.start_ns``."""
    seconds: float
    """How long it lasted."""


class Log(ABC):
    r"""An open log; :func:`fwnkf.logs.open_log` opens one of any known format.

    >>> import tempfile
    >>> from fwnkf.logs import open_log
    >>> path = Path(tempfile.mkdtemp()) / "run.csv"
    >>> header = "t [s],gyro_x [deg/s],gyro_y [deg/s],gyro_z [deg/s]"
    >>> _ = path.write_text(f"{header}\n0.0,90,0,0\n0.01,180,0,0\n")
    >>> open_log(path).signal("gyro").columns["gyro_x"].round(2)  # rad/s
    array([1.57, 3.14])
    """

    magic: ClassVar[tuple[bytes, ...]] = ()
    """First bytes of files of this format, of a reader outside this package (:mod:`fwnkf.logs.open`)."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """Suffixes of their names, in lower case: ``(".xlog",)``; likewise."""
    path: Path
    """The file."""
    format: str
    """Name of its format."""
    start_ns: int = 0
    """The clock of the log at time zero, in nanoseconds."""
    stop_ns: int = 0
    """The clock at the last message; 0 where that is known only after reading."""
    topics: Mapping[str, Topic]
    """What was recorded, by name."""
    parameters: Mapping[str, float | str]
    """Settings of the vehicle, where they are logged."""
    messages: tuple[Message, ...] = ()
    """Lines of text in the log."""
    dropouts: tuple[Dropout, ...] = ()
    """Times that the recorder lost."""
    left_out: tuple[Dropout, ...] = ()
    """Times that are not read, see :mod:`fwnkf.logs.excerpt`; they are no gaps of the log."""
    notes: tuple[str, ...] = ()
    """Damage and oddities of the file, for people."""
    asked: tuple[str, ...] = ()
    """Roles, and names of own columns, that the user asked for (:func:`fwnkf.logs.choose`); empty if for none."""
    facts: Mapping[str, float | str] = MappingProxyType({})
    """Vehicle, firmware and the like, where they are logged."""

    @abstractmethod
    def read(self, topic: str, fields: Sequence[str] | None = None) -> Stream:
        """All samples of a topic.

        Args:
            topic: its name.
            fields: which fields; by default all.

        Returns:
            The samples in the order of the file.

        Raises:
            DataError: there is no such topic or field.
        """

    @abstractmethod
    def blocks(self, wanted: Mapping[str, Sequence[str]], samples: int = BLOCK) -> Iterator[Mapping[str, Stream]]:
        """Samples of several topics in the order of the file, in blocks of bounded memory.

        Args:
            wanted: topics, and fields of each.
            samples: of one topic at a time, at most.

        Returns:
            An iterator over blocks: the samples of each topic by name.
        """

    def windows(self, topic: str, fields: Sequence[str] | None, spans: Sequence[tuple[float, float]]) -> list[Stream]:
        """The samples of a topic that were received in each of some spans.

        Args:
            topic: its name.
            fields: which fields; None for all.
            spans: from and to seconds.

        Returns:
            One stream for each span.
        """
        stream = self.read(topic, fields)
        time = stream.time if stream.received is None else stream.received
        return [stream.take((time >= start) & (time < stop)) for start, stop in spans]

    def airborne(self) -> tuple[tuple[float, float], ...]:
        """When the vehicle was in the air.

        Returns:
            From and to seconds; empty where the log does not say.
        """
        return ()

    def sources(self) -> tuple[Source, ...]:
        """The standard signals of the log, the best of each role first.

        Returns:
            Where each signal is.
        """
        return ()

    def source(self, name: str) -> Source:
        """A standard signal by name or role.

        Args:
            name: the name (``imu_1``) or the role (``imu``).

        Returns:
            The first that fits.

        Raises:
            DataError: there is none; the message names the signals that there are.
        """
        found = [source for source in self.sources() if name in (source.name, source.role)]
        if not found:
            known = ", ".join(source.name for source in self.sources()) or "none"
            topics = ", ".join(list(self.topics)[:20]) or "none"
            raise DataError(f"{self.path}: no {name} in this log; signals: {known}; topics: {topics}")
        return found[0]

    def signal(self, name: str) -> Stream:
        """A standard signal with the names and units of :data:`ROLES`.

        Args:
            name: the name or the role of the signal.

        Returns:
            All its samples.

        Raises:
            DataError: the log has no such signal.
        """
        source = self.source(name)
        fields = list(dict.fromkeys(field for field, _ in source.columns.values()))
        stream = self.read(source.topic, fields)
        return standard(stream, source)


LOG_READERS: Registry[type[Log]] = Registry("log format")
"""The reader of each format, a subclass of :class:`Log` whose constructor takes the path; imported on first use."""
LOG_READERS.declare(
    __package__,
    mcap="mcap",
    bag="rosbag",
    ros2="rosbag2",
    ulog="ulog",
    dataflash="dataflash",
    blackbox="blackbox",
    table="tables",
)


def standard(stream: Stream, source: Source) -> Stream:
    """Rename and scale the columns of a stream as ``source`` says."""
    columns = {name: stream.columns[field] * factor for name, (field, factor) in source.columns.items()}
    units = standard_units(columns)
    if source.role == OWN:  # a factor makes another unit of it
        places = source.columns.items()
        units = {name: stream.units.get(field, "") if k == 1.0 else units.get(name, "") for name, (field, k) in places}
    return replace(stream, name=source.name, columns=columns, units=units, topic=source.topic, role=source.role)


def own_name(topic: str) -> str:
    """The name of the signal with the own columns of a topic; that of the topic, unless it is also that of a role.

    >>> own_name("/scale"), own_name("imu")
    ('/scale', 'columns of imu')
    """
    return f"columns of {topic}" if topic.split("_")[0] in ROLES else topic


def standard_units(names: Sequence[str] | Mapping[str, object]) -> dict[str, str]:
    """Units of standard columns by their prefix; columns without one have no unit."""
    prefixes = {
        "gyro": "rad/s", "accel": "m/s²", "rotor": "Hz", "peak": "Hz", "position": "m", "velocity": "m/s",
        "vibration": "m/s²", "mag": "µT", "current": "A", "voltage": "V", "temperature": "°C",
    }  # fmt: skip
    return {name: prefixes[name.split("_")[0]] for name in names if name.split("_")[0] in prefixes}
