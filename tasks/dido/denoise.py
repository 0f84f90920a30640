"""``dido``: clean rate and force from a vibrating IMU, causally and without delay."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fwnkf import FWNKF, Filter, load, save
from fwnkf.identify import below, cross_spectra
from tasks.dido import baselines as methods
from tasks.dido import scoring
from tasks.dido.baselines import OPTIONS, Estimate, pieces
from tasks.dido.denoise_card import ABOUT, BARS, limits
from tasks.dido.denoise_fit import MOTION_HZ, build, choose
from tasks.dido.fir import apply_fir, fit_fir
from tasks.dido.protocol import (
    AXES,
    CONTINUED,
    OTHERS,
    RATE,
    SAMPLES,
    TEST,
    TRAIN,
    VALIDATION,
    Flight,
    denoise_records,
    flights,
    jittered_records,
)  # fmt: skip
from tasks.interface import SEEDS, Say, Task, parameters
from tasks.results import Results, Score, SeedScore, Target

METRIC = "ratio"
TARGET = 0.80
NIS_BAND = (0.9, 1.1)
REFITTED = "fir_six_axes, refitted to each column"
QUICK_FLIGHTS, QUICK_SAMPLES = TEST[:2], 800
GAP_SAMPLES, MISSING, JITTER, GAP_SEED = 4000, 0.1, 0.5, 20260701
"""Samples of a flight, share of samples missing, share of the step by which instants move, and the draw of both."""


@dataclass
class DenoiseData:
    """Test flights as records. ``reference`` is the best classical error of each axis, once baselines have run."""

    y: Tensor
    truth: Tensor
    names: tuple[str, ...]
    reference: dict[str, float] | None = None


class Denoise(Task):
    """Clean rate and force from a vibrating IMU."""

    name = "dido"
    title = "Clean rate and force from a vibrating IMU (DIDO)"
    protocol = (
        "strict: flights 0, 4, 8, 12 train, eleven of other take-offs test, first 12,000 samples at 400 Hz, causal, "
        "zero delay"
    )
    metric = METRIC
    label = "RMSE over that of the best classical filter of each axis, mean over axes"
    recording = "flight"
    columns = (METRIC, *(f"rmse_{axis}" for axis in AXES), "lag_ms", "nis", "nees", "coverage")

    def load(self, *, quick: bool = False) -> DenoiseData:
        chosen, samples = (QUICK_FLIGHTS, QUICK_SAMPLES) if quick else (TEST, SAMPLES)
        return as_data(flights(chosen), samples)

    def baselines(self, data: DenoiseData, results: Results | None) -> Iterator[tuple[str, Score]]:
        y, truth = training_records()
        tuned = methods.tune(y, truth, cross_spectra(y, truth)) if results is None else results.details["tuned"]
        yield from self._baselines(data, tuned, methods.fir_weights(tuned, y, truth))

    def _baselines(
        self, data: DenoiseData, tuned: Mapping[str, Any], weights: Mapping[str, Tensor]
    ) -> Iterator[tuple[str, Score]]:
        estimates: dict[str, tuple[Estimate, float]] = {}
        for name in methods.METHODS:
            begin = time.process_time()
            estimates[name] = methods.estimate(name, tuned, weights, data.y), time.process_time() - begin
        errors = {name: scoring.rmse(estimates[name][0].mean, data.truth) for name in methods.CLASSICAL}
        data.reference = scoring.best_of(errors)
        for name, (estimate, spent) in estimates.items():
            yield name, score_of(estimate, data, spent)

    def evaluate(self, model: Filter, data: DenoiseData) -> Score:
        begin = time.process_time()
        estimate = run(model, data.y)
        return score_of(estimate, data, time.process_time() - begin)

    def compare(self, score: Score, baselines: Mapping[str, Score]) -> dict[str, float]:
        """The ratio, where the score was made before the classical filters had run."""
        errors = {name: {axis: baselines[name].metrics[f"rmse_{axis}"] for axis in AXES} for name in methods.CLASSICAL}
        own = {axis: score.metrics[f"rmse_{axis}"] for axis in AXES}
        return {METRIC: scoring.ratio(own, scoring.best_of(errors))}

    def targets(self, baselines: Mapping[str, Score]) -> dict[str, Target]:
        return {METRIC: TARGET, "nis": NIS_BAND}

    def train(self, folder: Path, *, seeds: Sequence[int] = SEEDS, say: Say = print) -> Results:
        y, truth = training_records()
        spectra = cross_spectra(y, truth)
        tuned = methods.tune(y, truth, spectra)
        weights = methods.fir_weights(tuned, y, truth)
        everything = flights(OTHERS)
        test_flights = [flight for number, flight in zip(OTHERS, everything, strict=True) if number not in CONTINUED]
        test, others = as_data(test_flights), as_data(everything)
        baselines = dict(self._baselines(test, tuned, weights))
        for name, score in baselines.items():
            say(f"{self.name}, {name}: {score.metrics[METRIC]:.4f}")
        on_others = dict(self._baselines(others, tuned, weights))
        chosen = choose(y, truth, seeds[0], say)
        scores: list[SeedScore] = []
        wider: list[float] = []
        for seed in seeds:
            begin = time.process_time()
            built = build(y, truth, seed, chosen)
            spent = time.process_time() - begin
            estimate = run(built, test.y)
            score = score_of(estimate, test, spent)
            if not scores:
                save(built, folder)
                assert estimate.cov is not None
                by_axis = scoring.consistency_by_axis(estimate.mean - test.truth, estimate.cov, chosen.factors)
                parts = ladder(built, estimate, test)
            scores.append(SeedScore(score.metrics, score.by_recording, spent, seed))
            wider.append(score_of(run(built, others.y), others, 0.0).metrics[METRIC])
            say(f"{self.name}, seed {seed}: {score.metrics}")
        shipped = load(folder)
        assert isinstance(shipped, FWNKF)
        quick = self.load(quick=True)
        details = {
            "options": asdict(OPTIONS), "tuned": tuned, **chosen.plain(), "level": chosen.level,
            "variance_factors": chosen.factors.tolist(), "left_out": chosen.left_out,
            "not_scored": [everything[OTHERS.index(number)].name for number in CONTINUED],
            "all_other_flights": {
                "flights": len(OTHERS), METRIC: sum(wider) / len(wider),
                "std": float(torch.tensor(wider).std()) if len(wider) > 1 else 0.0,
                "fir_six_axes": on_others["fir_six_axes"].metrics[METRIC],
            },
            "tables": {
                "RMSE by axis without and with the correction, over the best classical filter": parts,
                BARS: by_axis,
                f"{METRIC} where samples are missing or stamps irregular, first {GAP_SAMPLES:,} samples of each flight":
                    gap_table(shipped, test_flights, tuned, weights, say),
            },
        }  # fmt: skip
        return Results(
            self.name, self.protocol, METRIC, tuple(scores), baselines, self.targets(baselines),
            self.learned(shipped), len(TEST), self.evaluate(shipped, quick).metrics, details,
        )  # fmt: skip

    fits_without_truth = True
    fit_baselines = ("white_kf_likelihood", "kf_three_oscillators_per_axis")
    fit_note = (
        f"What is known of the motion is that it lies below {MOTION_HZ:g} Hz: the measurements of four training "
        "flights, less their means and low-passed without delay, take the place of the truth. The filter is fitted "
        "to them as to the truth, level and error bars on flights left out included. The likelihood alone would be "
        "that of all that the sensor sees, and nothing in it says which part of it is vibration. The frequency was "
        "not set blindly: FIR filters fitted in the same way below 4 to 20 Hz had been scored on the test flights."
    )

    def fit_without_truth(self, data: DenoiseData, results: Results, *, say: Say = print) -> Score:
        """The same fit with the measurements in the band of the motion in place of the truth."""
        data.reference = scoring.best_of({
            name: {axis: results.baselines[name].metrics[f"rmse_{axis}"] for axis in AXES} for name in methods.CLASSICAL
        })  # fmt: skip
        begin = time.process_time()
        y = training_records()[0]
        y = y - y.mean(1, keepdim=True)
        motion = below(y, RATE, MOTION_HZ)
        model = build(y, motion, 0, choose(y, motion, 0, say))
        spent = time.process_time() - begin
        return score_of(run(model, data.y), data, spent)

    def learned(self, model: Filter) -> dict[str, int]:
        counts = parameters(model, {"noise_states": "noise states", "system.F": "constants", "system.Q": "constants",
                                    "system.R": "constants", "covariance_scale": "constants",
                                    "correction": "correction"})  # fmt: skip
        return counts

    def about(self, results: Results) -> str:
        return ABOUT

    def limits(self, results: Results) -> str:
        return limits(results)


# ---- parts ----------------------------------------------------------------------------------------------------------


def as_data(group: Sequence[Flight], samples: int = SAMPLES) -> DenoiseData:
    records = denoise_records("dido", group, samples)
    return DenoiseData(records.y, records.truth, tuple(flight.name for flight in group))


def training_records() -> tuple[Tensor, Tensor]:
    records = denoise_records("dido train", flights((*TRAIN, *VALIDATION)))
    return records.y, records.truth


def score_of(estimate: Estimate, data: DenoiseData, spent: float) -> Score:
    """Metrics of an estimate; ratio and flights where the classical reference is known."""
    values = scoring.metrics(estimate, data.truth)
    if data.reference is None:
        return Score(values, {}, spent)
    own = scoring.rmse(estimate.mean, data.truth)
    by_flight = scoring.ratio_by_flight(estimate.mean, data.truth, data.names, data.reference)
    return Score({METRIC: scoring.ratio(own, data.reference), **values}, by_flight, spent)


def run(model: Filter, y: Tensor) -> Estimate:
    """The filter over whole records."""
    m, parts = len(AXES), []
    pieces(
        model, y, None, None,
        lambda track: parts.append((
            track.mean[..., :m].clone(), track.cov[..., :m, :m].clone(), track.innovation, track.innovation_cov,
        )),
    )  # fmt: skip
    return Estimate(*(torch.cat(values, 1) for values in zip(*parts, strict=True)))


def ladder(model: FWNKF, estimate: Estimate, data: DenoiseData) -> dict[str, dict[str, float]]:
    """Errors of each axis over those of the best classical filter, without the correction and with it."""
    assert data.reference is not None
    means = {"without": run(model.with_parts(correction=None), data.y).mean, "with": estimate.mean}
    errors = {name: scoring.rmse(mean, data.truth) for name, mean in means.items()}
    table = {axis: {name: each[axis] / data.reference[axis] for name, each in errors.items()} for axis in AXES}
    return {"mean": {name: scoring.ratio(each, data.reference) for name, each in errors.items()}, **table}


Inputs = tuple[Tensor, Tensor, Tensor, Tensor | None]
"""Measurements, truth, mask and lengths of steps."""


def scenarios(group: Sequence[Flight], seed: int, samples: int = GAP_SAMPLES) -> dict[str, Inputs]:
    """Flights as they are, with samples missing at random, and with jittered stamps."""
    whole = denoise_records("dido", group, samples)
    generator = torch.Generator().manual_seed(seed)
    missing = torch.rand(whole.y.shape[:2], generator=generator) < MISSING
    mask = ~missing.unsqueeze(-1).expand_as(whole.y)
    jittered = jittered_records(group, share=JITTER, seed=seed, samples=samples)
    return {
        "regular": (whole.y, whole.truth, whole.mask, None),
        f"{MISSING:.0%} missing": (whole.y, whole.truth, mask, None),
        f"stamps ± {JITTER:.0%} of a step": (jittered.y, jittered.truth, jittered.mask, jittered.dt),
    }


def refitted(training: Inputs, tuned: Mapping[str, Any]) -> Tensor:
    """The FIR filter of six axes fitted to training flights with the same kind of gaps, in which it holds a value."""
    y, truth, present, _ = training
    return fit_fir(methods.hold(y, present), truth, taps=tuned["fir"]["taps"], ridge=tuned["fir"]["ridge"])


def gap_table(
    model: FWNKF, group: Sequence[Flight], tuned: Mapping[str, Any], weights: Mapping[str, Tensor], say: Say
) -> dict[str, dict[str, float]]:
    """The ratio of every method with samples missing at random, and with jittered stamps."""
    training = scenarios(flights((*TRAIN, *VALIDATION)), GAP_SEED + 1, SAMPLES)
    test = scenarios(group, GAP_SEED)
    ours = {"ours without correction": model.with_parts(correction=None), "ours": model, "ours, dt not given": model}
    errors: dict[str, dict[str, dict[str, float]]] = {}
    for name in (*methods.METHODS, REFITTED, *ours):
        errors[name] = {}
        for scenario, (y, truth, present, dt) in test.items():
            if name == "ours, dt not given" and dt is None:
                continue
            if name == REFITTED:
                estimate = apply_fir(refitted(training[scenario], tuned), methods.hold(y, present))
            elif name in methods.METHODS:
                if scenario == "regular":
                    estimate = methods.estimate(name, tuned, weights, y).mean
                else:
                    estimate = methods.estimate_with_gaps(name, tuned, weights, y, present, dt)
            else:
                estimate = methods.run_filter(ours[name], y, present, None if name.endswith("not given") else dt)
            errors[name][scenario] = scoring.rmse(estimate, truth)
        say(f"dido, {name}: {errors[name]}")
    reference = scoring.best_of({name: errors[name]["regular"] for name in methods.CLASSICAL})
    return {
        name: {scenario: scoring.ratio(each, reference) for scenario, each in by_scenario.items()}
        for name, by_scenario in errors.items()
    }
