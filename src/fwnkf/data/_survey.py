"""What a folder of tables holds: rates, gaps, clocks that jump, missing values; said before anything is trained."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, DataError
from ..logs import Table, find_tables, read_table

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("ms", "msec", "millis", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("us", "µs", "μs", "usec", "micros", "microsecond", "microseconds"), "us"),
    **dict.fromkeys(("ns", "nsec", "nanos", "nanosecond", "nanoseconds"), "ns"),
}
EPOCH = (9e8, 4.2e9)
"""Seconds since 1970 of the years 1998 to 2103: a stamp of this size is a date."""
GAP = 1.5
"""A step longer than this many samples is a gap: a sample of the grid goes without."""
STEPS = (1e-9, 1e7)
"""Seconds between the samples of any recording that people make."""
TIMES = ("t", "time", "timestamp", "stamp", "t_ms", "t_us", "t_ns", "time_ms", "timestamp_ms", "timestamp_ns")

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Columns:
    """Which columns are what.

    >>> Columns(state=("px", "vx"), observe=("gps_x",), time="t").used
    ('t', 'px', 'vx', 'gps_x')
    """

    state: tuple[str, ...]
    """What is to be estimated: the truth, where it is known."""
    observe: tuple[str, ...]
    """What is measured."""
    control: tuple[str, ...] = ()
    """What acts on the system from one row to the next."""
    time: str | None = None
    """The stamps; without them each row counts as one second."""
    angles: tuple[str, ...] = ()
    """Those of ``state`` that are angles, in radians."""

    def __post_init__(self) -> None:
        for role in ("state", "observe", "control", "angles"):
            value = getattr(self, role)
            if isinstance(value, str):
                raise ConfigError(f"{role} = {value!r}: give a tuple of column names, ({value!r},)")
            object.__setattr__(self, role, names := tuple(value))
            if len(set(names)) != len(names):
                raise ConfigError(f"{role} names a column twice: {', '.join(names)}")
        if not self.state or not self.observe:
            raise ConfigError("name at least one column for state (what to estimate) and one for observe (the sensors)")
        if strange := set(self.angles) - set(self.state):
            raise ConfigError(f"angles names {', '.join(sorted(strange))}, which is no column of state")
        for role, names in (("state", self.state), ("observe", self.observe)):
            if self.time in names:
                raise ConfigError(f"{self.time!r} is the time and cannot be in {role} too")
        if both := set(self.control) & {*self.state, *self.observe}:
            raise ConfigError(f"{', '.join(sorted(both))} cannot be control and state or observation at once")

    @property
    def used(self) -> tuple[str, ...]:
        """Every column that is read, once."""
        time = () if self.time is None else (self.time,)
        return tuple(dict.fromkeys((*time, *self.state, *self.observe, *self.control)))


class Clock(NamedTuple):
    """The rows of a table whose stamps go forward, and their times."""

    rows: NDArray[np.intp]
    seconds: Array
    """Since the first row."""
    step: float


@dataclass(frozen=True)
class FileSurvey:
    """One file; times in seconds, rows counted from 0."""

    name: str
    rows: int
    duration: float
    rate: float
    """Samples a second: the median step, made precise by looking at ever more distant rows."""
    time_unit: str
    time_unit_from: str
    """``header``, ``name``, ``guess`` or ``rows``."""
    jitter: float
    """Standard deviation of the steps that are no gaps."""
    gaps: int
    longest_gap: float
    longest_gap_at: float
    longest_gap_row: int
    """The row before the longest gap; -1 if there is none."""
    duplicates: int
    backward: int
    unstamped: int
    """Rows whose stamp is missing."""
    missing: dict[str, int]
    """Values that are not there, per column that lacks any."""
    constant: tuple[str, ...]
    units: dict[str, str]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Survey:
    """A folder of tables, file by file."""

    folder: str
    columns: Columns
    files: tuple[FileSurvey, ...]

    def as_dict(self) -> dict[str, Any]:
        """As plain values, ready for JSON."""
        return dataclasses.asdict(self)

    def lines(self) -> list[str]:
        """A short table for people, and below it what deserves a word."""
        head = ("file", "rows", "duration", "rate", "jitter", "gaps", "missing")
        body = [
            (
                one.name,
                f"{one.rows:,}",
                f"{one.duration:.6g} s",
                f"{one.rate:.6g} Hz",
                f"{1e3 * one.jitter:.3g} ms",
                f"{one.gaps}" + (f" (longest {one.longest_gap:.3g} s)" if one.gaps else ""),
                f"{sum(one.missing.values()):,}",
            )
            for one in self.files
        ]
        widths = [max(len(row[i]) for row in (head, *body)) for i in range(len(head))]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *body)]
        return [*(line.rstrip() for line in table), *self._units(), *self.remarks()]

    def _units(self) -> list[str]:
        """One line for each way the columns are labelled, which is one for all files if all is well."""
        said: dict[str, list[str]] = {}
        for one in self.files:
            words = [f"{name} {unit}" for name, unit in one.units.items()]
            text = f"time in {one.time_unit} ({one.time_unit_from}); " + (", ".join(words) or "no unit is stated")
            said.setdefault(text, []).append(one.name)
        return [f"units{'' if len(said) == 1 else ' of ' + few(names)}: {text}" for text, names in said.items()]

    def remarks(self) -> list[str]:
        """What deserves a word, said once for all files of which it is true."""
        said: dict[str, list[str]] = {}
        for one in self.files:
            for remark in one.remarks:
                said.setdefault(remark, []).append(one.name)
        every = len(self.files)
        return [f"{few(names) if len(names) < max(2, every) else 'all files'}: {text}" for text, names in said.items()]


def few(names: Sequence[str], most: int = 5) -> str:
    """The first names of a list that may be long."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def survey(folder: str | Path, columns: Columns) -> Survey:
    """Look at the tables of a folder without cutting them into records."""
    return look(folder, columns)[0]


