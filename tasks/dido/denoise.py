"""``dido``: clean rate and force from a vibrating IMU, causally and without delay."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fwnkf import Filter, load, save
from fwnkf.identify import Spectra, VibrationModel, cross_spectra, fit_model, levels_left_out
from fwnkf.metrics.consistency import nis
from tasks.dido import baselines as methods
from tasks.dido import scoring
from tasks.dido.baselines import OPTIONS, Estimate, pieces
from tasks.dido.denoise_card import ABOUT, limits
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
TARGET = 0.85
NIS_BAND = (0.9, 1.1)
QUICK_FLIGHTS, QUICK_SAMPLES = TEST[:2], 800
GAP_SAMPLES, MISSING, JITTER, GAP_SEED = 4000, 0.1, 0.5, 20260701
"""Samples of a flight, share of samples missing, share of the step by which instants move, and the draw of both."""
WARM_UP = 400
"""Samples in which a filter forgets its start, not counted when levels of covariances are measured."""


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
        level, factors, left_out = measure_levels(y, truth, seeds[0])
        say(f"{self.name}, flights left out: level {level:.4f}, variance factors {factors.tolist()}")
        scores: list[SeedScore] = []
        wider: list[float] = []
        for seed in seeds:
            begin = time.process_time()
            model = fit_model(spectra, RATE, OPTIONS, seed)
            spent = time.process_time() - begin
            built = calibrated(model, spectra, level, factors)
            estimate = run(built, test.y)
            score = score_of(estimate, test, spent)
            if not scores:
                save(built, folder)
                assert estimate.cov is not None
                by_axis = scoring.consistency_by_axis(estimate.mean - test.truth, estimate.cov, factors)
            scores.append(SeedScore(score.metrics, score.by_recording, spent, seed))
            # for comparison with 0.1.0 only, so the gains of the steady state will do
            wider.append(score_of(steady(model, spectra, others.y, level, factors), others, 0.0).metrics[METRIC])
            say(f"{self.name}, seed {seed}: {score.metrics}")
        shipped = load(folder)
        quick = self.load(quick=True)
        details = {
            "options": asdict(OPTIONS), "tuned": tuned, "level": level, "variance_factors": factors.tolist(),
            "left_out": left_out,
            "not_scored": [everything[OTHERS.index(number)].name for number in CONTINUED],
            "all_other_flights": {
                "flights": len(OTHERS), METRIC: sum(wider) / len(wider),
                "std": float(torch.tensor(wider).std()) if len(wider) > 1 else 0.0,
                "fir_six_axes": on_others["fir_six_axes"].metrics[METRIC],
            },
            "tables": {
                "Error bars by axis, before and after calibration on training flights left out": by_axis,
                f"{METRIC} where samples are missing or stamps irregular, first {GAP_SAMPLES:,} samples of each flight":
                    gap_table(shipped, test_flights, tuned, weights, say),
            },
        }  # fmt: skip
        return Results(
            self.name, self.protocol, METRIC, tuple(scores), baselines, self.targets(baselines),
            self.learned(shipped), len(TEST), self.evaluate(shipped, quick).metrics, details,
        )  # fmt: skip

    fits_without_truth = True
    fit_note = (
        "The vibration model by the likelihood of four training flights, less their means; covariances at the level of "
        "flights left out. The innovations are as consistent as with truth, the estimates are not: the likelihood is "
        "that of all that the sensor sees, and nothing in it says which part is vibration and which the signal that "
        "motion capture shows. The largest loss is the force along y."
    )

    def fit_without_truth(self, data: DenoiseData, results: Results, *, say: Say = print) -> Score:
        """The vibration model by its likelihood alone; covariances at the level of flights left out."""
        data.reference = scoring.best_of({
            name: {axis: results.baselines[name].metrics[f"rmse_{axis}"] for axis in AXES} for name in methods.CLASSICAL
        })  # fmt: skip
        begin = time.process_time()
        model, spectra, level = without_truth(training_records()[0], say)
        spent = time.process_time() - begin
        return score_of(steady(model, spectra, data.y, level, torch.ones(len(AXES)).double()), data, spent)

    def learned(self, model: Filter) -> dict[str, int]:
        counts = parameters(model, {"noise_states": "noise states", "system.F": "constants", "system.Q": "constants",
                                    "system.R": "constants", "covariance_scale": "constants"})  # fmt: skip
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


def steady(model: VibrationModel, spectra: Spectra, y: Tensor, level: float, factors: Tensor) -> Estimate:
    """What :func:`run` gives of :func:`calibrated`, with the gains of the steady state from the start."""
    track, root = model.run(y, spectra.scale), (level * factors).sqrt()
    cov = track.cov * (root.unsqueeze(-1) * root)
    return Estimate(track.mean, cov, track.innovation, track.innovation_cov * level)


def calibrated(model: VibrationModel, spectra: Spectra, level: float, factors: Tensor) -> Filter:
    """The filter with the level of its covariances; a slope's error bars are scaled like those of its signal."""
    built = model.to_filter(spectra.scale, level)
    built.calibrate_covariance(factors.repeat(2))
    return built


