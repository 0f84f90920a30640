"""What is learned for BROAD, from training trials alone: two delays and a field in closed form, the rest by a search.

The error is flat around its least, so the search returns the middle of its best candidates instead of the best: seeds
differ little, and six trials are not read too closely. How well it does on a trial it has not seen, it measures by
leaving out one training trial after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from tasks.broad.model import Numbers, Path, errors, headings_of, tilts_of
from tasks.broad.orientation import error_quaternion, scored
from tasks.broad.protocol import Blocks
from torch import Tensor

from fwnkf.core import rotation
from fwnkf.core.gaussian import matvec
from fwnkf.shapes import Float
from fwnkf.systems.attitude import HandheldConfig
from fwnkf.systems.heading import HeadingConfig

GENERATIONS, BEST = 2, 5
CHILDREN, HEADING_CHILDREN = 14, 40
STEPS, HEADING_STEPS = (0.3, 0.15), (0.5, 0.25)
"""Spread of each generation, in the logarithm of every number."""
MAGNET = 2.5
"""µT an axis: a phone some centimetres away. Made up, since no training trial has a magnet."""
HAND = (
    "cycle_std", "cycle_hertz", "cycle_seconds", "slow_std", "slow_seconds", "reach_power", "gyro_density", "gyro_walk",
    "accelerometer_density", "accelerometer_walk", "rate_std", "rate_seconds", "position_std", "rest_velocity_std",
    "rest_rate_std", "accelerometer_bias_std",
)  # fmt: skip
DRIFT = (
    "heading_std", "bias_std", "bias_walk", "rate_std", "rate_seconds", "density", "magnet_std", "local_std",
    "local_seconds", "magnetometer_std",
)  # fmt: skip
"""What is searched."""
Say = Callable[[str], Any]


@dataclass(frozen=True)
class Found:
    """Numbers, and the error on each training trial of the numbers found without it, degrees."""

    numbers: Numbers
    left_out: list[float]


@dataclass(frozen=True)
class Space:
    """Where to search: the numbers, their start, how far to look and how often, and how to judge."""

    start: Numbers
    children: int
    steps: tuple[float, ...]
    fit: Callable[[Sequence[int]], Numbers]
    """Closed-form numbers from some of the recordings, by their place."""
    judge: Callable[[list[Numbers]], Float[Tensor, "C K"]]
    """The error of each candidate on each trial."""
    groups: list[list[int]]
    """Of each recording its places among the trials; they are left out together."""


def tilt_search(trials: Sequence[Blocks], seed: int, say: Say) -> Found:
    """The hand's numbers and the gyroscope's delay."""
    start = {name: getattr(HandheldConfig(), name) for name in HAND}
    ages = [delay(path, trial) for path, trial in zip(tilts_of([{}], trials)[0], trials, strict=True)]

    def fit(some: Sequence[int]) -> Numbers:
        return {"delay": max(sum(ages[i] for i in some) / len(some), 0.0)}

    def judge(tried: list[Numbers]) -> Tensor:
        return torch.tensor([errors(trials, paths, "inclination_deg") for paths in tilts_of(tried, trials)])

    groups = [[i] for i in range(len(trials))]
    return search(Space(start, CHILDREN, STEPS, fit, judge, groups), seed, say)


def heading_search(trials: Sequence[Blocks], paths: Sequence[Path], seed: int, say: Say) -> Found:
    """The field and its disturbances; each trial counts twice, once with a made-up magnet on the sensor."""
    generator = torch.Generator().manual_seed(seed)
    drawn = MAGNET * torch.randn(len(trials), 3, generator=generator, dtype=torch.float64)
    both = [*trials, *(with_magnet(trial, magnet) for trial, magnet in zip(trials, drawn.unbind(0), strict=True))]
    start = {name: getattr(HeadingConfig(), name) for name in DRIFT}
    fits = calibrations(trials, paths, start)

    def fit(some: Sequence[int]) -> Numbers:
        return fits[tuple(some)]

    def judge(tried: list[Numbers]) -> Tensor:
        twice = [*paths, *paths]
        return torch.tensor([errors(both, found, "orientation_deg") for found in headings_of(tried, both, twice)])

    groups = [[i, i + len(trials)] for i in range(len(trials))]
    return search(Space(start, HEADING_CHILDREN, HEADING_STEPS, fit, judge, groups), seed, say)


def search(space: Space, seed: int, say: Say) -> Found:
    """The middle of the best candidates by the geometric mean of the trials' errors: a small evolution strategy."""
    generator = torch.Generator().manual_seed(seed)
    names, everything = list(space.start), range(len(space.groups))
    centre = torch.tensor([space.start[name] for name in names], dtype=torch.float64).log()
    points = logs = torch.empty(0)

    def named(point: Tensor, some: Sequence[int]) -> Numbers:
        return space.fit(some) | dict(zip(names, point.exp().tolist(), strict=True))

    def middle(some: Sequence[int]) -> Tensor:
        places = [place for i in some for place in space.groups[i]]
        return points[logs[:, places].mean(-1).argsort()[:BEST]].mean(0)

    def judged(tried: list[Numbers]) -> Tensor:
        return space.judge(tried).double().log().nan_to_num(nan=10.0, posinf=10.0)

    for number in range(GENERATIONS):
        drawn = torch.randn(space.children, len(names), generator=generator, dtype=torch.float64)
        drawn = centre + space.steps[number] * drawn
        found = judged([named(point, everything) for point in drawn])
        points, logs = (drawn, found) if number == 0 else (torch.cat((points, drawn)), torch.cat((logs, found)))
        centre = middle(everything)
        say(f"broad seed {seed}, generation {number}: {float(logs.mean(-1).min().exp()):.4f} degrees in training")
    others = [[i for i in everything if i != out] for out in everything]
    alone = judged([named(middle(some), some) for some in others]).exp()
    return Found(named(centre, everything), [float(alone[i, group[0]]) for i, group in enumerate(space.groups)])


