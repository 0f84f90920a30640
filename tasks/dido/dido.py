"""DIDO in the accuracy table: ``dido`` (denoise) and ``dido-attitude``; what is shipped, and how to train it again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from tasks.dido.card import attitude_card, denoise_card
from tasks.dido.fit import FitOptions, VibrationModel, as_filter, cross_spectra, fit, responses
from tasks.dido.protocol import AXES, RATE, SAMPLES, TEST, TRAIN, VALIDATION, denoise_task, flights
from torch import Tensor

from fwnkf.checkpoint import load, save
from fwnkf.evaluation.evaluate import masked_square
from fwnkf.evaluation.rows import Row
from fwnkf.filters.base import Filter
from fwnkf.shapes import Float
from tasks.dido import attitude
from tasks.dido import baselines as ladder
from tasks.dido import protocol as dido_tasks

COMMAND = "fwnkf bench accuracy --task dido"
DENOISE, ATTITUDE = "dido", "dido-attitude"
PROTOCOL = {
    DENOISE: "strict: flights 0, 4, 8, 12 train, twelve test, first 12,000 samples at 400 Hz, causal, zero delay",
    ATTITUDE: "strict: flights 0, 4, 8, 12 train, twelve test, whole, initial attitude unknown, scored from 1 s on",
}
DENOISE_TARGET, ATTITUDE_TARGET = 0.85, 0.80
"""Of the best rung without noise states or learning."""
NIS_BAND = (0.9, 1.1)
QUICK_FLIGHTS, QUICK_SAMPLES = TEST[:2], 800
QUICK_ATTITUDE = TEST[1:2]
QUICK_SECONDS = 8
CHUNK = 400
LAGS = 20
"""Samples either way in which the lag of an estimate is looked for."""


# ---- denoise --------------------------------------------------------------------------------------------------------


def rmse(estimate: Tensor, truth: Tensor) -> dict[str, float]:
    """Root mean squared error of each axis over all flights."""
    return dict(zip(AXES, (estimate - truth).square().mean((0, 1)).sqrt().tolist(), strict=True))


@torch.no_grad()
def filtered(model: Filter, y: Float[Tensor, "N T 6"]) -> tuple[Tensor, float]:
    """The clean signals of a filter run over whole records, and its NIS per channel; in pieces, for memory's sake."""
    state, parts, total = None, [], 0.0
    for piece in y.split(CHUNK, 1):
        track = model.run(piece, state=state).raise_for_status()
        state = track.state
        parts.append(track.mean[..., : len(AXES)])
        here = torch.ones_like(piece, dtype=torch.bool)
        total += float(masked_square(track.innovation, track.innovation_cov, here).sum())
    return torch.cat(parts, 1), total / y.numel()


@torch.no_grad()
def settled_run(model: VibrationModel, y: Tensor, scale: Tensor, inflate: float) -> tuple[Tensor, Tensor]:
    """What :func:`filtered` gives once the gains have settled, and NIS of each record: a hundredth of the time."""
    found = model.settled()
    closed = ((torch.eye(len(found.F)).to(found.F) - found.gain @ found.H) @ found.F).mT
    ahead, gain = (found.H @ found.F).mT, found.gain.mT
    x, parts, innovations = y.new_zeros(len(y), len(found.F)), [], []
    for seen in (y / scale).unbind(1):
        innovations.append(seen - x @ ahead)
        x = x @ closed + seen @ gain
        parts.append(x[:, : len(AXES)])
    r = torch.stack(innovations, 1)
    whitened = torch.linalg.solve(found.innovation_cov * inflate, r.mT).mT
    return torch.stack(parts, 1) * scale, (r * whitened).sum(-1).mean(1) / len(AXES)


def lag(estimate: Tensor, truth: Tensor) -> float:
    """Milliseconds by which an estimate comes after the truth: the mean over axes of the best cross-correlation."""
    found = []
    for a, b in zip(estimate.unbind(-1), truth.unbind(-1), strict=True):
        a, b = a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)
        middle = b[:, LAGS:-LAGS]
        fits = [float((a[:, LAGS + k : a.shape[1] - LAGS + k] * middle).sum()) for k in range(-LAGS, LAGS + 1)]
        at = max(range(1, 2 * LAGS), key=fits.__getitem__)
        low, top, high = fits[at - 1 : at + 2]
        found.append(at - LAGS + 0.5 * (low - high) / (low - 2 * top + high))
    return 1000 / RATE * sum(found) / len(found)


