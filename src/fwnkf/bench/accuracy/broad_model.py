"""The filter for BROAD: attitude of a sensor moved by hand, its few numbers found on other trials."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from ...core.gaussian import matvec
from ...data.broad_tasks import SAMPLES, Blocks, at_samples
from ...filters.base import Filter, build
from ...shapes import Float
from ...systems.attitude import Handheld, HandheldConfig
from ...types import Gaussian
from ..orientation import score, tilt, vqf_6d

GENERATIONS, CHILDREN = 2, 7
STEPS = (0.4, 0.25)
"""Spread of each generation, in the logarithm of every number."""


def handheld(numbers: dict[str, float], rate: float) -> Handheld:
    return Handheld(replace(HandheldConfig(**numbers), dt=SAMPLES / rate)).double()


@torch.no_grad()
def estimate(model: Filter, trials: list[Blocks]) -> list[Float[Tensor, "T 4"]]:
    """The orientation at every sample of every trial, all trials side by side; no magnetometer."""
    system = model.system
    assert isinstance(system, Handheld)
    length = max(len(trial.rate) for trial in trials)

    def padded(x: Tensor) -> Tensor:
        return torch.cat((x, x[-1:].expand(length - len(x), *x.shape[1:])))

    rate = torch.stack([padded(trial.rate) for trial in trials])
    u = torch.cat((rate, torch.stack([padded(trial.force) for trial in trials])), -1)
    resting = torch.stack([padded(trial.resting) for trial in trials]).unsqueeze(-1)
    y = torch.cat((torch.zeros_like(u), rate), -1)
    mask = torch.cat((torch.ones_like(u[..., :3], dtype=torch.bool), resting.expand(-1, -1, 6)), -1)
    level = tilt(u[:, 0, 3:])
    first = system.layout.origin(u).expand(len(u), -1)
    prior = Gaussian(
        torch.cat((first[:, :6], level, first[:, 10:]), -1),
        torch.diag_embed(system.start_variances()).expand(len(u), 27, 27),
    )
    track = model.run(y, u, mask, prior=prior)
    found = []
    for i, trial in enumerate(trials):
        mean = track.mean[i, : len(trial.rate)]
        found.append(at_samples(trial, level[i], mean[:, 6:10], mean[:, 10:13]))
    return found


def inclinations(model: Filter, trials: list[Blocks]) -> list[float]:
    """Root mean squared inclination error of each trial, degrees."""
    paths = estimate(model, trials)
    return [float(score(trial.trial, path)["inclination_deg"]) for trial, path in zip(trials, paths, strict=True)]


class Candidates(Handheld):
    """Several systems side by side, each for as many consecutive records: a search costs little more than one run."""

    def __init__(self, systems: list[Handheld], records: int) -> None:
        super().__init__(systems[0].config)

        def stacked(parts: list[Tensor]) -> Tensor:
            return torch.stack(parts).repeat_interleave(records, 0)

        like = systems[0].layout.origin(systems[0].eye)
        self.register_buffer("outers", stacked([system._outer(like, None) for system in systems]))
        self.register_buffer("noises", stacked([system.process_noise(None) for system in systems]))
        self.register_buffer("variances", stacked([system.measurement_covariance() for system in systems]))
        self.register_buffer("sights", stacked([system.H for system in systems]))
        self.register_buffer("starts", stacked([system.start_variances() for system in systems]))

    def _outer(self, x: Tensor, dt: Tensor | None) -> Tensor:
        return self.get_buffer("outers")

    def process_noise(self, dt: Tensor | None) -> Tensor:
        return self.get_buffer("noises")

    def measurement_covariance(self) -> Tensor:
        return self.get_buffer("variances")

    def start_variances(self) -> Tensor:
        return self.get_buffer("starts")

    def observe(self, x: Tensor) -> Tensor:
        H = self.get_buffer("sights")
        # the observation is linear but for the quaternion, which it does not see: leave out its extra number
        return matvec(H, torch.cat((x[..., :6], x[..., 7:]), -1))

    def linearize_observation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.observe(x), self.get_buffer("sights")


def costs(tried: list[dict[str, float]], trials: list[Blocks], rival: list[float]) -> list[float]:
    """Of each candidate the mean logarithm of its error over VQF's."""
    system = Candidates([handheld(numbers, trials[0].trial.rate) for numbers in tried], len(trials)).double()
    errors = inclinations(build("ekf", system=system), trials * len(tried))
    ratios = torch.tensor(errors, dtype=torch.float64).view(len(tried), -1) / torch.tensor(rival)
    return [cost if math.isfinite(cost) else math.inf for cost in ratios.log().mean(-1).tolist()]


def search(trials: list[Blocks], seed: int, say: Callable[[str], Any]) -> tuple[dict[str, float], float]:
    """The numbers with the least error relative to VQF's, geometric mean over the trials: a small evolution strategy.

    Every generation is drawn around the weighted mean of the best so far. Fifteen numbers of physical meaning and six
    trials: there is little to overfit with.
    """
    generator = torch.Generator().manual_seed(seed)
    rival = [float(score(trial.trial, vqf_6d(trial.trial))["inclination_deg"]) for trial in trials]
    names = [name for name in asdict(HandheldConfig()) if name != "dt"]
    centre = torch.tensor([getattr(HandheldConfig(), name) for name in names], dtype=torch.float64).log()
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    known: list[tuple[float, Tensor]] = []
    for number in range(GENERATIONS):
        drawn = torch.randn(CHILDREN, len(names), generator=generator, dtype=torch.float64)
        points = centre + STEPS[number] * drawn
        if number == 0:
            points[0] = centre
        tried = [dict(zip(names, point.exp().tolist(), strict=True)) for point in points]
        known += zip(costs(tried, trials, rival), points, strict=True)
        known.sort(key=lambda pair: pair[0])
        centre = (weights.unsqueeze(-1) * torch.stack([point for _, point in known[: len(weights)]])).sum(0)
        say(f"broad seed {seed}, generation {number}: {math.exp(known[0][0]):.4f} of VQF's error on training trials")
    cost, point = known[0]
    return dict(zip(names, point.exp().tolist(), strict=True)), math.exp(cost)


def filter_of(numbers: dict[str, float], rate: float) -> Filter:
    """The filter that is shipped; without encoder and shaper it is the extended Kalman filter of the system."""
    return build("fwnkf", system=handheld(numbers, rate), shaping="none", hidden=0, residual_width=1)
