"""``uipdb``: ranges between body-worn radios that were measured but hidden, predicted from those that were not."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fwnkf import Filter, save
from fwnkf.metrics.consistency import coverage, coverage_scale
from fwnkf.shapes import Bool, Float, Int
from tasks.interface import SEEDS, Say, Task, parameters
from tasks.results import Results, Score, SeedScore, Target
from tasks.uipdb import baselines as baseline
from tasks.uipdb.model import RangeModel, fit
from tasks.uipdb.protocol import MASKINGS, RANGES, SUBJECTS, Masking, Record, sessions, test_masks

RATIO = "ratio_to_kf"
TARGET = 0.8
"""Of the error of the better Kalman filter with fitted noise, mean over both maskings."""
KALMAN = ("kf_random_walk", "kf_constant_velocity")
CONSTANT = "constant_covariance"
QUICK_STEPS = 300
LEVEL_STEPS = 3000
"""Steps of a session on which the level of the variances is set."""
PIECE = 500
"""Steps filtered at once: the covariances of a whole session would take gigabytes."""
ABOUT = """\
Fifteen ranges between six radios worn on the body (UIP-DB), 20 Hz. Filter `adaptive_kf`, a linear Kalman filter of
{states} states in float64: every range is an autoregression of order {order} by least squares, as in the baseline `ar`,
their innovations are correlated, and the covariance of the innovations follows those of the last second
(innovation-based adaptive estimation; half-life {half_life:g} s, correlations shrunk by {shrink:g}). One factor
({level:.2f} for seed 0) makes the stated variances cover 95 % of the ranges hidden from the subject held back. There is
no network. A seed decides which training session is left out.

Subjects: {subjects}. `random` hides 20 % of the ranges at random, `block` all ranges for whole seconds, 20 % of the
time; errors are the RMSE over hidden ranges in millimetres. `nis` is error over stated variance of the hidden ranges,
`coverage` the share of them within their 95 % interval. `constant_covariance` is the same filter with the innovations'
covariance of the training sessions throughout, and no factor. The ratio is that to the better of the two Kalman
filters with maximum-likelihood noise, mean over both maskings; ratios by session are to the same denominators.
"""
LIMITS = """\
This part of UIP-DB has no ground truth: the figures say how well measured ranges are predicted, errors of the radios
included, and nothing about distances. There are {sessions} test sessions of two subjects, so intervals over sessions
are rough. Over hidden seconds only the past of the ranges is used, and the filter predicts as the autoregressive
baseline does: correlation between ranges tells nothing while all of them are hidden. The inertial sensors are not
read. Order, adaptation and the factor of the variances were fitted on the subject held back; the form of the model was
chosen with the figures of the test subjects known, so those are not quite blind.

A covariance of the last second makes better predictions of single ranges and too small variances. One factor cannot be
right for both maskings: it is a little too large for single hidden ranges, and too small for hidden seconds, over
which the motion changes.

