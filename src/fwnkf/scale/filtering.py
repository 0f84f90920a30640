"""Run a filter over segments of many devices in batches of one fixed shape.

The bits of a matrix product may depend on the number of its rows, as libraries choose their kernels by it, but not on
which row is where. Every batch therefore has the same number of rows, the last one is filled up with copies, and one
thread computes: a device gets the same bits whatever devices it is filtered with, cut into chunks or whole, by one
worker or by many. A test runs every filter with other companions and at other places.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.gaussian import normalized_square
from ..core.trajectory import Trajectory
from ..core.tree import named_leaves, tree_map, tree_unflatten
from ..filters.base import Filter
from ..filters.steps import last_known
from ..runtime.inputs import relative
from ..runtime.recordings import Steps, run_steps
from ..types import numpy_dtype
from .lines import Lines, innovation_lines
from .rows import Clock, Index, Samples, Segments
from .states import Bytes, Snapshots, StateBytes

Array = NDArray[np.float64]

STEPS = 128
"""Steps that are run at a time: the covariances of more would take much memory."""
SIZES = (16, 64, 256, 1024)
"""Batch sizes to choose from."""


class Estimates(NamedTuple):
    """Of the used rows: means and standard deviations. Of each segment: its statistics and, packed, its last state."""

    mean: NDArray[Any]
    std: NDArray[Any]
    state: Bytes
    control: Array
    flagged: Index
    """Steps with a status."""
    squares: Array
    """Sum of the squared normalised innovations ..."""
    measured: Array
    """... and of the measurements behind it."""
    lines: Lines


class _Batch(NamedTuple):
    """Padded inputs of some segments, the shortest first, and where their rows are."""

    segments: Index
    rows: Index
    """Places among the used rows ..."""
    place: Index
    """... their segments ..."""
    step: Index
    """... and steps in the batch."""
    length: Index
    y: NDArray[Any]
    u: NDArray[Any] | None
    dt: NDArray[Any] | None
    control: Array


def batch_size_for(devices: int) -> int:
    """The smallest of :data:`SIZES` that holds so many devices, or the largest.

    >>> batch_size_for(1), batch_size_for(100), batch_size_for(10**6)
    (16, 256, 1024)
    """
    return next((size for size in SIZES if size >= devices), SIZES[-1])


@torch.no_grad()
def filter_segments(
    model: Filter, samples: Samples, segments: Segments, known: Snapshots | None, clock: Clock, batch_size: int
) -> Estimates:
    """Filter all segments; results are in their order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with another number of threads a sum may be taken in another order
    try:
        return _filter(model, samples, segments, known, clock, batch_size)
    finally:
        torch.set_num_threads(threads)


def _filter(
    model: Filter, samples: Samples, segments: Segments, known: Snapshots | None, clock: Clock, size: int
) -> Estimates:
    codec, prepared = StateBytes(model), model.prepare()
    count, rows = len(segments.device), len(segments.rows)
    kind = numpy_dtype(model.dtype)
    m = model.observation_dim
    out = Estimates(
        np.empty((rows, model.layout.size), kind), np.empty((rows, model.layout.tangent_size), kind),
        np.empty((count, codec.size), np.uint8), np.empty((count, model.input_sizes.controls)),
        np.zeros(count, np.int64), np.zeros(count), np.zeros(count), Lines.empty(count),
    )  # fmt: skip
    order = np.argsort(segments.steps, kind="stable")
    for begin in range(0, count, size):
        batch = _batch(model, samples, segments, order[begin : begin + size], known, clock)
        state = _start(model, codec, batch, segments, known, size)
        n, high = len(batch.segments), batch.y.shape[1]
        mean = np.empty((n, high, model.layout.size), kind)
        std = np.empty((n, high, model.layout.tangent_size), kind)
        white = np.zeros((n, high, m), np.float32)
        places = list(_places(batch.length))
        parts = (_steps(model, batch, part, size, None if part.start else {"state": state}) for part in places)
        for part, track in zip(places, run_steps(model, parts, prepared=prepared), strict=True):
            mean[:, part] = track.mean[:n].cpu().numpy()
            deviation = track.cov[:n].diagonal(dim1=-2, dim2=-1).clamp_min(0).sqrt()
            std[:, part] = deviation.cpu().numpy()
            inside = np.arange(part.start, part.stop) < batch.length[:, None]
            out.flagged[batch.segments] += ((track.status[:n].cpu().numpy() != 0) & inside).sum(1)
            _note(track, n, batch.segments, out, white[:, part])
            done = np.flatnonzero(batch.length == part.stop)
            if len(done):
                chosen = torch.from_numpy(done).to(model.device)
                packed = tree_map(lambda leaf: leaf.index_select(0, chosen), track.state)  # noqa: B023
                out.state[batch.segments[done]] = codec.pack(packed)
        out.control[batch.segments] = batch.control
        out.mean[batch.rows] = mean[batch.place, batch.step]
        out.std[batch.rows] = std[batch.place, batch.step]
        found = innovation_lines(white, batch.length)
        for target, value in zip(out.lines, found, strict=True):
            target[batch.segments] = value
    return out


