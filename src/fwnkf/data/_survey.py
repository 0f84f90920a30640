"""Survey of a folder of tables: sampling rates, gaps, irregular time stamps and missing values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, DataError
from ..logs.choice import Choice, Pick
from ..logs.table import Table, find_tables, read_header
from ..logs.table_time import SECONDS, time_column, time_unit
from ..logs.tables import read_signals

GAP = 1.5
"""A step longer than this many sampling intervals is a gap."""
STEPS = (1e-9, 1e7)
"""Accepted sampling intervals, in seconds."""
TIMES = ("t", "time", "timestamp", "stamp", "t_ms", "t_us", "t_ns", "time_ms", "timestamp_ms", "timestamp_ns")

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Columns:
    """The roles of the columns of a table.

    >>> Columns(state=("px", "vx"), observe=("gps_x",), time="t").used
    ('t', 'px', 'vx', 'gps_x')
    >>> Columns(state=(), observe=("height=alt_cm*0.01",)).observe
    ('height',)
    """

    state: tuple[str, ...]
    """The quantities to estimate: the ground truth, where it is known. Empty for tables without truth."""
    observe: tuple[str, ...]
    """The measurements."""
    control: tuple[str, ...] = ()
    """The inputs that act on the system from one row to the next."""
    time: str | None = None
    """The time stamps; without them, rows are one second apart."""
    angles: tuple[str, ...] = ()
    """The columns of ``state`` that are angles, in radians."""
    fields: tuple[str, ...] = ()
    """Names that are read from other columns, ``NAME=COLUMN*FACTOR``; they may also stand in the roles."""

    def __post_init__(self) -> None:
        fields = dict.fromkeys(self.fields)
        if self.time is not None and "=" in self.time:
            fields[self.time] = None
            object.__setattr__(self, "time", self.time.partition("=")[0].strip())
        for role in ("state", "observe", "control", "angles"):
            value = getattr(self, role)
            if isinstance(value, str):
                raise ConfigError(f"{role} = {value!r}: expected a tuple of column names, ({value!r},)")
            fields |= dict.fromkeys(item for item in value if "=" in item)
            object.__setattr__(self, role, names := tuple(item.partition("=")[0].strip() for item in value))
            if len(set(names)) != len(names):
                raise ConfigError(f"{role} names a column twice: {', '.join(names)}")
        object.__setattr__(self, "fields", tuple(fields))
        if len(self.picks) < len(self.fields):
            raise ConfigError(f"a name is given twice: {', '.join(self.fields)}")
        if not self.observe:
            raise ConfigError("observe (the sensors) needs at least one column")
        if unknown := set(self.angles) - set(self.state):
            raise ConfigError(f"angles contains {', '.join(sorted(unknown))}, which is not a column of state")
        for role, names in (("state", self.state), ("observe", self.observe)):
            if self.time in names:
                raise ConfigError(f"{self.time!r} is the time and cannot also be in {role}")
        if both := set(self.control) & {*self.state, *self.observe}:
            raise ConfigError(f"{', '.join(sorted(both))} cannot be both a control and a state or observation")

    @classmethod
    def of(cls, folder: str | Path, choice: Choice) -> Columns:
        """The columns that a user chose in the tables of a folder; the time is found where it was not named.

        Args:
            folder: the folder, or one file.
            choice: the names.

        Returns:
            Their roles.
        """
        time, fields = choice.time or None, choice.fields
        if time is None and Path(folder).exists():  # what is not there is reported where it is read
            time = time_column(read_header(find_tables(folder)[0]))
        if time is not None and (pick := Pick.parse(f"time_s={time}")).factor != 1.0:
            time, fields = pick.name, (*fields, str(pick))
        return cls(choice.state, choice.channels, choice.controls, time, fields=fields)

    @property
    def picks(self) -> dict[str, Pick]:
        """What the names of :attr:`fields` stand for."""
        return {pick.name: pick for pick in map(Pick.parse, self.fields)}

    @property
    def used(self) -> tuple[str, ...]:
        """All columns, without duplicates."""
        time = () if self.time is None else (self.time,)
        return tuple(dict.fromkeys((*time, *self.state, *self.observe, *self.control)))


class Clock(NamedTuple):
    """The rows of a table with increasing time stamps, and their times."""

    rows: NDArray[np.intp]
    seconds: Array
    """Relative to the first row."""
    step: float


@dataclass(frozen=True)
class FileSurvey:
    r"""Survey of one file; times in seconds, rows count from 0.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "run.csv"
    >>> _ = path.write_text("t [s],x\n0.0,1\n0.1,2\n0.2,\n")
    >>> survey(path, Columns(state=(), observe=("x",), time="t")).files[0].missing
    {'x': 1}
    """

    name: str
    """Name of the file without suffix."""
    rows: int
    """Number of rows."""
    duration: float
    """From the first to the last row."""
    rate: float
    """Sampling rate in Hz, see ``_step``."""
    time_unit: str
    """Unit of the time stamps."""
    time_unit_from: str
    """``header``, ``name``, ``guess`` or ``rows``."""
    jitter: float
    """Standard deviation of the steps without gaps."""
    gaps: int
    """Number of gaps."""
    longest_gap: float
    """Length of the longest one."""
    longest_gap_at: float
    """When it begins."""
    longest_gap_row: int
    """The row before the longest gap; -1 without gaps."""
    duplicates: int
    """Number of rows that repeat a time stamp."""
    backward: int
    """Number of rows whose time stamp decreases."""
    unstamped: int
    """Number of rows without a time stamp."""
    missing: dict[str, int]
    """Number of missing values per column, for columns with any."""
    constant: tuple[str, ...]
    """Columns that never change."""
    units: dict[str, str]
    """Units as written in the file."""
    remarks: tuple[str, ...] = ()
    """Oddities, for people."""


@dataclass(frozen=True)
class Survey:
    r"""Survey of a folder of tables.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "run.csv"
    >>> _ = path.write_text("t [s],x\n0.0,1\n0.1,2\n0.2,3\n")
    >>> survey(path, Columns(state=(), observe=("x",), time="t")).lines()[0].split()
    ['file', 'rows', 'duration', 'rate', 'jitter', 'gaps', 'missing']
    """

    folder: str
    """The folder."""
    columns: Columns
    """The roles of the columns."""
    files: tuple[FileSurvey, ...]
    """One survey for each file."""

    def lines(self) -> list[str]:
        """The survey as a table, followed by units and remarks.

        Returns:
            One string for each line.
        """
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
        """The units of the columns, one line for all files with the same units."""
        files: dict[str, list[str]] = {}
        for one in self.files:
            units = [f"{name} {unit}" for name, unit in one.units.items()]
            text = f"time in {one.time_unit} ({one.time_unit_from}); " + (", ".join(units) or "no units stated")
            files.setdefault(text, []).append(one.name)
        return [f"units{'' if len(files) == 1 else ' of ' + few(names)}: {text}" for text, names in files.items()]

    def remarks(self) -> list[str]:
        """The remarks on all files, each with the names of the files it applies to.

        Returns:
            One string for each remark.
        """
        files: dict[str, list[str]] = {}
        for one in self.files:
            for remark in one.remarks:
                files.setdefault(remark, []).append(one.name)
        every = len(self.files)
        return [f"{few(names) if len(names) < max(2, every) else 'all files'}: {text}" for text, names in files.items()]


def few(names: Sequence[str], most: int = 5) -> str:
    """The first names of a list, and the number of the others."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def survey(folder: str | Path, columns: Columns) -> Survey:
    r"""Survey the tables of a folder.

    Args:
        folder: the folder, or one file.
        columns: the roles of their columns.

    Returns:
        Rates, gaps, missing values and remarks of each file.

    Raises:
        DataError: a file cannot be read or lacks a column.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "run.csv"
    >>> _ = path.write_text("t [s],x\n0.0,1\n0.1,2\n0.2,3\n")
    >>> round(survey(path, Columns(state=(), observe=("x",), time="t")).files[0].rate, 6)
    10.0
    """
    return read(folder, columns)[0]


