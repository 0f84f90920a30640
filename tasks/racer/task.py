"""``racer``: the angular rate of a racing quadrotor while its gyro is missing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from fwnkf import Filter, load, save
from fwnkf.core.linear import LinearSystem
from tasks.interface import SEEDS, Say, Task, parameters
from tasks.racer import regression, rigid_body, scoring
from tasks.racer.filter import linear_filter, linear_model, multiply_adds
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
        *(f"quiet_{name}" for name in NAMES[1:]),
        *(f"{kind}_{name}" for kind in ("nees", "coverage") for name in NAMES),
    )

    def load(self, *, quick: bool = False) -> Windows:
        return windows(flights(TEST[:1] if quick else TEST), limit=QUICK_WINDOWS if quick else None)

    def baselines(self, data: Windows, results: Results | None) -> Iterator[tuple[str, Score]]:
        train_flights = flights(TRAIN)
        for name, _, found in baselines(data, train_flights, linear_model(train_flights), print):
            yield name, found[""]

    def evaluate(self, model: Filter, data: Windows) -> Score:
        return scoring.evaluate(model, data)[""]

    def targets(self, baselines: Mapping[str, Score]) -> dict[str, Target]:
        bands: dict[str, Target] = {f"nees_{name}": NEES_BAND for name in NAMES}
        bands |= {f"coverage_{name}": COVERAGE_BAND for name in NAMES}
        return {**TARGETS, "ahead_20": 0.85 * baselines["ridge"].metrics["ahead_20"], **bands}

    def train(self, folder: Path, *, seeds: Sequence[int] = SEEDS, say: Say = print) -> Results:
        begin = time.process_time()
        group, test = flights(TRAIN), self.load()
        spent = time.process_time() - begin
        found: list[SeedScore] = []
        by_seed: dict[str, dict[str, scoring.Scores]] = {}
        levels: list[float] = []
        for seed in seeds:
            name = f"seed-{seed}"
            trained = part(name, group, flights(VALIDATION), say, seed=seed)
            if not found:
                save(trained.model, folder)
            kept = scores(name, partial(_joined, seed, trained.model, test))
            by_seed.setdefault("ours", {}).update(scoring.parted(kept.by_method)["ours"])
            score, counts = by_seed["ours"][str(seed)][""], (Plan().likelihood_steps, Plan().mean_steps)
            found.append(SeedScore(score.metrics, score.by_recording, trained.seconds, seed, *counts))
            levels.append(trained.level)
            spent += trained.seconds + kept.seconds
            say(f"{self.name}, seed {seed}: {score.metrics}")
        kept = scores("baselines", lambda: scoring.joined(baselines(test, group, linear_model(group), say, seeds)))
        by_seed |= scoring.parted(kept.by_method)
        beside = {name: scoring.mean([one[""] for one in by_seed[name].values()]) for name in by_seed if name != "ours"}
        shipped = load(folder)
        return Results(
            self.name, self.protocol, self.metric, tuple(found), beside, self.targets(beside), self.learned(shipped),
            len(TEST), self.evaluate(shipped, self.load(quick=True)).metrics,
            {
                "windows": len(test), "quiet_windows": int(test.quiet.sum()), "levels": levels,
                "cpu_seconds": spent + kept.seconds, "multiply_adds": multiply_adds(shipped),
                "by_flight": {
                    method: {
                        seed: {flight: score.metrics for flight, score in one.items()} for seed, one in rows.items()
                    }
                    for method, rows in by_seed.items()
                },
            },
        )  # fmt: skip

    def learned(self, model: Filter) -> dict[str, int]:
        kinds = {"encoder.cells": "GRU", "head": "GRU", "residual": "network", "system": "constants"}
        return parameters(model, kinds)

    def about(self, results: Results) -> str:
        return ABOUT

    def limits(self, results: Results) -> str:
        return limits(results)


def _joined(seed: int, model: Filter, data: Windows) -> Iterator[tuple[str, Score]]:
    return scoring.joined([("ours", seed, scoring.evaluate(model, data))])


def baselines(
    data: Windows, group: Sequence[Flight], linear: LinearSystem, say: Say, seeds: Sequence[int] = (0,)
) -> Iterator[tuple[str, int, scoring.Scores]]:
    """Hold, extrapolation, ridge, network, the linear model's Kalman filter, and an EKF with rigid-body equations.

    The network alone has more than one seed.
    """
    lengths = {milliseconds: frames(milliseconds) for milliseconds in (*GAPS_MS, *AHEAD_MS)}
    held = dict.fromkeys(lengths, regression.hold)
    straight = {time_ms: partial(regression.extrapolate, gap=length) for time_ms, length in lengths.items()}
    for name, method in (("hold", held), ("extrapolate", straight)):
        gap, ahead = ({key: method[key] for key in times} for times in (GAPS_MS, AHEAD_MS))
        yield name, 0, scoring.regressed(gap, ahead, data)
    begin = time.process_time()
    ridges = {time_ms: regression.fit_ridge(group, lengths[time_ms]) for time_ms in GAPS_MS if time_ms <= 100}
    later = {time_ms: regression.fit_ridge(group, lengths[time_ms], future=False) for time_ms in AHEAD_MS}
    yield "ridge", 0, scoring.regressed(ridges, later, data)
    say(f"racer, ridge: {time.process_time() - begin:.0f} CPU s")
    for seed in seeds:
        begin = time.process_time()
        nets = {time_ms: regression.fit_network(ridges[time_ms], group, seed) for time_ms in ridges}
        yield "network", seed, scoring.regressed(nets, {20: regression.fit_network(later[20], group, seed)}, data)
        say(f"racer, network, seed {seed}: {time.process_time() - begin:.0f} CPU s")
    yield "linear_kf", 0, scoring.evaluate(linear_filter(linear), data)
    yield "ekf_rigid_body", 0, scoring.evaluate(rigid_body.fit(group, say), data)