def measure_levels(y: Tensor, truth: Tensor, seed: int) -> tuple[float, Tensor, list[dict[str, Any]]]:
    """Level of all covariances and factors of the reported variances, from training flights left out in turn."""

    def fit(rest: Tensor, rest_truth: Tensor) -> Any:
        spectra = cross_spectra(rest, rest_truth)
        model = fit_model(spectra, RATE, OPTIONS, seed)
        return lambda record: model.run(record, spectra.scale)

    levels = levels_left_out(fit, y, truth, skip=WARM_UP)
    level = float(levels.nis.mean())
    left_out = [
        {"flight": number, "nis": float(nis), "variance_ratio": ratios.tolist(), "rmse": errors.sqrt().tolist()}
        for number, nis, ratios, errors in zip((*TRAIN, *VALIDATION), *levels, strict=True)
    ]
    return level, levels.variance_ratio.mean(0) / level, left_out


def without_truth(y: Tensor, say: Say) -> tuple[VibrationModel, Spectra, float]:
    """The model fitted to measurements alone, less their mean, and the NIS of flights left out in turn."""
    y = y - y.mean(1, keepdim=True)
    options = replace(OPTIONS, truth_weight=0.0)
    ratios = []
    for out in range(len(y)):
        rest = cross_spectra(y[torch.arange(len(y)) != out])
        track = fit_model(rest, RATE, options).run(y[out : out + 1], rest.scale)
        ratios.append(float(nis(track.innovation[:, WARM_UP:], track.innovation_cov[:, WARM_UP:]).mean()))
        say(f"dido without truth, flight {out} left out: NIS {ratios[-1]:.4f}")
    spectra = cross_spectra(y)
    return fit_model(spectra, RATE, options), spectra, sum(ratios) / len(ratios)


def gap_table(
    model: Filter, group: Sequence[Flight], tuned: Mapping[str, Any], weights: Mapping[str, Tensor], say: Say
) -> dict[str, dict[str, float]]:
    """The ratio of every method with samples missing at random, and with jittered stamps."""
    whole = denoise_records("dido", group, GAP_SAMPLES)
    generator = torch.Generator().manual_seed(GAP_SEED)
    missing = torch.rand(whole.y.shape[:2], generator=generator) < MISSING
    mask = ~missing.unsqueeze(-1).expand_as(whole.y)
    jittered = jittered_records(group, share=JITTER, seed=GAP_SEED, samples=GAP_SAMPLES)
    scenarios = {
        "regular": (whole.y, whole.truth, whole.mask, None),
        f"{MISSING:.0%} missing": (whole.y, whole.truth, mask, None),
        f"stamps ± {JITTER:.0%} of a step": (jittered.y, jittered.truth, jittered.mask, jittered.dt),
    }
    errors: dict[str, dict[str, dict[str, float]]] = {}
    for name in (*methods.METHODS, "ours", "ours, dt not given"):
        errors[name] = {}
        for scenario, (y, truth, present, dt) in scenarios.items():
            if name == "ours, dt not given" and dt is None:
                continue
            if name in methods.METHODS:
                if scenario == "regular":
                    estimate = methods.estimate(name, tuned, weights, y).mean
                else:
                    estimate = methods.estimate_with_gaps(name, tuned, weights, y, present, dt)
            else:
                estimate = methods.run_filter(model, y, present, dt if name == "ours" else None)
            errors[name][scenario] = scoring.rmse(estimate, truth)
        say(f"dido, {name}: {errors[name]}")
    reference = scoring.best_of({name: errors[name]["regular"] for name in methods.CLASSICAL})
    return {
        name: {scenario: scoring.ratio(each, reference) for scenario, each in by_scenario.items()}
        for name, by_scenario in errors.items()
    }
