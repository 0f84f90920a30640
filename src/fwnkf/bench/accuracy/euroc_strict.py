"""EuRoC ``strict``: new flights, a start that is off by 1 cm, 1 cm/s and half a degree, horizons of 1, 5 and 10 s.

Half a degree of tilt alone is a metre after five seconds, so no calibration can help much: the filter has to learn of
its velocity from somewhere. A network reads velocity in the body frame off the sensor's past, and the filter fuses it
as a measurement whose noise is coloured: the network's error drifts, and noise states say so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ... import checkpoint
from ...data import protocols
from ...data.protocols import EUROC_STRICT, Protocol, Task
from ...filters.base import Filter
from ...shapes import Float
from ...systems.inertial_calibrated import CALIBRATION, CalibratedStrapdown, CalibratedStrapdownConfig
from ...types import Gaussian
from .. import inertial
from ..rows import Row
from . import euroc_calibration, euroc_card, euroc_filter, euroc_velocity
from .euroc_calibration import Spread
from .euroc_velocity import Colour, Flight

TASK = "euroc-strict"
HORIZONS = (1, 5, 10)
HIDDEN = 48
FOLDS = (("MH_05_difficult", "V2_01_easy"), ("MH_03_medium", "V2_03_difficult"))
"""Training flights left out together, so that the network's errors are those on flights it has not seen."""
CHOICES = tuple((bias, colour) for bias in (1.0, 2.0) for colour in (1.0, 1.5))
"""Factors on the measured spread of biases and on the network's noise; the most likely on flights left out is taken."""
BETTER = 0.7
"""A target of 30 % below the reference it is set against."""
REFERENCE = "strapdown_bias"
HONEST = {"nees": (0.9, 1.1), "coverage": (0.93, 0.97)}
QUICK = 40
TEXT = (
    "EuRoC MAV, protocol `strict`: split by sequence, windows that do not overlap, start off by 1 cm, 1 cm/s and 0.5 "
    "degrees and a belief that says so; horizons of 1, 5 and 10 s. `rmse_p_5s` is the root mean squared length of the "
    "position error (m) over all steps of the 5 s windows, `end_p_5s` at their last sample; `v` is velocity (m/s), "
    "`q` attitude (rad). A target is 0.7 of `strapdown_bias`; where that has drifted away `hold` is the better "
    "reference, so the column beside says how far below the best of all references the filter is. The filter is "
    "`fwnkf` on the system `calibrated_strapdown` with noise states: bias and delay of the one sensor from the "
    "training flights, a GRU that reads velocity in the body frame off the sensor, fused as a measurement with "
    "coloured noise. The noise is measured on training flights left out of the network's training; nothing was chosen "
    "on a test flight. The model in this folder is that of the first seed."
)
LIMITS = (
    "What limits: the start's half degree of tilt and the tilt of the rooms' frames against gravity act as a constant "
    "acceleration, which only the velocity network contradicts, and on flights unseen its error is more than half of "
    "the speed itself and lasts for seconds; five training flights are few. In the first second strapdown is as good. "
    "The ground truth of V1_01 is tilted against gravity by far more than the stated error of the start: no honest "
    "filter explains it, and it does most of the harm to NEES and coverage (see the table by flight); the tilt of the "
    "room of V2 probably does the rest. The three best attempts, each judged on flights left out: calibration alone "
    "(bias and delay; scale and misalignment do not carry over); a smaller network fused with the data sheet's noise, "
    "too sure of itself on flights left out (its accuracy was not compared with this model's there); the network with "
    "noise measured on flights left out, which is this model. Tried and left out: windows mirrored left to right and "
    "a wider spread of biases (no gain); attitude as an input of the network (a small gain on the one flight tried, "
    "but it makes a loop through the filter's own estimate)."
)


@dataclass(frozen=True, eq=False)
class Ground:
    """What all seeds share: flights, the sensor's calibration, and how much it varies."""

    flights: dict[str, Flight]
    tasks: dict[int, Protocol]
    calibration: Float[Tensor, " c"]
    spread: Spread


def ground() -> Ground:
    """Load everything and calibrate the sensor on the training flights."""
    tasks = {horizon: protocols.euroc("strict", horizon=float(horizon)) for horizon in HORIZONS}
    train = tasks[1].split.train
    start = train.y.new_zeros(CALIBRATION)
    # the gyroscope's bias from attitude alone: velocity would bend it to explain the tilt of the rooms
    start[:6] = inertial.constant_bias(train).mean(0)
    calibration = euroc_calibration.fit(_from_truth(train), ("accelerometer_bias", "delay"), start, most=240)
    long = _from_truth(tasks[5].split.train)
    spread = euroc_calibration.spread(long, calibration[None], [0] * len(long), early=100)
    flights = euroc_velocity.flights(EUROC_STRICT["train"] + EUROC_STRICT["val"])
    return Ground(flights, tasks, calibration, spread)


