"""Filters with the weights of their initialisation stay finite on every simulated task, whatever the seed.

A gain network that diverges before its first training step has no gradient. Chaotic (Lorenz), driven (pendulum) and
unstable (inertial navigation: wrong corrections grow without bound) systems, from an unknown and from a known start.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

import fwnkf
from fwnkf.data.simulated import generate
from fwnkf.filters.stacked import FilterStack
from fwnkf.systems import LearnedSystem
from fwnkf.systems.strapdown import Strapdown, StrapdownConfig

FULL = [pytest.param(3, 30, id="short"), pytest.param(100, 1000, id="full", marks=pytest.mark.slow)]
TOGETHER = 20
"""Seeds run at once, which bounds the memory."""
RECORDS = 2
NARROW = {"recursive_kalmannet": {"fc2_mult": 2}, "bayesian_kalmannet": {"in_mult": 8, "members": 5}}


class Task(NamedTuple):
    system: fwnkf.System
    y: torch.Tensor
    u: torch.Tensor | None
    prior: fwnkf.Gaussian


def simulated(name, start, steps):
    data = generate(name, RECORDS, steps=steps, seed=1, dtype=torch.float32)
    return Task(data.system, data.y, data.u, data.start if start == "strict" else data.given())


def navigation(start, steps):
    """An inertial sensor at rest with the noise of its data sheet, and its position."""
    config = StrapdownConfig()
    system = Strapdown(config)
    generator = torch.Generator().manual_seed(1)

    def noise(size, std):
        return std * torch.randn(RECORDS, steps, size, generator=generator)

    rate = config.dt**-0.5
    sensed = torch.cat((noise(3, config.gyro_density * rate), noise(3, config.accelerometer_density * rate)), -1)
    level = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 9.81])
    origin, size = system.layout.origin(torch.zeros(())), system.layout.tangent_size
    cov = torch.eye(size) * (0.01 if start == "strict" else 0.0)
    return Task(system, noise(3, config.variance**0.5), level + sensed, fwnkf.Gaussian(origin, cov))


def task(name, start, steps):
    return navigation(start, steps) if name == "strapdown" else simulated(name, start, steps)


def build(name, task, seed):
    """With default options; narrower for inertial navigation, where the defaults have millions of parameters."""
    size, channels = task.system.layout.tangent_size, task.system.observation_layout.tangent_size
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if name == "rkn":
            return fwnkf.build(name, state_dim=size, observation_dim=channels)
        if name == "fwnkf without equations":
            noise = {"Q": 0.1 * torch.eye(size), "R": 0.26 * torch.eye(channels)}
            walk = LearnedSystem.of(H=torch.eye(channels, size), **noise, dt=task.system.dt)
            return fwnkf.FWNKF(walk, encoder=fwnkf.GRU(), transition=fwnkf.LocallyLinear(), phi=fwnkf.Phi())
        if name == "fwnkf":
            return fwnkf.FWNKF(task.system, encoder=fwnkf.GRU(), residual=fwnkf.MLP(), phi=fwnkf.Phi()).float()
        return fwnkf.build(name, system=task.system, **(NARROW.get(name, {}) if size > 3 else {})).float()


GIVEN = ["kalmannet", "recursive_kalmannet", "bayesian_kalmannet", "fwnkf"]
CASES = [(name, system) for system in ("lorenz", "pendulum", "strapdown") for name in GIVEN]
CASES += [(name, "lorenz") for name in ("rkn", "fwnkf without equations", "fwnkf_public_code")]


@pytest.mark.parametrize(("seeds", "steps"), FULL)
@pytest.mark.parametrize("start", ["strict", "paper"])
@pytest.mark.parametrize(("name", "system"), CASES)
def test_untrained_filters_stay_finite(name, system, start, seeds, steps):
    given = task(system, start, steps)
    failed = []
    for first in range(0, seeds, TOGETHER):
        stack = FilterStack([build(name, given, seed) for seed in range(first, min(first + TOGETHER, seeds))])
        with torch.no_grad():
            # a known start is a prior too; the rkn ignores it
            u = given.u if stack.model.control_dim else None
            track = stack.map(lambda model, u=u: model.run(given.y, u, prior=given.prior)[:2])
        finite = torch.stack([part.isfinite().flatten(1).all(1) for part in track]).all(0)
        failed += [first + number for number in (~finite).nonzero().flatten().tolist()]
    assert not failed, f"{len(failed)} of {seeds} seeds: {failed[:20]}"


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
@pytest.mark.parametrize(("seeds", "steps"), [(8, 400)])
def test_the_initialisation_of_the_authors_can_diverge(seeds, steps):
    """The reason for ``gain_factor``: this test has to be able to fail."""
    given = simulated("lorenz", "strict", steps)
    models = []
    for seed in range(seeds):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            models.append(fwnkf.build("kalmannet", system=given.system, gain_factor=1.0).float())
    with torch.no_grad():
        mean = FilterStack(models).map(lambda model: model.run(given.y, prior=given.prior).mean)
    assert not mean.isfinite().all()
