"""Tasks on Lorenz and pendulum records: filters trained by an experiment, beside baselines on the same records.

A seed draws training records, initial weights and (protocol ``paper``) the split; the test records of protocol
``strict`` are the same for all seeds.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fwnkf import Filter, build, load, save
from fwnkf.core.composed import ComposedSystem
from fwnkf.data.protocols import Protocol, Records, Split
from fwnkf.errors import ConfigError
from fwnkf.evaluation.baselines import ORACLE, ORACLE_SECOND_ORDER, estimates, mean_state
from fwnkf.evaluation.evaluate import Estimate, estimate
from fwnkf.extras import need
from fwnkf.filters.fwnkf import FrequencyWeightedNeuralKalmanFilter
from fwnkf.metrics.accuracy import mse, residual
from fwnkf.systems import LearnedSystem
from fwnkf.training.noise_start import noise_floor
from tasks.interface import SEEDS, Say, Task, parameters
from tasks.results import Results, Score, SeedScore, Target
from tasks.simulated.fallback import with_fallback
from tasks.simulated.regression import fit_polynomial
from tasks.simulated.scoring import (
    calibration_table,
    gap_closed,
    gap_interval,
    interval_table,
    record_errors,
    score,
)

if TYPE_CHECKING:
    from fwnkf.training.config import Experiment

QUICK = 100
"""Test records of the quick version."""
RUNS = Path("runs/tasks")
DEGREES = (2, 3, 4, 5, 6)
"""Degrees of the polynomial regression, of which one is chosen on the validation records."""
REGRESSED = 4000
"""Training records of that regression, at most, because its time grows with their number."""
LEVELS, USUAL = (0.25, 0.5, 1.0, 2.0, 4.0), 0.8
"""Levels of coloured noise that the shipped filters weigh, and how probable that of training is."""
MEAN, QUADRATIC, POLYNOMIAL = "mean_state", "quadratic_regression_ekf", "polynomial_regression_ekf"
UNTRAINED = "untrained"
EQUATIONS = "_with_equations"
"""Ends the names of baselines that know the equations where the filter does not."""
PROTOCOLS = {
    "paper": "paper: initial state given exactly, one set of records split at random",
    "strict": "strict: initial state unknown (prior of the generator), 1,000 test records of one fixed seed",
}
KINDS = {
    "system.motion.W": "regression",
    "system.motion.Q": "regression",
    "system.sensors.measured": "regression",
    "system.motion.L": "covariance of coefficients",
    "system.motion": "constants",
    "head_bias": "constants",
    "encoder.cells": "GRU",
    "head": "GRU",
    "shaper": "Φ",
    "noise_states": "noise states",
    "residual.straight": "network",
    "residual.state": "network",
    "residual.context": "network",
    "residual.out": "network",
    "system.observation.network.state": "network",
    "system.observation.network.out": "network",
    "encoder": "constants",
    "residual": "constants",
    "transition": "constants",
    "system.observation.network": "constants",
}
"""Kinds of learned numbers by the beginning of their name; the constants are scales taken from training records."""
COLUMNS = ("mse", "mse_se", "mse_from_10", "nees", "nis", "coverage95")
Methods = dict[str, tuple[Estimate, float]]
"""What methods estimate, and the CPU seconds they took."""


class SimulatedTask(Task):
    """A filter trained by an experiment (a name of the package or a file) on simulated records."""

    def __init__(
        self,
        name: str,
        title: str,
        experiment: str | Path,
        target: float,
        *,
        protocol: str,
        about: str,
        limits: str,
        overrides: Sequence[str] = (),
        published: str | None = None,
        ladder: bool = True,
    ) -> None:
        """Without the ``ladder`` the trained filter ships as it is, for a task about one form of filter."""
        self.ladder = ladder
        self.name, self.title, self.experiment, self.target = name, title, experiment, target
        self.protocol, self.published, self.overrides = PROTOCOLS[protocol], published, tuple(overrides)
        self.description, self.known_limits = about, limits

    def settings(self, seed: int) -> Experiment:
        """The experiment of one seed."""
        need("yaml", extra="train")
        from fwnkf.training.experiments import read_experiment

        return read_experiment(self.experiment, [*self.overrides, f"seed={seed}"])

    def data(self, seed: int) -> Protocol:
        """Training, validation and test records of one seed."""
        from fwnkf.training.setup import load_data

        return load_data(self.settings(seed))

    def load(self, *, quick: bool = False) -> Protocol:
        """The records of the first seed, whose filter ships."""
        protocol = self.data(SEEDS[0])
        return first_records(protocol) if quick else protocol

    @abstractmethod
    def references(self, data: Protocol) -> Methods:
        """Every baseline on the test records, by name."""

    @abstractmethod
    def finish(self, model: Filter, data: Protocol) -> Filter:
        """The filter that was kept of a run, in the form that ships."""

    def details(self, data: Protocol, ours: Estimate, methods: Mapping[str, Estimate]) -> dict[str, Any]:
        """What the card says besides the metrics."""
        paired = "MSE relative to each baseline on the same records, 95 % bootstrap interval over records"
        return {
            "tables": {
                f"{paired}, seed {data.seed}": interval_table(data, ours, methods),
                f"Calibration, seed {data.seed}": calibration_table(data, {"ours": ours, **methods}),
            }
        }

    def baselines(self, data: Protocol, results: Results | None) -> Iterator[tuple[str, Score]]:
        yield from self.scores(data, self.references(data)).items()

    def scores(self, data: Protocol, methods: Methods) -> dict[str, Score]:
        """The metrics of methods, those that compare with other methods included."""
        by_name = {name: score(data, estimated, seconds) for name, (estimated, seconds) in methods.items()}
        for each in by_name.values():
            each.metrics.update(self.compare(each, by_name))
        return by_name

    def evaluate(self, model: Filter, data: Protocol) -> Score:
        begin = time.process_time()
        estimated = estimate(model, data.split.test)
        return score(data, estimated, time.process_time() - begin)

    def targets(self, baselines: Mapping[str, Score]) -> dict[str, Target]:
        return {self.metric: self.target}

    def learned(self, model: Filter) -> dict[str, int]:
        counts = parameters(model, KINDS)
        if isinstance(model.system, LearnedSystem):  # diagonals of Q and R, measured on training records
            counts["constants"] += model.layout.tangent_size + model.observation_dim
        weights = model.state_dict()
        if "system.observation.network.out.weight" in weights:  # its linear part is fitted by least squares
            counts["constants"] += weights["system.observation.H"].numel()
        return counts

    def train(self, folder: Path, *, seeds: Sequence[int] = SEEDS, say: Say = print, runs: Path = RUNS) -> Results:
        """Runs that are done are not repeated; one that was stopped is resumed."""
        need("lightning", extra="train")
        scores = []
        for seed in seeds:
            run = runs / f"{self.name}-{seed}"
            record, data = self._fit(run, seed, say), self.data(seed)
            model = self.finish(load(run / "best"), data)
            if seed == seeds[0]:
                save(model, folder)
                tried = ladder_table(record["ladder"]) if self.ladder else {}
            metrics = self.evaluate(model, data).metrics
            metrics |= self.compare(Score(metrics), self.scores(data, self.compared(data)))
            regression = int(record["experiment"]["trainer"]["pretrain"])
            scores.append(
                SeedScore(
                    metrics,
                    cpu_seconds=float(record["cpu_seconds"]),
                    seed=seed,
                    steps=int(record["steps"]),
                    pretraining_steps=regression,
                    pretraining_seconds=float(record.get("preparation_seconds", 0.0)) if regression else 0.0,
                )
            )
            say(f"{self.name}, seed {seed}: {self.metric} {metrics[self.metric]:.4g}")
        results = self.collect(load(folder), self.data(seeds[0]), scores)
        if tried:
            title = f"What was tried on the validation records, seed {seeds[0]}"
            results.details.setdefault("tables", {})[title] = tried
        return results

    def compared(self, data: Protocol) -> Methods:
        """The baselines that :meth:`compare` needs."""
        return {}

    def collect(self, model: Filter, data: Protocol, scores: Sequence[SeedScore]) -> Results:
        """The results of all seeds, with baselines, intervals and calibration on the first seed's test records."""
        methods = self.references(data)
        baselines = self.scores(data, methods)
        ours = estimate(model, data.split.test)
        return Results(
            self.name,
            self.protocol,
            self.metric,
            tuple(scores),
            baselines,
            self.targets(baselines),
            self.learned(model),
            len(data.split.test),
            self.evaluate(model, first_records(data)).metrics,
            self.details(data, ours, {name: estimated for name, (estimated, _) in methods.items()}),
        )

    def about(self, results: Results) -> str:
        sentences = [self.description]
        if results.protocol == PROTOCOLS["paper"]:
            sentences.append("NEES leaves out the first step, whose state is given exactly.")
        sentences.append("`mse_se` is the standard error of the MSE over test records.")
        for name in self.columns:
            measured = [str(seed.seed) for seed in results.seeds if name in seed.metrics]
            if len(measured) < len(results.seeds):
                sentences.append(f"`{name}` was measured for seed {', '.join(measured)} only.")
        return " ".join(sentences)

    def limits(self, results: Results) -> str:
        return self.known_limits

    def _fit(self, run: Path, seed: int, say: Say) -> dict[str, Any]:
        """Train one seed, unless that is done; returns the record of the run."""
        from fwnkf.training.experiments import parse_experiment
        from fwnkf.training.fit import fit, read_record
        from fwnkf.training.ladder import climb

        experiment = self.settings(seed)
        started = (run / "run.json").is_file()
        if started and parse_experiment(read_record(run)["experiment"], str(run)) != experiment:
            raise ConfigError(f"{run} holds a run of another experiment; move it away")
        record = read_record(run) if started else {"status": "new"}
        if record["status"] != "done" or (self.ladder and "ladder" not in record):
            command = f"python -m tasks train {self.name}"
            fitted = fit(experiment, run, resume=started, command=command, say=say)
            assert fitted is not None
            if self.ladder:
                climb(fitted, say)
        return read_record(run)


