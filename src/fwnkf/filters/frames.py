"""A filter on frames: which columns its channels and controls are, rows as steps, and estimates as columns.

A row is a step. What a frame says is turned into the tensors of :meth:`fwnkf.Filter.run`, which does the rest, and the
estimates get the time of their rows; the libraries of frames are known to :mod:`fwnkf.frames` alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.layout import Layout
from ..errors import ConfigError, DataError, listed, shown
from ..frames import OpenFrame, Stamps, open_frame
from ..logs.choice import Pick
from ..logs.clock import fitted_step, step_counts
from ..logs.log import standard_units
from ..logs.results import component_names
from ..logs.table import missing_column
from ..logs.tables import measured_signals
from ..shapes import Bool, Float
from ..types import Frame
from .steps import Filter, dt_for, last_known, step_for

Array = NDArray[np.float64]
TIME = "time"
"""Name of the time among the columns that a user chooses."""
DEGREES = ("deg", "degree", "degrees", "°")


class Samples(NamedTuple):
    """Rows of frames as :meth:`fwnkf.Filter.run` takes them: ``filter.run(*filter.samples(frame))``."""

    y: Float[Tensor, "B T m"]
    """Measurements, NaN where they are missing."""
    u: Float[Tensor, "B T p"] | None
    """Controls: that of a row acts from it to the next."""
    mask: Bool[Tensor, "B T m"]
    """False where a measurement is NaN."""
    dt: Float[Tensor, "B T"] | None
    """Seconds since the row before; None where all steps have the length of the filter's own."""


class _Rows(NamedTuple):
    """One frame in double precision."""

    frame: OpenFrame
    y: Array
    u: Array
    units: dict[str, str]
    """Of the channels, by their names in the filter."""


def read_samples(model: Filter, frames: Sequence[Frame], columns: Mapping[str, str] | None) -> Samples:
    """Frames side by side; shorter ones end with steps in which nothing is measured."""
    return _samples(model, [_read(model, frame, columns or {}) for frame in frames])


def read_states(model: Filter, frames: Sequence[Frame], truth: Sequence[Frame], time: str) -> Float[Tensor, "B T n"]:
    """True states of the rows of frames, from the columns of others that have the names of the components."""
    names = component_names(model.layout.describe())
    opened, true = [open_frame(frame, time) for frame in frames], [open_frame(frame) for frame in truth]
    sizes = [[len(frame) for frame in group] for group in (opened, true)]
    if sizes[0] != sizes[1]:
        raise DataError(f"the frames have {listed(sizes[0])} rows, and those of the truth {listed(sizes[1])}")
    records = [np.stack([frame.column(name) for name in names], -1) for frame in true]
    whole = np.stack([_longer(record, max(sizes[0]), math.nan) for record in records])
    return model.layout.relative(torch.from_numpy(whole), torch.zeros((), dtype=model.dtype, device=model.device))


@torch.no_grad()
def filter_frame(model: Filter, frame: Frame, columns: Mapping[str, str] | None, **options: Any) -> Any:
    """The estimates of :meth:`fwnkf.Filter.run` as a frame of the same library and time."""
    rows = _read(model, frame, columns or {})
    track = model.run(*_samples(model, [rows]), **options, outputs=("mean", "cov"))
    track.raise_for_status([rows.frame.name])
    return _estimates(model, rows, track.mean[0], track.cov[0])


@torch.no_grad()
def smooth_frame(
    model: Filter, smooth: Any, frame: Frame, columns: Mapping[str, str] | None, lag: int | None, **options: Any
) -> Any:
    """The estimates of :func:`fwnkf.smooth`, likewise."""
    rows = _read(model, frame, columns or {})
    track = model.run(*_samples(model, [rows]), **options, smoothing=True)
    track.raise_for_status([rows.frame.name])
    found = smooth(model, track, lag=lag)
    return _estimates(model, rows, found.mean[0], found.cov[0])


# ---- columns of a filter --------------------------------------------------------------------------------------------