def read(folder: str | Path, columns: Columns, only: Sequence[str] = ()) -> tuple[Survey, list[Table], list[Clock]]:
    """Read and survey the tables of a folder, or some of them by name."""
    paths = [path for path in find_tables(folder) if not only or path.name in only]
    if not paths:
        raise DataError(f"{folder} has none of the files {few(tuple(only))} any more; name others")
    tables = [read_signals(path, columns.used, columns.picks) for path in paths]
    surveys, clocks = zip(*(_survey_file(table, columns) for table in tables), strict=True)
    return Survey(str(folder), columns, surveys), tables, list(clocks)


def _survey_file(table: Table, columns: Columns) -> tuple[FileSurvey, Clock]:
    remarks: list[str] = []
    rows = len(table)
    if columns.time is None:
        unit, source, stamps = "row", "rows", np.arange(rows, dtype=np.float64)
        candidates = [name for name in table.header if name.lower().split(" ")[0] in TIMES]
        remarks.append("no time column is given; rows are assumed to be one second apart (1 Hz)")
        if candidates:
            remarks[-1] += f"; is {candidates[0]!r} the time?"
    else:
        raw = table.column(columns.time)
        unit, source = _time_unit(table, columns.time, raw)
        # the first time stamp is subtracted before scaling, which keeps the precision of the others
        known = raw[np.isfinite(raw)]
        stamps = (raw - (known[0] if len(known) else 0.0)) * SECONDS[unit]
        if source == "guess":
            remarks.append(
                f"the unit of {columns.time!r} is not stated and was guessed from its values: {unit}; "
                f"name the column {columns.time}_{unit} or '{columns.time} [{unit}]' to set it"
            )
    stamped = np.flatnonzero(np.isfinite(stamps))
    if len(stamped) < 2:
        raise DataError(f"{table.path}: {len(stamped)} row(s) with a time stamp; at least two are needed")
    times = stamps[stamped]
    steps = np.diff(times)
    before = np.maximum.accumulate(times)[:-1]
    forward = np.concatenate(([True], times[1:] > before))
    kept = stamped[forward]
    seconds = stamps[kept] - stamps[kept[0]]
    if len(kept) < 2:
        raise DataError(f"{table.path}: the time {columns.time!r} never increases; is it the right column?")
    intervals = np.diff(seconds)
    median = float(np.median(intervals))
    regular = intervals[(intervals > 0.5 * median) & (intervals < GAP * median)]
    step = _step(seconds, median)
    if not STEPS[0] <= step <= STEPS[1]:
        raise DataError(
            f"{table.path}: rows are {step:.4g} s apart; is {columns.time!r} the time, and {unit} its unit ({source})?"
        )
    gaps = np.flatnonzero(intervals > GAP * step)
    longest = int(gaps[np.argmax(intervals[gaps])]) if len(gaps) else -1
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
        remarks.append(f"{duplicates} time stamp(s) repeat and {backward} decrease; {dropped} row(s) are dropped")
    if longest >= 0:
        remarks.append(
            f"{len(gaps)} gap(s), the longest of {intervals[longest]:.4g} s after {seconds[longest]:.6g} s "
            f"(row {kept[longest]})"
        )
    if len(regular) < 0.6 * len(intervals):
        remarks.append(
            f"the rows are not evenly spaced (few steps are near their median of {median:.4g} s); many samples of the "
            f"grid at {1 / step:.5g} Hz may be missing: resample the file, or store each sensor in a separate file"
        )
    if len(stamped) < rows:
        remarks.append(f"{rows - len(stamped)} row(s) have no time stamp and are dropped")
    for name, count in missing.items():
        remarks.append(f"{name}: {count:,} of {rows:,} values are missing" + (" (all)" if count == rows else ""))
    if constant:
        remarks.append(f"constant: {', '.join(constant)}")
    file_survey = FileSurvey(
        name=table.path.name,
        rows=rows,
        duration=float(seconds[-1]),
        rate=1.0 / step,
        time_unit=unit,
        time_unit_from=source,
        # smaller values are due to rounding of regular time stamps
        jitter=float(jitter) if (jitter := regular.std() if len(regular) else 0.0) > 1e-6 * step else 0.0,
        gaps=len(gaps),
        longest_gap=float(intervals[longest]) if longest >= 0 else 0.0,
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
    return file_survey, Clock(kept, seconds, step)


def _step(seconds: Array, median: float) -> float:
    """The sampling step, precise enough for a grid to follow the time stamps over the whole file.

    The median has an error of about 1 % if time stamps are rounded (33 ms for 30 Hz). Rows ``lag`` apart are ``k``
    steps apart, and jitter contributes ``1/k`` of its size to the estimate: each doubling of the lag halves the error,
    which stays small enough to round to the correct ``k``.
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
    """The unit of the time stamps and its source."""
    found = time_unit(table.find(name), table.unit(name), stamps)
    if found is None:
        raise DataError(
            f"{table.path}: the unit of {name!r} is {table.unit(name)!r}; expected one of {', '.join(SECONDS)}"
        )
    return found.unit, found.source