class UnknownDynamics(SimulatedTask):
    """The equations are not given: the filter learns them from training records, and so does the regression."""

    metric = "mse"
    label = "MSE"
    columns = COLUMNS

    def references(self, data: Protocol) -> Methods:
        return simulated_references(data)

    def report_baselines(self, results: Results) -> Mapping[str, Score]:
        """Those that are not given the equations either."""
        return {name: one for name, one in results.baselines.items() if not name.endswith(EQUATIONS)}

    def finish(self, model: Filter, data: Protocol) -> Filter:
        return model

    def details(self, data: Protocol, ours: Estimate, methods: Mapping[str, Estimate]) -> dict[str, Any]:
        degree = best_polynomial(data.split.train, data.split.val).motion.config.degree
        return {**super().details(data, ours, methods), "polynomial_degree": degree}

    def limits(self, results: Results) -> str:
        regression, ours = results.baselines[POLYNOMIAL].metrics, results.seeds[0].metrics
        redrawn = " Other seeds draw other records." if results.protocol == PROTOCOLS["paper"] else ""
        return (
            f"{self.known_limits}\n\n`{POLYNOMIAL}` is least squares of the next state on products of at most "
            f"{results.details['polynomial_degree']} state features (the degree with the least validation error of "
            f"{', '.join(map(str, DEGREES))}), with an EKF on the fitted system. On the records of "
            f"seed {results.seeds[0].seed} its MSE is {regression['mse']:.4g} (ours {ours['mse']:.4g}), its NEES "
            f"{regression['nees']:.3g} (ours {ours['nees']:.3g}), its coverage {regression['coverage95']:.3f} (ours "
            f"{ours['coverage95']:.3f}).{redrawn}"
        )


