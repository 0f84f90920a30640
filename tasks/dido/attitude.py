"""``dido-attitude``: the vertical of a drone from raw gyroscope and accelerometer samples."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fwnkf import Filter, save
from fwnkf.core import rotation
from fwnkf.core.trajectory import Trajectory
from fwnkf.evaluation.evaluate import masked_square
from fwnkf.metrics.consistency import coverage, variance_ratio
from tasks.dido import attitude_baselines as baseline
from tasks.dido.attitude_filter import POOL, DroneConstants, fit_constants, fit_filter_without_truth, run, train_filter
from tasks.dido.protocol import RATE, TEST, TRAIN, VALIDATION, Flight, flights
from tasks.interface import SEEDS, Say, Task, parameters
from tasks.results import Results, Score, SeedScore, Target

METRIC = "inclination_deg"
TARGET = 0.80
"""Of the error of the best standard method, the oracle included."""
QUICK_FLIGHTS, QUICK_SECONDS = (2,), 8
AXES = ("roll", "pitch")
ABOUT = """\
The vertical of a quadrotor (DIDO data set, indoor flights at 400 Hz) from its gyroscope and accelerometer alone.
`fwnkf` on the `multirotor` system: thrust acts along the rotors' axis, so the accelerometer across it measures rotor
drag, hence velocity, hence tilt. Noise states model what drag leaves out: two oscillators for each channel, slow and
fast; there is no encoder and no network. The filter takes raw IMU samples: its preprocessing takes the constant bias
off and averages 16 samples into a step, and it starts at rest, at the tilt of the first second.

Drag and the noise's spectrum are trained by the likelihood of the innovations over windows of three seconds of the
training flights; biases, drag and force offset start from a least-squares calibration against motion capture on the
same flights. All baselines get that calibration. `ekf_rotor_drag` is the same system without noise states, trained in
the same way; `untrained` is the calibrated filter before training; `strapdown_given_start` is an oracle: it is given
the true attitude at the start.
"""
LIMITS = """\
- The gain over the standard methods comes from the drag model and the calibration: `untrained` and `ekf_rotor_drag`
  show what training and the noise states add to the accuracy, and to the consistency (NIS).
- It needs the drag of the airframe and still air: wind moves the estimate of the vertical.
- In the first seconds of a flight integrating the gyroscope can be better: drag needs time to tell a tilt.
- Vertical velocity is not observable here. Heading is arbitrary: there is no magnetometer.
- Motion capture and accelerometer disagree about the vertical by a constant of each flight, which no method here can
  tell from an error. It is part of what is left, and a reason why NEES of the tilt is above one: the stated covariance
  does not include the error of the truth's frame.
