"""Errors of estimates against a reference: NEES with the band of its mean, where a log has a truth or is given one.

Estimates are those that the log holds with their variances (an odometry, the output of ``fwnkf run``), and the states
of the filter that is examined. They are compared as they are: aligning the two would hide what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.layout import Layout, Part
from ..data._interpolate import continuous_signs
from ..data.log_recording import GAP, ORIENTATION, at_times
from ..errors import DataError
from ..filters.base import Filter
from ..logs import open_log
from ..logs.log import Log, Source, Stream
from ..logs.results import component_names
from ..logs.stamps import examine, repair
from ..metrics.consistency import nees
from .consistency import band, course
from .innovations import runs
from .result import Consistency
from .series import Series

Array = NDArray[np.float64]

FEWEST = 20
"""Errors below which nothing is said."""
CHANCE = 2.0
"""Standard deviations of a correlation by chance, above which it counts."""
KIND = "NEES"


class Reference:
    """True values by name (``position_x``, ``orientation_w``), interpolated to any time."""

    def __init__(self, streams: Sequence[Stream], name: str) -> None:
        self.streams, self.name = tuple(streams), name

    def has(self, names: Iterable[str]) -> bool:
        return self._stream(names) is not None

    def at(self, names: Sequence[str], time: Array) -> Array:
        """Columns ``[T, names]`` at times in seconds of the log; NaN outside, and across gaps of the reference."""
        stream = self._stream(names)
        assert stream is not None, names
        values = stream.stack(names)
        if tuple(names) == ORIENTATION:
            signs, _ = continuous_signs(torch.from_numpy(values), torch.from_numpy(np.isfinite(values).all(1)))
            values = signs.numpy()
        known = np.isfinite(values).all(1)
        moments = stream.time[known]
        if len(moments) < 2:
            return np.full((len(time), len(names)), np.nan)
        return at_times(moments, values[known], time, GAP * float(np.median(np.diff(moments))))

    def _stream(self, names: Iterable[str]) -> Stream | None:
        wanted = set(names)
        return next((stream for stream in self.streams if wanted <= set(stream.columns)), None)


def reference(log: Log, place: str | Path | None = None) -> Reference | None:
    """The reference of a log: its own, or a topic of it, or another file; None where there is none.

    A file has the clock of the log. Where one of them starts without a date, seconds count from the start of each.
    """
    if place is None:
        sources = [source for source in log.sources() if source.role == "truth"]
        return _reference(log, sources, 0.0, "") if sources else None
    name = str(place)
    if name in log.topics:
        return _reference(log, [source for source in log.sources() if source.topic == name], 0.0, name)
    if not Path(place).exists():
        topics = ", ".join(list(log.topics)[:20])
        raise DataError(f"the truth {name!r} is neither a file nor a topic of {log.path}; topics: {topics}")
    other = open_log(place)
    own = [source for source in other.sources() if source.role == "truth"]
    shift = (other.start_ns - log.start_ns) / 1e9 if other.start_ns and log.start_ns else 0.0
    return _reference(other, own or list(other.sources()), shift, name)


def _reference(log: Log, sources: Sequence[Source], shift: float, name: str) -> Reference:
    chosen = [source for source in sources if source.role in ("truth", "pose", "velocity", "attitude")]
    if not chosen:
        raise DataError(
            f"{name or log.path}: no position, orientation or velocity to compare with; signals: "
            f"{', '.join(source.name for source in log.sources()) or 'none'}"
        )
    streams = [_ordered(log, source) for source in chosen]
    streams = [replace(stream, time=stream.time + shift) for stream in streams if len(stream) > 1]
    return Reference(streams, name or chosen[0].topic)


def _ordered(log: Log, source: Source) -> Stream:
    stream = log.signal(source.name)
    return repair(stream, replace(examine(stream, dropouts=log.dropouts), jitter=0.0))


# ---- errors ----------------------------------------------------------------------------------------------------------


def logged_errors(log: Log, truth: Reference) -> list[Consistency]:
    """NEES of every component of the estimates that a log holds together with their variances."""
    rows: list[Consistency] = []
    sources = [source for source in log.sources() if source.role == "estimate" and source.topic != truth.name]
    for source in sources:
        stream = _ordered(log, source)
        label = f" ({source.topic})" if len({item.topic for item in sources}) > 1 else ""
        for name in source.columns:
            variance = _variance(stream, name)
            if variance is None or not truth.has([name]):
                continue
            error = stream.columns[name] - truth.at([name], stream.time)[:, 0]
            with np.errstate(divide="ignore", invalid="ignore"):
                normalised = np.where(variance > 0, error / np.sqrt(variance), np.nan)
            rows += error_consistency(f"{name} error{label}", stream.time, np.square(normalised), normalised)
    return rows


def _variance(stream: Stream, name: str) -> Array | None:
    if f"{name}_variance" in stream.columns:
        return stream.columns[f"{name}_variance"]
    deviation = stream.columns.get(f"{name}_std")
    return None if deviation is None else np.square(deviation)


def filter_errors(model: Filter, series: Series, truth: Reference) -> list[Consistency]:
    """NEES of every part of a filter's state that the reference has, and of its components."""
    known = [(part, names) for part in model.layout.parts if truth.has(names := _names(part))]
    if not known:
        return []
    targets = [torch.from_numpy(truth.at(names, series.time)) for _, names in known]
    collected: list[list[tuple[Array, Array]]] = [[] for _ in known]
    places: list[NDArray[np.int64]] = []
    stored, tangent = _offsets(model.layout)
    for cut, tracks in runs(model, series):
        for place, track in tracks:
            sample = cut.sample[:, place]
            keep = torch.from_numpy(sample >= 0)
            places.append(sample[sample >= 0])
            states = model.layout.absolute(track.mean[keep]).double()
            for index, (part, _) in enumerate(known):
                at, width = tangent[part.name], part.tangent_size
                mean = states[:, stored[part.name] : stored[part.name] + part.size]
                cov = track.cov[keep][:, at : at + width, at : at + width].double()
                layout = Layout((part,))
                true = layout.project(targets[index][torch.from_numpy(places[-1])])
                error = layout.boxminus(mean, true)
                squares = nees(torch.where(error.isfinite(), error, 0.0), cov)
                squares = torch.where(error.isfinite().all(-1), squares, torch.nan)
                single = error / cov.diagonal(dim1=-2, dim2=-1).sqrt()
                collected[index].append((squares.numpy(), single.numpy()))
    order = np.argsort(np.concatenate(places))
    time = series.time[np.concatenate(places)[order]]
    rows: list[Consistency] = []
    for (part, _), items in zip(known, collected, strict=True):
        squared = np.concatenate([item[0] for item in items])[order]
        errors = np.concatenate([item[1] for item in items])[order]
        if part.tangent_size > 1:
            rows += error_consistency(f"{part.name} error", time, squared, errors)
        components = component_names([(part.name, part.kind, part.size)], tangent=True)
        for column, component in enumerate(components):
            rows += error_consistency(f"{component} error", time, errors[:, column] ** 2, errors[:, column])
    return rows


