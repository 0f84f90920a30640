"""``racer``: the angular rate of a racing quadrotor while its gyro is missing."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fwnkf import EKF, Filter, load, save
from fwnkf.core.linear import LinearSystem
from tasks.interface import SEEDS, Say, Task, parameters
from tasks.racer import regression, rigid_body, scoring
from tasks.racer.filter import linear_model, on_frames
from tasks.racer.parts import part, scores
from tasks.racer.protocol import AHEAD_MS, GAPS_MS, TEST, TRAIN, VALIDATION, Flight, Windows, flights, frames, windows
from tasks.racer.texts import ABOUT, limits
from tasks.racer.training import Plan
from tasks.results import Results, Score, SeedScore, Target

TARGETS = {"gap_20": 0.129, "gap_50": 0.273, "gap_100": 0.460}
"""What a network of two layers of 128 reaches on these flights."""
NEES_BAND, COVERAGE_BAND = (0.9, 1.1), (0.93, 0.97)
QUICK_WINDOWS = 40
NAMES = ("step", "20", "50", "100")
"""Lengths with a target for the stated covariance: one step, and three gaps."""


class Racer(Task):
    """The rate at the end of a gap of the gyro, motor commands going on."""

    name = "racer"
    title = "The angular rate of a racing quadrotor without its gyro (twenty flights)"
    protocol = (
        "flights 1, 5, 9, 13, 17 by number test, 0 validates, the others train; first and last 2 s in the air left "
        "out; a window every 50 frames, 256 frames of context, then the gyro is missing"
    )
    metric = "gap_50"
    label = "RMSE of the rate after 50 ms without gyro, rad/s, mean of three axes"
    recording = "flight"
    columns = (
        *(f"gap_{name}" for name in ("step", *map(str, GAPS_MS))),
        *(f"ahead_{name}" for name in AHEAD_MS),
        *(f"{kind}_{name}" for kind in ("nees", "coverage") for name in NAMES),
    )

    def load(self, *, quick: bool = False) -> Windows:
        return windows(flights(TEST[:1] if quick else TEST), limit=QUICK_WINDOWS if quick else None)

    def baselines(self, data: Windows, results: Results | None) -> Iterator[tuple[str, Score]]:
        train_flights = flights(TRAIN)
        yield from baselines(data, train_flights, linear_model(train_flights), print)

    def evaluate(self, model: Filter, data: Windows) -> Score:
        return evaluate(model, data)

    def targets(self, baselines: Mapping[str, Score]) -> dict[str, Target]:
        bands: dict[str, Target] = {f"nees_{name}": NEES_BAND for name in NAMES}
        bands |= {f"coverage_{name}": COVERAGE_BAND for name in NAMES}
        return {**TARGETS, "ahead_20": 0.85 * baselines["ridge"].metrics["ahead_20"], **bands}

    def train(self, folder: Path, *, seeds: Sequence[int] = SEEDS, say: Say = print) -> Results:
        group, test = flights(TRAIN), self.load()
        found: list[SeedScore] = []
        levels: list[float] = []
        for seed in seeds:
            trained = part(f"seed-{seed}", group, flights(VALIDATION), say, seed=seed)
            if not found:
                save(trained.model, folder)
            name = f"seed-{seed}"
            score = scores(name, partial(_named, name, trained.model, test))[name]
            counts = (Plan().likelihood_steps, Plan().mean_steps)
            found.append(SeedScore(score.metrics, score.by_recording, trained.seconds, seed, *counts))
            levels.append(trained.level)
            say(f"{self.name}, seed {seed}: {score.metrics}")
        beside = scores("baselines", lambda: baselines(test, group, linear_model(group), say))
        shipped = load(folder)
        return Results(
            self.name, self.protocol, self.metric, tuple(found), beside, self.targets(beside), self.learned(shipped),
            len(TEST), self.evaluate(shipped, self.load(quick=True)).metrics,
            {"windows": len(test), "levels": levels},
        )  # fmt: skip

    def learned(self, model: Filter) -> dict[str, int]:
        kinds = {"encoder.cells": "GRU", "head": "GRU", "transition": "network", "system": "constants"}
        return parameters(model, kinds)

    def about(self, results: Results) -> str:
        return ABOUT

    def limits(self, results: Results) -> str:
        return limits(results)


def _named(name: str, model: Filter, data: Windows) -> list[tuple[str, Score]]:
    return [(name, evaluate(model, data))]


def evaluate(model: Filter, data: Windows) -> Score:
    """Gaps with commands that go on, and predictions without."""
    begin = time.process_time()
    found = scoring.gaps(model, data)
    metrics = scoring.filter_metrics(found)
    ahead = scoring.gaps(model, data, AHEAD_MS, known=False)
    metrics |= {f"ahead_{time_ms}": scoring.rmse(ahead[str(time_ms)].error) for time_ms in AHEAD_MS}
    by_flight = scoring.by_flight(found[str(scoring.HEADLINE_MS)].error, data)
    return Score(metrics, by_flight, time.process_time() - begin)


def baselines(data: Windows, group: Sequence[Flight], linear: LinearSystem, say: Say) -> Iterator[tuple[str, Score]]:
    """Hold, extrapolation, ridge, network, the linear model's Kalman filter, and an EKF with rigid-body equations."""
    lengths = {milliseconds: frames(milliseconds) for milliseconds in (*GAPS_MS, *AHEAD_MS)}

    def scored(gap: Mapping[int, Any], ahead: Mapping[int, Any], begin: float) -> Score:
        return Score(*scoring.regression_metrics(gap, ahead, data), time.process_time() - begin)

    begin = time.process_time()
    yield "hold", scored(dict.fromkeys(GAPS_MS, regression.hold), dict.fromkeys(AHEAD_MS, regression.hold), begin)
    straight = {time_ms: partial(regression.extrapolate, gap=length) for time_ms, length in lengths.items()}
    yield (
        "extrapolate",
        scored(
            {time_ms: straight[time_ms] for time_ms in GAPS_MS},
            {time_ms: straight[time_ms] for time_ms in AHEAD_MS},
            begin,
        ),
    )
    begin = time.process_time()
    ridges = {time_ms: regression.fit_ridge(group, lengths[time_ms]) for time_ms in GAPS_MS if time_ms <= 100}
    ahead = {time_ms: regression.fit_ridge(group, lengths[time_ms], future=False) for time_ms in AHEAD_MS}
    yield "ridge", scored(ridges, ahead, begin)
    say(f"racer, ridge: {time.process_time() - begin:.0f} CPU s")
    begin = time.process_time()
    nets = {time_ms: regression.fit_network(ridges[time_ms], group, seed=0) for time_ms in ridges}
    nets_ahead = {20: regression.fit_network(ahead[20], group, seed=0)}
    yield "network", scored(nets, nets_ahead, begin)
    say(f"racer, network: {time.process_time() - begin:.0f} CPU s")
    yield "linear_kf", evaluate(linear_filter(linear), data)
    yield "ekf_rigid_body", evaluate(rigid_body.fit(group, say), data)


def linear_filter(linear: LinearSystem) -> Filter:
    """The Kalman filter of the linear model, in the same steps."""
    return on_frames(EKF(system=copy.deepcopy(linear).to(torch.float32)))
