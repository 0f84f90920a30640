"""CSV and Parquet files as logs: one topic, whose columns are recognised as standard signals by name and unit."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .log import BLOCK, LOG_READERS, Log, Source, Stream, Topic
from .table import Table, read_table

GRAVITY = 9.80665
"""m/s², of one g."""

SECONDS: Mapping[str, float] = {
    "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0,
    "ms": 1e-3, "msec": 1e-3, "millis": 1e-3,
    "us": 1e-6, "usec": 1e-6, "µs": 1e-6, "μs": 1e-6, "micros": 1e-6,
    "ns": 1e-9, "nsec": 1e-9, "nanos": 1e-9,
}  # fmt: skip
_RAD = {"rad/s": 1.0, "rads": 1.0, "rad_s": 1.0, "rps": 1.0}
_DEG = {unit: math.radians(1) for unit in ("deg/s", "dps", "degs", "deg_s", "°/s", "degrees/s")}
_ACCELERATION = {"m/s2": 1.0, "mps2": 1.0, "ms2": 1.0, "m_s2": 1.0, "g": GRAVITY, "gs": GRAVITY, "mg": GRAVITY / 1000}
_LENGTH = {"m": 1.0, "cm": 0.01, "mm": 0.001, "km": 1000.0}
_SPEED = {"m/s": 1.0, "mps": 1.0, "m_s": 1.0, "cm/s": 0.01, "km/h": 1 / 3.6}
_ROTATION = {"rpm": 1 / 60, "hz": 1.0, "rev/s": 1.0, "rad/s": 1 / math.tau, "1/s": 1.0}
_COMMAND = {"": 1.0, "1": 1.0, "-": 1.0, "%": 0.01}


class _Kind(NamedTuple):
    """A quantity with axes: spellings of its name, its axes, and units with their factors to the standard unit."""

    spellings: str
    axes: str
    units: Mapping[str, float]


KINDS: Mapping[str, _Kind] = {
    "gyro": _Kind("gyroscope|gyro|gyr|angular_velocity|angular_rate|ang_vel|angvel|omega|rate|w|g", "xyz", _RAD | _DEG),
    "accel": _Kind(
        "accelerometer|acceleration|accel|acc|linear_acceleration|lin_acc|specific_force|a", "xyz", _ACCELERATION
    ),
    "position": _Kind("position|pos|translation|p", "xyz", _LENGTH),
    "orientation": _Kind("orientation|quaternion|quat|rotation|q", "wxyz", {"": 1.0, "1": 1.0, "-": 1.0}),
    "velocity": _Kind("linear_velocity|velocity|vel|v", "xyz", _SPEED),
}
"""Quantities that are recognised; the first spelling that matches decides."""

_TRUTH = re.compile(r"truth|true|ground|reference|vicon|mocap|(^|[_. /])(gt|ref)([_. /]|$)")
"""Names of columns with a reference."""
_TIME = re.compile(r"(?:#\s*)?(?:t|time|timestamp|time_?stamp|stamp|clock|epoch)(?:[_ ](?P<unit>[a-zµμ]+))?")
_ROTOR = re.compile(
    r"(?:(?:rotor|motor|esc|prop)[_ .]?)?(?:(?:rpm|speed|rotor)[_ .]?\[?(?P<a>\d{1,2})\]?"
    r"|\[?(?P<b>\d{1,2})\]?[_ .](?P<c>rpm|speed|hz))"
)
_MOTOR = re.compile(r"(?:motor|throttle|actuator|u)(?:_?(?:cmd|command|output))?[_ .]?\[?(?P<number>\d{1,2})\]?")


def _plain(unit: str) -> str:
    """A unit in one spelling: ``rad s^-1`` and ``rad/s`` are the same."""
    text = unit.strip().lower().replace("²", "2").replace("**", "^").replace("·", " ").replace("*", " ")
    text = re.sub(r"\s*s\^-(\d)", lambda match: "/s" + ("" if match[1] == "1" else match[1]), text)
    text = text.replace("^", "").replace("sec", "s").replace("degree", "deg").replace("/s/s", "/s2")
    return re.sub(r"\s+", "", text)


def _axis(name: str, kind: _Kind) -> tuple[str, str, str] | None:
    """Group, axis and unit suffix of a column name, if it is an axis of this quantity."""
    if kind is KINDS["position"] and name.lower() in ("x", "y", "z"):
        return "", name.lower(), ""
    match = re.fullmatch(
        rf"(?P<prefix>(?:.*[_. /])?)(?:{kind.spellings})(?P<middle>(?:_[a-z]{{1,3}}){{0,2}})[_. \[]?"
        rf"(?P<axis>[{kind.axes}0-{len(kind.axes) - 1}])\]?(?:_(?P<unit>[a-z0-9_/]+))?",
        name.lower(),
    )
    if match is None or (match["unit"] or "") not in ("", *kind.units):
        return None
    axis = kind.axes[int(match["axis"])] if match["axis"].isdigit() else match["axis"]
    bare = name.lower()[: match.start("axis")]
    return bare.rstrip("_. ["), axis, match["unit"] or ""


@LOG_READERS.register("table")
class TableLog(Log):
    """A table of numbers as a log with one topic, named like the file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.format = "Parquet" if self.path.suffix.lower() == ".parquet" else "CSV"
        self.parameters = {}
        self._table = read_table(path, digest=False)
        self._column, factor = _time_column(self._table)
        time = self._table.columns[self._column] * factor
        known = time[np.isfinite(time)]
        start = float(known[0]) if len(known) and abs(known[0]) > 1e6 else 0.0  # a date: keep the digits of the rest
        self.start_ns = round(start * 1e9)
        self._time: NDArray[np.float64] = time - start
        self._sources, notes = _sources(self._table, self._column)
        self.notes = tuple(notes)
        self.topics = {self._table.name: Topic(self._table.name, "table", tuple(self._table.columns), len(self._table))}

    def read(self, topic: str, fields: Sequence[str] | None = None) -> Stream:
        return self._part(topic, fields, slice(None))

    def _part(self, topic: str, fields: Sequence[str] | None, rows: slice) -> Stream:
        if topic not in self.topics:
            raise DataError(f"{self.path}: no topic {topic!r}; a table has one topic, {self._table.name!r}")
        names = self.topics[topic].fields if fields is None else fields
        columns = {name: self._table.column(name)[rows] for name in names}
        units = {name: self._table.unit(name) for name in names if self._table.unit(name)}
        return Stream(topic, self._time[rows], columns, units, None, topic)

    def blocks(self, wanted: Mapping[str, Sequence[str]], samples: int = BLOCK) -> Iterator[Mapping[str, Stream]]:
        for start in range(0, len(self._table), samples):
            rows = slice(start, start + samples)
            yield {topic: self._part(topic, fields, rows) for topic, fields in wanted.items()}

    def sources(self) -> tuple[Source, ...]:
        return self._sources