class ColouredNoise(SimulatedTask):
    """The equations are given and the noise is coloured: the filter learns the noise from training records."""

    metric = "gap_closed"
    label = "share of the MSE gap between white EKF and oracle that is closed"
    better = "higher"
    columns = ("gap_closed", *COLUMNS)

    def references(self, data: Protocol) -> Methods:
        train, test = data.split.train, data.split.test
        methods = {MEAN: timed(lambda: Estimate(mean_state(train).expand_as(test.truth)))}
        methods |= timed_estimates(data, self.settings(data.seed).data.scenario)
        return methods | {UNTRAINED: timed(lambda: estimate(self._untrained(data), test))}

    def report_baselines(self, results: Results) -> Mapping[str, Score]:
        """Those that are not given the noise model."""
        hidden = (ORACLE, ORACLE_SECOND_ORDER)
        return {name: one for name, one in results.baselines.items() if name not in hidden}

    def compared(self, data: Protocol) -> Methods:
        return timed_estimates(data, self.settings(data.seed).data.scenario)

    def compare(self, score: Score, baselines: Mapping[str, Score]) -> dict[str, float]:
        ends = (baselines[name].metrics["mse"] for name in ("ekf", ORACLE))
        return {"gap_closed": gap_closed(score.metrics["mse"], *ends)}

    def finish(self, model: Filter, data: Protocol) -> Filter:
        """With hypotheses: that the disturbance is absent, that all noise is white, and about its level.

        A filter that weighs frequencies has none about the level, which would multiply its cost.
        """
        assert isinstance(model, FrequencyWeightedNeuralKalmanFilter)
        if model.config.hypotheses is not None:
            return with_fallback(model)
        return with_fallback(model, levels=LEVELS, usual=USUAL, floor=noise_floor(model, data.split.train))

    def details(self, data: Protocol, ours: Estimate, methods: Mapping[str, Estimate]) -> dict[str, Any]:
        ekf, oracle = (record_errors(data, methods[name]) for name in ("ekf", ORACLE))
        interval = gap_interval(record_errors(data, ours), ekf, oracle)
        return {**super().details(data, ours, methods), "gap_interval": list(interval)}

    def limits(self, results: Results) -> str:
        value, low, high = results.details["gap_interval"]
        before, after = results.baselines[UNTRAINED].metrics, results.seeds[0].metrics
        return (
            f"{self.known_limits}\n\nOver test records, the weights here close {value:.3f} of the gap, with a 95 % "
            f"bootstrap interval of {low:.3f} to {high:.3f}. `{UNTRAINED}` is the filter before gradient training, its "
            "noise states fitted to the spectrum of the noise, without `fallback`: it closes "
            f"{before['gap_closed']:.3f} with NEES {before['nees']:.3g} and coverage {before['coverage95']:.3f}; as "
            f"shipped these are {after['gap_closed']:.3f}, {after['nees']:.3g} and {after['coverage95']:.3f}."
        )

    def _untrained(self, data: Protocol) -> Filter:
        need("lightning", extra="train")
        from fwnkf.training.fit import prepare_filter

        return prepare_filter(self.settings(data.seed), data.split.train)