def channel_names(model: Filter) -> tuple[str, ...]:
    """The names of the measurements that a filter takes; ``y_0``, ``y_1``, … for raw samples, which have none."""
    if model.preprocess is None:
        return component_names(model.observation_layout.describe())
    return component_names(Layout.euclidean(model.input_sizes.channels, "y").describe())


def control_names(model: Filter) -> tuple[str, ...]:
    """The names of the controls: those of the system, then speeds of rotors as logs name them; ``u_0``, … if raw."""
    count = model.input_sizes.controls
    if model.preprocess is not None or model.system is None:
        return component_names(Layout.euclidean(count, "u").describe()) if count else ()
    own = model.system.control_dim
    names = component_names(model.system.control_layout.describe()) if own else ()
    return (*names, *(f"rotor_{number}" for number in range(1, count - own + 1)))


def _read(model: Filter, frame: Frame, columns: Mapping[str, str]) -> _Rows:
    channels, controls = channel_names(model), control_names(model)
    known = (*channels, *controls, TIME)
    unknown = [name for name in columns if name not in known]
    if unknown:
        raise ConfigError(f"columns: the filter has no {listed(map(shown, unknown))}; it takes {listed(known)}")
    opened = open_frame(frame, columns.get(TIME, ""))
    if len(opened) == 0:
        raise DataError(f"{opened.name}: the frame has no rows")
    signals = measured_signals(opened.units, "")
    values, units = {}, {}
    for name in (*channels, *controls):
        column, factor = _place(opened, name, columns.get(name, ""), signals)
        values[name] = opened.column(column) if factor == 1.0 else opened.column(column) * factor
        units[name] = opened.units[column] if factor == 1.0 else standard_units([name]).get(name, "")
    if model.preprocess is None:
        _check_angles(model, opened, channels, units)
    y, u = (np.stack([values[name] for name in names], -1) if names else np.zeros((len(opened), 0))
            for names in (channels, controls))  # fmt: skip
    return _Rows(opened, y, u, {name: units[name] for name in channels if units[name]})


def _place(frame: OpenFrame, name: str, given: str, signals: Mapping[str, tuple[str, float]]) -> tuple[str, float]:
    """The column of a channel, and the factor to its unit."""
    if not given:
        place = signals.get(name, (name, 1.0))
        if place[0] in frame.units:
            return place
        error = missing_column(frame.path, name, list(frame.units))
        raise DataError(f"{error}. Name the column of a channel: columns={{{name!r}: …}}")
    if given in frame.units:
        return given, 1.0
    pick = Pick.parse(f"{name}={given}")
    if pick.place not in frame.units:
        raise missing_column(frame.path, given, list(frame.units))
    return pick.place, pick.factor


def _check_angles(model: Filter, frame: OpenFrame, channels: Sequence[str], units: Mapping[str, str]) -> None:
    kinds = [part.kind for part in model.observation_layout.parts for _ in range(part.size)]
    for name, kind in zip(channels, kinds, strict=True):
        if kind == "angle" and units[name].lower() in DEGREES:
            raise DataError(f"{frame.name}: {name!r} is in degrees; convert it to radians (π/180)")


# ---- rows as steps --------------------------------------------------------------------------------------------------


def _samples(model: Filter, records: Sequence[_Rows]) -> Samples:
    length = max(len(record.y) for record in records)
    if model.input_origin:
        records = [record._replace(y=record.y - np.asarray(model.input_origin)) for record in records]
    y = np.stack([_longer(record.y, length, math.nan) for record in records])
    known = np.stack([_longer(record.u, length, math.nan) for record in records])

    def tensor(values: Array) -> Tensor:
        return torch.from_numpy(values).to(model.device, model.dtype)

    return Samples(
        tensor(y),
        tensor(_acting(known)) if known.shape[-1] else None,
        torch.from_numpy(~np.isnan(y)).to(model.device),
        _lengths(model, [record.frame for record in records], length, tensor),
    )


def _longer(values: Array, length: int, fill: float) -> Array:
    return np.pad(values, ((0, length - len(values)), (0, 0)), constant_values=fill)