def _time_column(table: Table) -> tuple[str, float]:
    """The column with the time, and its factor to seconds."""
    for name in table.columns:
        match = _TIME.fullmatch(name.strip().lower())
        unit = _plain(table.units.get(name, "")) or (match["unit"] if match and match["unit"] else "")
        if match and (not unit or unit in SECONDS):
            return name, SECONDS.get(unit, 1.0)
    raise DataError(
        f"{table.path}: no column is the time ({', '.join(list(table.columns)[:10])}); call it 't [s]', or "
        "'timestamp [ns]' with the unit in brackets"
    )


def _sources(table: Table, time: str) -> tuple[tuple[Source, ...], list[str]]:
    groups: dict[str, dict[str, dict[str, tuple[str, float]]]] = {quantity: {} for quantity in KINDS}
    notes = []
    rotors: dict[str, tuple[str, float]] = {}
    motors: dict[str, tuple[str, float]] = {}
    for name in table.columns:
        if name == time:
            continue
        unit = _plain(table.units.get(name, ""))
        for quantity, kind in KINDS.items():
            parsed = _axis(name, kind)
            if parsed is None:
                continue
            group, axis, suffix = parsed
            factor = kind.units.get(unit or suffix, None if unit or suffix else 1.0)
            if factor is None:
                notes.append(f"column {name!r} looks like {quantity}, but its unit {unit or suffix!r} is not known")
            else:
                groups[quantity].setdefault(group, {})[axis] = (name, factor)
            break
        else:
            if match := _ROTOR.fullmatch(name.lower()):
                factor = _ROTATION.get(unit or ("rpm" if "rpm" in name.lower() else "hz"))
                if factor is not None:
                    rotors[match["a"] or match["b"]] = (name, factor)
            elif (match := _MOTOR.fullmatch(name.lower())) and unit in _COMMAND:
                motors[match["number"]] = (name, _COMMAND[unit])
    whole: dict[str, list[dict[str, tuple[str, float]]]] = {quantity: [] for quantity in KINDS}
    truth: dict[str, tuple[str, float]] = {}
    for quantity, found in groups.items():
        for group, columns in found.items():
            if len(columns) == len(KINDS[quantity].axes):
                named = {f"{quantity}_{axis}": columns[axis] for axis in KINDS[quantity].axes}
                if _TRUTH.search(group):
                    truth |= {name: place for name, place in named.items() if name not in truth}
                else:
                    whole[quantity].append(named)
    sources: list[Source] = []

    def add(role: str, columns: dict[str, tuple[str, float]]) -> None:
        number = sum(source.role == role for source in sources)
        sources.append(Source(f"{role}_{number}" if number else role, role, table.name, columns))

    for number in range(max(len(whole["gyro"]), len(whole["accel"]))):
        pair = [whole[quantity][number] for quantity in ("gyro", "accel") if number < len(whole[quantity])]
        add("imu" if len(pair) == 2 else "gyro" if number < len(whole["gyro"]) else "accel", pair[0] | pair[-1])
    for number, columns in enumerate(whole["position"]):
        add("pose", columns | (whole["orientation"][number] if number < len(whole["orientation"]) else {}))
    for columns in whole["velocity"]:
        add("velocity", columns)
    for quantity in ("position", "velocity"):
        for columns in whole[quantity]:
            stated = _stated(table, columns)
            if len(stated) == len(columns):
                add("estimate", columns | stated)
    if truth:
        add("truth", truth)
    for role, numbered in (("rotor", rotors), ("motor", motors)):
        ordered = [numbered[key] for key in sorted(numbered, key=int)]
        if ordered:
            add(role, {f"{role}_{index + 1}": item for index, item in enumerate(ordered)})
    return tuple(sources), notes


def _stated(table: Table, columns: Mapping[str, tuple[str, float]]) -> dict[str, tuple[str, float]]:
    """Standard deviations or variances of columns: ``position_x_std`` beside ``position_x``."""
    stated = {}
    for name, (column, factor) in columns.items():
        for suffix, scale in (("_std", factor), ("_variance", factor**2)):
            if column + suffix in table.columns:
                stated[name + suffix] = (column + suffix, scale)
                break
    return stated