Attempts that are not shipped: (1) a recurrent encoder of 32 and 48 units that reads ranges and both inertial sensors,
200 and 100 batches on a model of order 2: hidden seconds a few percent better, single hidden ranges no better, and
minutes of training for each seed; (2) one ARIMA(3, 1, 3) spectrum for all ranges instead of autoregressions, with a
pull to the mean range: 60 states instead of {states}, 3.4 mm, and 80.6 mm over hidden seconds.
"""


@dataclass(frozen=True)
class Errors:
    """Errors of one method at hidden ranges by session and masking, the variances it states, and which range it is."""

    error: dict[tuple[str, Masking], Float[Tensor, " n"]]
    variance: dict[tuple[str, Masking], Float[Tensor, " n"]]
    """NaN where a method states none."""
    channel: dict[tuple[str, Masking], Int[Tensor, " n"]]

    def rmse(self, masking: Masking, session: str | None = None) -> float:
        """Millimetres, over every hidden range alike."""
        parts = [error for (name, kind), error in self.error.items() if kind == masking and session in (None, name)]
        return 1e3 * float(torch.cat(parts).square().mean().sqrt())

    def consistency(self, masking: Masking, channel: int | None = None) -> tuple[float, float]:
        """Mean of error squared over variance, and the share within the 95 % interval."""
        keys = [key for key in self.error if key[1] == masking]
        error, variance = (torch.cat([source[key] for key in keys]) for source in (self.error, self.variance))
        if channel is not None:
            mine = torch.cat([self.channel[key] for key in keys]) == channel
            error, variance = error[mine], variance[mine]
        covered = coverage(error.unsqueeze(-1), variance[:, None, None]).overall
        return float((error.square() / variance).mean()), float(covered)

    def relative(self, denominators: Mapping[Masking, float]) -> dict[str, float]:
        """The error of each session over given ones, mean over maskings."""
        names = dict.fromkeys(name for name, _ in self.error)
        return {
            name: sum(self.rmse(masking, name) / denominators[masking] for masking in MASKINGS) / len(MASKINGS)
            for name in names
        }


class TestData:
    """The test sessions under both maskings side by side, padded by measured samples that are not scored."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.names = [record.name for record in records]
        length = max(len(record.y) for record in records)

        def padded(x: Tensor) -> Tensor:
            return torch.cat((x, x[-1:].expand(length - len(x), -1)))

        def filled(mask: Tensor) -> Tensor:
            return torch.cat((mask, torch.ones(length - len(mask), mask.shape[-1], dtype=torch.bool)))

        self.keys = [(name, masking) for masking in MASKINGS for name in self.names]
        self.y: Float[Tensor, "B T 15"] = torch.stack([padded(record.y) for record in records]).repeat(2, 1, 1)
        masks = [mask for masking in MASKINGS for mask in test_masks(list(records), masking)]
        self.shown: Bool[Tensor, "B T 15"] = torch.stack([filled(mask) for mask in masks])

    def errors(self, predicted: Float[Tensor, "B T 15"], variance: Float[Tensor, "B T 15"] | None = None) -> Errors:
        """Errors of a prediction at the hidden ranges."""
        variance = torch.full_like(predicted, torch.nan) if variance is None else variance
        channels = torch.arange(predicted.shape[-1]).expand(predicted.shape[1:])
        tables: list[dict[tuple[str, Masking], Tensor]] = [{}, {}, {}]
        for i, key in enumerate(self.keys):
            hidden = ~self.shown[i]
            values = ((predicted[i] - self.y[i]).double(), variance[i].double(), channels)
            for table, value in zip(tables, values, strict=True):
                table[key] = value[hidden]
        return Errors(*tables)


class HeldOutRanges(Task):
    """Ranges that were measured but hidden, from those shown at present and in the past."""

    name = "uipdb"
    title = "Held-out ranges between body-worn radios (UIP-DB)"
    protocol = "ranges hidden at random (20 %) and for whole seconds (20 % of the time), two other subjects, causal"
    metric = RATIO
    label = "RMSE of hidden ranges over that of the better Kalman filter with fitted noise"
    recording = "session"

    def load(self, *, quick: bool = False) -> TestData:
        records = sessions("test")
        return TestData([record.part(0, QUICK_STEPS) for record in records] if quick else records)

    def baselines(self, data: Any, results: Results | None) -> Iterator[tuple[str, Score]]:
        if results is None:
            records, held_back = sessions("train"), sessions("val")
            return self._baselines(data, baseline.fit(records), fit(records, held_back, SEEDS[0]))
        return self._baselines(data, results.details["baselines"], RangeModel.parse(results.details["model"]))

    def _baselines(self, data: TestData, fitted: dict[str, Any], model: RangeModel) -> Iterator[tuple[str, Score]]:
        """All are computed before the first is given: every ratio needs the Kalman filters."""
        errors: dict[str, Errors] = {}
        seconds: dict[str, float] = {}
        for name, method in baseline.predictions(fitted, data.y, data.shown).items():
            begin = time.process_time()
            errors[name] = data.errors(*method())
            seconds[name] = time.process_time() - begin
        begin = time.process_time()
        errors[CONSTANT] = hidden_errors(model.filter(adaptive=False), data)
        seconds[CONSTANT] = time.process_time() - begin
        best = {masking: min(errors[name].rmse(masking) for name in KALMAN) for masking in MASKINGS}
        for name, each in errors.items():
            metrics = {RATIO: _ratio(metrics_of(each), best), **metrics_of(each)}
            yield name, Score(metrics, each.relative(best), seconds[name])

    def evaluate(self, model: Filter, data: Any) -> Score:
        begin = time.process_time()
        return Score(metrics_of(hidden_errors(model, data)), cpu_seconds=time.process_time() - begin)

    def compare(self, score: Score, baselines: Mapping[str, Score]) -> dict[str, float]:
        return {RATIO: _ratio(score.metrics, _denominators(baselines))}

    def targets(self, baselines: Mapping[str, Score]) -> dict[str, Target]:
        return {RATIO: TARGET}

    def train(self, folder: Path, *, seeds: Sequence[int] = SEEDS, say: Say = print) -> Results:
        records, held_back = sessions("train"), sessions("val")
        data, quick = self.load(), self.load(quick=True)
        fitted = baseline.fit(records)
        scores: list[SeedScore] = []
        baselines: dict[str, Score] = {}
        details: dict[str, Any] = {}
        small: dict[str, float] = {}
        learned: dict[str, int] = {}
        for seed in seeds:
            begin = time.process_time()
            model = calibrated(fit(records, held_back, seed), held_back)
            spent = time.process_time() - begin
            shipped = model.filter()
            if seed == seeds[0]:
                save(shipped, folder)
                baselines = dict(self._baselines(data, fitted, model))
                small, learned = self.evaluate(shipped, quick).metrics, self.learned(shipped)
                details = {"baselines": fitted, "model": model.plain()}
            errors = hidden_errors(shipped, data)
            best = _denominators(baselines)
            metrics = {RATIO: _ratio(metrics_of(errors), best), **metrics_of(errors)}
            scores.append(SeedScore(metrics, errors.relative(best), spent, seed))
            say(f"{self.name}, seed {seed}: {metrics}")
            if seed == seeds[0]:
                details["tables"] = {f"Hidden ranges by channel, seed {seed}": by_channel(errors)}
        return Results(
            self.name, self.protocol, self.metric, tuple(scores), baselines, self.targets(baselines), learned,
            len(data.names), small, details,
        )  # fmt: skip

    def learned(self, model: Filter) -> dict[str, int]:
        """Autoregressions, the covariance of their innovations, half-life, shrinkage and the factor of variances."""
        channels = model.observation_dim
        order = model.layout.size // channels
        count = channels * (order + 1) + channels * (channels + 1) // 2 + 3
        return parameters(model, {}) | {"constants": count}

    def about(self, results: Results) -> str:
        model = results.details["model"]
        subjects = "; ".join(f"{split} {', '.join(names)}" for split, names in SUBJECTS.items())
        order = len(model["coefficients"][0]) - 1
        return ABOUT.format(**model, subjects=subjects, order=order, states=order * len(RANGES))

    def limits(self, results: Results) -> str:
        states = len(RANGES) * (len(results.details["model"]["coefficients"][0]) - 1)
        return LIMITS.format(sessions=results.records, states=states)


