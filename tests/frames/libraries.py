"""The same columns as frames of every library, and what is in a frame of any of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas
import polars
import xarray
from numpy.typing import NDArray

Columns = Mapping[str, NDArray[Any]]


def by_index(time: NDArray[Any] | None, columns: Columns) -> pandas.DataFrame:
    return pandas.DataFrame(dict(columns), index=None if time is None else pandas.Index(time, name="time"))


def by_column(time: NDArray[Any] | None, columns: Columns) -> pandas.DataFrame:
    return pandas.DataFrame(dict(columns) if time is None else {"time": time, **columns})


def in_polars(time: NDArray[Any] | None, columns: Columns) -> polars.DataFrame:
    return polars.DataFrame(dict(columns) if time is None else {"time": time, **columns})


def in_xarray(time: NDArray[Any] | None, columns: Columns) -> xarray.Dataset:
    return xarray.Dataset(
        {name: ("time", values) for name, values in columns.items()}, coords=None if time is None else {"time": time}
    )


LIBRARIES: dict[str, Callable[[NDArray[Any] | None, Columns], Any]] = {
    "pandas, index": by_index,
    "pandas, column": by_column,
    "polars": in_polars,
    "xarray": in_xarray,
}


def values(frame: Any, name: str) -> NDArray[Any]:
    """A column as it is in the frame."""
    return frame[name].values if isinstance(frame, xarray.Dataset) else frame[name].to_numpy()


def time_of(frame: Any) -> NDArray[Any]:
    """The time of each row, in whichever way the library has it."""
    if isinstance(frame, pandas.DataFrame) and "time" not in frame.columns:
        return frame.index.to_numpy()
    return values(frame, "time")


def names(frame: Any) -> list[str]:
    """The columns besides the time."""
    found = frame.data_vars if isinstance(frame, xarray.Dataset) else frame.columns
    return [str(name) for name in found if name != "time"]