@torch.no_grad()
def group_delay(model: VibrationModel, hertz: float = 0.5) -> float:
    """Milliseconds: mean over axes of the settled filter's phase slope around a low frequency."""
    omega = 2 * torch.pi * torch.tensor([0.9 * hertz, 1.1 * hertz], dtype=torch.float64) / RATE
    gains = torch.diagonal(responses(model.settled(), omega)[0][:, : len(AXES)], dim1=-2, dim2=-1)
    slope = -(gains[1] / gains[0]).angle() / (omega[1] - omega[0])
    return float(slope.mean()) * 1000 / RATE


def against_best(own: dict[str, float], rungs: dict[str, dict[str, float]]) -> float:
    """Mean over axes of the error over that of the best rung of the axis."""
    return sum(own[axis] / min(rung[axis] for rung in rungs.values()) for axis in AXES) / len(AXES)


def train_denoise(models: Path, seeds: Sequence[int], say: Callable[[str], None], options: FitOptions) -> None:
    """All seeds, the rungs' tuning, the level of the error bars; writes ``models/dido``."""
    made = dido_tasks.denoise().split
    y, truth = (torch.cat((getattr(made.train, name), getattr(made.val, name))) for name in ("y", "truth"))
    test = made.test
    begin = time.process_time()
    spectra = cross_spectra(y, truth)
    tuned = {axis: ladder.tune(spectra, i) for i, axis in enumerate(AXES)}
    rungs = {name: rmse(ladder.estimates(tuned, name, test.y, AXES), test.truth) for name in ladder.RUNGS}
    say(f"rungs {json.dumps(rungs)}")
    spent = {"rungs": time.process_time() - begin}
    begin = time.process_time()
    unseen: list[dict[str, Any]] = []
    for out in range(len(y)):
        rest = [i for i in range(len(y)) if i != out]
        part = cross_spectra(y[rest], truth[rest])
        left = fit(part, seeds[0], options)
        estimate, nis = settled_run(left, y[out : out + 1], part.scale, 1.0)
        errors = rmse(estimate, truth[out : out + 1])
        unseen.append({"flight": out, "nis": float(nis), "rmse": errors})
        say(f"left out {json.dumps(unseen[-1])}")
    # a flight that was not trained on is shakier than the model says, by this much
    inflate = sum(one["nis"] for one in unseen) / len(unseen)
    spent["left_out"] = time.process_time() - begin
    results: list[dict[str, Any]] = []
    shipped = None
    for seed in seeds:
        begin = time.process_time()
        model = fit(spectra, seed, options)
        seconds = time.process_time() - begin
        estimate, nis = settled_run(model, test.y, spectra.scale, inflate)
        own = rmse(estimate, test.truth)
        results.append(
            {
                "seed": seed, "rmse": own, "ratio": against_best(own, rungs),
                "mean_rmse": sum(own.values()) / len(AXES), "nis": float(nis.mean()), "nis_by_flight": nis.tolist(),
                "lag_ms": lag(estimate, test.truth), "group_delay_ms": group_delay(model), "cpu_seconds": seconds,
            }
        )  # fmt: skip
        say(f"seed {seed}: {json.dumps(results[-1])}")
        if shipped is None:
            shipped = as_filter(model, spectra.scale, inflate)
            save(shipped, models / DENOISE)
    assert shipped is not None
    figures: dict[str, Any] = {
        "task": DENOISE, "protocol": PROTOCOL[DENOISE], "options": asdict(options), "inflate": inflate,
        "left_out": unseen, "tuned": tuned, "references": rungs, "seeds": results, **_spread(results),
        "cpu_seconds": sum(one["cpu_seconds"] for one in results) + sum(spent.values()), "spent": spent,
    }  # fmt: skip
    figures["quick"] = _quick_denoise(shipped)
    _write(models / DENOISE, figures, denoise_card(figures))


