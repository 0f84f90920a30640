"""What the parts of the filter are worth, and what it is good for: other splits, saturation, long gaps.

A part of the study is a table. Its rows are measured for one seed at a time, each over all windows (``""``) and by
flight, so that the page can state a spread over seeds and an interval over flights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

import torch
from torch import Tensor

from fwnkf import Filter
from tasks.interface import Say
from tasks.racer import foresight, regression, scoring
from tasks.racer.filter import VARIANTS, Options, linear_filter, linear_model, multiply_adds
from tasks.racer.parts import part
from tasks.racer.protocol import (
    BLOCK,
    CONTEXT,
    FLIGHTS,
    TEST,
    TRAIN,
    VALIDATION,
    Windows,
    control,
    flights,
    frames,
    windows,
)
from tasks.racer.scoring import Metrics

ByFlight = dict[str, Metrics]
Job = tuple[str, int, Callable[[], ByFlight]]
"""Row of a table, seed, and what measures it."""
PARTS = ("validation", "curve", "saturated", "variants", "sizes", "shifted", "forecast", "tail")
OURS = "ours"
SIZES = (16, 32)
CURVE_MS = (4, 8, 12, 20, 30, 40, 50, 70, 100, 150, 200, 300, 400, 500)
LIMIT = 6.7
"""Rate (rad/s) at which a gyro of half the range would be clipped: these flights reach 13.4 without a collision."""
SHOWN = ("gap_20", "gap_50", "gap_100", "quiet_100", "ahead_20", "nees_50", "coverage_50")
CHOICE = ("gap_step", "gap_20", "gap_50", "gap_100", "ahead_20", "nees_step", "nees_20", "nees_50", "nees_100")
SHIFT_STRIDE, CURVE_STRIDE = 200, 400


def jobs(name: str, seeds: Sequence[int], shipped: Filter, say: Say) -> Iterator[Job]:
    """What a part of the study measures; ``shipped`` is the filter of seed 0."""

    def ours(seed: int) -> Filter:
        return shipped if seed == 0 else trained(OURS, seed, say)

    one_seed: dict[str, Callable[[], ByFlight]] = {}
    of_seeds: dict[str, Callable[[int], ByFlight]] = {}
    if name in ("variants", "sizes"):
        wanted = VARIANTS if name == "variants" else [unit for unit in units() if unit not in VARIANTS]
        of_seeds = {unit: partial(variant, unit, say=say) for unit in wanted}
    elif name == "validation":
        of_seeds = {unit: partial(validated, unit, say=say) for unit in (OURS, "with_q_t")}
    elif name == "shifted":
        halves = tuple(range(FLIGHTS // 2)), tuple(range(FLIGHTS // 2, FLIGHTS))
        for title, (own, others) in {"first to last": halves, "last to first": halves[::-1]}.items():
            of_seeds[f"{title}, {OURS}"] = partial(shifted, title, own, others, say=say)
            one_seed[f"{title}, ridge"] = partial(shifted_ridge, own, others)
    elif name == "curve":
        one_seed = {"hold": held_curve, "linear_kf": lambda: curve(linear_of_training())}
        of_seeds = {OURS: lambda seed: curve(ours(seed))}
    elif name == "saturated":
        one_seed = {"clipped value": clipped, "linear_kf": lambda: saturated(linear_of_training())}
        of_seeds = {OURS: lambda seed: saturated(ours(seed))}
    elif name == "tail":
        of_seeds = {OURS: lambda seed: foresight.tail(ours(seed), test_windows())}
    elif name == "forecast":
        one_seed = {"ridge": lambda: foresight.ridges_ahead(test_windows())}
        for title in foresight.COMMANDS:
            of_seeds[f"{OURS}, {title}"] = partial(_ahead, title, ours)
    for row, measure in one_seed.items():
        yield row, 0, measure
    for seed in seeds:
        for row, measure_seed in of_seeds.items():
            yield row, seed, partial(measure_seed, seed)


def _ahead(title: str, ours: Callable[[int], Filter], seed: int) -> ByFlight:
    return foresight.ahead(ours(seed), test_windows(), title)


def units() -> dict[str, Options]:
    """The filters that are trained on the usual flights, by name."""
    return {**VARIANTS, **{f"gru_{size}": Options(hidden=size, width=size) for size in SIZES}}


def trained(unit: str, seed: int, say: Say) -> Filter:
    """A filter of the task or a variant of it, trained now or before."""
    name, options = (f"seed-{seed}", Options()) if unit == OURS else (f"{unit}-{seed}", units()[unit])
    return part(name, flights(TRAIN), flights(VALIDATION), say, options=options, seed=seed).model


def variant(unit: str, seed: int, say: Say) -> ByFlight:
    """A variant of the filter, trained as the filter is."""
    model = trained(unit, seed, say)
    found = chosen(scoring.evaluate(model, test_windows()), SHOWN)
    found[""]["multiply_adds"] = multiply_adds(model)
    return found


def validated(unit: str, seed: int, say: Say) -> ByFlight:
    """The filter or a variant on the validation flight, where choices between them are made."""
    return chosen(scoring.evaluate(trained(unit, seed, say), windows(flights(VALIDATION))), CHOICE)


def chosen(found: scoring.Scores, names: Sequence[str]) -> ByFlight:
    return {
        flight: {name: score.metrics[name] for name in names if name in score.metrics}
        for flight, score in found.items()
    }


def shifted(title: str, own: Sequence[int], others: Sequence[int], seed: int, say: Say) -> ByFlight:
    """Trained on ten flights (the first of them validates) and tested on the others."""
    name = f"shifted {title}-{seed}"
    model = part(name, flights(own[1:]), flights(own[:1]), say, seed=seed).model
    return chosen(scoring.evaluate(model, windows(flights(others), stride=SHIFT_STRIDE)), SHOWN)


def shifted_ridge(own: Sequence[int], others: Sequence[int]) -> ByFlight:
    """The ridge on the same flights."""
    group = flights(own[1:])
    ridges = {time: regression.fit_ridge(group, frames(time)) for time in (20, 50, 100)}
    ahead = {20: regression.fit_ridge(group, frames(20), future=False)}
    return chosen(scoring.regressed(ridges, ahead, windows(flights(others), stride=SHIFT_STRIDE)), SHOWN)


def clipped_windows() -> tuple[Windows, Tensor]:
    """Windows in which the gyro is clipped at half its range behind the context, and which steps are."""
    data = test_windows()
    rate = data.y.abs()
    beyond = (rate[:, CONTEXT:] > LIMIT).any(-1).any(-1) & (rate[:, :CONTEXT] < LIMIT).all(-1).all(-1)
    part = data.rows(beyond)
    return part, part.y[:, BLOCK - 1 :: BLOCK].abs() > LIMIT


def clipped() -> ByFlight:
    """The error of the clipped value itself."""
    data, missing = clipped_windows()
    error = LIMIT - data.y[:, BLOCK - 1 :: BLOCK].abs()

    def metrics(rows: Tensor) -> Metrics:
        own = missing[rows]
        return {
            "rmse": float(error[rows][own].square().mean().sqrt()),
            "samples": float(own.sum()), "windows": float(rows.sum()),
        }  # fmt: skip

    return scoring.split(metrics, data)


@torch.no_grad()
def saturated(model: Filter) -> ByFlight:
    """RMSE where the gyro is clipped at half its range and clipped samples are taken as missing."""
    data, missing = clipped_windows()
    track = model.run(data.y, control(data.motors), data.y.abs() <= LIMIT)
    error = track.mean[..., :3] - data.y[:, BLOCK - 1 :: BLOCK]
    std = track.cov.diagonal(dim1=-2, dim2=-1)[..., :3].sqrt()

    def metrics(rows: Tensor) -> Metrics:
        own, stated = error[rows][missing[rows]], std[rows][missing[rows]]
        covered = (own.abs() < 1.96 * stated).float().mean()
        return {"rmse": float(own.square().mean().sqrt()), "coverage": float(covered)}

    return scoring.split(metrics, data)


def curve_windows() -> Windows:
    return windows(flights(TEST), frames(max(CURVE_MS)), stride=CURVE_STRIDE)


def held_curve() -> ByFlight:
    """The error of the last rate against the length of the gap in ms."""
    data = curve_windows()
    errors = {time: regression.hold(data) - scoring.truth(data, frames(time)) for time in CURVE_MS}
    return scoring.split(
        lambda rows: {f"rmse_{time}": scoring.rmse(error[rows]) for time, error in errors.items()}, data
    )


def curve(model: Filter) -> ByFlight:
    """Error and stated error (roots of mean squares, mean of axes) against the length of the gap in ms."""
    data = curve_windows()
    found = scoring.gaps(model, data, CURVE_MS)

    def metrics(rows: Tensor) -> Metrics:
        errors = {f"rmse_{time}": scoring.rmse(found[str(time)].error[rows]) for time in CURVE_MS}
        variances = {time: found[str(time)].cov[rows].diagonal(dim1=-2, dim2=-1).mean(0) for time in CURVE_MS}
        return errors | {f"stated_{time}": float(value.sqrt().mean()) for time, value in variances.items()}

    return scoring.split(metrics, data)


@cache
def test_windows() -> Windows:
    return windows(flights(TEST))


@cache
def linear_of_training() -> Filter:
    """The Kalman filter of the linear model, on training flights."""
    return linear_filter(linear_model(flights(TRAIN)))
