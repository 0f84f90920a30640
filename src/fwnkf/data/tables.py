"""Training, validation and test records from a folder of CSV or Parquet files.

Each file is resampled to a regular grid at its own rate, cut into windows that do not overlap, and split by file or,
with fewer than three files, by time; no two splits share a sample. The notes list what was assumed, dropped or filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.layout import Layout, Part
from ..core.system import System
from ..errors import ConfigError, DataError
from ..logs.table import Table
from ..types import Gaussian
from ._identify import fit_linear, fit_steps, identify
from ._survey import Columns, FileSurvey, Survey, few, survey
from ._survey import read as read_folder
from .files import Grid, check_files, resample
from .protocols import Protocol, Records, Split
from .recording import Span

__all__ = ["Columns", "FileSurvey", "Survey", "fit_linear", "fit_steps", "load", "survey"]

WINDOW = 200
LEAST_WINDOW = 20
"""The default window is not shortened below this for the sake of a single short file."""
KINDS = ("train", "val", "test")

Array = NDArray[np.float64]


def load(
    folder: str | Path,
    columns: Columns,
    *,
    window: int | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    fractions: tuple[float, float, float] = (0.7, 0.15, 0.15),
    system: System | None = None,
) -> tuple[Protocol, Survey]:
    r"""Read the tables of a folder into a strict protocol, and survey them.

    Missing values of ``y`` and ``truth`` are NaN, and ``mask`` is False there; ``u[:, t]`` is the control of the row
    *before* ``t``, which acts from ``t - 1`` to ``t``. ``start`` is the mean and covariance of all training states.
    Spans count steps of the grid of a file.

    Args:
        folder: the folder, or one file.
        columns: the roles of their columns.
        window: length of the records in steps; by default 200, or less for short files.
        seed: determines the assignment of files to splits.
        dtype: of the records.
        fractions: of training, validation and test.
        system: that of every split, whose layout says which columns are angles; by default :func:`fit_linear` of the
            training records.

    Returns:
        The records, and the survey of the files.

    Raises:
        DataError: files are the same, differ in rate, or have an invalid clock or extreme values.
        ConfigError: an option does not fit the tables.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in "abcdef":
    ...     rows = "\n".join(f"{t / 10},{t % 7},{t % 7 + ord(name)}" for t in range(50))
    ...     _ = (folder / f"{name}.csv").write_text(f"t [s],x,y\n{rows}\n")
    >>> protocol, survey = load(folder, Columns(state=("x",), observe=("y",), time="t"), window=25)
    >>> protocol.split.train.y.shape[1:]
    torch.Size([25, 1])
    """
    if len(fractions) != 3 or min(fractions) <= 0 or abs(sum(fractions) - 1) > 1e-6:
        raise ConfigError(f"fractions = {fractions}: expected three positive values (train, val, test) with sum 1")
    if not columns.state:
        raise ConfigError("training needs columns of the true state; without them, use `fwnkf fit`")
    if window is not None and window < 2:
        raise ConfigError(f"window = {window}: at least two steps are needed")
    if system is not None:
        columns = _for_system(columns, system)
    files, tables, clocks = read_folder(folder, columns)
    check_files(files, tables, clocks)
    grids = [resample(table, clock, columns) for table, clock in zip(tables, clocks, strict=True)]
    notes = files.remarks()
    pieces, split_note = _pieces(grids, fractions, seed)
    notes.append(split_note)
    lengths = [stop - start for group in pieces for _, start, stop in group]
    if window is None:
        window = max(2, min(WINDOW, max(min(lengths), min(LEAST_WINDOW, int(np.median(lengths))))))
    parts = (Part(name, "angle" if name in columns.angles else "euclidean", 1) for name in columns.state)
    layout = Layout(tuple(parts)) if system is None else system.layout
    splits = [_records(kind, group, window, layout, notes) for kind, group in zip(KINDS, pieces, strict=True)]
    start = _start(splits[0])  # not the prior of a system, which is about the start of a recording, not of a window
    notes += _remarks(splits[0], start, columns, tables, dtype)
    if system is not None:
        system = system.to(dtype)
    elif layout.flat:
        # in float64 whatever the dtype of the records: small steps of large values matter here
        system, model_notes = identify(splits[0], columns.observe, dtype)
        notes += model_notes
    else:
        notes.append("the state contains angles, so there is no linear model (system is None)")
    splits = [_convert(records, start, dtype, system) for records in splits]
    return Protocol("strict", "tables", seed, Split(*splits), tuple(notes)), files


def _for_system(columns: Columns, system: System) -> Columns:
    """The columns of a given system; their numbers must be those of its state, measurements and controls."""
    sizes = {
        "state": (columns.state, system.layout.size),
        "observe": (columns.observe, system.observation_layout.size),
        "control": (columns.control, system.control_dim),
    }
    for name, (given, size) in sizes.items():
        if len(given) != size:
            raise ConfigError(f"{name} = {list(given)}: the system needs {size} column(s), here are {len(given)}")
    kinds = [part.kind for part in system.layout.parts for _ in range(part.size)]
    angles = tuple(name for name, kind in zip(columns.state, kinds, strict=True) if kind == "angle")
    return replace(columns, angles=angles)


Piece = tuple[Grid, int, int]


def _pieces(grids: list[Grid], fractions: Sequence[float], seed: int) -> tuple[list[list[Piece]], str]:
    """The steps of each file for training, validation and test, and a note on the split."""
    if len(grids) >= 3:
        count = len(grids)
        held = [max(1, round(part * count)) for part in fractions[1:]]
        while sum(held) >= count:
            held[held.index(max(held))] -= 1
        order = np.random.default_rng(seed).permutation(count)
        cuts = np.split(order, np.cumsum([count - sum(held), held[0]]))
        groups = [[(grids[i], 0, len(grids[i])) for i in sorted(part)] for part in cuts]
        names = "; ".join(
            f"{kind} {few([grid.name for grid, _, _ in group], 10)}" for kind, group in zip(KINDS, groups, strict=True)
        )
        return groups, f"split by file: {names}"
    groups = [[], [], []]
    for grid in grids:
        edges = [0, *(int(len(grid) * part + 1e-6) for part in np.cumsum(fractions)[:2]), len(grid)]
        for group, a, b in zip(groups, edges[:-1], edges[1:], strict=True):
            if b > a:
                group.append((grid, a, b))
    files = "one file" if len(grids) == 1 else f"{len(grids)} files"
    return groups, f"split by time into train, val and test, because there is only {files} (by file from 3 files)"


def _records(kind: str, pieces: Sequence[Piece], window: int, layout: Layout, notes: list[str]) -> Records:
    """Windows of some pieces, in float64, with a placeholder for the start."""
    parts: dict[str, list[Array]] = {"y": [], "truth": [], "u": [], "dt": []}
    spans, short, empty = [], 0, 0
    for grid, first, stop in pieces:
        # the control of a row acts until the next one
        control = np.concatenate((grid.control[:1] * 0.0, grid.control[:-1]))
        for a in range(first, stop, window):
            b = min(a + window, stop)
            if 4 * (b - a) < window:
                short += b - a
                continue
            state, seen = grid.state[a:b], grid.observe[a:b]
            if not np.isfinite(state).all(-1).any() or not np.isfinite(seen).any():
                empty += 1
                continue
            fill = ((0, window - (b - a)), (0, 0))
            parts["truth"].append(np.pad(state, fill, constant_values=np.nan))
            parts["y"].append(np.pad(seen, fill, constant_values=np.nan))
            parts["u"].append(np.pad(control[a:b], fill, mode="edge"))
            parts["dt"].append(np.concatenate(([0.0], np.full(window - 1, grid.step))))
            spans.append(Span(grid.name, grid.digest, a, b))
    if not spans:
        steps = max((stop - start for _, start, stop in pieces), default=0)
        raise DataError(
            f"{kind}: no window of {window} steps has a measurement and a known state ({steps} steps in the longest "
            f"piece, {empty} window(s) without either); use shorter windows, more or longer files, or check the columns"
        )
    if short:
        notes.append(f"{kind}: {short} step(s) at the end, less than a quarter of a window, are dropped")
    if empty:
        notes.append(f"{kind}: {empty} window(s) without any measurement or any known state are dropped")
    y, truth, u, dt = (torch.from_numpy(np.stack(parts[name])) for name in ("y", "truth", "u", "dt"))
    truth = layout.project(truth)
    start = Gaussian(layout.origin(truth), torch.eye(layout.tangent_size).to(truth))
    mask = y.isfinite()
    return Records(f"tables {kind}", y, truth, mask, dt, u if u.shape[-1] else None, start, layout, tuple(spans))


def _start(train: Records) -> Gaussian:
    """The prior: mean and covariance of all training states."""
    known = train.truth[train.truth.isfinite().all(-1)]
    means = []
    for part, values in zip(train.layout.parts, train.layout.split(known), strict=True):
        circular_mean = torch.atan2(values.sin().mean(0), values.cos().mean(0))
        if part.kind == "quaternion":  # q and -q are the same rotation
            values = torch.where((values @ values[0]).unsqueeze(-1) < 0, -values, values)
        means.append(circular_mean if part.kind == "angle" else values.mean(0))
    mean = train.layout.project(torch.cat(means))
    deviation = train.layout.boxminus(known, mean.expand_as(known))
    cov = deviation.mT @ deviation / len(known)
    # a state that is constant in training gets a small variance, relative to its value
    scale = mean if len(mean) == len(cov) else torch.ones(len(cov)).to(mean)
    least = 1e-6 * torch.where(scale == 0, 1.0, scale.square())
    return Gaussian(mean, cov + torch.where(cov.diagonal() > 0, 1e-6 * cov.diagonal(), least).diag())


def _remarks(train: Records, start: Gaussian, columns: Columns, tables: list[Table], dtype: torch.dtype) -> list[str]:
    """Warnings about the columns, before training."""
    notes = []
    if both := [name for name in columns.observe if name in columns.state]:
        notes.append(f"{', '.join(both)}: both measurement and ground truth, so the sensor has no error")
    for index, name in enumerate(columns.state):
        if name in columns.angles:
            for table in tables:
                if table.unit(name).lower() in ("deg", "degree", "degrees", "°"):
                    raise DataError(f"{table.path}: {name!r} is in degrees; convert it to radians (π/180)")
            raw = np.concatenate([table.column(name) for table in tables])
            if np.nanmax(np.abs(raw)) > 2.1 * np.pi:
                notes.append(
                    f"{name}: angles beyond one turn were wrapped; if they are in degrees, convert them to radians"
                )
            continue
        if len(start.mean) != len(start.cov):
            continue  # a state with quaternions: its variances are not those of columns
        offset, spread = float(start.mean[index].abs()), float(start.cov[index, index].sqrt())
        if dtype == torch.float32 and offset > 1e4 * spread:
            notes.append(
                f"{name}: values near {offset:.6g} that vary by {spread:.2g} lose precision in float32; "
                "subtract an offset (local coordinates), or use float64"
            )
    if columns.control:
        notes.append("a control acts from its row to the next; missing values hold the last known one")
    return notes


def _convert(records: Records, start: Gaussian, dtype: torch.dtype, system: System | None) -> Records:
    tensors = {name: getattr(records, name).to(dtype) for name in ("y", "truth", "dt")}
    u = None if records.u is None else records.u.to(dtype)
    return replace(records, **tensors, u=u, start=Gaussian(start.mean.to(dtype), start.cov.to(dtype)), system=system)