def look(folder: str | Path, columns: Columns) -> tuple[Survey, list[Table], list[Clock]]:
    """Read every table of a folder, and survey it."""
    tables = [read_table(path, columns.used) for path in find_tables(folder)]
    found = [_survey_file(table, columns) for table in tables]
    return Survey(str(folder), columns, tuple(one for one, _ in found)), tables, [clock for _, clock in found]


def _survey_file(table: Table, columns: Columns) -> tuple[FileSurvey, Clock]:
    remarks: list[str] = []
    rows = len(table)
    if columns.time is None:
        unit, source, stamps = "row", "rows", np.arange(rows, dtype=np.float64)
        near = [name for name in table.header if name.lower().split(" ")[0] in TIMES]
        remarks.append("no time column is named, so one row is taken for one second (1 Hz)")
        if near:
            remarks[-1] += f"; is {near[0]!r} the time?"
    else:
        raw = table.column(columns.time)
        unit, source = _time_unit(table, columns.time, raw)
        # the first stamp is taken away before scaling: what is left is small, and loses nothing
        known = raw[np.isfinite(raw)]
        stamps = (raw - (known[0] if len(known) else 0.0)) * SECONDS[unit]
        if source == "guess":
            remarks.append(
                f"the unit of {columns.time!r} is written nowhere and was guessed from its numbers: {unit}; "
                f"call it {columns.time}_{unit} or '{columns.time} [{unit}]' to be sure"
            )
    stamped = np.flatnonzero(np.isfinite(stamps))
    if len(stamped) < 2:
        raise DataError(f"{table.path}: {len(stamped)} row(s) with a time; a recording has two at least")
    times = stamps[stamped]
    steps = np.diff(times)
    before = np.maximum.accumulate(times)[:-1]
    forward = np.concatenate(([True], times[1:] > before))
    kept = stamped[forward]
    seconds = stamps[kept] - stamps[kept[0]]
    if len(kept) < 2:
        raise DataError(f"{table.path}: the time {columns.time!r} never goes forward; is it the right column?")
    taken = np.diff(seconds)
    middle = float(np.median(taken))
    regular = taken[(taken > 0.5 * middle) & (taken < GAP * middle)]
    step = _step(seconds, middle)
    if not STEPS[0] <= step <= STEPS[1]:
        raise DataError(
            f"{table.path}: rows {step:.4g} s apart; is {columns.time!r} the time, and {unit} its unit ({source})?"
        )
    wide = np.flatnonzero(taken > GAP * step)
    longest = int(wide[np.argmax(taken[wide])]) if len(wide) else -1
    missing, constant = {}, []
    for name in columns.used:
        values = table.column(name)
        finite = values[np.isfinite(values)]
        if len(finite) < rows and name != columns.time:
            missing[name] = rows - len(finite)
        if len(finite) and name != columns.time and bool((finite == finite[0]).all()):
            constant.append(name)
    duplicates, backward = int((steps == 0).sum()), int((steps < 0).sum())
    if duplicates or backward:
        dropped = len(stamped) - len(kept)
        remarks.append(f"{duplicates} stamp(s) repeat and {backward} go back; {dropped} row(s) are left out")
    if longest >= 0:
        remarks.append(
            f"{len(wide)} gap(s), the longest of {taken[longest]:.4g} s after {seconds[longest]:.6g} s "
            f"(row {kept[longest]})"
        )
    if len(regular) < 0.6 * len(taken):
        remarks.append(
            f"the rows are not evenly spaced (few steps are near their median of {middle:.4g} s); of the grid at "
            f"{1 / step:.5g} Hz much may be missing: resample the file, or give each sensor a file of its own"
        )
    if len(stamped) < rows:
        remarks.append(f"{rows - len(stamped)} row(s) have no stamp and are left out")
    for name, count in missing.items():
        remarks.append(f"{name}: {count:,} of {rows:,} values are missing" + (" (all)" if count == rows else ""))
    if constant:
        remarks.append(f"constant: {', '.join(constant)}")
    found = FileSurvey(
        name=table.path.name,
        rows=rows,
        duration=float(seconds[-1]),
        rate=1.0 / step,
        time_unit=unit,
        time_unit_from=source,
        # what is left by rounding of regular stamps is no jitter
        jitter=float(jitter) if (jitter := regular.std() if len(regular) else 0.0) > 1e-6 * step else 0.0,
        gaps=len(wide),
        longest_gap=float(taken[longest]) if longest >= 0 else 0.0,
        longest_gap_at=float(seconds[longest]) if longest >= 0 else 0.0,
        longest_gap_row=int(kept[longest]) if longest >= 0 else -1,
        duplicates=duplicates,
        backward=backward,
        unstamped=rows - len(stamped),
        missing=missing,
        constant=tuple(constant),
        units={name: table.unit(name) for name in columns.used if table.unit(name)},
        remarks=tuple(remarks),
    )
    return found, Clock(kept, seconds, step)