def _spread(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds of every plain number, axes included."""
    flat = [
        {k: v for k, v in one.items() if isinstance(v, float)}
        | {f"rmse_{k}": v for k, v in one.get("rmse", {}).items()}
        for one in results
    ]
    table = {key: torch.tensor([one[key] for one in flat], dtype=torch.float64) for key in flat[0]}
    return {
        "mean": {key: float(values.mean()) for key, values in table.items()},
        "std": {key: float(values.std()) if len(values) > 1 else 0.0 for key, values in table.items()},
    }


def _quick_denoise(model: Filter) -> dict[str, float]:
    task = denoise_task("dido quick", flights(QUICK_FLIGHTS), QUICK_SAMPLES)
    estimate, nis = filtered(model, task.y)
    return {**rmse(estimate, task.truth), "nis": nis}


def measure_denoise(models: Path, quick: bool) -> Iterator[Row]:
    """Rows of every rung and of the shipped filter."""
    figures = json.loads((models / DENOISE / "figures.json").read_text(encoding="utf-8"))
    chosen, samples = (QUICK_FLIGHTS, QUICK_SAMPLES) if quick else (TEST, SAMPLES)
    task = denoise_task("dido test", flights(chosen), samples)
    rungs: dict[str, dict[str, float]] = {}
    for name in ladder.RUNGS:
        begin = time.process_time()
        estimate = ladder.estimates(figures["tuned"], name, task.y, AXES)
        rungs[name] = rmse(estimate, task.truth)
        spent = time.process_time() - begin
        for axis, value in rungs[name].items():
            yield _row(DENOISE, name, f"rmse_{axis}", value, len(chosen), spent)
        yield _row(DENOISE, name, "lag_ms", lag(estimate, task.truth), len(chosen), spent)
    for name in ladder.RUNGS:
        yield _row(DENOISE, name, "ratio_to_best_rung", against_best(rungs[name], rungs), len(chosen), 0.0)
    begin = time.process_time()
    estimate, nis = filtered(load(models / DENOISE), task.y)
    spent, own = time.process_time() - begin, rmse(estimate, task.truth)
    ratio = against_best(own, rungs)
    values = {f"rmse_{axis}": value for axis, value in own.items()} | {"mean_rmse": sum(own.values()) / len(AXES)}
    values |= {"lag_ms": lag(estimate, task.truth)}
    # targets and spreads are of the whole test set; a part of it only shows that nothing has changed
    extra: dict[str, Any] = {} if quick else {"spread": figures["std"], "seeds": len(figures["seeds"])}
    for metric, value in values.items():
        yield _row(DENOISE, "fwnkf", metric, value, len(chosen), spent, **extra)
    yield _row(
        DENOISE, "fwnkf", "ratio_to_best_rung", ratio, len(chosen), spent, None if quick else DENOISE_TARGET, **extra
    )
    row = _row(DENOISE, "fwnkf", "nis", nis, len(chosen), spent, **extra)
    yield row if quick else row | {"target": list(NIS_BAND), "reached": NIS_BAND[0] <= nis <= NIS_BAND[1]}


# ---- attitude -------------------------------------------------------------------------------------------------------


def train_attitude(models: Path, seeds: Sequence[int], say: Callable[[str], None]) -> None:
    """All seeds and the rungs' gains; writes ``models/dido-attitude``."""
    train, test = flights((*TRAIN, *VALIDATION)), flights(TEST)
    begin = time.process_time()
    known = attitude.calibrate(train)
    gains = attitude.tune(train, known)
    rungs = {name: attitude.rung(name, test, known, gains[name]) for name in attitude.RUNGS}
    spent = time.process_time() - begin
    say(f"rungs {json.dumps({name: sum(each) / len(each) for name, each in rungs.items()})}")
    best = min(sum(each) / len(each) for each in rungs.values())
    untrained = attitude.scores(attitude.new_filter(known), test, known)
    results: list[dict[str, Any]] = []
    shipped = None
    for seed in seeds:
        begin = time.process_time()
        model = attitude.train_filter(train, known, seed, say)
        seconds = time.process_time() - begin
        errors, nis = attitude.scores(model, test, known)
        mean = sum(errors) / len(errors)
        results.append(
            {
                "seed": seed, "inclination_deg": mean, "ratio": mean / best, "nis": nis,
                "by_flight": errors, "cpu_seconds": seconds,
            }
        )  # fmt: skip
        say(f"seed {seed}: {json.dumps(results[-1])}")
        if shipped is None:
            shipped = model
            save(shipped, models / ATTITUDE)
    assert shipped is not None
    figures: dict[str, Any] = {
        "task": ATTITUDE, "protocol": PROTOCOL[ATTITUDE], "calibration": asdict(known), "gains": gains,
        "references": {
            name: {"inclination_deg": sum(each) / len(each), "by_flight": each} for name, each in rungs.items()
        },
        "untrained": {"inclination_deg": sum(untrained[0]) / len(test), "nis": untrained[1]},
        "seeds": results, **_spread(results), "cpu_seconds": spent + sum(one["cpu_seconds"] for one in results),
    }  # fmt: skip
    figures["quick"] = {"inclination_deg": _quick_attitude(shipped, known)}
    _write(models / ATTITUDE, figures, attitude_card(figures))


def _shortened(chosen: Sequence[int], seconds: int | None) -> list[dido_tasks.Flight]:
    whole = flights(chosen)
    if seconds is None:
        return whole
    stop = round(seconds * RATE)
    parts = ("imu", "clean", "orientation", "velocity")
    return [replace(one, **{part: getattr(one, part)[:stop] for part in parts}) for one in whole]


def _quick_attitude(model: Filter, known: attitude.Calibration) -> float:
    errors, _ = attitude.scores(model, _shortened(QUICK_ATTITUDE, QUICK_SECONDS), known)
    return sum(errors) / len(errors)


def measure_attitude(models: Path, quick: bool) -> Iterator[Row]:
    """Rows of every rung and of the shipped filter."""
    figures = json.loads((models / ATTITUDE / "figures.json").read_text(encoding="utf-8"))
    told = figures["calibration"]
    known = attitude.Calibration(tuple(told["imu"]), told["drag"], tuple(told["offset"]))
    group = _shortened(QUICK_ATTITUDE, QUICK_SECONDS) if quick else flights(TEST)
    best = float("inf")
    for name in attitude.RUNGS:
        begin = time.process_time()
        errors = attitude.rung(name, group, known, figures["gains"][name])
        best = min(best, sum(errors) / len(errors))
        spent = time.process_time() - begin
        yield _row(ATTITUDE, name, "inclination_deg", sum(errors) / len(errors), len(group), spent)
    begin = time.process_time()
    errors, nis = attitude.scores(load(models / ATTITUDE), group, known)
    own, spent = sum(errors) / len(errors), time.process_time() - begin
    # targets and spreads are of the whole test set; a part of it only shows that nothing has changed
    extra: dict[str, Any] = {} if quick else {"spread": figures["std"], "seeds": len(figures["seeds"])}
    yield _row(ATTITUDE, "fwnkf", "inclination_deg", own, len(group), spent, **extra)
    yield _row(ATTITUDE, "fwnkf", "nis", nis, len(group), spent, **extra)
    ratio = own / best
    yield _row(ATTITUDE, "fwnkf", "ratio", ratio, len(group), spent, None if quick else ATTITUDE_TARGET, **extra)


# ---- both -----------------------------------------------------------------------------------------------------------


def measure(models: Path, *, quick: bool = False) -> Iterator[Row]:
    """Every rung and the shipped filters on the test flights; ``quick`` on a small fixed part of them."""
    yield from measure_denoise(models, quick)
    yield from measure_attitude(models, quick)


def train(models: Path, *, seeds: Sequence[int] = (0, 1, 2, 3, 4), say: Callable[[str], None] = print) -> None:
    """Train both tasks from scratch and write their model folders."""
    train_denoise(models, seeds, say, FitOptions())
    train_attitude(models, seeds, say)


def _row(
    task: str,
    method: str,
    metric: str,
    value: float,
    records: int,
    cpu_seconds: float,
    target: float | None = None,
    spread: dict[str, float] | None = None,
    seeds: int | None = None,
) -> Row:
    key = "ratio" if metric == "ratio_to_best_rung" else metric
    return {
        "task": task,
        "row": f"{task} {metric}",
        "method": method,
        "protocol": PROTOCOL[task],
        "metric": metric,
        "value": value,
        "spread": None if spread is None else spread.get(key),
        "seeds": seeds,
        "target": target,
        "reached": None if target is None else value <= target,
        "cpu_seconds": round(cpu_seconds, 2),
        "records": records,
        "command": COMMAND,
    }


def _write(folder: Path, figures: dict[str, Any], card: str) -> None:
    (folder / "figures.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(card, encoding="utf-8")