def _from_truth(task: Task) -> Task:
    return replace(task, start=Gaussian(task.truth[:, 0], task.start.cov))


# ---- training -------------------------------------------------------------------------------------------------------


def network(base: Ground, names: Sequence[str], seed: int) -> CalibratedStrapdown:
    """A system whose velocity network is trained on some flights; float32, its filter works in float64."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        system = CalibratedStrapdown(CalibratedStrapdownConfig(hidden=HIDDEN))
    euroc_velocity.train_velocity(system, [base.flights[name] for name in names], seed)
    return system


def finished(base: Ground, learned: CalibratedStrapdown, noise: Colour, bias: float) -> Filter:
    """The filter around a trained network."""
    config = replace(
        learned.config,
        variances=tuple(noise.white.square().tolist()),
        gyro_density=base.spread.gyro_density,
        accelerometer_density=base.spread.accelerometer_density,
    )
    system = CalibratedStrapdown(config).double()
    system.load_state_dict(learned.state_dict())
    with torch.no_grad():
        system.calibration.copy_(base.calibration)
        system.bias_spread.copy_(bias * base.spread.biases)
    return euroc_filter.assemble(system, noise)


def choose(base: Ground, seed: int, say: Callable[[str], None]) -> tuple[Colour, float, dict[str, Any]]:
    """Noise of the network and spread of biases, by the likelihood of states of flights the network has not seen."""
    train = EUROC_STRICT["train"]
    nets = [network(base, [name for name in train if name not in fold], seed) for fold in FOLDS]
    errors = [
        euroc_velocity.residuals(net, base.flights[name])
        for net, fold in zip(nets, FOLDS, strict=True)
        for name in fold
    ]
    block = nets[0].config.block * nets[0].dt
    measured = euroc_velocity.colour(errors, block)
    task = base.tasks[5].split.train
    rows = euroc_calibration.sources(task)
    unseen = [task.take([i for name in fold for i in rows[name]]) for fold in FOLDS]
    tried = []
    for bias, factor in CHOICES:
        noise = scaled(measured, factor)
        total = 0.0
        for net, one in zip(nets, unseen, strict=True):
            total += len(one) * euroc_filter.likelihood(one, euroc_filter.run(finished(base, net, noise, bias), one))
        tried.append((total / sum(map(len, unseen)), bias, factor))
        say(f"euroc strict: likelihood {tried[-1][0]:.3f} with biases x {bias}, colour x {factor}")
    _, bias, factor = max(tried)
    record = {
        "tried": [dict(zip(("likelihood", "biases", "colour"), one, strict=True)) for one in tried],
        "biases": bias, "colour": factor,
        **{f"colour_{name}": part.tolist() for name, part in measured._asdict().items()},
    }  # fmt: skip
    return scaled(measured, factor), bias, record


def scaled(noise: Colour, factor: float) -> Colour:
    return Colour(factor * noise.white, factor * noise.drift, noise.seconds)


def train(folder: Path, *, seeds: Sequence[int] = (0, 1, 2, 3, 4), say: Callable[[str], None] = print) -> None:
    """Train all seeds, write the first seed's filter, all figures and a card."""
    begin = time.process_time()
    base = ground()
    noise, bias, record = choose(base, seeds[0], say)
    tests = {horizon: made.split.test for horizon, made in base.tasks.items()}
    references = rungs(base.tasks)
    found: list[dict[str, float]] = []
    quick: dict[str, float] = {}
    flights: dict[str, dict[str, float]] = {}
    say(f"euroc strict: references {references}")
    goals = targets(references)
    for seed in seeds:
        start = time.process_time()
        model = finished(base, network(base, EUROC_STRICT["train"], seed), noise, bias)
        found.append({"seed": seed, **scored(model, tests), "cpu_seconds": time.process_time() - start})
        say(f"euroc strict, seed {seed}: {found[-1]}")
        if seed == seeds[0]:
            checkpoint.save(model, folder)
            quick = scored(model, _few(tests))
            flights = by_flight(model, base.tasks[5])
        figures: euroc_card.Figures = {
            "task": TASK, "protocol": "strict", "records": {str(h): len(test) for h, test in tests.items()},
            "seeds": found, **euroc_card.summary(found), "references": references, "targets": goals, "quick": quick,
            "choices": record, "flights": {"windows of 5 s": flights}, "cpu_seconds": time.process_time() - begin,
        }  # fmt: skip
        euroc_card.write(folder, figures, "FW-NKF for EuRoC, protocol `strict`", TEXT, LIMITS)


