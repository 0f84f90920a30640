"""Whole CSV or Parquet files, each on a regular grid at its own rate: checked, resampled, and as one record a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import ConfigError, DataError
from ..logs.clock import RATE_TOLERANCE
from ..logs.table import Table
from ..shapes import Bool, Float
from ._survey import Clock, Columns, Survey, few
from ._survey import read as read_folder

BACKWARD_LIMIT = 0.01
"""Largest accepted fraction of rows whose time stamp repeats or decreases."""
SPARSE_LIMIT = 20
"""Largest accepted number of grid points per row: beyond it, nearly all of the recording is missing."""
VALUE_LIMIT = 1e15
"""Largest accepted value; its square fits into float32."""
COMMON = 1e-3
"""Relative difference of sampling intervals up to which all files get the same one."""


Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Grid:
    """One file on its regular grid; missing values are NaN."""

    name: str
    digest: str
    step: float
    state: Array
    observe: Array
    control: Array
    """Acts from this step to the next; missing values hold the last known one."""

    def __len__(self) -> int:
        return len(self.state)


def check_files(files: Survey, tables: list[Table], clocks: list[Clock]) -> None:
    """Raise DataError for files that are the same, have an invalid clock or extreme values, or differ in rate."""
    seen: dict[str, Path] = {}
    for table, one, clock in zip(tables, files.files, clocks, strict=True):
        for key in (table.digest, f"name {table.name}"):
            if key in seen:
                raise DataError(
                    f"{table.path} and {seen[key]} are the same recording, which could be in the training and in the "
                    "test records: remove one, or rename it if it is a different recording"
                )
            seen[key] = table.path
        for name in files.columns.used:
            outliers = np.flatnonzero(np.isfinite(table.column(name)) & (np.abs(table.column(name)) > VALUE_LIMIT))
            if len(outliers) and name != files.columns.time:
                raise DataError(
                    f"{table.path}, row {outliers[0]}, column {name!r}: {table.column(name)[outliers[0]]:g} exceeds "
                    f"the limit of {VALUE_LIMIT:g}; leave missing values empty, or use a larger unit"
                )
        lost = one.rows - one.unstamped - len(clock.rows)
        if lost > max(1, BACKWARD_LIMIT * one.rows):
            raise DataError(
                f"{table.path}: {one.duplicates} time stamp(s) of {files.columns.time!r} repeat and {one.backward} "
                f"decrease ({lost} of {one.rows} rows would be dropped); sort the rows, or split the file where its "
                "clock was reset"
            )
        if one.duration / clock.step > SPARSE_LIMIT * one.rows + 1000:
            raise DataError(
                f"{table.path}: {one.rows} rows at {one.rate:.4g} Hz over {one.duration:.4g} s: most samples are "
                f"missing; the longest gap is {one.longest_gap:.4g} s after row {one.longest_gap_row}: split the file "
                "there"
            )
    common = float(np.median([one.rate for one in files.files]))
    other = [one for one in files.files if abs(one.rate / common - 1) > RATE_TOLERANCE]
    if other:
        raise DataError(
            f"{files.folder}: most files are sampled at {common:.5g} Hz, but "
            + few([f"{one.name} at {one.rate:.5g} Hz" for one in other])
            + "; resample them, move them to a separate folder, or check the unit of their time"
        )


def resample(table: Table, clock: Clock, columns: Columns) -> Grid:
    """Assign each value to the nearest grid point; of several at one point, the nearest in time is kept."""
    steps = clock.seconds / clock.step
    # the mean phase, because an early or late first time stamp would shift the grid for all others
    phase = float(np.angle(np.exp(2j * np.pi * steps).mean()) / (2 * np.pi))
    cell = np.round(steps - phase)
    offset = np.abs(steps - phase - cell)
    index = (cell - cell[0]).astype(np.intp)
    nearest_last = np.argsort(-offset, kind="stable")

    def resampled(names: Sequence[str]) -> Array:
        out = np.full((int(index[-1]) + 1, len(names)), np.nan)
        for number, name in enumerate(names):
            values = table.column(name)[clock.rows][nearest_last]
            good = np.isfinite(values)
            out[index[nearest_last][good], number] = values[good]
        return out

    state, observe, control = (resampled(names) for names in (columns.state, columns.observe, columns.control))
    for values in control.T:  # views; zero-order hold
        last = np.maximum.accumulate(np.where(np.isfinite(values), np.arange(len(values)), -1))
        values[:] = np.where(last >= 0, values[last], 0.0)
    return Grid(table.path.name, table.digest, clock.step, state, observe, control)


class WholeFiles(NamedTuple):
    """Records for ``filter.run``, filled up to the longest with missing samples."""

    names: tuple[str, ...]
    y: Float[Tensor, "N T m"]
    mask: Bool[Tensor, "N T m"]
    u: Float[Tensor, "N T p"] | None
    dt: Float[Tensor, "N T"]
    """Zero in the first step, because the belief before it is that at the first sample."""
    truth: Float[Tensor, "N T n"] | None
    """NaN where it is unknown; None without columns of the state."""
    survey: Survey
    notes: tuple[str, ...]

    @property
    def step(self) -> float:
        """The usual sampling interval in seconds."""
        return float(self.dt[:, 1:].median())


def read_files(
    folder: str | Path, columns: Columns, *, dtype: torch.dtype = torch.float64, only: Sequence[str] = ()
) -> WholeFiles:
    """Read every table of a folder (or one file) as one record on a regular grid at its own rate.

    ``columns.state`` may be empty. ``u[:, t]`` is the control of the row *before* ``t``, which acts from ``t - 1`` to
    ``t``, as in :func:`fwnkf.data.tables.load`. With ``only``, the files with these names are read.
    """
    survey, tables, clocks = read_folder(folder, columns, only)
    check_files(survey, tables, clocks)
    grids = [resample(table, clock, columns) for table, clock in zip(tables, clocks, strict=True)]
    length = max(len(grid.observe) for grid in grids)
    if length < 2:
        raise ConfigError(f"{folder}: no file has more than one row")
    steps = np.array([grid.step for grid in grids])
    notes = survey.remarks()
    if np.ptp(steps) <= COMMON * np.median(steps):
        steps[:] = np.median(steps)
    elif len(grids) > 1:
        notes.append(f"sampling intervals differ between files, from {steps.min():.6g} s to {steps.max():.6g} s")

    def filled(values: np.ndarray, mode: str) -> Tensor:
        padding = ((0, length - len(values)), (0, 0))
        wide = (
            np.pad(values, padding, mode="edge") if mode == "edge" else np.pad(values, padding, constant_values=np.nan)
        )
        return torch.from_numpy(wide).to(dtype)

    y = torch.stack([filled(grid.observe, "nan") for grid in grids])
    controls = [np.concatenate((0.0 * grid.control[:1], grid.control[:-1])) for grid in grids]
    dt = torch.from_numpy(steps).to(dtype)[:, None].repeat(1, length)
    dt[:, 0] = 0.0
    return WholeFiles(
        tuple(grid.name for grid in grids),
        y,
        y.isfinite(),
        torch.stack([filled(values, "edge") for values in controls]) if columns.control else None,
        dt,
        torch.stack([filled(grid.state, "nan") for grid in grids]) if columns.state else None,
        survey,
        tuple(notes),
    )
