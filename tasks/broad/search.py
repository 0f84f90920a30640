"""What is learned for BROAD from the training trials: delays and field in closed form, the constants by a search.

The error is flat around its minimum, so the search returns the mean of its best candidates instead of the best one:
seeds differ little, and six trials are not overfitted. The error on unseen trials is estimated by leaving out one
training trial after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fwnkf.core import rotation
from fwnkf.core.gaussian import matvec
from fwnkf.core.preprocess import Inputs
from fwnkf.data.recording import Recording
from fwnkf.identify.delay import orientation_delay
from fwnkf.metrics.orientation import error_quaternion
from fwnkf.shapes import Float
from fwnkf.systems import HandheldConfig, HeadingConfig
from tasks.broad.consistency import tilt_consistency
from tasks.broad.filters import TILT, Numbers, Paths, blocks_of, headings_of, tilts_of
from tasks.broad.trials import errors, scored, side_by_side, truth_of

HARD_IRON = 2.5
"""µT an axis, about that of a phone some centimetres away; simulated, because no training trial has a magnet."""
HAND = (
    "oscillation_std", "oscillation_hertz", "oscillation_seconds", "drift_std", "drift_seconds", "speed_exponent",
    "gyro_density", "gyro_walk", "accelerometer_density", "accelerometer_walk", "rate_error_std", "rate_error_seconds",
    "position_std", "rest_velocity_std", "rest_rate_std", "accelerometer_bias_std",
)  # fmt: skip
MAGNETIC = (
    "heading_std", "bias_std", "bias_walk", "rate_error_std", "rate_error_seconds", "density", "hard_iron_std",
    "disturbance_std", "disturbance_seconds", "magnetometer_std",
)  # fmt: skip
"""The constants that are searched."""
Say = Callable[[str], Any]


@dataclass(frozen=True)
class Budget:
    """Candidates of each generation, the spread of each generation (of the logarithm), and how many are averaged."""

    candidates: int
    spreads: tuple[float, ...]
    best: int = 5


TILT_BUDGET, HEADING_BUDGET = Budget(14, (0.3, 0.15)), Budget(40, (0.5, 0.25))


@dataclass(frozen=True, eq=False)
class Practice:
    """Training trials in one batch, with what a tilt filter reads of them at each step."""

    trials: list[Recording]
    samples: Float[Tensor, "N T 9"]
    blocks: Inputs
    rate: float

    @classmethod
    def of(cls, trials: list[Recording]) -> Practice:
        samples, rate = side_by_side(trials), trials[0].rate
        return cls(trials, samples, blocks_of(samples, rate), rate)

    @property
    def turning(self) -> Float[Tensor, "N K 1"]:
        """The norm of the rate at each step."""
        assert self.blocks.u is not None
        return self.blocks.u[..., :3].norm(dim=-1, keepdim=True)


@dataclass(frozen=True)
class Learned:
    """Numbers, and the error in degrees on each training trial of the numbers learned without it."""

    numbers: Numbers
    left_out: list[float]


@dataclass(frozen=True)
class Space:
    """What to search: the starting values, and how candidates are completed and evaluated."""

    start: Numbers
    fit: Callable[[Sequence[int]], Numbers]
    """Closed-form numbers from some of the recordings, given by index."""
    evaluate: Callable[[list[Numbers]], Float[Tensor, "C K"]]
    """The error of each candidate on each trial."""
    groups: list[list[int]]
    """The indices among the trials of each recording; they are left out together."""


def tilt_search(practice: Practice, seed: int, say: Say, budget: Budget = TILT_BUDGET) -> Learned:
    """The constants of the hand model and the delay of the gyroscope."""
    start = {name: getattr(HandheldConfig(), name) for name in HAND}
    (untrained,) = tilts_of([{}], practice.samples, practice.blocks, practice.rate)
    delays = [path_delay(path, trial) for path, trial in zip(untrained.paths, practice.trials, strict=True)]

    def fit(some: Sequence[int]) -> Numbers:
        return {"delay": max(sum(delays[i] for i in some) / len(some), 0.0)}

    def evaluate(candidates: list[Numbers]) -> Tensor:
        each = tilts_of(candidates, practice.samples, practice.blocks, practice.rate)
        return torch.tensor([errors(practice.trials, estimate.paths, "inclination_deg") for estimate in each])

    groups = [[i] for i in range(len(practice.trials))]
    learned = search(Space(start, fit, evaluate, groups), seed, say, budget)
    return replace(learned, numbers=learned.numbers | {"variance_scale": variance_scale(practice, learned.numbers)})


def heading_search(practice: Practice, paths: Paths, seed: int, say: Say, budget: Budget = HEADING_BUDGET) -> Learned:
    """The field and its disturbances; each trial counts twice, once with a simulated magnet on the sensor."""
    generator = torch.Generator().manual_seed(seed)
    count = len(practice.trials)
    magnets = HARD_IRON * torch.randn(count, 3, generator=generator, dtype=torch.float64)
    samples = torch.cat((practice.samples, with_magnet(practice.samples, magnets)))
    trials, twice = [*practice.trials, *practice.trials], torch.cat((paths, paths))
    start = {name: getattr(HeadingConfig(), name) for name in MAGNETIC}
    fits = calibrations(practice, paths, start)

    def fit(some: Sequence[int]) -> Numbers:
        return fits[tuple(some)]

    def evaluate(candidates: list[Numbers]) -> Tensor:
        each = headings_of(candidates, samples, twice, practice.turning.repeat(2, 1, 1), practice.rate)
        return torch.tensor([errors(trials, estimate.paths, "orientation_deg") for estimate in each])

    groups = [[i, i + count] for i in range(count)]
    return search(Space(start, fit, evaluate, groups), seed, say, budget)


def search(space: Space, seed: int, say: Say, budget: Budget) -> Learned:
    """The mean of the best candidates by the geometric mean of the trials' errors: a small evolution strategy."""
    generator = torch.Generator().manual_seed(seed)
    names, everything = list(space.start), range(len(space.groups))
    centre = torch.tensor([space.start[name] for name in names], dtype=torch.float64).log()
    points, logs = centre.new_empty(0, len(names)), centre.new_empty(0, sum(map(len, space.groups)))

    def named(point: Tensor, some: Sequence[int]) -> Numbers:
        return space.fit(some) | dict(zip(names, point.exp().tolist(), strict=True))

    def mean_of_best(some: Sequence[int]) -> Tensor:
        columns = [column for i in some for column in space.groups[i]]
        return points[logs[:, columns].mean(-1).argsort()[: budget.best]].mean(0)

    def log_errors(candidates: list[Numbers]) -> Tensor:
        return space.evaluate(candidates).double().log().nan_to_num(nan=10.0, posinf=10.0)

    for generation, spread in enumerate(budget.spreads):
        drawn = torch.randn(budget.candidates, len(names), generator=generator, dtype=torch.float64)
        drawn = centre + spread * drawn
        points = torch.cat((points, drawn))
        logs = torch.cat((logs, log_errors([named(point, everything) for point in drawn])))
        centre = mean_of_best(everything)
        say(f"broad seed {seed}, generation {generation}: {float(logs.mean(-1).min().exp()):.4f} degrees in training")
    others = [[i for i in everything if i != out] for out in everything]
    alone = log_errors([named(mean_of_best(some), some) for some in others]).exp()
    return Learned(named(centre, everything), [float(alone[i, group[0]]) for i, group in enumerate(space.groups)])


