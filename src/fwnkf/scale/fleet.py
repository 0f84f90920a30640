"""What the innovations of all sessions say of each device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..extras import need
from .batch import results
from .store import Store

Array = NDArray[np.float64]


class Fleet(NamedTuple):
    """A row for each device, in the order of their names."""

    device: NDArray[np.object_]
    sessions: NDArray[np.int64]
    samples: NDArray[np.int64]
    flagged: NDArray[np.int64]
    nis: Array
    """Mean over all measurements: 1 for a consistent filter."""
    measured: Array
    drift: Array
    """Of the session with the largest: mean of the innovations of a channel in stated standard deviations."""
    drift_channel: NDArray[np.object_]
    peak_hz: Array
    peak_ratio: Array
    """Of the session with the strongest line: its power over the median of the spectrum."""
    peak_channel: NDArray[np.object_]


def read_fleet(output: str) -> Fleet:
    """The statistics of a finished output by device."""
    arrow, parquet = need("pyarrow", "scale"), need("pyarrow.parquet", "scale")
    store = Store(output)
    tables = []
    for part in results(output):
        if part.get("fleet"):
            with store.open(part["fleet"]) as source:
                tables.append(parquet.read_table(source))
    if not tables:
        empty, none = np.empty(0), np.empty(0, object)
        counts = np.empty(0, np.int64)
        return Fleet(none, counts, counts, counts, empty, empty, empty, none, empty, empty, none)
    table = arrow.concat_tables(tables)
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    device, code = np.unique(columns["device"].astype(str), return_inverse=True)
    count = len(device)

    def total(values: NDArray[np.float64]) -> Array:
        return np.bincount(code, np.nan_to_num(values), count).astype(float)

    measured = total(columns["measured"])
    with np.errstate(invalid="ignore", divide="ignore"):
        nis = total(columns["nis"] * columns["measured"]) / measured
    drift, peak = _largest(code, np.abs(columns["drift"]), count), _largest(code, columns["peak_ratio"], count)
    return Fleet(
        device.astype(object), np.bincount(code, minlength=count), total(columns["samples"]).astype(np.int64),
        total(columns["flagged"]).astype(np.int64), nis, measured,
        columns["drift"][drift], columns["drift_channel"][drift],
        columns["peak_hz"][peak], columns["peak_ratio"][peak], columns["peak_channel"][peak],
    )  # fmt: skip


def _largest(code: NDArray[np.int64], values: Array, count: int) -> NDArray[np.int64]:
    """For each device the row with the largest value."""
    order = np.lexsort((np.nan_to_num(values, nan=-1.0), code))
    ends = np.searchsorted(code[order], np.arange(count), side="right") - 1
    return order[ends]
