"""Recordings from logs: the signals of a log as measurements, with truth and further signals at the same times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.layout import Layout
from ..core.rotation import normalize
from ..errors import DataError
from ..logs.log import Log, Stream, standard_units
from ..logs.stamps import examine, repair
from ._interpolate import continuous_signs, resample
from .recording import Channel, Recording

__all__ = ["recording"]

GAP = 2.5
"""Median steps of a signal across which it is not interpolated."""
POSITION = ("position_x", "position_y", "position_z")
ORIENTATION = ("orientation_w", "orientation_x", "orientation_y", "orientation_z")

Array = NDArray[np.float64]


def recording(
    log: Log,
    source: str = "imu",
    *,
    truth: str | None = None,
    extras: Sequence[str] = ("rotor", "motor"),
    name: str | None = None,
) -> Recording:
    """A standard signal of a log as a recording, on its own time stamps after repair.

    Args:
        log: an open log.
        source: name or role of the signal.
        truth: name of a pose signal, interpolated to the samples and unknown where it has gaps.
        extras: further signals; those that the log has are interpolated too, NaN outside of their time.
            ``extras["rotor"]`` of the recording has a column for each rotor.
        name: of the recording; by default that of the file.

    Returns:
        The recording.

    Raises:
        DataError: the log has no such signal, or no sample of it has a time stamp.

    >>> import tempfile, pathlib
    >>> from fwnkf.logs import open_log
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.csv"
    >>> rows = [f"{i / 100},{i},0,1" for i in range(50)]
    >>> _ = path.write_text(chr(10).join(["t,gx,gy,gz", *rows]))
    >>> recording(open_log(path), "gyro")
    <Recording 'run': 50 samples, 3 channels, no truth>
    """
    stream = repaired(log, source)
    start = float(stream.time[0])
    time = stream.time - start
    values = torch.from_numpy(stream.stack())
    units = standard_units(stream.columns)
    channels = tuple(Channel(column, units.get(column, "")) for column in stream.columns)
    notes = list(dict.fromkeys((*log.notes, *stream.notes)))
    state = layout = known = None
    if truth is not None:
        state, layout, known = _truth(log, truth, stream.time, notes)
    further = {}
    names = {candidate.role for candidate in log.sources()} | {candidate.name for candidate in log.sources()}
    for extra in extras:
        if extra in names:
            other = repaired(log, extra)
            further[extra] = torch.from_numpy(at_times(other.time, other.stack(), stream.time))
    return Recording(
        name or log.path.stem, torch.from_numpy(time), values, channels, values.isfinite(), state, layout, known,
        f"{log.format}, topic {stream.topic}; names and units as fwnkf.logs.log.ROLES", tuple(notes),
        extras=further, epoch_ns=log.start_ns + round(start * 1e9),
    )  # fmt: skip


def repaired(log: Log, name: str) -> Stream:
    """A standard signal with its time stamps repaired: in seconds, ascending, without duplicates."""
    stream = log.signal(name)
    stream = repair(stream, examine(stream, dropouts=log.dropouts))
    if len(stream) == 0:
        raise DataError(f"{log.path}: {name} (topic {stream.topic}) has no samples with a time stamp")
    return stream


def at_times(time: Array, values: Array, wanted: Array, gap: float = np.inf) -> Array:
    """Columns interpolated linearly to other times; NaN outside, and between rows more than ``gap`` seconds apart.

    >>> at_times(np.array([0.0, 1.0]), np.array([[0.0], [2.0]]), np.array([0.5, 3.0])).ravel().tolist()
    [1.0, nan]
    """
    columns = [np.interp(wanted, time, column, left=np.nan, right=np.nan) for column in values.T]
    if np.isfinite(gap) and len(time) > 1:
        right = np.clip(np.searchsorted(time, wanted), 1, len(time) - 1)
        far = time[right] - time[right - 1] > gap
        columns = [np.where(far, np.nan, column) for column in columns]
    return np.stack(columns, -1)


def _truth(log: Log, name: str, wanted: Array, notes: list[str]) -> tuple[Tensor, Layout, Tensor]:
    """Position and, where the signal has it, orientation at the wanted times, their layout, and where it is known."""
    stream = repaired(log, name)
    parts = [("position", "euclidean", 3)] if all(column in stream.columns for column in POSITION) else []
    if all(column in stream.columns for column in ORIENTATION):
        parts.append(("orientation", "quaternion", 4))
    if not parts:
        raise DataError(f"{log.path}: {name} has neither a position nor an orientation ({', '.join(stream.columns)})")
    layout = Layout.parse(parts)
    columns = [*(POSITION if parts[0][0] == "position" else ()), *(ORIENTATION if parts[-1][2] == 4 else ())]
    values = torch.from_numpy(stream.stack(columns))
    if parts[-1][2] == 4:
        length = values[:, -4:].norm(dim=-1)
        valid = (length - 1).abs() < 0.1
        if not bool(valid.all()):
            notes.append(f"{name}: {int((~valid).sum()):,} orientations are not unit quaternions; left out")
        q = torch.where(valid[:, None], normalize(values[:, -4:]), torch.nan)
        q, _ = continuous_signs(q, valid)
        values = torch.cat((values[:, :-4], q), -1)
    step = float(np.median(np.diff(stream.time))) if len(stream) > 1 else 0.0
    stamps, at = (np.round(item * 1e9).astype(np.int64) for item in (stream.time, wanted))
    state, known = resample(stamps, values, layout, at, max_gap_ns=round(GAP * step * 1e9))
    if not bool(known.any()):
        raise DataError(
            f"{log.path}: {name} is never known at the times of the measurements; their clocks differ, or the two do "
            "not overlap"
        )
    return state, layout, known