# ---- closed forms ---------------------------------------------------------------------------------------------------


def path_delay(path: Float[Tensor, "T 4"], trial: Recording) -> float:
    """The delay of an estimate in seconds, over the samples that count."""
    counted, truth = scored(trial), truth_of(trial)
    return orientation_delay(path[: len(trial)][counted], truth[counted], trial.observations[counted, :3])


def variance_scale(practice: Practice, numbers: Numbers) -> float:
    """Squared errors of the tilt over their stated variances: the factor that makes NEES one in training."""
    (estimate,) = tilts_of([numbers], practice.samples, practice.blocks, practice.rate)
    cov = estimate.trajectory.cov[..., TILT, TILT]
    return tilt_consistency(practice.trials, cov, estimate.paths)["nees_tilt"]


def calibrations(practice: Practice, paths: Paths, start: Numbers) -> dict[tuple[int, ...], Numbers]:
    """The earth's field and the magnetometer's delay from all trials, and from all but each, by their truth.

    Least squares of ``m = Rᵀ f + b + τ ω × m`` with equal weights of the trials. The field is then rotated by the mean
    heading error of the untrained filter.
    """
    products = []
    for trial in practice.trials:
        counted = scored(trial)
        R = rotation.to_matrix(rotation.normalize(truth_of(trial)[counted]))
        gyro, _, m = trial.observations[counted].split(3, -1)
        by_delay = torch.linalg.cross(gyro, m).unsqueeze(-1)
        X = torch.cat((R.mT, torch.eye(3, dtype=R.dtype).expand_as(R), by_delay), -1)
        products.append((torch.einsum("tij,tik->jk", X, X) / len(m), torch.einsum("tij,ti->j", X, m) / len(m)))
    everything = range(len(practice.trials))
    subsets = [tuple(everything), *(tuple(i for i in everything if i != out) for out in everything)]
    fits = []
    for some in subsets:
        A, b = sum(products[i][0] for i in some), sum(products[i][1] for i in some)
        solution = torch.linalg.lstsq(A, torch.as_tensor(b).unsqueeze(-1)).solution.flatten().tolist()
        fits.append(start | {"field": tuple(solution[:3]), "delay": max(solution[6], 0.0)})
    results = {}
    estimates = headings_of(fits, practice.samples, paths, practice.turning, practice.rate)
    for some, fit, each in zip(subsets, fits, estimates, strict=True):
        offset = sum(mean_heading_error(each.paths[i], practice.trials[i]) for i in some) / len(some)
        back = rotation.exp(torch.tensor([0.0, 0.0, -offset], dtype=torch.float64))
        field = matvec(rotation.to_matrix(back), back.new_tensor(fit["field"]))
        results[some] = {"field": tuple(field.tolist()), "delay": fit["delay"]}
    return results


def mean_heading_error(path: Float[Tensor, "T 4"], trial: Recording) -> float:
    """Mean signed heading error, radians."""
    counted, truth = scored(trial), truth_of(trial)
    error = error_quaternion(path[: len(trial)][counted], truth[counted])
    return float((2 * torch.atan(error[:, 3] / error[:, 0])).mean())


def with_magnet(samples: Float[Tensor, "N T 9"], magnets: Float[Tensor, "N 3"]) -> Float[Tensor, "N T 9"]:
    """The samples as if a magnet were fixed to each sensor."""
    return samples + torch.nn.functional.pad(magnets, (6, 0)).unsqueeze(1)