def _names(part: Part) -> tuple[str, ...]:
    """Columns of a reference for a part of a state; a single quaternion is the orientation, whatever it is called."""
    return ORIENTATION if part.kind == "quaternion" else component_names([(part.name, part.kind, part.size)])


def _offsets(layout: Layout) -> tuple[dict[str, int], dict[str, int]]:
    """First number of each part in the state and in its tangent space."""
    stored, tangent, a, b = {}, {}, 0, 0
    for part in layout.parts:
        stored[part.name], tangent[part.name] = a, b
        a, b = a + part.size, b + part.tangent_size
    return stored, tangent


def error_consistency(name: str, time: Array, squares: Array, normalised: Array) -> list[Consistency]:
    """A row for errors that are known often enough; ``normalised`` ``[T]`` or ``[T, n]`` are errors over deviations.

    The band of the mean is that of as many independent squares as the errors are worth: neighbours are alike.
    """
    columns = normalised[:, None] if normalised.ndim == 1 else normalised
    known = np.isfinite(squares)
    if known.sum() < FEWEST:
        return []
    count = sum(independent_squares(values[known]) for values in columns.T)
    mean = float(squares[known].mean())
    return [Consistency(name, KIND, mean, *band(count), int(known.sum()), None, None, *course(time, squares))]


def independent_squares(values: Array) -> float:
    """How many independent squares tell as much about their mean: ``n / (1 + 2 Σ ρ_k²)``, over all that stand out.

    >>> values = np.random.default_rng(0).normal(size=2000)
    >>> [round(independent_squares(series), -2) for series in (values, np.convolve(values, np.ones(4)))]
    [1900.0, 700.0]
    """
    centred = values - values.mean()
    power = np.square(np.abs(np.fft.rfft(centred, 2 * len(centred))))
    products = np.fft.irfft(power)[: len(centred) // 4 + 1]
    if products[0] <= 0:
        return 1.0
    squares = np.square(products[1:] / products[0])
    # Bartlett: the variance that a correlation has by chance grows with those at shorter lags
    chance = (1 + 2 * (np.cumsum(squares) - squares)) / len(centred)
    return len(centred) / (1 + 2 * float(squares[squares > CHANCE**2 * chance].sum()))