def _step(seconds: Array, median: float) -> float:
    """The sampling step, so precise that a grid of it keeps up with the stamps over the whole file.

    The median alone is off by a percent where stamps are rounded (33 ms for 30 Hz). Rows ``lag`` apart are ``k`` steps
    apart, and the error of their time, jitter, counts ``1/k``: each doubling of the lag halves the doubt, which before
    was small enough to tell ``k``.
    """
    step, lag = median, 1
    while lag < len(seconds):
        apart = seconds[lag:] - seconds[:-lag]
        count = np.round(apart / step)
        if not count.any():
            break
        step = float(apart @ count / (count @ count))
        lag *= 2
    return step if abs(step / median - 1) < 0.2 else median


def _time_unit(table: Table, name: str, stamps: Array) -> tuple[str, str]:
    """The unit of the stamps and where it is known from."""
    said = table.unit(name)
    if said:
        if said.lower() in UNITS:
            return UNITS[said.lower()], "header"
        raise DataError(f"{table.path}: the unit of {name!r} is {said!r}; wanted one of {', '.join(SECONDS)}")
    suffix = re.fullmatch(r".*_([a-zµμ]+)", table.find(name).lower())
    if suffix is not None and suffix[1] in UNITS:
        return UNITS[suffix[1]], "name"
    known = stamps[np.isfinite(stamps)]
    steps = np.diff(known)
    steps = steps[steps > 0]
    step = float(np.median(steps)) if len(steps) else 0.0
    first = float(known[0]) if len(known) else 0.0
    for unit, second in SECONDS.items():
        if EPOCH[0] <= first * second <= EPOCH[1] and step * second <= 10.0:
            return unit, "guess"
    # no date: a log has between one sample and a thousand a second; a step of just one is a count of seconds
    if step <= 1.0:
        return "s", "guess"
    return ("ms" if step < 1e3 else "us" if step < 1e6 else "ns"), "guess"
