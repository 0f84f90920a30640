"""What the two tasks on BROAD share: test trials, evaluation with consistency, training, tables."""

from __future__ import annotations

import statistics
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from fwnkf import Filter, save
from fwnkf.data.recording import Recording
from tasks.broad import baselines as published
from tasks.broad.filters import Estimate, Numbers, run
from tasks.broad.search import Budget, Learned, Practice
from tasks.broad.trials import QUICK_BLOCKS, SEARCH_BLOCKS, TEST, TRAIN, scores, side_by_side, trials
from tasks.interface import SEEDS, Say, Task
from tasks.results import Results, Score, SeedScore, Target

EVALUATION = "training on the undisturbed trials {}, test on the disturbed trials {}; RMSE over moving phases, causal"


class BroadTask(Task):
    """A filter for BROAD's disturbed trials, searched on undisturbed ones."""

    recording: str = "trial"
    protocol = "strict: " + EVALUATION.format(", ".join(TRAIN), ", ".join(TEST))
    magnetometer: ClassVar[bool]
    budget: Budget
    """Of the search."""

    # ---- what differs ---------------------------------------------------------------------------------------

    @abstractmethod
    def learn(self, practice: Practice, folder: Path, seeds: Sequence[int], say: Say) -> Iterator[tuple[int, Learned]]:
        """What each seed learns; ``folder`` is where the filter will be saved."""

    @abstractmethod
    def build(self, numbers: Numbers, rate: float) -> Filter:
        """The filter with these numbers."""

    @abstractmethod
    def consistency(self, data: list[Recording], estimate: Estimate) -> dict[str, float]:
        """NEES and coverage."""

    @abstractmethod
    def estimates(self, candidates: Sequence[Numbers], test: Practice) -> list[Estimate]:
        """What filters with different numbers estimate, all in one batch."""

    @abstractmethod
    def variants(self, data: list[Recording], results: Results) -> Iterator[tuple[str, Score]]:
        """Textbook filters that were tuned in training, and our filter with parts of what it learned taken away."""

    @abstractmethod
    def gyro_delay(self, results: Results) -> float:
        """The learned delay of the gyroscope in seconds."""

    # ---- the interface --------------------------------------------------------------------------------------

    def load(self, *, quick: bool = False) -> list[Recording]:
        return trials(TEST, QUICK_BLOCKS if quick else None)

    def baselines(self, data: list[Recording], results: Results | None) -> Iterator[tuple[str, Score]]:
        for name, method in published.methods(magnetometer=self.magnetometer).items():
            begin = time.process_time()
            paths = [method(trial) for trial in data]
            yield name, self.score(data, paths, begin)
            if name == published.VQF and results is not None:
                yield name + published.DELAYED, self.score(data, self._delayed(data, paths, results), begin)
        if results is not None:
            yield from self.variants(data, results)

    def evaluate(self, model: Filter, data: list[Recording]) -> Score:
        begin = time.process_time()
        return self.score_estimate(data, run(model, side_by_side(data)), begin)

    def score_estimate(self, data: list[Recording], estimate: Estimate, begin: float) -> Score:
        """The headline metric with NEES and coverage."""
        score = self.score(data, estimate.paths, begin)
        score.metrics.update(self.consistency(data, estimate))
        return score

    def score(self, data: Sequence[Recording], paths: Sequence[Tensor] | Tensor, begin: float) -> Score:
        """The headline metric of each trial and its mean."""
        each = scores(data, paths, self.metric)
        return Score({self.metric: statistics.fmean(each.values())}, each, time.process_time() - begin)

    def targets(self, baselines: Mapping[str, Score]) -> dict[str, Target]:
        return {self.metric: baselines[published.VQF].metrics[self.metric]}

    def report_baselines(self, results: Results) -> Mapping[str, Score]:
        return {name: score for name, score in results.baselines.items() if not name.startswith("ours")}

    def train(self, folder: Path, *, seeds: Sequence[int] = SEEDS, say: Say = print) -> Results:
        recordings = trials(TRAIN, SEARCH_BLOCKS)
        practice = Practice.of(recordings)
        learned: dict[int, Learned] = {}
        seconds: dict[int, float] = {}
        begin = time.process_time()
        for seed, result in self.learn(practice, folder, seeds, say):
            learned[seed], seconds[seed] = result, time.process_time() - begin
            begin = time.process_time()
        # nothing is chosen after this line, and the test trials are read only now
        save(self.build(learned[seeds[0]].numbers, practice.rate), folder)
        return self.collect(learned, seconds, self.tuned(recordings), say)

    def tuned(self, recordings: list[Recording]) -> dict[str, Any]:
        """What is tuned for the baselines on the training trials."""
        return {}

    def collect(
        self,
        learned: Mapping[int, Learned],
        seconds: Mapping[int, float],
        tuned: dict[str, Any],
        say: Say,
    ) -> Results:
        """All figures on the test trials, from what was learned."""
        data, quick, practice = self.load(), self.load(quick=True), trials(TRAIN, SEARCH_BLOCKS)
        first = next(iter(learned))
        numbers = {str(seed): result.numbers for seed, result in learned.items()}
        shipped = self.build(learned[first].numbers, data[0].rate)
        results = Results(
            self.name, self.protocol, self.metric, (), {}, {}, self.learned(shipped), len(data),
            details={"numbers": numbers, **tuned},
        )  # fmt: skip
        baselines: dict[str, Score] = {}
        for name, score in self.baselines(data, results):
            baselines[name] = score
            say(f"{self.name}, {name}: {score.metrics}")
        evaluated = []
        estimates = self.estimates([result.numbers for result in learned.values()], Practice.of(data))
        for seed, estimate in zip(learned, estimates, strict=True):
            score = self.score_estimate(data, estimate, 0.0)
            evaluated.append(SeedScore(score.metrics, score.by_recording, seconds[seed], seed))
            say(f"{self.name}, seed {seed}: {score.metrics}")
        tables = {
            "Validation on training trials left out of the search (first two minutes, degrees)": self._validation(
                practice, learned, results
            )
        }
        return Results(
            self.name, self.protocol, self.metric, tuple(evaluated), baselines, self.targets(baselines),
            self.learned(shipped), len(data), self.evaluate(shipped, quick).metrics,
            {**results.details, "tables": tables},
        )  # fmt: skip

    # ---- parts ----------------------------------------------------------------------------------------------

    def _delayed(self, data: Sequence[Recording], paths: Sequence[Tensor], results: Results) -> list[Tensor]:
        delay = self.gyro_delay(results)
        return [published.delayed(path, trial, delay) for path, trial in zip(paths, data, strict=True)]

    def _validation(
        self, practice: list[Recording], learned: Mapping[int, Learned], results: Results
    ) -> dict[str, dict[str, float]]:
        method = published.methods(magnetometer=self.magnetometer)[published.VQF]
        paths = [method(trial) for trial in practice]
        rows = {
            published.VQF: scores(practice, paths, self.metric),
            published.VQF + published.DELAYED: scores(practice, self._delayed(practice, paths, results), self.metric),
            "ours, mean of seeds": {
                trial: statistics.fmean(result.left_out[i] for result in learned.values())
                for i, trial in enumerate(TRAIN)
            },
        }
        return {name: {**row, "mean": statistics.fmean(row.values())} for name, row in rows.items()}


def first_numbers(results: Results) -> Numbers:
    """The learned numbers of the shipped filter."""
    numbers: Numbers = next(iter(results.details["numbers"].values()))
    return numbers
