"""A folder of CSV or Parquet files as training, validation and test records: no code, one call.

Each file is laid on a regular grid at its own rate, cut into windows that do not overlap, and split by file or, with
fewer than three files, by time; no two splits share a sample. What was assumed, dropped or filled is in the notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.layout import Layout, Part
from ..core.rotation import wrap
from ..core.system import System
from ..errors import ConfigError, DataError
from ..logs import Table
from ..types import Gaussian
from ._identify import fit_linear, identify
from ._survey import Clock, Columns, FileSurvey, Survey, few, look, survey
from .protocols import Protocol, Records, Split
from .recording import Span

__all__ = ["Columns", "FileSurvey", "Survey", "fit_linear", "load", "survey"]

WINDOW = 200
LEAST_WINDOW = 20
"""One file shorter than this does not make the windows of all others as short."""
RATE_TOLERANCE = 0.02
BACKWARD_LIMIT = 0.01
"""A clock that repeats or goes back in more than this part of the rows is broken, not imprecise."""
SPARSE_LIMIT = 20
"""Grid points for each row: more means that nearly all of the time between first and last stamp is missing."""
VALUE_LIMIT = 1e15
"""Its square still fits into float32."""
KINDS = ("train", "val", "test")

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Grid:
    """One file on its regular grid; what is missing is NaN."""

    name: str
    digest: str
    step: float
    state: Array
    observe: Array
    control: Array
    """Held since the last known value; what acts from this step to the next."""

    def __len__(self) -> int:
        return len(self.state)


def load(
    folder: str | Path,
    columns: Columns,
    *,
    window: int | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    fractions: tuple[float, float, float] = (0.7, 0.15, 0.15),
) -> tuple[Protocol, Survey]:
    """Read the tables of a folder (or one file) into a strict protocol, and say what was found.

    ``y`` and ``truth`` are NaN where nothing is known, ``mask`` is False there; ``u[:, t]`` is the control of the row
    *before* ``t``, which acts on the way to ``t``. ``start`` is the mean and covariance of all training states. Spans
    count steps of the grid of a file. ``system`` of every task is :func:`fit_linear` of the training records.
    ``seed`` decides which file goes where.
    """
    if len(fractions) != 3 or min(fractions) <= 0 or abs(sum(fractions) - 1) > 1e-6:
        raise ConfigError(f"fractions = {fractions}: give three positive parts of one, for train, val and test")
    if window is not None and window < 2:
        raise ConfigError(f"window = {window}: a record has two steps at least")
    found, tables, clocks = look(folder, columns)
    _check_files(found, tables, clocks)
    grids = [_lay(table, clock, columns) for table, clock in zip(tables, clocks, strict=True)]
    notes = found.remarks()
    pieces, how = _pieces(grids, fractions, seed)
    notes.append(how)
    lengths = [stop - start for group in pieces for _, start, stop in group]
    if window is None:
        window = max(2, min(WINDOW, max(min(lengths), min(LEAST_WINDOW, int(np.median(lengths))))))
    layout = Layout(tuple(Part(name, "angle" if name in columns.angles else "euclidean", 1) for name in columns.state))
    angles = torch.tensor([name in columns.angles for name in columns.state])
    tasks = [_task(kind, group, window, layout, angles, notes) for kind, group in zip(KINDS, pieces, strict=True)]
    start = _start(tasks[0])
    notes += _remarks(tasks[0], start, columns, tables, dtype)
    system = None
    if layout.flat:
        # in float64, whatever the records are handed out in: small steps of large numbers matter here
        system, said = identify(tasks[0], columns.observe, dtype)
        notes += said
    else:
        notes.append("the state holds angles, so there is no classical linear model to start from (system is None)")
    tasks = [_convert(task, start, dtype, system) for task in tasks]
    return Protocol("strict", "tables", seed, Split(*tasks), tuple(notes)), found


def _check_files(found: Survey, tables: list[Table], clocks: list[Clock]) -> None:
    seen: dict[str, Path] = {}
    for table, one, clock in zip(tables, found.files, clocks, strict=True):
        for key in (table.digest, f"name {table.name}"):
            if key in seen:
                raise DataError(
                    f"{table.path} and {seen[key]} are the same recording; a copy in another split would be a test on "
                    "what was trained on: take one away, or rename it if it is another one"
                )
            seen[key] = table.path
        for name in found.columns.used:
            wild = np.flatnonzero(np.isfinite(table.column(name)) & (np.abs(table.column(name)) > VALUE_LIMIT))
            if len(wild) and name != found.columns.time:
                raise DataError(
                    f"{table.path}, row {wild[0]}, column {name!r}: {table.column(name)[wild[0]]:g} is larger than any "
                    "measured value; is it a code for a missing one? Leave it empty, or use a larger unit"
                )
        lost = one.rows - one.unstamped - len(clock.rows)
        if lost > max(1, BACKWARD_LIMIT * one.rows):
            raise DataError(
                f"{table.path}: {one.duplicates} stamp(s) of {found.columns.time!r} repeat and {one.backward} go back "
                f"({lost} of {one.rows} rows would be lost); sort the rows, or cut the file where its clock was reset"
            )
        if one.duration / clock.step > SPARSE_LIMIT * one.rows + 1000:
            raise DataError(
                f"{table.path}: {one.rows} rows at {one.rate:.4g} Hz over {one.duration:.4g} s: nearly all is missing; "
                f"the longest gap is {one.longest_gap:.4g} s after row {one.longest_gap_row}: cut the file there"
            )
    common = float(np.median([one.rate for one in found.files]))
    other = [one for one in found.files if abs(one.rate / common - 1) > RATE_TOLERANCE]
    if other:
        raise DataError(
            f"{found.folder}: most files are sampled at {common:.5g} Hz, but "
            + few([f"{one.name} at {one.rate:.5g} Hz" for one in other])
            + "; resample them, put them into a folder of their own, or check the unit of their time"
        )


# ---- the grid -------------------------------------------------------------------------------------------------------


def _lay(table: Table, clock: Clock, columns: Columns) -> _Grid:
    """Every value goes to the grid point nearest in time; of several, the nearest stays. None is used twice."""
    turns = clock.seconds / clock.step
    # a first stamp that comes early or late must not put all others half way between two points
    phase = float(np.angle(np.exp(2j * np.pi * turns).mean()) / (2 * np.pi))
    cell = np.round(turns - phase)
    offset = np.abs(turns - phase - cell)
    place = (cell - cell[0]).astype(np.intp)
    nearest_last = np.argsort(-offset, kind="stable")

    def laid(names: Sequence[str]) -> Array:
        out = np.full((int(place[-1]) + 1, len(names)), np.nan)
        for number, name in enumerate(names):
            values = table.column(name)[clock.rows][nearest_last]
            good = np.isfinite(values)
            out[place[nearest_last][good], number] = values[good]
        return out

    control = laid(columns.control)
    for values in control.T:  # views: a control stays as it is until the next one is known
        last = np.maximum.accumulate(np.where(np.isfinite(values), np.arange(len(values)), -1))
        values[:] = np.where(last >= 0, values[last], 0.0)
    return _Grid(table.path.name, table.digest, clock.step, laid(columns.state), laid(columns.observe), control)


Piece = tuple[_Grid, int, int]


def _pieces(grids: list[_Grid], fractions: Sequence[float], seed: int) -> tuple[list[list[Piece]], str]:
    """Which steps of which file are for training, validation and test."""
    if len(grids) >= 3:
        count = len(grids)
        held = [max(1, round(part * count)) for part in fractions[1:]]
        while sum(held) >= count:
            held[held.index(max(held))] -= 1
        order = np.random.default_rng(seed).permutation(count)
        cuts = np.split(order, np.cumsum([count - sum(held), held[0]]))
        groups = [[(grids[i], 0, len(grids[i])) for i in sorted(part)] for part in cuts]
        told = "; ".join(
            f"{kind} {few([grid.name for grid, _, _ in group], 10)}" for kind, group in zip(KINDS, groups, strict=True)
        )
        return groups, f"split by file: {told}"
    groups = [[], [], []]
    for grid in grids:
        edges = [0, *(int(len(grid) * part + 1e-6) for part in np.cumsum(fractions)[:2]), len(grid)]
        for group, a, b in zip(groups, edges[:-1], edges[1:], strict=True):
            if b > a:
                group.append((grid, a, b))
    files = "one file" if len(grids) == 1 else f"{len(grids)} files"
    return groups, f"split by time, first train, then val, then test, because there is only {files} (3 go by file)"


def _task(kind: str, pieces: Sequence[Piece], window: int, layout: Layout, angles: Tensor, notes: list[str]) -> Records:
    """Windows of some pieces, in float64, with a start that is still to be found."""
    parts: dict[str, list[Array]] = {"y": [], "truth": [], "u": [], "dt": []}
    spans, short, blind = [], 0, 0
    for grid, first, stop in pieces:
        # what acts on the way to a step is what the row before it says
        control = np.concatenate((grid.control[:1] * 0.0, grid.control[:-1]))
        for a in range(first, stop, window):
            b = min(a + window, stop)
            if 4 * (b - a) < window:
                short += b - a
                continue
            state, seen = grid.state[a:b], grid.observe[a:b]
            if not np.isfinite(state).all(-1).any() or not np.isfinite(seen).any():
                blind += 1
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
            f"{kind}: no window of {window} steps has a measurement and a known state ({steps} steps in its longest "
            f"piece, {blind} window(s) without either); use shorter windows, more or longer files, or check the columns"
        )
    if short:
        notes.append(f"{kind}: {short} step(s) at the end, less than a quarter of a window, are left out")
    if blind:
        notes.append(f"{kind}: {blind} window(s) without any measurement or any known state are left out")
    y, truth, u, dt = (torch.from_numpy(np.stack(parts[name])) for name in ("y", "truth", "u", "dt"))
    truth = torch.where(angles, wrap(truth), truth)
    start = Gaussian(truth.new_zeros(layout.size), torch.eye(layout.size).to(truth))
    mask = y.isfinite()
    return Records(f"tables {kind}", y, truth, mask, dt, u if u.shape[-1] else None, start, layout, tuple(spans))


def _start(train: Records) -> Gaussian:
    """Where a system may be that nobody has seen yet: mean and covariance of all training states."""
    known = train.truth[train.truth.isfinite().all(-1)]
    columns = []
    for values, part in zip(known.unbind(-1), train.layout.parts, strict=True):
        circular = torch.atan2(values.sin().mean(), values.cos().mean())
        columns.append(circular if part.kind == "angle" else values.mean())
    mean = torch.stack(columns)
    apart = train.layout.boxminus(known, mean.expand_as(known))
    cov = apart.mT @ apart / len(known)
    # a state that never changed in training may still do so: it gets a little room of its own size
    least = 1e-6 * torch.where(mean == 0, 1.0, mean.square())
    return Gaussian(mean, cov + torch.where(cov.diagonal() > 0, 1e-6 * cov.diagonal(), least).diag())


def _remarks(train: Records, start: Gaussian, columns: Columns, tables: list[Table], dtype: torch.dtype) -> list[str]:
    """What a user should hear before training on these columns."""
    notes = []
    if both := [name for name in columns.observe if name in columns.state]:
        notes.append(f"{', '.join(both)}: measured and true at once, so the sensor looks perfect")
    for index, name in enumerate(columns.state):
        if name in columns.angles:
            for table in tables:
                if table.unit(name).lower() in ("deg", "degree", "degrees", "°"):
                    raise DataError(f"{table.path}: {name!r} is in degrees; angles are in radians: convert it (π/180)")
            raw = np.concatenate([table.column(name) for table in tables])
            if np.nanmax(np.abs(raw)) > 2.1 * np.pi:
                notes.append(
                    f"{name}: an angle beyond one turn was wrapped; if it is in degrees, convert it to radians"
                )
            continue
        offset, spread = float(start.mean[index].abs()), float(start.cov[index, index].sqrt())
        if dtype == torch.float32 and offset > 1e4 * spread:
            notes.append(
                f"{name}: values near {offset:.6g} that vary by {spread:.2g} lose their digits in float32; "
                "take an offset away (local coordinates), or load them in float64"
            )
    if columns.control:
        notes.append("a control acts from its row to the next; where it is missing, the last known one is held")
    return notes


def _convert(task: Records, start: Gaussian, dtype: torch.dtype, system: System | None) -> Records:
    given = {name: getattr(task, name).to(dtype) for name in ("y", "truth", "dt")}
    u = None if task.u is None else task.u.to(dtype)
    return replace(task, **given, u=u, start=Gaussian(start.mean.to(dtype), start.cov.to(dtype)), system=system)
