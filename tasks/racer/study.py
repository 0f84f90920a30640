"""What the parts of the filter are worth, and what it is good for: other splits, saturation, long gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from fwnkf import Filter
from tasks.interface import Say
from tasks.racer import regression, scoring
from tasks.racer.filter import VARIANTS, Options, linear_model
from tasks.racer.parts import part
from tasks.racer.protocol import (
    BLOCK,
    CONTEXT,
    FLIGHTS,
    STEP,
    TEST,
    TRAIN,
    VALIDATION,
    Flight,
    Windows,
    control,
    flights,
    frames,
    windows,
)

Table = dict[str, dict[str, float]]
SIZES = (16, 32)
CURVE_MS = (4, 8, 12, 20, 30, 40, 50, 70, 100, 150, 200, 300, 400, 500)
LIMIT = 6.7
"""Rate (rad/s) at which a gyro of half the range would be clipped: these flights reach 13.4 without a collision."""
SHOWN = ("gap_20", "gap_50", "gap_100", "quiet_100", "ahead_20", "nees_50", "coverage_50")
SHIFT_STRIDE = 200


def units() -> dict[str, Options]:
    """The filters of the study that are trained on the usual flights, by name."""
    return {**VARIANTS, **{f"gru_{size}": Options(hidden=size, width=size) for size in SIZES}}


def variant(name: str, data: Windows, say: Say) -> dict[str, float]:
    """A variant of the filter, trained as the filter is: one seed."""
    options = units()[name]
    trained = part(name, flights(TRAIN), flights(VALIDATION), say, options=options)
    metrics = scoring.evaluate(trained.model, data)[""].metrics
    return {**{key: metrics[key] for key in SHOWN}, "multiply_adds": multiply_adds(trained.model)}


def multiply_adds(model: Filter) -> float:
    """Multiplications of one step in networks and in the covariance, dense matrices counted as such."""
    n, m = model.layout.tangent_size, model.observation_layout.tangent_size
    weights = [value for name, value in model.named_parameters() if value.ndim == 2 and not name.startswith("system.")]
    p = 0 if model.system is None else model.system.control_dim
    jacobian = sum(value.shape[0] * n for value in weights if value.shape[1] == n)
    covariance = 2 * n**3 + 2 * n**2 * m + 2 * n * m**2
    return float(sum(value.numel() for value in weights) + n * jacobian + n * n + n * p + covariance)


def shifted(say: Say) -> Table:
    """Trained on the first ten flights by number and tested on the last ten, and the reverse."""
    rows: Table = {}
    halves = tuple(range(FLIGHTS // 2)), tuple(range(FLIGHTS // 2, FLIGHTS))
    for name, (own, others) in {"first to last": halves, "last to first": halves[::-1]}.items():
        group, validation = flights(own[1:]), flights(own[:1])
        data = windows(flights(others), stride=SHIFT_STRIDE)
        model = part(f"shifted {name}", group, validation, say).model
        ridges = {time: regression.fit_ridge(group, frames(time)) for time in (20, 50, 100)}
        ahead = {20: regression.fit_ridge(group, frames(20), future=False)}
        methods = {"ours": scoring.evaluate(model, data), "ridge": scoring.regressed(ridges, ahead, data)}
        for method, found in methods.items():
            metrics = found[""].metrics
            rows[f"{name}, {method}"] = {key: metrics[key] for key in SHOWN if key in metrics}
    return rows


@torch.no_grad()
def saturated(models: Mapping[str, Filter], group: Sequence[Flight]) -> Table:
    """RMSE where the gyro is clipped at half its range and clipped samples are taken as missing."""
    data = windows(group)
    beyond = (data.y[:, CONTEXT:].abs() > LIMIT).any(-1).any(-1) & (data.y[:, :CONTEXT].abs() < LIMIT).all(-1).all(-1)
    y, u = data.y[beyond], control(data.motors[beyond])
    mask = y.abs() <= LIMIT
    last = slice(BLOCK - 1, None, BLOCK)
    missing, truth = ~mask[:, last], y[:, last]
    rows = {"clipped value": {"rmse": float((LIMIT - truth.abs())[missing].square().mean().sqrt())}}
    for name, model in models.items():
        track = model.run(y, u, mask)
        error = (track.mean[..., :3] - truth)[missing]
        std = track.cov.diagonal(dim1=-2, dim2=-1)[..., :3].sqrt()[missing]
        covered = float((error.abs() < 1.96 * std).float().mean())
        rows[name] = {"rmse": float(error.square().mean().sqrt()), "coverage": covered}
    rows["clipped value"] |= {"samples": float(missing.sum()), "windows": float(beyond.sum())}
    return rows


def curve(models: Mapping[str, Filter], group: Sequence[Flight], stride: int = 400) -> dict[str, Table]:
    """Error and stated error (roots of mean squares, mean of axes) against the length of the gap in ms."""
    longest = max(CURVE_MS)
    data = windows(group, frames(longest), stride=stride)
    found: dict[str, Table] = {"hold": {}}
    for time in CURVE_MS:
        length = frames(time)
        error = regression.hold(data) - scoring.truth(data, length)
        found["hold"][str(time)] = {"ms": 1e3 * length * STEP, "rmse": scoring.rmse(error)}
    for name, model in models.items():
        errors = scoring.gaps(model, data, CURVE_MS)
        found[name] = {
            str(time): {
                "ms": 1e3 * frames(time) * STEP,
                "rmse": scoring.rmse(errors[str(time)].error),
                "stated": float(errors[str(time)].cov.diagonal(dim1=-2, dim2=-1).mean(0).sqrt().mean()),
            }
            for time in CURVE_MS
        }
    return found


def test_flights() -> list[Flight]:
    return flights(TEST)


def linear_of_training() -> Filter:
    """The Kalman filter of the linear model, on training flights."""
    from tasks.racer.task import linear_filter

    return linear_filter(linear_model(flights(TRAIN)))
