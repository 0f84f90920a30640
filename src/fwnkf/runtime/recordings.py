"""The one driver of a filter over recordings: behind ``run``, ``diagnose``, ``evaluate``, ``batch`` and smoothing.

Samples become steps in three moves, and each is decided once: where a filter starts anew (:func:`starts_anew`), which
lengths its steps have, and which values act in a step without a sample (both in :mod:`fwnkf.filters.steps`). The steps
are :class:`Steps`, in parts of bounded memory, and :func:`run_steps` runs a filter over them. What a caller does with
the outputs is its own: :func:`run_long` writes the estimates of a log, :func:`smooth_in_chunks` smooths them.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.gaussian import masked
from ..core.trajectory import Trajectory, faulty
from ..errors import ConfigError, DataError
from ..filters.base import Filter
from ..filters.engines import Engine
from ..filters.steps import last_known, step_for
from ..logs.clock import fitted_step, step_counts
from ..metrics.consistency import mahalanobis_squared
from ..shapes import Bool, Float
from .inputs import relative

if TYPE_CHECKING:
    from ..filters.smoothing import Smoothed

Array = NDArray[np.float64]
Write = Callable[[Array, Array, Array], None]
"""Takes times ``[T]``, means ``[T, n]`` and covariances ``[T, d, d]``."""
Observe = Callable[[Array, Array, Array, Array], None]
"""Takes times ``[T]``, and of the channels ``[T, m]`` measurements, innovations and their standard deviations; NaN
where a channel was not measured."""

USED = ("mean", "cov", "innovation", "innovation_cov")
"""What is read of the outputs of a filter."""
STEPS = 1024
"""Steps of a filter that are run at a time."""
LONGEST_GAP = 10.0
"""Seconds; after a longer gap the filter starts anew."""
NOTES = 10
"""Gaps that are named in the notes."""
MOST = 4_000_000
"""Steps between the samples of one block, missing ones included: more would not fit into bounded memory."""


# ---- steps, and a filter over them ----------------------------------------------------------------------------------


class Steps(NamedTuple):
    """Consecutive samples of recordings side by side, as :meth:`Filter.run` takes them."""

    y: Float[Tensor, "B T m"]
    u: Float[Tensor, "B T p"] | None = None
    mask: Bool[Tensor, "B T m"] | None = None
    dt: Float[Tensor, "B T"] | None = None
    start: Mapping[str, Any] | None = None
    """What the filter starts from: ``prior``, ``prior_at``, ``state``, ``generator``, or nothing for its own initial
    belief. None where it goes on from the steps before."""

    def parts(self, samples: int) -> Iterator[Steps]:
        """The same in parts of so many samples, of which the first starts as these do."""
        for first in range(0, self.y.shape[1], samples):
            y, u, mask, dt = (None if item is None else item[:, first : first + samples] for item in self[:4])
            assert y is not None
            yield Steps(y, u, mask, dt, None if first else self.start)


def run_steps(
    model: Filter,
    parts: Iterable[Steps],
    *,
    smoothing: bool = False,
    prepared: Any = None,
    engine: Engine = "auto",
    outputs: Sequence[str] | None = None,
    steps: int | None = None,
) -> Iterator[Trajectory]:
    """Run a filter over parts one after the other; the memory is that of one part, the bits are those of one run.

    One engine runs all parts. Unless it is given, it is chosen by ``steps``, the length of the recording, or by that of
    the first part.
    """
    prepared = model.prepare() if prepared is None else prepared
    state, options = None, {"prepared": prepared, "smoothing": smoothing, "outputs": outputs}
    for part in parts:
        begin = {"state": state} if part.start is None else part.start
        track = model.run(part.y, part.u, part.mask, part.dt, **begin, **options, engine=engine, engine_steps=steps)
        state, engine = track.state, track.engine
        yield track


# ---- gaps ------------------------------------------------------------------------------------


def starts_anew(distance: NDArray[Any], longest: float = LONGEST_GAP) -> NDArray[np.bool_]:
    """Whether a filter starts anew at a sample: it is the first (NaN), or too far from the one before.

    >>> starts_anew(np.array([np.nan, 0.1, 10.0, 10.1])).tolist()
    [True, False, False, True]
    """
    new: NDArray[np.bool_] = ~(distance <= longest)
    return new


# ---- logs of any length ---------------------------------------------------------------------------------------------


@dataclass
class Summary:
    """What a run did."""

    samples: int = 0
    missing: int = 0
    """Samples that are missing, for which the filter took a step without measurement."""
    flagged: int = 0
    """Steps that did not use a measurement: values that were not finite, or a factorisation that failed."""
    imprecise: int = 0
    """Steps whose update was made and may have been changed by rounding."""
    restarts: int = 0
    rate: float = 0.0
    """Samples per second of the log."""
    regular: bool = True
    """Whether the filter ran with its nominal step; else with the time between the samples."""
    squares: float = 0.0
    """Sum of the squared normalised innovations ..."""
    measured: float = 0.0
    """... and the number of measurements behind it."""
    last: float = math.nan
    """Time of the last sample that was used."""
    engine: str = ""
    """What ran the filter, see :meth:`fwnkf.Filter.run`."""
    notes: list[str] = field(default_factory=list)

    @property
    def nis(self) -> float:
        """Mean over the steps, divided by the number of channels measured."""
        return self.squares / self.measured if self.measured else math.nan


class Piece(NamedTuple):
    """Steps of a filter: samples and, where some are missing, masked steps in between."""

    time: Array
    values: Array
    real: NDArray[np.bool_]
    """False for steps that stand for missing samples."""
    dt: Array | None
    first: bool
    """Whether the filter starts anew."""


class _Clock(NamedTuple):
    step: float
    regular: bool


def clock_of(model: Filter, time: Array, summary: Summary, stamps: bool) -> _Clock:
    """How the filter follows the samples: with its own step, or with the time between samples."""
    step = fitted_step(time)
    if step <= 0:
        raise DataError("the log has a single sample; a filter needs at least two")
    summary.rate = 1 / step
    summary.regular = step_for(model, step, stamps=stamps) is None
    if summary.regular and model.system is not None:
        step = model.system.dt / model.input_sizes.block
    return _Clock(step, summary.regular)


def pieces(
    model: Filter, blocks: Iterable[tuple[Array, Array]], summary: Summary, steps: int = STEPS, stamps: bool = False
) -> Iterator[Piece]:
    """Cut samples into pieces of ``steps`` steps of the filter; gaps become masked steps or longer ones."""
    channels, controls, block = model.input_sizes
    length = max(steps, model.initial_steps) * block
    clock: _Clock | None = None
    buffer: list[tuple[Array, Array, NDArray[np.bool_], Array]] = []
    held, first, last = 0, True, math.nan
    control = np.zeros(controls)

    def joined(count: int) -> Piece:
        nonlocal buffer, held, first
        whole = [np.concatenate(items) for items in zip(*buffer, strict=True)]
        time, values, real, dt = (item[:count] for item in whole)
        buffer, held = [tuple(item[count:] for item in whole)], held - count  # type: ignore[list-item]
        assert clock is not None
        piece = Piece(time, values, real.astype(bool), None if clock.regular else dt, first)
        first = False
        return piece

    for time, values, following in _with_following(blocks):
        clock = clock_of(model, time, summary, stamps) if clock is None else clock
        before = np.concatenate([[time[0] - clock.step if math.isnan(last) else last], time[:-1]])
        breaks = np.flatnonzero(starts_anew(time - before))
        for begin, stop in zip([0, *breaks], [*breaks, len(time)], strict=True):
            if begin == stop:
                continue
            if begin in breaks:
                while held >= block:
                    yield joined(min(length, held // block * block))
                summary.restarts += 1
                if summary.restarts <= NOTES:
                    gap, where = time[begin] - before[begin], before[begin]
                    summary.notes.append(f"a gap of {gap:.4g} s at {where:.3f} s: the filter starts anew after it")
                buffer, held, first = [], 0, True
            steps_before = time[begin:stop] - before[begin:stop]
            if begin in breaks:
                steps_before[0] = clock.step
            after = following if stop == len(time) else float(time[stop])
            part = _with_missing(time[begin:stop], values[begin:stop], steps_before, clock, after)
            if math.isnan(last):
                control = np.nan_to_num(part[1][0, channels:])  # nothing is known of what acted before
            acting = last_known(np.concatenate([control[None], part[1][:, channels:]]))
            part[1][:, channels:], control = acting[:-1], acting[-1]  # a control acts from its sample to the next
            buffer.append(part)
            held += len(buffer[-1][0])
            while held >= length:
                yield joined(length)
        last = float(time[-1])
    while held >= block:
        yield joined(min(length, held // block * block))
    if clock is None:
        raise DataError("the log has no samples of these channels")


def _with_following(blocks: Iterable[tuple[Array, Array]]) -> Iterator[tuple[Array, Array, float]]:
    """Blocks with the time of the sample after each, infinite after the last: where blocks end changes no estimate."""
    held: tuple[Array, Array] | None = None
    for time, values in blocks:
        if len(time):
            if held is not None:
                yield *held, float(time[0])
            held = time, values
    if held is not None:
        yield *held, math.inf


def _with_missing(
    time: Array, values: Array, dt: Array, clock: _Clock, following: float
) -> tuple[Array, Array, NDArray[np.bool_], Array]:
    """Samples with NaN rows where some are missing; the steps are equal, or divide the time between two samples.

    Long steps are divided too, because a stiff system has no exact matrices for them in floating point.
    """
    after = time[-1] + min(following - time[-1], LONGEST_GAP)  # says whether the last sample came late
    counts = step_counts(np.concatenate([[time[0] - dt[0]], time, [after]]), 1 / clock.step)[:-1]
    rows = np.cumsum(counts) - 1
    total = int(rows[-1]) + 1
    if total > MOST:
        raise DataError(
            f"from {time[0]:.3f} to {time[-1]:.3f} s, {len(time):,} samples stand for {total:,} steps of "
            f"{clock.step:.3g} s: the time stamps are not those of samples at an even rate; examine them with "
            "fwnkf diagnose, and correct them"
        )
    real = np.zeros(total, bool)
    real[rows] = True
    spread = np.full((total, values.shape[1]), np.nan)
    spread[rows] = values
    moments = np.interp(np.arange(-1, total), np.concatenate([[-1], rows]), np.concatenate([[time[0] - dt[0]], time]))
    return moments[1:], spread, real, np.diff(moments)


def steps_of(model: Filter, piece: Piece) -> Steps:
    """A piece as a filter takes it, with a batch axis; columns beyond the channels are controls."""

    def tensor(array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(model.device, model.dtype).unsqueeze(0)

    values, control = np.split(piece.values, [model.input_sizes.channels], 1)
    known = np.isfinite(values)
    return Steps(
        tensor(np.where(known, relative(values, model.input_origin), 0.0)),
        tensor(control) if control.size else None,
        torch.from_numpy(known).to(model.device).unsqueeze(0),
        None if piece.dt is None else tensor(piece.dt),
        {} if piece.first else None,
    )


class _Runner:
    """Passes the outputs of a filter on, and counts them."""

    def __init__(self, model: Filter, write: Write, summary: Summary, observe: Observe | None = None) -> None:
        self.model, self.write, self.summary, self.observe = model, write, summary, observe
        self.block = model.input_sizes.block

    def rows(self, piece: Piece) -> tuple[Array, NDArray[np.bool_]]:
        """The time of each step of the filter, and whether a sample belongs to it."""
        count = len(piece.time) // self.block
        real: NDArray[np.bool_] = np.any(piece.real[: count * self.block].reshape(count, self.block), 1)
        return piece.time[self.block - 1 :: self.block][:count], real

    def put(self, piece: Piece, mean: Tensor, cov: Tensor) -> None:
        time, real = self.rows(piece)
        absolute = self.model.layout.absolute(mean[0])
        self.write(time[real], absolute.double().cpu().numpy()[real], cov[0].double().cpu().numpy()[real])
        self.summary.samples += int(piece.real.sum())
        self.summary.missing += int((~piece.real).sum())
        self.summary.last = float(piece.time[-1])

    def note(self, track: Trajectory, piece: Piece) -> None:
        summary = self.summary
        if self.observe is not None:
            self._observed(track, piece, self.observe)
        summary.engine = track.engine
        faults = faulty(track.status)
        summary.flagged += int(faults.sum())
        summary.imprecise += int(((track.status != 0) & ~faults).sum())
        if track.weight is not None and track.weight.shape == track.innovation.shape:
            # channels that were not measured count neither in the sum nor in their number
            weight = track.weight
            squares = mahalanobis_squared(track.innovation * weight, masked(track.innovation_cov, weight))
            summary.squares += float(squares.nan_to_num(0.0).sum())
            summary.measured += float(weight.sum())

    def _observed(self, track: Trajectory, piece: Piece, observe: Observe) -> None:
        """Pass innovations on, of filters whose innovations are those of their channels."""
        channels = self.model.input_sizes.channels
        if self.block > 1 or track.innovation.shape[-1] != channels:
            return
        time, real = self.rows(piece)
        measured = piece.values[: len(time), :channels]
        used = np.isfinite(measured)
        variance = track.innovation_cov[0].diagonal(dim1=-2, dim2=-1).clamp_min(0)
        innovation, std = (item.double().cpu().numpy() for item in (track.innovation[0], variance.sqrt()))
        observe(time[real], *(np.where(used, item, np.nan)[real] for item in (measured, innovation, std)))


@torch.no_grad()
def run_long(
    model: Filter,
    blocks: Iterable[tuple[Array, Array]],
    write: Write,
    *,
    smoothing: bool = False,
    lag: int | None = None,
    summary: Summary | None = None,
    progress: Callable[[Summary], None] | None = None,
    steps: int = STEPS,
    stamps: bool = False,
    engine: Engine = "auto",
    observe: Observe | None = None,
) -> Summary:
    """Filter blocks of ``(time, values)``, the columns of values being channels, then controls; NaN is missing.

    A control acts from its sample to the next. Estimates are passed to ``write`` at the samples, in order. Filtered,
    they are the same bits as those of one ``model.run`` on the same engine. With ``smoothing`` all measurements are
    used: the inputs, and the results of the backward pass, are stored in a temporary folder. With ``lag`` as well,
    those up to that many steps later are used, without storing. ``stamps`` takes the steps from the time stamps, as is
    always done for samples of another rate than that of the filter. ``observe`` is given the innovations, but of a run
    that smooths with all measurements.
    """
    summary = Summary() if summary is None else summary
    runner = _Runner(model, write, summary, observe)
    cut = pieces(model, blocks, summary, steps, stamps)
    report = progress or (lambda _: None)
    if smoothing and lag is None:
        _smooth_from_disk(runner, cut, report, engine)
    elif smoothing:
        assert lag is not None
        _smooth_with_lag(runner, cut, lag, report, engine)
    else:
        ahead, behind = tee(cut)  # no further apart than the piece that is run
        tracks = run_steps(model, (steps_of(model, item) for item in ahead), engine=engine, outputs=USED)
        for piece, track in zip(behind, tracks, strict=True):
            runner.put(piece, track.mean, track.cov)
            runner.note(track, piece)
            report(summary)
    return summary


def _smooth_with_lag(
    runner: _Runner, cut: Iterator[Piece], lag: int, report: Callable[[Summary], None], engine: Engine
) -> None:
    """Each piece together with the first steps of the next ones, which are run again with their own piece."""
    from ..filters.smoothing import smooth

    model, samples = runner.model, lag * runner.block
    prepared, state = model.prepare(), None
    waiting: list[Piece] = []

    def finish(last: bool) -> None:
        nonlocal state, engine
        while waiting:
            behind = sum(len(piece.time) for piece in waiting[1:])
            if behind < samples and not last:
                return
            piece = waiting.pop(0)
            begin = {} if piece.first else {"state": state}
            ahead = steps_of(model, concatenated([piece, *waiting], len(piece.time) + samples))._replace(start=begin)
            (track,) = run_steps(model, [ahead], prepared=prepared, smoothing=True, engine=engine)
            engine = track.engine
            count = len(piece.time) // runner.block
            estimate = smooth(model, track, lag=lag)
            runner.put(piece, estimate.mean[:, :count], estimate.cov[:, :count])
            again = steps_of(model, piece)._replace(start=begin)
            (track,) = run_steps(model, [again], prepared=prepared, engine=engine)
            state = track.state
            runner.note(track, piece)
            report(runner.summary)

    for piece in cut:
        if piece.first:
            finish(last=True)
        waiting.append(piece)
        finish(last=False)
    finish(last=True)


def concatenated(parts: Sequence[Piece], count: int | None = None) -> Piece:
    """Pieces that follow each other as one; its first ``count`` samples, or all."""
    time, values, real = (np.concatenate([part[index] for part in parts])[:count] for index in range(3))
    dt = None if parts[0].dt is None else np.concatenate([part.dt for part in parts if part.dt is not None])[:count]
    return Piece(time, values, real, dt, parts[0].first)


class _Stored(Sequence[Steps]):
    """Pieces in files of a folder, read one at a time."""

    def __init__(self, runner: _Runner, paths: Sequence[Path]) -> None:
        self.runner, self.paths = runner, paths

    def __len__(self) -> int:
        return len(self.paths)

    def piece(self, number: int) -> Piece:
        with np.load(self.paths[number], allow_pickle=False) as data:
            time, values, real, *dt = (data[name] for name in data.files)
            return Piece(time, values, real, dt[0] if dt else None, number == 0)

    def __getitem__(self, number: Any) -> Any:
        return steps_of(self.runner.model, self.piece(number))


def _smooth_from_disk(runner: _Runner, cut: Iterator[Piece], report: Callable[[Summary], None], engine: Engine) -> None:
    """All measurements: the pieces are stored, used forwards and backwards, and their results written in order."""
    with tempfile.TemporaryDirectory(prefix="fwnkf-") as folder:
        paths: list[Path] = []

        def finish() -> None:
            stored = _Stored(runner, paths)
            for number, estimate in zip(
                reversed(range(len(paths))), smooth_parts(runner.model, stored, engine), strict=True
            ):
                np.savez(paths[number].with_suffix(".result.npz"), mean=estimate.mean.cpu(), cov=estimate.cov.cpu())
            for number, path in enumerate(paths):
                piece = stored.piece(number)
                with np.load(path.with_suffix(".result.npz"), allow_pickle=False) as data:
                    runner.put(piece, torch.from_numpy(data["mean"]), torch.from_numpy(data["cov"]))
                path.with_suffix(".result.npz").unlink()
                path.unlink()
                report(runner.summary)
            paths.clear()

        for number, piece in enumerate(cut):
            if piece.first and paths:
                finish()
            path = Path(folder) / f"{number:09d}.npz"
            np.savez(path, *(item for item in piece[:4] if item is not None))
            paths.append(path)
        if paths:
            finish()


# ---- smoothing in bounded memory ------------------------------------------------------------------------------------


@torch.no_grad()
def smooth_in_chunks(
    model: Filter,
    y: Float[Tensor, "B T m"],
    u: Float[Tensor, "B T p"] | None = None,
    mask: Bool[Tensor, "B T m"] | None = None,
    dt: Float[Tensor, "B T"] | None = None,
    *,
    chunk: int = 1000,
    **start: Any,
) -> Smoothed:
    """Filter and smooth a long recording with, besides the result, the memory of ``chunk`` steps.

    The filter runs twice: once from the start, where only its state between chunks is stored, and again chunk by chunk
    from the end.

    Args:
        model: the filter.
        y, u, mask, dt: the recording, as :meth:`Filter.run` takes it.
        chunk: number of steps in memory at once.
        **start: what :meth:`Filter.run` starts from: ``prior``, ``prior_at``, ``state``.

    Returns:
        The smoothed belief in every step.

    >>> import fwnkf
    >>> one = torch.eye(1)
    >>> kf = fwnkf.build("kf", F=one, H=one, Q=one, R=one)
    >>> y = torch.randn(1, 50, 1)
    >>> whole, parts = fwnkf.smooth(kf, kf.run(y, smoothing=True)), smooth_in_chunks(kf, y, chunk=20)
    >>> torch.allclose(whole.mean, parts.mean)
    True
    """
    from ..filters.smoothing import joined

    if chunk < 1:
        raise ConfigError(f"chunk = {chunk}: give a positive number of steps")
    parts = list(Steps(y, u, mask, dt, start).parts(chunk * model.input_sizes.block))
    smoothed = joined([*smooth_parts(model, parts)][::-1])
    return smoothed if smoothed.cross_cov is None else smoothed._replace(cross_cov=smoothed.cross_cov[:, 1:])


@torch.no_grad()
def smooth_parts(model: Filter, parts: Sequence[Steps], engine: Engine = "auto") -> Iterator[Smoothed]:
    """Filter and smooth a recording in parts; yields them from the last to the first.

    Every part is used twice, so ``parts`` may read them from disk. Between the two passes only the states between
    them are stored. ``cross_cov`` of a part begins with that of the step before it.
    """
    from ..filters.smoothing import last_factor, smoothed_part

    prepared = model.prepare()
    begins: list[tuple[Mapping[str, Any] | None, Tensor | None]] = [(parts[0].start, None)]
    for track in run_steps(model, parts, smoothing=True, prepared=prepared, engine=engine):
        begins.append(({"state": track.state}, last_factor(model, track, begins[-1][1])))
    log_weight, last = track.linear.log_weight, None
    for number in reversed(range(len(parts))):
        begin, before = begins[number]
        part = parts[number]._replace(start=begin)
        (track,) = run_steps(model, [part], smoothing=True, prepared=prepared, engine=track.engine)
        smoothed, last = smoothed_part(model, track, before, last, log_weight)
        yield smoothed
