"""Errors of the rate at the end of gaps as metrics: RMSE, NEES and coverage of each length, and the RMSE ahead."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from fwnkf import Filter
from fwnkf.metrics.consistency import coverage, nees
from fwnkf.shapes import Bool, Float
from tasks.racer.gaps import GapErrors, gap_errors
from tasks.racer.protocol import AHEAD_MS, BLOCK, CONTEXT, GAPS_MS, Windows, control, frames, held
from tasks.results import Score

HEADLINE = "gap_50"
Prediction = Callable[[Windows], Tensor]
Metrics = dict[str, float]
Scores = dict[str, Score]
"""Of all windows (``""``) and of each flight."""


def rmse(error: Float[Tensor, "N 3"]) -> float:
    """Root of the mean square of each axis, mean over axes."""
    return float(error.square().mean(0).sqrt().mean())


def truth(data: Windows, length: int) -> Float[Tensor, "N 3"]:
    """The withheld rate at the end of a gap."""
    return data.y[:, CONTEXT + length - 1]


def gaps(
    model: Filter, data: Windows, milliseconds: Sequence[int] = GAPS_MS, u: Float[Tensor, "N T 5"] | None = None
) -> dict[str, GapErrors]:
    """Prediction errors of a filter by gap in ms, and of one step (``step``).

    ``u`` is the control, by default the commands that go on.
    """
    lengths = {"step": BLOCK, **{str(time_ms): frames(time_ms) for time_ms in milliseconds}}
    unique = sorted(set(lengths.values()))
    if u is None:
        u = control(data.motors)
    if model.preprocess is not None and not model.preprocess.control_dim:
        u = None
    found = gap_errors(model, data.y, u, CONTEXT, unique)
    return {
        name: GapErrors(found.error[:, unique.index(length)], found.cov[:, unique.index(length)])
        for name, length in lengths.items()
    }


def filter_metrics(
    found: Mapping[str, GapErrors], ahead: Mapping[str, GapErrors], rows: Bool[Tensor, " N"], quiet: Bool[Tensor, " N"]
) -> Metrics:
    """RMSE, NEES and coverage at the end of each gap, and RMSE ahead, over some of the windows.

    ``quiet`` windows have no collision; ``quiet_…`` is the RMSE over those.
    """
    part = {name: GapErrors(one.error[rows], one.cov[rows]) for name, one in found.items()}
    metrics = {f"gap_{name}": rmse(one.error) for name, one in part.items()}
    metrics |= {f"nees_{name}": float(nees(*one).mean()) for name, one in part.items()}
    metrics |= {f"coverage_{name}": float(coverage(*one).overall) for name, one in part.items()}
    metrics |= {f"ahead_{name}": rmse(one.error[rows]) for name, one in ahead.items() if name != "step"}
    return metrics | {f"quiet_{name}": rmse(one.error[rows & quiet]) for name, one in found.items()}


def evaluate(model: Filter, data: Windows) -> Scores:
    """Gaps with commands that go on, and predictions without: of all windows (``""``) and of each flight."""
    begin = time.process_time()
    found, ahead = gaps(model, data), gaps(model, data, AHEAD_MS, held(data.motors))
    return scored(lambda rows: filter_metrics(found, ahead, rows, data.quiet), data, begin)


def regressed(gap: Mapping[int, Prediction], ahead: Mapping[int, Prediction], data: Windows) -> Scores:
    """The same of predictions without an uncertainty, by gap and time ahead in ms."""
    begin = time.process_time()
    errors = {f"gap_{time_ms}": predict(data) - truth(data, frames(time_ms)) for time_ms, predict in gap.items()}
    later = {f"ahead_{time_ms}": predict(data) - truth(data, frames(time_ms)) for time_ms, predict in ahead.items()}

    def metrics(rows: Tensor) -> Metrics:
        found = {name: rmse(error[rows]) for name, error in (errors | later).items()}
        quiet = {f"quiet_{name[4:]}": rmse(error[rows & data.quiet]) for name, error in errors.items()}
        return found | quiet

    return scored(metrics, data, begin)


def split(metrics: Callable[[Tensor], Metrics], data: Windows) -> dict[str, Metrics]:
    """Metrics of all windows (``""``) and of each flight that has windows; they are given the windows to count."""
    rows = {name: data.flight == number for number, name in enumerate(data.names)}
    own = {name: metrics(part) for name, part in rows.items() if bool(part.any())}
    return {"": metrics(torch.ones(len(data), dtype=torch.bool)), **own}


def scored(metrics: Callable[[Tensor], Metrics], data: Windows, begin: float) -> Scores:
    """Scores of all windows, with the headline by flight, and of each flight alone."""
    found = split(metrics, data)
    headline = {name: values[HEADLINE] for name, values in found.items() if name and HEADLINE in values}
    spent = time.process_time() - begin
    return {name: Score(values) if name else Score(values, headline, spent) for name, values in found.items()}


def joined(methods: Iterable[tuple[str, int, Scores]]) -> Iterator[tuple[str, Score]]:
    """Scores of several methods and seeds under one name each: ``ridge:0``, and ``ridge:0:LOG00015`` for a flight."""
    for method, seed, found in methods:
        yield from ((f"{method}:{seed}:{flight}".rstrip(":"), score) for flight, score in found.items())


def parted(scores: Mapping[str, Score]) -> dict[str, dict[str, Scores]]:
    """What :func:`joined` put together, by method and seed."""
    found: dict[str, dict[str, Scores]] = {}
    for name, score in scores.items():
        method, seed, *flight = name.split(":")
        found.setdefault(method, {}).setdefault(seed, {})["".join(flight)] = score
    return found


def mean(several: Sequence[Score]) -> Score:
    """Mean over seeds."""
    first = several[0]
    metrics = {name: statistics.fmean(one.metrics[name] for one in several) for name in first.metrics}
    by_recording = {name: statistics.fmean(one.by_recording[name] for one in several) for name in first.by_recording}
    return Score(metrics, by_recording, sum(one.cpu_seconds for one in several))
