"""CSV and Parquet files as logs: one topic, whose columns are recognised as standard signals by name and unit."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .choice import NOT_MEASURED, Pick, role_of
from .log import BLOCK, LOG_READERS, OWN, Log, Source, Stream, Topic, own_name, standard_units
from .table import Table, read_header, read_table
from .table_time import time_column, time_unit

GRAVITY = 9.80665
"""m/s², of one g."""

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
    """A table of numbers as a log with one topic, named like the file.

    Args:
        path: the file.
        time: the column with the time, as ``stamp`` or ``ticks*1e-4``; by default it is found by its name.
    """

    def __init__(self, path: str | Path, time: str = "") -> None:
        self.path = Path(path)
        self.format = "Parquet" if self.path.suffix.lower() == ".parquet" else "CSV"
        self.parameters = {}
        self._table = read_table(path, digest=False, leave_text_out=True)
        units = {name: self._table.units.get(name, "") for name in self._table.columns}
        column, factor, notes = self._time_of(units, time)
        sources, further = _sources(units, column, self._table.name)
        if factor is None:
            inertial = any(source.role in ("imu", "gyro", "accel") for source in sources)
            factor, guess = self._guessed(column, units[column], inertial)
            notes += guess
        stamps = self._table.columns[column] * factor
        known = stamps[np.isfinite(stamps)]
        start = float(known[0]) if len(known) and abs(known[0]) > 1e6 else 0.0  # a date: keep the digits of the rest
        self._put(stamps - start, round(start * 1e9), sources, [*notes, *further])

    def _put(self, time: NDArray[np.float64], start_ns: int, sources: tuple[Source, ...], notes: Sequence[str]) -> None:
        """Take the stamps, in seconds since ``start_ns``, and the signals of :attr:`_table`."""
        table = self._table
        self._time, self.start_ns, self._sources = time, start_ns, sources
        left_out = [f"columns of text are left out: {', '.join(table.text[:10])}"] if table.text else []
        self.notes = (*left_out, *notes)
        self.topics = {table.name: Topic(table.name, "table", tuple(table.columns), len(table))}

    def _time_of(self, units: Mapping[str, str], given: str) -> tuple[str, float | None, list[str]]:
        """The column with the time, the factor that was given, and notes."""
        if given:
            pick = Pick.parse(f"time={given}")
            return self._table.find(pick.place), None if pick.factor == 1.0 else pick.factor, []
        name = time_column(units)
        if name is None:
            raise DataError(
                f"{self.path}: no column is the time ({', '.join(list(units)[:10])}); call it 't [s]', or "
                "'timestamp [ns]' with the unit in brackets, or name it: --time COLUMN"
            )
        return name, None, []

    def _guessed(self, column: str, unit: str, inertial: bool) -> tuple[float, list[str]]:
        """The factor of the time stamps to seconds: as the header says, or as their values suggest."""
        found = time_unit(column, unit, self._table.columns[column])
        if found is None:
            raise DataError(f"{self.path}: the unit of the time {column!r} is {unit!r}; expected s, ms, us or ns")
        if found.source != "guess":
            return found.factor, []
        if found.unit == "s" or inertial:  # which rates an inertial sensor can have is known better (fwnkf.logs.stamps)
            return 1.0, []
        return found.factor, [
            f"the time {column!r} has no unit; its values are taken as {found.unit}: call it "
            f"'{column} [{found.unit}]', or name it with a factor, --time NAME*FACTOR, to be sure"
        ]

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


class HeldTable(TableLog):
    """A table that a program holds as a log, such as a DataFrame.

    Args:
        table: its columns, without the time.
        time: of each row, in seconds since ``start_ns``.
        start_ns: the clock at time zero in nanoseconds.

    >>> table = Table("run", Path("run"), {"load": np.ones(3)}, {"load": "N"}, "")
    >>> HeldTable(table, np.arange(3.0)).signal("column").units
    {'load': 'N'}
    """

    def __init__(self, table: Table, time: NDArray[np.float64], start_ns: int = 0) -> None:
        self.path, self.format, self.parameters, self._table = table.path, "table in memory", {}, table
        units = {name: table.units.get(name, "") for name in table.columns}
        self._put(time, start_ns, *_sources(units, "", table.name))


def read_signals(path: str | Path, names: Sequence[str], picks: Mapping[str, Pick]) -> Table:
    """Columns of a table by the names that a log of it has: signals in standard units, or columns as they are.

    Args:
        path: the file.
        names: what is wanted.
        picks: names that stand for other columns.

    Returns:
        The table with these columns.
    """
    header = read_header(path)
    known = measured_signals(header, time_column(header) or "")
    places = {name: known.get(name, (name, 1.0)) for name in names}
    places |= {name: (picks[name].place, picks[name].factor) for name in names if name in picks}
    if all(place == (name, 1.0) for name, place in places.items()):
        return read_table(path, names)
    table = read_table(path, [column for column, _ in places.values()])
    columns = {name: table.column(column) * factor for name, (column, factor) in places.items()}
    standard = standard_units(names)
    units = {name: table.unit(column) if k == 1.0 else standard.get(name, "") for name, (column, k) in places.items()}
    return replace(table, columns=columns, units={name: unit for name, unit in units.items() if unit})


def measured_signals(units: Mapping[str, str], time: str) -> dict[str, tuple[str, float]]:
    """The column of each measured signal of a table by its standard name, and the factor to the standard unit.

    Columns that are no standard signal have their own names and the factor one.

    Args:
        units: the unit of each column by name; empty where none is known.
        time: the column of the time, which is no signal.

    >>> measured_signals({"wx": "deg/s", "wy": "deg/s", "wz": "deg/s", "load": "N"}, "")["load"]
    ('load', 1.0)
    """
    return {
        name: place
        for source in reversed(_sources(units, time, "")[0])
        if source.role not in NOT_MEASURED
        for name, place in source.columns.items()
    }


def _sources(units: Mapping[str, str], time: str, topic: str) -> tuple[tuple[Source, ...], list[str]]:
    """The signals among columns by name and unit, those without a role under their own names at the end; and notes."""
    groups: dict[str, dict[str, dict[str, tuple[str, float]]]] = {quantity: {} for quantity in KINDS}
    notes = []
    factors: dict[str, float | None] = {}
    rotors: dict[str, tuple[str, float]] = {}
    motors: dict[str, tuple[str, float]] = {}
    for name in units:
        if name == time:
            continue
        unit = _plain(units[name])
        for quantity, kind in KINDS.items():
            parsed = _axis(name, kind)
            if parsed is None:
                continue
            group, axis, suffix = parsed
            factor = kind.units.get(unit or suffix, None if unit or suffix else 1.0)
            factors[name] = factor
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
        sources.append(Source(f"{role}_{number}" if number else role, role, topic, columns))

    for number in range(max(len(whole["gyro"]), len(whole["accel"]))):
        pair = [whole[quantity][number] for quantity in ("gyro", "accel") if number < len(whole[quantity])]
        add("imu" if len(pair) == 2 else "gyro" if number < len(whole["gyro"]) else "accel", pair[0] | pair[-1])
    for number, columns in enumerate(whole["position"]):
        add("pose", columns | (whole["orientation"][number] if number < len(whole["orientation"]) else {}))
    for columns in whole["velocity"]:
        add("velocity", columns)
    for quantity in ("position", "velocity"):
        for columns in whole[quantity]:
            stated = _stated(units, columns)
            if len(stated) == len(columns):
                add("estimate", columns | stated)
    if truth:
        add("truth", truth)
    for role, numbered in (("rotor", rotors), ("motor", motors)):
        ordered = [numbered[key] for key in sorted(numbered, key=int)]
        if ordered:
            add(role, {f"{role}_{index + 1}": item for index, item in enumerate(ordered)})
    used = {column for source in sources for column, _ in source.columns.values()}
    own = {}
    for name in units:
        # an axis alone is in the unit that its name stands for, and of no use if its own is not known
        factor = factors.get(name, 1.0) if role_of(name) != OWN else 1.0
        if name not in used and name != time and factor is not None:
            own[name] = (name, factor)
    if own:
        sources.append(Source(own_name(topic), OWN, topic, own))
    return tuple(sources), notes


def _stated(known: Mapping[str, str], columns: Mapping[str, tuple[str, float]]) -> dict[str, tuple[str, float]]:
    """Standard deviations or variances of columns: ``position_x_std`` beside ``position_x``."""
    stated = {}
    for name, (column, factor) in columns.items():
        for suffix, scale in (("_std", factor), ("_variance", factor**2)):
            if column + suffix in known:
                stated[name + suffix] = (column + suffix, scale)
                break
    return stated
