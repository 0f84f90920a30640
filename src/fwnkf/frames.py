"""DataFrames of pandas and polars, and Datasets of xarray, as columns of numbers with a time; and back.

The one place that knows these libraries. pandas, polars and whatever else narwhals covers are read and made by it
(``pip install 'fwnkf[frames]'``); a Dataset has all that is needed itself. Nothing is imported before a frame is given,
and what comes out is of the library of what came in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import ConfigError, DataError, listed, shown
from .extras import need
from .logs.table import Table, missing_column, name_columns
from .logs.table_time import time_column, time_unit
from .types import DataFrame

Array = NDArray[np.float64]
DATE = 1e6
"""Seconds above which a stamp is one of a clock that counts from a date, and not from the start of a recording."""


class Stamps(NamedTuple):
    """The time of each row.

    >>> Stamps(np.array([0.0, 0.1]), np.array([0.1])).start_ns
    0
    """

    seconds: Array
    """Since the first row."""
    steps: Array
    """From each row to the next: differences of the stamps themselves, so that none of their digits is lost."""
    start_ns: int = 0
    """The clock at the first row in nanoseconds; 0 where it counts from the start of the recording."""


class OpenFrame(ABC):
    """A frame of any library, of which columns are read by name without unit."""

    name: str
    """Of its type, for messages."""
    path: Path
    """The same, where messages have a file."""
    units: Mapping[str, str]
    """The unit of each column by name, empty where there is none; the time is no column."""
    time: Stamps | None
    """None for a frame without a time: its rows are steps."""

    def __init__(self, frame: Any) -> None:
        self.name = type(frame).__name__
        self.path = Path(self.name)

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _numbers(self, name: str) -> Array | None:
        """The numbers of a column, NaN where they are missing; None for a column of something else."""

    @abstractmethod
    def made(self, columns: Mapping[str, NDArray[Any]], units: Mapping[str, str], rows: slice) -> Any:
        """A frame of the same library with the time of these rows, and with other columns.

        Args:
            columns: numbers by name.
            units: units by name, of the columns that have one. They are written as those of the frame itself are.
            rows: of this frame, one for each number.

        Returns:
            The frame.
        """

    def column(self, name: str) -> Array:
        """The numbers of a column.

        Args:
            name: without unit.

        Returns:
            Numbers, NaN where they are missing.

        Raises:
            DataError: there is no such column, or it has no numbers.
        """
        if name not in self.units:
            raise missing_column(self.path, name, list(self.units))
        found = self._numbers(name)
        if found is None:
            raise DataError(f"{self.name}: column {shown(name)} has no numbers; convert it")
        return found

    def table(self) -> Table:
        """All columns of numbers, as the readers of files return them.

        Returns:
            The columns and their units, without the time.
        """
        read = {name: self._numbers(name) for name in self.units}
        columns = {name: values for name, values in read.items() if values is not None}
        units = {name: unit for name, unit in self.units.items() if unit and name in columns}
        text = tuple(name for name, values in read.items() if values is None)
        return Table(self.name, self.path, columns, units, "", tuple(columns), text)

    def _stamps(self, values: NDArray[Any], name: str, unit: str) -> Stamps:
        """From nanoseconds (``unit`` is "ns"), or from numbers in a unit of their own."""
        rounded = values.astype(np.float64)
        found = time_unit(name, unit, rounded)
        if found is None:
            raise DataError(f"{self.name}: the unit of the time {shown(name)} is {unit!r}; expected s, ms, us or ns")
        if found.source == "guess" and found.unit != "s":
            raise DataError(
                f"{self.name}: the time {shown(name)} has no unit, and its values look like {found.unit}; write it as "
                f"'{name} [{found.unit}]', or convert it to seconds or to dates"
            )
        values = values.astype(np.int64) if values.dtype.kind in "iu" else rounded  # unsigned ones do not go back
        bad = np.flatnonzero(~np.isfinite(rounded))
        if len(bad):
            raise DataError(f"{self.name}, row {bad[0]}: the time {shown(name)} is missing; drop rows without a time")
        steps = np.diff(values) * found.factor
        back = np.flatnonzero(steps < 0)
        if len(back):
            row = int(back[0]) + 1
            raise DataError(
                f"{self.name}, row {row}: the time goes back by {-steps[row - 1]:.6g} s ({len(back)} such rows); sort "
                "the frame by its time"
            )
        if len(values) == 0:
            return Stamps(np.zeros(0), np.zeros(0))
        first = float(values[0]) * found.factor
        start = 0 if abs(first) < DATE else int(values[0]) if found.unit == "ns" else round(first * 1e9)
        seconds = (values - values[0]) * found.factor
        return Stamps(seconds, steps, start)


def open_frame(frame: Any, time: str = "") -> OpenFrame:
    """Open a DataFrame of pandas or polars, or a Dataset of xarray.

    The time is the index of pandas and the dimension of xarray if they have one; else the column that is called so
    (:func:`fwnkf.logs.table_time.time_column`), or the only one of dates.

    Args:
        frame: the frame.
        time: the column of the time; empty: it is found.

    Returns:
        The frame, for reading.

    Raises:
        ConfigError: it is no such frame, or narwhals is not installed.
        DataError: its stamps are missing, go back or have no known unit.

    >>> import pandas
    >>> frame = open_frame(pandas.DataFrame({"t [ms]": [0, 10, 25], "height [m]": [1.0, None, 3.0]}))
    >>> frame.units, frame.time.steps, frame.column("height")
    ({'height': 'm'}, array([0.01 , 0.015]), array([ 1., nan,  3.]))
    """
    kind = type(frame)  # not the frame itself, which may have a column of that name
    if hasattr(kind, "collect"):
        raise ConfigError(f"a {kind.__name__} holds no rows yet; call its collect() first")
    if hasattr(kind, "data_vars"):
        return _XarrayDataset(frame, time)
    if not isinstance(frame, DataFrame):
        hint = "; make a Dataset of it: .to_dataset(…)" if kind.__module__.startswith("xarray") else ""
        raise ConfigError(
            f"a {kind.__name__} is neither a tensor nor a DataFrame of pandas or polars nor a Dataset of xarray{hint}"
        )
    return _NarwhalsFrame(frame, time)


class _NarwhalsFrame(OpenFrame):
    """A DataFrame of pandas, polars or another library that narwhals covers."""

    def __init__(self, frame: Any, time: str) -> None:
        super().__init__(frame)
        self._nw: Any = need("narwhals", extra="frames")
        try:
            self._frame = self._nw.from_native(frame, eager_only=True)
        except (TypeError, ValueError, self._nw.exceptions.NarwhalsError) as error:
            raise ConfigError(f"a {self.name} is no DataFrame that can be read ({str(error)[:200]})") from error
        header = [str(label) for label in self._frame.columns]
        named = name_columns(self.path, header)
        self._series = dict(zip((name for name, _ in named), self._frame.iter_columns(), strict=True))
        self._index: Any = self._nw.maybe_get_index(self._frame)  # of pandas and its kin
        self._attrs: dict[str, Any] = dict(frame.attrs) if self._index is not None else {}
        stated = self._attrs["units"] if isinstance(self._attrs.get("units"), Mapping) else {}
        units = {
            name: unit or str(stated.get(label, stated.get(name, "")))
            for (name, unit), label in zip(named, header, strict=True)
        }
        self._labels_have_units = any(unit for _, unit in named)
        self._time_name, series = self._find_time(units, time)
        self.time = None if series is None else self._read_time(series, units)
        self.units = {name: unit for name, unit in units.items() if name != self._time_name}

    def __len__(self) -> int:
        return len(self._frame)

    def _find_time(self, units: Mapping[str, str], given: str) -> tuple[str | None, Any]:
        """The column of the time, None for the index, and its values; both None without a time."""
        label = "" if self._index is None or self._index.name is None else str(self._index.name)
        if given:
            full = [name for name, column in self._series.items() if given in (name, str(column.name))]
            if full:
                return full[0], self._series[full[0]]
            if given == label:
                return None, self._as_series(self._index)
            raise missing_column(self.path, given, [*([label] if label else []), *units])
        if self._index is not None:
            index = self._as_series(self._index)
            numbers = index is not None and index.dtype.is_numeric()
            unnamed = not label and numbers and index.dtype.is_float()
            known = numbers and _is_time(label)
            if index is not None and (self._is_date(index) or unnamed or known):
                return None, index
        read = {name: unit for name, unit in units.items() if self._is_date(self._series[name]) or self._has(name)}
        dates = [name for name in read if self._is_date(self._series[name])]
        name = time_column(read) or (dates[0] if len(dates) == 1 else None)
        return name, None if name is None else self._series[name]

    def _as_series(self, index: Any) -> Any:
        """An index of pandas as a column; None for one of several levels."""
        if index.nlevels > 1:
            return None
        dates = index.to_timestamp() if hasattr(index, "to_timestamp") else index  # of periods
        return self._nw.from_native(dates.to_series(), series_only=True)

    def _is_date(self, series: Any) -> bool:
        return isinstance(series.dtype, (self._nw.Datetime, self._nw.Duration, self._nw.Date))

    def _has(self, name: str) -> bool:
        kind = self._series[name].dtype
        return bool(kind.is_numeric()) or kind == self._nw.Boolean

    def _read_time(self, series: Any, units: Mapping[str, str]) -> Stamps:
        name = str(series.name) if self._time_name is None else self._time_name
        if series.null_count():
            row = int(series.is_null().to_numpy().argmax())
            raise DataError(f"{self.name}, row {row}: the time {shown(name)} is missing; drop rows without a time")
        if self._is_date(series):
            if isinstance(series.dtype, self._nw.Duration):  # dt.total_nanoseconds() of pandas is by way of floats
                values = series.to_numpy().astype("m8[ns]")
            else:
                values = series.dt.timestamp("ns").to_numpy()
            return self._stamps(values.astype(np.int64), name, "ns")
        bare, unit = name_columns(self.path, [name])[0]
        return self._stamps(series.to_numpy(), bare, units.get(name, "") or unit)

    def _numbers(self, name: str) -> Array | None:
        if not self._has(name):
            return None
        values: Array = self._series[name].cast(self._nw.Float64).to_numpy()
        return np.asarray(values, np.float64)

    def made(self, columns: Mapping[str, NDArray[Any]], units: Mapping[str, str], rows: slice) -> Any:
        def label(name: str) -> str:
            return f"{name} [{units[name]}]" if self._labels_have_units and units.get(name) else name

        data: dict[str, Any] = {}
        if self._time_name is not None:
            series = self._series[self._time_name]
            data[series.name] = series[rows]
        data.update({label(name): values for name, values in columns.items()})
        made = self._nw.from_dict(data, backend=self._nw.get_native_namespace(self._frame)).to_native()
        if self._index is not None:
            made.index = self._index[rows]
            made.attrs = {**self._attrs, **({"units": dict(units)} if "units" in self._attrs else {})}
        return made


class _XarrayDataset(OpenFrame):
    """A Dataset of xarray: its variables along one dimension."""

    def __init__(self, frame: Any, time: str) -> None:
        super().__init__(frame)
        self._frame = frame
        self._dim = self._find_dimension(time)
        along = [str(name) for name, variable in frame.variables.items() if variable.dims == (self._dim,)]
        units = {name: str(frame[name].attrs.get("units", "")) for name in along}
        self._time_name = name = time or self._find_time(units)
        self.time = None if name is None else self._read_time(name, units[name])
        self.units = {item: unit for item, unit in units.items() if item not in (name, self._dim)}

    def __len__(self) -> int:
        return int(self._frame.sizes[self._dim])

    def _find_dimension(self, time: str) -> str:
        frame = self._frame
        if time:
            if time not in frame.variables or len(frame[time].dims) != 1:
                raise missing_column(self.path, time, [str(name) for name in frame.variables])
            return str(frame[time].dims[0])
        lines = dict.fromkeys(str(item.dims[0]) for item in frame.data_vars.values() if len(item.dims) == 1)
        timed = [name for name in lines if _is_time(name) or (name in frame.coords and _is_date(frame[name].dtype))]
        if len(lines) == 1 or len(timed) == 1:
            return (timed or list(lines))[0]
        sizes = listed(f"{name} ({size})" for name, size in frame.sizes.items())
        raise DataError(
            f"{self.name}: which dimension is the time? There are: {sizes}. Select one record, so that its variables "
            "have one dimension, or name the time: columns={'time': …}"
        )

    def _find_time(self, units: Mapping[str, str]) -> str | None:
        """The coordinate of the dimension, if it is a time, or a variable that is called so."""
        dates = [name for name in units if _is_date(self._frame[name].dtype)]
        if self._dim in units and (self._dim in dates or _is_time(self._dim)):
            return self._dim
        others = {name: unit for name, unit in units.items() if name != self._dim}
        return time_column(others) or (dates[0] if len(dates) == 1 else None)

    def _read_time(self, name: str, unit: str) -> Stamps:
        values: NDArray[Any] = self._frame[name].values
        if _is_date(values.dtype):
            missing = np.flatnonzero(np.isnat(values))
            if len(missing):
                raise DataError(f"{self.name}, row {missing[0]}: the time {shown(name)} is missing; drop such rows")
            return self._stamps(values.astype(f"{values.dtype.kind}8[ns]").astype(np.int64), name, "ns")
        if not _is_number(values.dtype):
            raise DataError(f"{self.name}: the time {shown(name)} has {values.dtype}, neither numbers nor dates")
        return self._stamps(values, name, unit)

    def _numbers(self, name: str) -> Array | None:
        values = self._frame[name].values
        return values.astype(np.float64) if _is_number(values.dtype) or values.dtype == np.bool_ else None

    def made(self, columns: Mapping[str, NDArray[Any]], units: Mapping[str, str], rows: slice) -> Any:
        chosen = self._frame.isel({self._dim: rows})
        others = chosen.drop_vars([name for name in chosen.data_vars if name != self._time_name])
        attributes = {name: {"units": units[name]} if units.get(name) else {} for name in columns}
        return others.assign({name: (self._dim, values, attributes[name]) for name, values in columns.items()})


def _is_time(name: str) -> bool:
    """Whether a name is one of a time, as headers of tables are: ``t``, ``time``, ``timestamp [us]``."""
    return bool(name) and time_column(dict([name_columns(Path(), [name])[0]])) is not None


def _is_date(kind: np.dtype[Any]) -> bool:
    return kind.kind in "mM"


def _is_number(kind: np.dtype[Any]) -> bool:
    return kind.kind in "fiu"
