"""Errors of the rate at the end of gaps as metrics: RMSE, NEES and coverage of each length, and the RMSE ahead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from fwnkf import Filter
from fwnkf.evaluation.gaps import GapErrors, gap_errors
from fwnkf.metrics.consistency import coverage, nees
from fwnkf.shapes import Float
from tasks.racer.protocol import BLOCK, CONTEXT, GAPS_MS, Windows, control, frames, held

HEADLINE_MS = 50
Prediction = Callable[[Windows], Tensor]


def rmse(error: Float[Tensor, "N 3"]) -> float:
    """Root of the mean square of each axis, mean over axes."""
    return float(error.square().mean(0).sqrt().mean())


def truth(data: Windows, length: int) -> Float[Tensor, "N 3"]:
    """The withheld rate at the end of a gap."""
    return data.y[:, CONTEXT + length - 1]


def by_flight(error: Float[Tensor, "N 3"], data: Windows) -> dict[str, float]:
    return {name: rmse(error[data.flight == number]) for number, name in enumerate(data.names)}


def gaps(
    model: Filter, data: Windows, milliseconds: Sequence[int] = GAPS_MS, *, known: bool = True
) -> dict[str, GapErrors]:
    """Prediction errors of a filter by gap in ms, and of one step (``step``); ``known``: whether commands go on."""
    lengths = {"step": BLOCK, **{str(time): frames(time) for time in milliseconds}}
    unique = sorted(set(lengths.values()))
    u = None
    if model.preprocess is None or model.preprocess.control_dim:
        u = control(data.motors) if known else held(data.motors)
    found = gap_errors(model, data.y, u, CONTEXT, unique)
    return {
        name: GapErrors(found.error[:, unique.index(length)], found.cov[:, unique.index(length)])
        for name, length in lengths.items()
    }


def filter_metrics(found: Mapping[str, GapErrors]) -> dict[str, float]:
    """RMSE, NEES and coverage at the end of each gap."""
    metrics = {f"gap_{name}": rmse(one.error) for name, one in found.items()}
    metrics |= {f"nees_{name}": float(nees(*one).mean()) for name, one in found.items()}
    return metrics | {f"coverage_{name}": float(coverage(*one).overall) for name, one in found.items()}


def regression_metrics(
    gap: Mapping[int, Prediction], ahead: Mapping[int, Prediction], data: Windows
) -> tuple[dict[str, float], dict[str, float]]:
    """Metrics of predictions without an uncertainty, and the headline by flight."""
    errors = {time: predict(data) - truth(data, frames(time)) for time, predict in gap.items()}
    metrics = {f"gap_{time}": rmse(error) for time, error in errors.items()}
    metrics |= {f"ahead_{time}": rmse(predict(data) - truth(data, frames(time))) for time, predict in ahead.items()}
    return metrics, by_flight(errors[HEADLINE_MS], data)