- One drone: flights of the test set are other flights of the same airframe, in the same room.
"""


class Attitude(Task):
    """Inclination from the raw IMU, initial attitude unknown."""

    name = "dido-attitude"
    title = "The vertical of a drone from gyroscope and accelerometer (DIDO)"
    protocol = (
        "strict: flights 0, 4, 8, 12 train, the others test but flight 7, which training flight 8 continues; whole "
        "flights, initial attitude unknown, scored from 1 s on"
    )
    metric = METRIC
    label = "inclination RMSE, degrees"
    recording = "flight"
    columns = (
        METRIC,
        "ratio",
        "ratio_to_ekf",
        "nis",
        *(f"{kind}_{axis}" for kind in ("nees", "coverage") for axis in AXES),
    )

    def load(self, *, quick: bool = False) -> list[Flight]:
        if not quick:
            return flights(TEST)
        stop = round(QUICK_SECONDS * RATE)
        parts = ("imu", "clean", "orientation", "velocity")
        return [replace(one, **{part: getattr(one, part)[:stop] for part in parts}) for one in flights(QUICK_FLIGHTS)]

    def baselines(self, data: Any, results: Results | None) -> Iterator[tuple[str, Score]]:
        return self._baselines(data, self._fit_baselines(print) if results is None else results.details)

    def _baselines(self, data: Sequence[Flight], fitted: Mapping[str, Any]) -> Iterator[tuple[str, Score]]:
        values = fitted["constants"]
        constants = DroneConstants(tuple(values["bias"]), values["drag"], tuple(values["offset"]))
        for name in baseline.STANDARD:
            begin = time.process_time()
            by_flight = baseline.errors(name, data, constants, fitted["gains"][name])
            yield name, Score({METRIC: _mean(by_flight)}, by_flight, time.process_time() - begin)
        for name, model in baseline.same_system(constants, fitted["ekf_rotor_drag"]):
            yield name, self.evaluate(model, data)

    def _fit_baselines(self, say: Say) -> dict[str, Any]:
        """Everything that is fitted for the baselines on the training flights, as plain values."""
        train = flights((*TRAIN, *VALIDATION))
        constants = fit_constants(train)
        ekf = train_filter(train, constants, SEEDS[0], say, noise_states=False)
        return {
            "constants": asdict(constants),
            "gains": baseline.tune(train, constants),
            "ekf_rotor_drag": baseline.describe_ekf(ekf),
        }

    def evaluate(self, model: Filter, data: Any) -> Score:
        begin = time.process_time()
        tracks = run(model, data)
        by_flight: dict[str, float] = {}
        consistency = []
        for flight, track in zip(data, tracks, strict=True):
            by_flight[flight.name] = baseline.inclination(flight, track.mean[:, 3:7])
            consistency.append(tilt_consistency(flight, track))
        here = [torch.ones_like(track.innovation, dtype=torch.bool) for track in tracks]
        squares = torch.cat(
            [masked_square(t.innovation, t.innovation_cov, present) for t, present in zip(tracks, here, strict=True)]
        )
        metrics = {METRIC: _mean(by_flight), "nis": float(squares.mean()) / tracks[0].innovation.shape[-1]}
        for name in consistency[0]:
            metrics[name] = _mean({str(i): each[name] for i, each in enumerate(consistency)})
        return Score(metrics, by_flight, time.process_time() - begin)

    def compare(self, score: Score, baselines: Mapping[str, Score]) -> dict[str, float]:
        own, best = score.metrics[METRIC], min(baselines[name].metrics[METRIC] for name in baseline.STANDARD)
        return {"ratio": own / best, "ratio_to_ekf": own / baselines[baseline.PLAIN_EKF].metrics[METRIC]}

    def targets(self, baselines: Mapping[str, Score]) -> dict[str, Target]:
        return {METRIC: TARGET * min(baselines[name].metrics[METRIC] for name in baseline.STANDARD)}

    def report_baselines(self, results: Results) -> Mapping[str, Score]:
        """All but the oracle, and but ours before training."""
        left_out = (baseline.ORACLE, baseline.UNTRAINED)
        return {name: score for name, score in results.baselines.items() if name not in left_out}

    def train(self, folder: Path, *, seeds: Sequence[int] = SEEDS, say: Say = print) -> Results:
        train, test = flights((*TRAIN, *VALIDATION)), self.load()
        fitted = self._fit_baselines(say)
        baselines = dict(self._baselines(test, fitted))
        for name, score in baselines.items():
            say(f"{self.name}, {name}: {score.metrics[METRIC]:.4g}")
        values = fitted["constants"]
        constants = DroneConstants(tuple(values["bias"]), values["drag"], tuple(values["offset"]))
        scores, quick, learned = [], {}, {}
        for seed in seeds:
            begin = time.process_time()
            model = train_filter(train, constants, seed, say)
            spent = time.process_time() - begin
            score = self.evaluate(model, test)
            score.metrics.update(self.compare(score, baselines))
            scores.append(SeedScore(score.metrics, score.by_recording, spent, seed))
            say(f"{self.name}, seed {seed}: {score.metrics}")
            if seed == seeds[0]:
                save(model, folder)
                quick, learned = self.evaluate(model, self.load(quick=True)).metrics, self.learned(model)
        return Results(
            self.name, self.protocol, self.metric, tuple(scores), baselines, self.targets(baselines), learned,
            len(test), quick, dict(fitted),
        )  # fmt: skip

    fits_without_truth = True
    fit_note = "Drag, white and coloured noise by `fwnkf.fit`, whole flights from rest; no motion capture is read."

    def fit_without_truth(self, data: Sequence[Flight], results: Results, *, say: Say = print) -> Score:
        """Drag and noise by the likelihood of innovations over whole flights, started from rest at the mean force."""
        begin = time.process_time()
        model = fit_filter_without_truth(flights((*TRAIN, *VALIDATION)), say)
        spent = time.process_time() - begin
        score = self.evaluate(model, data)
        score.metrics.update(self.compare(score, results.baselines))
        return Score(score.metrics, score.by_recording, spent)

    def learned(self, model: Filter) -> dict[str, int]:
        kinds = {
            "noise_states": "noise states",
            "system.sensors.force.drag": "constants",
            "system.sensors.force.log_deviation": "constants",
            "preprocess.bias": "constants",
        }
        counts = parameters(model, kinds)
        counts["constants"] += len(model.system.config.initial_offset)  # type: ignore[union-attr]
        return counts

    def about(self, results: Results) -> str:
        return ABOUT

    def limits(self, results: Results) -> str:
        old = results.details.get("all_other_flights")
        if not old:
            return LIMITS
        return LIMITS + (
            f"- Over {old['flights']} flights, those included that a training flight continues, the error is "
            f"{old[METRIC]:.4f} ± {old['std']:.4f} degrees.\n"
        )


def tilt_consistency(flight: Flight, track: Trajectory) -> dict[str, float]:
    """Error over stated variance, and 95 % coverage, of the tilt about the body's x and y axes, after the start.

    With ``q = q̂ ⊗ exp(δ)`` the verticals in the body frame give ``δ`` but for its part along the vertical (heading),
    ``v × v̂``; the covariance is projected likewise.
    """
    first = baseline.SKIP // POOL
    truth = flight.orientation[POOL - 1 :: POOL][: len(track.mean)]
    estimated, true = (rotation.to_matrix(q)[first:, 2, :] for q in (track.mean[:, 3:7], truth))
    error = torch.linalg.cross(true, estimated)
    across = torch.eye(3).to(estimated) - estimated.unsqueeze(-1) * estimated.unsqueeze(-2)
    cov: Tensor = across @ track.cov[first:, 3:6, 3:6] @ across.mT
    error, cov = error[:, :2], cov[:, :2, :2]
    ratios, covered = variance_ratio(error, cov), coverage(error, cov).by_dimension
    return {f"nees_{axis}": float(value) for axis, value in zip(AXES, ratios, strict=True)} | {
        f"coverage_{axis}": float(value) for axis, value in zip(AXES, covered, strict=True)
    }


def _mean(values: Mapping[str, float]) -> float:
    return sum(values.values()) / len(values)