def _batch(
    model: Filter, samples: Samples, segments: Segments, chosen: Index, known: Snapshots | None, clock: Clock
) -> _Batch:
    lengths = np.diff(segments.first)[chosen]
    offsets = segments.first[chosen] - (np.cumsum(lengths) - lengths)
    rows = np.repeat(offsets, lengths) + np.arange(lengths.sum())
    place = np.repeat(np.arange(len(chosen)), lengths)
    step, length = segments.step[rows], segments.steps[chosen]
    high = int(length.max())
    controls = model.input_sizes.controls
    channels = samples.values.shape[1] - controls
    values = samples.values[segments.rows[rows]]
    y = np.full((len(chosen), high, channels), np.nan, values.dtype)
    y[place, step] = values[:, :channels]
    dt = None
    if clock.stamps:
        dt = np.full((len(chosen), high), clock.step or 0.0)
        begins = np.diff(place, prepend=-1) != 0
        counts = np.where(begins, step + 1, np.diff(step, prepend=0))
        dt[np.arange(high) < length[:, None]] = np.repeat(segments.spacing[rows], counts)
    u, control = None, np.empty((len(chosen), 0))
    if controls:
        u, control = _controlled(values[:, channels:], place, step, length, segments.start[chosen], known)
    return _Batch(chosen, rows, place, step, length, y, u, dt, control)


def _controlled(
    values: NDArray[Any], place: Index, step: Index, length: Index, start: Index, known: Snapshots | None
) -> tuple[Array, Array]:
    """Controls of each step, which act from their row to the next, and those that act after the last row."""
    held = np.full((len(length), int(length.max()) + 1, values.shape[1]), np.nan)
    begins = np.flatnonzero(np.diff(place, prepend=-1))
    held[:, 0] = np.nan_to_num(values[begins])  # nothing is known of what acted before the first sample
    if known is not None:
        held[start >= 0, 0] = known.control[start[start >= 0]]
    held[place, step + 1] = values
    held = last_known(held, axis=1)
    return held[:, :-1], held[np.arange(len(length)), length]


def _places(length: Index) -> Iterator[slice]:
    """Parts of the steps, cut at every length, so that the state after the last step of each segment is seen."""
    high = int(length.max())
    edges = sorted({*length.tolist(), *range(0, high, STEPS), high})
    yield from (slice(low, stop) for low, stop in pairwise(edges))


def _steps(model: Filter, batch: _Batch, part: slice, size: int, start: dict[str, Any] | None) -> Steps:
    """Steps of all rows of the batch; missing rows are copies of the first."""
    filled = np.concatenate([np.arange(len(batch.y)), np.zeros(size - len(batch.y), np.int64)])

    def tensor(array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array[filled, part])).to(model.device, model.dtype)

    y = tensor(relative(batch.y, model.input_origin))
    mask = y.isfinite()
    return Steps(
        torch.where(mask, y, 0.0),
        None if batch.u is None else tensor(batch.u),
        mask,
        None if batch.dt is None else tensor(batch.dt),
        start,
    )


def _start(
    model: Filter, codec: StateBytes, batch: _Batch, segments: Segments, known: Snapshots | None, size: int
) -> Any:
    """The state of all rows: known ones, and new ones from the initial belief."""
    start = segments.start[batch.segments]
    count = max(model.initial_steps, 1)
    first = _steps(model, batch, slice(0, count), size, None)
    prior = model.initial_belief(*first[:4]) if model.initial_steps else None
    state = model.init(size, prior)
    goes_on = np.flatnonzero(start >= 0)
    if known is None or not len(goes_on):
        return state
    rows = torch.from_numpy(goes_on).to(model.device)
    before = codec.unpack(known.state[start[goes_on]])
    pairs = zip(named_leaves(state), named_leaves(before), strict=True)
    return tree_unflatten(state, iter([new.index_copy(0, rows, old) for (_, new), (_, old) in pairs]))


def _note(track: Trajectory, n: int, segments: Index, out: Estimates, white: NDArray[Any]) -> None:
    """Add the innovations of some steps to the statistics; a filter without an observation model has none."""
    weight, innovation, cov = track.weight, track.innovation, track.innovation_cov
    if weight is None or weight.shape != innovation.shape:
        return
    weight, innovation, cov = weight[:n], innovation[:n], cov[:n]
    squares, ok = normalized_square(innovation, cov, weight)
    use = ok & squares.isfinite()
    out.squares[segments] += torch.where(use, squares, 0.0).double().sum(1).cpu().numpy()
    out.measured[segments] += (weight.sum(-1) * use).double().sum(1).cpu().numpy()
    stated = cov.diagonal(dim1=-2, dim2=-1)
    scaled = torch.where((weight > 0) & (stated > 0), innovation * stated.clamp_min(1e-30).rsqrt(), 0.0)
    white[:] = scaled.nan_to_num(0.0, 0.0, 0.0).float().cpu().numpy()