# ---- closed forms ---------------------------------------------------------------------------------------------------


def delay(path: Path, trial: Blocks) -> float:
    """The seconds by which a path is best turned on at the gyroscope's rate: least squares of the tilt it is off."""
    error, R, samples = _compared(path, trial)
    w, x, y, z = error.unbind(-1)
    # the error less its heading, a small turn about east and north
    apart = 2 * torch.stack((w * x + z * y, w * y - z * x), -1) / torch.hypot(w, z).unsqueeze(-1)
    rate = matvec(R, samples[:, :3])[:, :2]
    return -float((apart * rate).sum() / rate.square().sum())


def calibrations(trials: Sequence[Blocks], paths: Sequence[Path], start: Numbers) -> dict[tuple[int, ...], Numbers]:
    """The earth's field and the magnetometer's delay from all trials, and from all but each, by their truth.

    Least squares of ``m = Rᵀ f + b + τ ω × m``, each trial counting the same; what the untrained filter's heading is
    off on average then turns ``f``.
    """
    products = []
    for trial, path in zip(trials, paths, strict=True):
        _, R, samples = _compared(path, trial)
        m = samples[:, 6:]
        by_delay = torch.linalg.cross(samples[:, :3], m).unsqueeze(-1)
        X = torch.cat((R.mT, torch.eye(3, dtype=R.dtype).expand_as(R), by_delay), -1)
        products.append((torch.einsum("tij,tik->jk", X, X) / len(m), torch.einsum("tij,ti->j", X, m) / len(m)))
    everything = range(len(trials))
    subsets = [tuple(everything), *(tuple(i for i in everything if i != out) for out in everything)]
    fits = []
    for some in subsets:
        A, b = sum(products[i][0] for i in some), sum(products[i][1] for i in some)
        solved = torch.linalg.lstsq(A, torch.as_tensor(b).unsqueeze(-1)).solution.flatten().tolist()
        fits.append(start | {"field": tuple(solved[:3]), "magnetometer_delay": max(solved[6], 0.0)})
    found = {}
    for some, fit, turned in zip(subsets, fits, headings_of(fits, trials, paths), strict=True):
        off = sum(mean_heading(turned[i], trials[i]) for i in some) / len(some)
        back = rotation.exp(torch.tensor([0.0, 0.0, -off], dtype=torch.float64))
        field = matvec(rotation.to_matrix(back), back.new_tensor(fit["field"]))
        found[some] = {"field": tuple(field.tolist()), "magnetometer_delay": fit["magnetometer_delay"]}
    return found


def mean_heading(path: Path, trial: Blocks) -> float:
    """Mean signed heading error, radians."""
    error = _compared(path, trial)[0]
    return float((2 * torch.atan(error[:, 3] / error[:, 0])).mean())


def _compared(path: Path, trial: Blocks) -> tuple[Tensor, Tensor, Tensor]:
    """Where it counts: the error quaternion, the true orientation as a matrix, the readings."""
    counted, truth = scored(trial.trial), trial.trial.truth
    assert truth is not None
    truth = rotation.normalize(truth[counted])
    error = error_quaternion(path[counted].to(truth), truth)
    return error, rotation.to_matrix(truth), trial.trial.observations[counted]


def with_magnet(trial: Blocks, magnet: Float[Tensor, " 3"]) -> Blocks:
    """The trial as if a magnet were fixed to the sensor."""
    shift = torch.nn.functional.pad(magnet, (6, 0)).to(trial.trial.observations)
    return replace(trial, trial=replace(trial.trial, observations=trial.trial.observations + shift))