def _acting(controls: Array) -> Array:
    """What acted in the step to each row: the control of the row before, the last known where it is missing.

    Of what acted before the first row nothing is known; it is taken as that of the first row, as ``fwnkf run`` does.
    """
    first = np.nan_to_num(controls[:, :1])
    return last_known(np.concatenate([first, controls], 1), axis=1)[:, :-1]


def _lengths(model: Filter, frames: Sequence[OpenFrame], length: int, tensor: Any) -> Tensor | None:
    timed = [frame for frame in frames if frame.time is not None]
    if not timed:
        return None
    if len(timed) < len(frames):
        raise DataError("some of the frames have a time and others have none; give it to all of them")
    block, nominal = model.input_sizes.block, model.nominal_step
    if not model.takes_dt:
        for frame in frames:
            assert frame.time is not None
            _check_even(model, frame.name, frame.time, None if nominal is None else nominal / block)
        return None
    rows = []
    for frame in frames:
        assert frame.time is not None
        step = fitted_step(frame.time.seconds) if nominal is None else nominal / block
        rows.append(np.concatenate([[step], frame.time.steps, np.full(length - len(frame), step)]))
    return dt_for(model, tensor(np.stack(rows)))


def _check_even(model: Filter, name: str, time: Stamps, step: float | None) -> None:
    """Raise DataError if rows are not one fixed step apart, late stamps aside; without a step, that of most rows."""
    if len(time.steps) == 0:
        return
    usual = fitted_step(time.seconds)
    if usual == 0:
        raise DataError(f"{name}: all rows have the same time, and the steps of the filter are of equal length")
    step = usual if step is None else step
    step_for(model, usual, name=f"the {name}")
    wrong = np.flatnonzero((step_counts(time.seconds, 1 / step) != 1) | (time.steps <= 0))
    if len(wrong):
        row = int(wrong[0]) + 1
        raise DataError(
            f"{name}, row {row}: {time.steps[row - 1]:.6g} s after the row before ({len(wrong)} such rows), but the "
            f"filter has a fixed step of {step:.6g} s. Give every step a row, with NaN where nothing was measured "
            "(asfreq or reindex in pandas, upsample in polars, reindex in xarray), or use a filter that takes dt, such "
            "as one with continuous=True"
        )


# ---- estimates as columns -------------------------------------------------------------------------------------------


def _estimates(model: Filter, rows: _Rows, mean: Float[Tensor, "T n"], cov: Float[Tensor, "T d d"]) -> Any:
    """Means under the names of the components, then standard deviations; with an origin in absolute numbers."""
    layout, block = model.layout, model.input_sizes.block
    names, tangent = (component_names(layout.describe(), tangent=tangent) for tangent in (False, True))
    std = torch.diagonal(cov, dim1=-2, dim2=-1).clamp_min(0).sqrt()
    columns = dict(zip(names, layout.absolute(mean).cpu().numpy().T, strict=True))
    columns |= {f"{name}_std": values for name, values in zip(tangent, std.cpu().numpy().T, strict=True)}
    units = _state_units(layout, names, tangent, rows.units)
    return rows.frame.made(columns, units, slice(block - 1, len(mean) * block, block))


def _state_units(
    layout: Layout, names: Sequence[str], tangent: Sequence[str], measured: Mapping[str, str]
) -> dict[str, str]:
    """Units of the columns: a component has that of the channel with its name; angles and rotations are in radians."""
    found = {name: measured[name] for name in names if name in measured}
    turns = [part.kind != "euclidean" for part in layout.parts for _ in range(part.tangent_size)]
    angles = [part.kind == "angle" for part in layout.parts for _ in range(part.size)]
    found |= {name: "rad" for name, angle in zip(names, angles, strict=True) if angle}
    deviations = {
        f"{name}_std": "rad" if turn else found.get(name, "") for name, turn in zip(tangent, turns, strict=True)
    }
    return {**found, **{name: unit for name, unit in deviations.items() if unit}}