def ladder_table(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """What training was compared with, for a card."""
    names = {"mse": "mse", "worse": "worse than the best by", "nees": "nees", "coverage95": "coverage95"}
    return {
        row["name"] + (", kept" if row["chosen"] else ""): {
            words: row[name] for name, words in names.items() if row[name] is not None
        }
        for row in rows
    }


def timed(make: Callable[[], Estimate]) -> tuple[Estimate, float]:
    """An estimate and the CPU seconds it took."""
    begin = time.process_time()
    return make(), time.process_time() - begin


def simulated_references(data: Protocol) -> Methods:
    """Trivial methods, regression on known states, and the baselines that are given the equations; white noise."""
    train, test = data.split.train, data.split.test
    some = train.take(range(min(REGRESSED, len(train))))
    methods = {
        MEAN: timed(lambda: Estimate(mean_state(train).expand_as(test.truth))),
        QUADRATIC: timed(lambda: estimate(build("ekf", system=fit_polynomial(some)), test)),
        POLYNOMIAL: timed(lambda: estimate(build("ekf", system=best_polynomial(some, data.split.val)), test)),
    }
    known = timed_estimates(data, "white", without=("ekf_fitted",))
    return methods | {name if name == "hold" else name + EQUATIONS: one for name, one in known.items()}


def timed_estimates(data: Protocol, scenario: str, without: Sequence[str] = ()) -> Methods:
    """The baselines of the library."""
    methods, begin = {}, time.process_time()
    for name, estimated in estimates(data, scenario=scenario, without=without):
        methods[name] = estimated, time.process_time() - begin
        begin = time.process_time()
    return methods


def best_polynomial(train: Records, val: Records) -> ComposedSystem:
    """The polynomial system whose EKF has the least error on the validation records."""

    def error(system: ComposedSystem) -> float:
        return float(mse(residual(val.layout, estimate(build("ekf", system=system), val).mean, val.truth.double())))

    return min((fit_polynomial(train, degree) for degree in DEGREES), key=error)


def first_records(protocol: Protocol) -> Protocol:
    """The same protocol with its first few test records."""
    test = protocol.split.test
    few = test.take(range(min(QUICK, len(test))))
    return replace(protocol, split=Split(protocol.split.train, protocol.split.val, few))