# ---- scores ---------------------------------------------------------------------------------------------------------


def scored(model: Filter, tests: dict[int, Task]) -> dict[str, float]:
    """Errors and honesty at every horizon."""
    found: dict[str, float] = {}
    for horizon, task in tests.items():
        track = euroc_filter.run(model, task, batch=1024)
        values = {**euroc_filter.lengths(task, track.mean), **euroc_filter.honesty(task, track)}
        found |= {f"{name}_{horizon}s": value for name, value in values.items()}
    return found


def by_flight(model: Filter, made: Protocol) -> dict[str, dict[str, float]]:
    """Each test flight apart: errors at the end of its windows beside strapdown's, and whether the error bars hold."""
    test, found = made.split.test, {}
    for name, rows in euroc_calibration.sources(test).items():
        piece = test.take(rows)
        track = euroc_filter.run(model, piece)
        ours = euroc_filter.lengths(piece, track.mean)
        drift = inertial.strapdown(piece, inertial.trained_bias(made.split.train, len(piece)))
        theirs = euroc_filter.lengths(piece, drift)
        found[name] = {
            "end_p": ours["end_p"], f"{REFERENCE} end_p": theirs["end_p"],
            "end_v": ours["end_v"], f"{REFERENCE} end_v": theirs["end_v"], **euroc_filter.honesty(piece, track),
        }  # fmt: skip
    return found


def rungs(tasks: dict[int, Protocol]) -> dict[str, dict[str, float]]:
    """The references at every horizon; only the EKF says how sure it is."""
    found: dict[str, dict[str, float]] = {}
    for horizon, made in tasks.items():
        test, train = made.split.test, made.split.train
        told = inertial.strapdown_ekf(test, train)
        paths = {
            "hold": inertial.hold(test),
            "constant_velocity": inertial.constant_velocity(test),
            "strapdown": inertial.strapdown(test),
            "strapdown_bias": inertial.strapdown(test, inertial.trained_bias(train, len(test))),
            "strapdown_ekf": told.mean,
        }
        for name, path in paths.items():
            values = euroc_filter.lengths(test, path)
            if name == "strapdown_ekf":
                values |= euroc_filter.honesty(test, euroc_filter.Track(told.mean, told.cov))
            found.setdefault(name, {}).update({f"{key}_{horizon}s": value for key, value in values.items()})
    return found


def targets(references: dict[str, dict[str, float]]) -> dict[str, Any]:
    """30 % below strapdown for position and velocity at 5 and 10 s; honest error bars at every horizon."""
    goals: dict[str, Any] = {}
    for horizon in HORIZONS:
        for name in ("rmse_p", "end_p", "rmse_v", "end_v") if horizon > 1 else ():
            goals[f"{name}_{horizon}s"] = BETTER * references[REFERENCE][f"{name}_{horizon}s"]
        goals |= {f"{name}_{horizon}s": list(limits) for name, limits in HONEST.items()}
    return goals


def _few(tests: dict[int, Task]) -> dict[int, Task]:
    return {1: tests[1].take(torch.arange(QUICK))}


def measure(folder: Path, *, quick: bool = False) -> Iterator[Row]:
    """The shipped filter, the mean of all seeds, and the references."""
    begin = time.process_time()
    model, figures = checkpoint.load(folder), euroc_card.read(folder)
    tasks = {h: protocols.euroc("strict", horizon=float(h)) for h in (HORIZONS[:1] if quick else HORIZONS)}
    tests = {horizon: made.split.test for horizon, made in tasks.items()}
    goals, records = figures["targets"], figures["records"]
    found = scored(model, _few(tests) if quick else tests)
    spent = time.process_time() - begin
    yield from euroc_card.rows(
        TASK, "strict", "fwnkf, as shipped", found, goals, QUICK if quick else records, cpu_seconds=spent
    )
    if quick:
        return
    mean, std = figures["mean"], figures["std"]
    ours = {name: value for name, value in mean.items() if name != "cpu_seconds"}
    yield from euroc_card.rows(
        TASK, "strict", "fwnkf", ours, goals, records, spread=std, seeds=len(figures["seeds"]),
        cpu_seconds=mean["cpu_seconds"],
    )  # fmt: skip
    for method, values in rungs(tasks).items():
        yield from euroc_card.rows(TASK, "strict", method, values, goals, records)
