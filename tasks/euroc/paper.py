"""EuRoC ``paper``: pooled windows of one second, the true initial state given.

Windows of one sequence are in all three splits, and a window comes with the name of its sequence. The filter takes that
name as a control, as the baseline "one constant bias for each sequence" does, and has one calibration for each
sequence: biases, gravity in the world frame, scale and misalignment, and a delay. All are fitted to training windows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fwnkf import Filter, Gaussian, build, save
from fwnkf.data.protocols import Records, Split
from fwnkf.metrics.accuracy import summarize
from fwnkf.preprocess import StrapdownIMU, StrapdownIMUConfig
from fwnkf.shapes import Float
from fwnkf.systems import CalibratedStrapdown, CalibratedStrapdownConfig
from fwnkf.systems.inertial_calibrated import CALIBRATION
from tasks.euroc import calibration as imu_calibration
from tasks.euroc import scores, strapdown, texts
from tasks.euroc.protocol import TEN, by_source, euroc, recordings
from tasks.interface import SEEDS, Say, Task
from tasks.results import Results, Score, SeedScore, Target

ATTITUDE = 10.0
"""Weight of the quaternion's errors: without it the gyroscope's numbers distort the attitude to improve velocity."""
QUICK = 60
"""Test windows of the quick subset."""


class PaperData(NamedTuple):
    """The split of one seed, and the test windows that are scored."""

    split: Split
    test: Records


class EurocPaper(Task):
    """Inertial navigation over one second on known flights."""

    name = "euroc"
    title = "Inertial navigation over 1 s with one calibration a flight (EuRoC, protocol `paper`)"
    protocol = "paper"
    metric = "mse"
    label = "MSE over the ten numbers of the state"
    recording = "sequence"
    published = "0.0352 ± 0.0035"

    def load(self, *, quick: bool = False) -> PaperData:
        """The split of the shipped seed."""
        split = euroc("paper", seed=SEEDS[0]).split
        return PaperData(split, split.test.take(torch.arange(QUICK)) if quick else split.test)

    def evaluate(self, model: Filter, data: PaperData) -> Score:
        begin = time.process_time()
        (belief,) = scores.run(model, data.test, u=site(data.test))
        return scored(data.test, belief, time.process_time() - begin)

    def baselines(self, data: PaperData, results: Results | None) -> Iterator[tuple[str, Score]]:
        """Biases from all windows of a sequence (``bias``) or fitted to its training windows (``fitted``)."""
        test, train, whole = data.test, data.split.train, data.split.whole()
        biases = dict(zip((span.source for span in whole.spans), strapdown.constant_bias(whole), strict=True))
        known = torch.stack([biases[span.source] for span in test.spans])
        free = ("gyro_bias", "accelerometer_bias")
        rows = by_source(train)
        fitted = {name: imu_calibration.fit(train.take(some), free)[:6] for name, some in rows.items()}
        own = torch.stack([fitted[span.source] for span in test.spans])
        functions = {
            "hold": lambda: strapdown.hold(test),
            "constant_velocity": lambda: strapdown.constant_velocity(test),
            "strapdown": lambda: strapdown.strapdown(test),
            "strapdown_bias": lambda: strapdown.strapdown(test, known),
            "strapdown_fitted": lambda: strapdown.strapdown(test, own),
        }
        for name, function in functions.items():
            begin = time.process_time()
            mean = function()
            yield name, scored_mean(test, mean, time.process_time() - begin)
        begin = time.process_time()
        belief = strapdown.strapdown_ekf(test, train)
        belief = Gaussian(strapdown.same_sign(belief.mean, test.truth), belief.cov)
        yield "strapdown_ekf", scored(test, belief, time.process_time() - begin)

    def targets(self, baselines: object) -> dict[str, Target]:
        return {"mse": 0.00025}

    def learned(self, model: Filter) -> dict[str, int]:
        system = model.system
        assert isinstance(system, CalibratedStrapdown)
        # two densities and two biases beside the calibrations
        return {"constants": int((system.calibration != 0).sum()) + 4}

    def train(self, folder: Path, *, seeds: Sequence[int] = SEEDS, say: Say = print) -> Results:
        sequences = recordings(TEN)
        seed_scores: list[SeedScore] = []
        baselines: dict[str, Score] = {}
        quick: dict[str, float] = {}
        learned: dict[str, int] = {}
        records = 0
        for seed in seeds:
            split = euroc("paper", seed=seed, sequences=sequences).split
            begin = time.process_time()
            model = calibrated(split.train)
            seconds = time.process_time() - begin
            data = PaperData(split, split.test)
            score = self.evaluate(model, data)
            seed_scores.append(SeedScore(score.metrics, score.by_recording, seconds, seed))
            say(f"{self.name}, seed {seed}: {score.metrics}")
            if seed == seeds[0]:
                save(model, folder)
                learned, records = self.learned(model), len(split.test)
                quick = self.evaluate(model, self.load(quick=True)).metrics
                baselines = dict(self.baselines(data, None))
        return Results(
            self.name, self.protocol, self.metric, tuple(seed_scores), baselines, self.targets(baselines), learned,
            records, quick,
        )  # fmt: skip

    def about(self, results: Results) -> str:
        return texts.paper_about(results)

    def limits(self, results: Results) -> str:
        return texts.paper_limits(results)


def calibrated(train: Records) -> Filter:
    """The filter with a calibration for each sequence of the training windows, and noise fitted to their errors."""
    rows = by_source(train)
    table = train.y.new_zeros(1 + len(TEN), CALIBRATION)
    for i, name in enumerate(TEN):
        if name in rows:
            table[1 + i] = imu_calibration.fit(train.take(rows[name]), most=80, attitude=ATTITUDE)
    noise = imu_calibration.fit_noise(train, table[1:], [TEN.index(span.source) for span in train.spans])
    config = CalibratedStrapdownConfig(
        sites=len(TEN), accelerometer_density=noise.accelerometer_density, gyro_density=noise.gyro_density
    )
    system = CalibratedStrapdown(config).to(table)
    with torch.no_grad():
        system.calibration.copy_(table)
        system.bias_std.copy_(noise.biases)
    model = build("ekf", system=system)
    model.preprocess = StrapdownIMU(StrapdownIMUConfig(), system)
    return model


def site(records: Records) -> Float[Tensor, "N s"]:
    """The sequence of each window as a one-hot row, the control of the filter."""
    index = torch.tensor([TEN.index(span.source) for span in records.spans])
    return torch.nn.functional.one_hot(index, len(TEN)).to(records.y)


def scored(test: Records, belief: Gaussian, seconds: float) -> Score:
    """Mean squared error as the paper has it, errors by part, and consistency."""
    score = scored_mean(test, belief.mean, seconds)
    score.metrics.update(scores.consistency_of((test, belief)))
    return score


def scored_mean(test: Records, mean: Float[Tensor, "N T 10"], seconds: float) -> Score:
    errors = scores.errors(test, mean)
    metrics = {"mse": squared(test, mean), **{name: errors[name] for name in ("rmse_p", "rmse_v", "rmse_q")}}
    apart = {name: squared(test.take(rows), mean[rows]) for name, rows in sorted(by_source(test).items())}
    return Score(metrics, apart, seconds)


def squared(test: Records, mean: Float[Tensor, "N T 10"]) -> float:
    """The mean over steps and the ten numbers of the state, quaternions as raw differences."""
    return float(summarize(test.layout, (mean, None), test.truth, difference="raw")["mse"])
