"""Whole CSV or Parquet files as records, one record for each file, with or without columns of the true state."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import ConfigError
from ..shapes import Bool, Float
from ._survey import Columns, Survey
from ._survey import read as read_folder
from .tables import check_files, resample

COMMON = 1e-3
"""Relative difference of sampling intervals up to which all files get the same one."""


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


def read_files(folder: str | Path, columns: Columns, *, dtype: torch.dtype = torch.float64) -> WholeFiles:
    """Read every table of a folder (or one file) as one record on a regular grid at its own rate.

    ``columns.state`` may be empty. ``u[:, t]`` is the control of the row *before* ``t``, which acts from ``t - 1`` to
    ``t``, as in :func:`fwnkf.data.tables.load`.
    """
    survey, tables, clocks = read_folder(folder, columns)
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