@torch.no_grad()
def hidden_errors(model: Filter, data: TestData) -> Errors:
    """A filter over the test sessions, in pieces; hidden ranges are NaN on the way in."""
    y = torch.where(data.shown, data.y, torch.nan).to(model.dtype)
    H, R = model.get_buffer("H"), model.get_buffer("R").diagonal()
    state: Any = None
    means, variances = [], []
    for piece, shown in zip(y.split(PIECE, 1), data.shown.split(PIECE, 1), strict=True):
        track = model.run(piece, mask=shown, state=state).raise_for_status()
        state = track.state
        means.append(model.observe(track.mean))
        variances.append(((H @ track.cov) * H).sum(-1) + R)
    return data.errors(torch.cat(means, 1), torch.cat(variances, 1))


def calibrated(model: RangeModel, records: Sequence[Record]) -> RangeModel:
    """The model with the level at which its intervals cover 95 % of ranges hidden from these sessions."""
    found = hidden_errors(model.filter(), TestData([record.part(0, LEVEL_STEPS) for record in records]))
    error, variance = (torch.cat(list(values.values())) for values in (found.error, found.variance))
    return model._replace(level=coverage_scale(error[:, None], variance[:, None, None]))


def metrics_of(errors: Errors) -> dict[str, float]:
    """RMSE under each masking, and consistency where the method states variances."""
    metrics = {f"{masking}_mm": errors.rmse(masking) for masking in MASKINGS}
    for masking in MASKINGS:
        nis, covered = errors.consistency(masking)
        if not math.isnan(nis):
            metrics |= {f"nis_{masking}": nis, f"coverage_{masking}": covered}
    return metrics


def by_channel(errors: Errors) -> dict[str, dict[str, float]]:
    """Consistency of each range."""
    table: dict[str, dict[str, float]] = {}
    for channel, name in enumerate(RANGES):
        table[name] = {}
        for masking in MASKINGS:
            nis, covered = errors.consistency(masking, channel)
            table[name] |= {f"nis_{masking}": nis, f"coverage_{masking}": covered}
    return table


def _denominators(baselines: Mapping[str, Score]) -> dict[Masking, float]:
    return {masking: min(baselines[name].metrics[f"{masking}_mm"] for name in KALMAN) for masking in MASKINGS}


def _ratio(metrics: Mapping[str, float], denominators: Mapping[Masking, float]) -> float:
    return sum(metrics[f"{masking}_mm"] / denominators[masking] for masking in MASKINGS) / len(MASKINGS)
