"""The filters for BROAD: tilt of a sensor moved by hand, heading from its magnetometer; many candidates at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from tasks.broad.orientation import score, tilt
from tasks.broad.protocol import SAMPLES, Blocks, at_samples, headed, magnetic
from torch import Tensor

from fwnkf.core.system import System
from fwnkf.filters.base import Filter, build
from fwnkf.shapes import Float
from fwnkf.systems.attitude import Handheld, HandheldConfig
from fwnkf.systems.heading import Heading, HeadingConfig
from fwnkf.types import Gaussian

Numbers = dict[str, Any]
"""Fields of a system's config by name."""
Path = Float[Tensor, "_ 4"]


def handheld(numbers: Numbers, rate: float) -> Handheld:
    """The system of the tilt for trials of this many samples a second."""
    return Handheld(replace(HandheldConfig(**numbers), dt=SAMPLES / rate)).double()


def heading(numbers: Numbers, rate: float) -> Heading:
    """The system of the heading."""
    return Heading(replace(HeadingConfig(**numbers), dt=SAMPLES / rate)).double()


def filter_of(system: System) -> Filter:
    """The filter that is shipped; without encoder and shaper it is the extended Kalman filter of the system."""
    return build("fwnkf", system=system, shaping="none", hidden=0, residual_width=1)


@torch.no_grad()
def estimate(model: Filter, trials: Sequence[Blocks], systems: Sequence[Handheld] = ()) -> list[Path]:
    """The orientation at every sample of every trial, all trials side by side; no magnetometer, so heading is free.

    ``systems`` are those of the single trials where they differ, the filter's own unless given.
    """
    system = model.system
    assert isinstance(system, Handheld)
    rate, force = _padded([trial.rate for trial in trials]), _padded([trial.force for trial in trials])
    u = torch.cat((rate, force, _padded([trial.speed for trial in trials]).unsqueeze(-1)), -1)
    resting = _padded([trial.resting for trial in trials]).unsqueeze(-1)
    y = torch.cat((torch.zeros_like(rate), torch.zeros_like(rate), rate), -1)
    mask = torch.cat((torch.ones_like(rate, dtype=torch.bool), resting.expand(-1, -1, 6)), -1)
    level = tilt(force[:, 0])
    origin = system.layout.origin(u).expand(len(u), -1)
    variances = system.start_variances()
    prior = Gaussian(
        torch.cat((origin[:, :6], level, origin[:, 10:]), -1), torch.diag_embed(variances).expand(len(u), 28, 28)
    )
    track = model.run(y, u, mask, prior=prior)
    found = []
    for i, (trial, one) in enumerate(zip(trials, systems or [system] * len(trials), strict=True)):
        mean = track.mean[i, : len(trial.rate)]
        found.append(at_samples(trial, level[i], mean[:, 6:10], mean[:, 10:13], one.config.delay))
    return found


@torch.no_grad()
def with_heading(
    model: Filter, trials: Sequence[Blocks], paths: Sequence[Path], systems: Sequence[Heading] = ()
) -> list[Path]:
    """Orientations without heading turned to where the magnetometer says north is; ``systems`` as above."""
    system = model.system
    assert isinstance(system, Heading)
    felt = [
        magnetic(trial, path, one.config.magnetometer_delay)
        for trial, path, one in zip(trials, paths, systems or [system] * len(trials), strict=True)
    ]
    y, q = _padded([field for field, _ in felt]), _padded([orientation for _, orientation in felt])
    turning = _padded([trial.rate.norm(dim=-1, keepdim=True) for trial in trials])
    north = torch.atan2(system.field[..., 0], system.field[..., 1])
    start = torch.atan2(y[:, 0, 0], y[:, 0, 1]) - north
    origin = system.layout.origin(y).expand(len(y), -1)
    variances = system.start_variances()
    prior = Gaussian(
        torch.cat((start.unsqueeze(-1), origin[:, 1:9], q[:, 0]), -1),
        torch.diag_embed(variances).expand(len(y), 12, 12),
    )
    track = model.run(y, torch.cat((turning, q), -1), None, prior=prior)
    found = []
    for i, (trial, path) in enumerate(zip(trials, paths, strict=True)):
        found.append(headed(path, torch.cat((start[i : i + 1], track.mean[i, : len(trial.rate), 0]))))
    return found


def _padded(parts: Sequence[Tensor]) -> Tensor:
    """Side by side, the shorter ones with their last value repeated."""
    length = max(len(part) for part in parts)
    return torch.stack([torch.cat((x, x[-1:].expand(length - len(x), *x.shape[1:]))) for x in parts])


def errors(trials: Sequence[Blocks], paths: Sequence[Path], metric: str) -> list[float]:
    """Root mean squared error of each trial, degrees."""
    return [float(score(trial.trial, path)[metric]) for trial, path in zip(trials, paths, strict=True)]


# ---- many candidates at once ----------------------------------------------------------------------------------------


def _stack(self: System, records: int, **parts: list[Tensor]) -> None:
    for name, values in parts.items():
        self.register_buffer(name, torch.stack(values).repeat_interleave(records, 0), persistent=False)


class HandheldCandidates(Handheld):
    """Several systems, each for as many consecutive records: a search costs little more than one run."""

    def __init__(self, systems: Sequence[Handheld], records: int) -> None:
        super().__init__(systems[0].config)
        like = systems[0].layout.origin(systems[0].eye)
        _stack(
            self,
            records,
            outers=[system._outer(like, None) for system in systems],
            noises=[system.process_noise(None) for system in systems],
            variances=[system.measurement_covariance() for system in systems],
            starts=[system.start_variances() for system in systems],
            hand=[system.hand for system in systems],
            power=[system.power for system in systems],
        )

    def _outer(self, x: Tensor, dt: Tensor | None) -> Tensor:
        return self.get_buffer("outers")

    def process_noise(self, dt: Tensor | None) -> Tensor:
        return self.get_buffer("noises")

    def measurement_covariance(self) -> Tensor:
        return self.get_buffer("variances")

    def start_variances(self) -> Tensor:
        return self.get_buffer("starts")


class HeadingCandidates(Heading):
    """The same for headings."""

    def __init__(self, systems: Sequence[Heading], records: int) -> None:
        super().__init__(systems[0].config)
        _stack(
            self,
            records,
            kept=[torch.stack(system._kept(None)) for system in systems],
            noises=[system.process_noise(None) for system in systems],
            variances=[system.measurement_covariance() for system in systems],
            starts=[system.start_variances() for system in systems],
            field=[system.field for system in systems],
        )

    def _kept(self, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        rate, local = self.get_buffer("kept").unbind(-2)
        return rate, local

    def process_noise(self, dt: Tensor | None) -> Tensor:
        return self.get_buffer("noises")

    def measurement_covariance(self) -> Tensor:
        return self.get_buffer("variances")

    def start_variances(self) -> Tensor:
        return self.get_buffer("starts")


def tilts_of(tried: Sequence[Numbers], trials: Sequence[Blocks]) -> list[list[Path]]:
    """Of each candidate the path on each trial, without magnetometer."""
    systems = [handheld(numbers, trials[0].trial.rate) for numbers in tried]
    model = build("ekf", system=HandheldCandidates(systems, len(trials)).double())
    return _grouped(estimate(model, [*trials] * len(tried), [one for one in systems for _ in trials]), len(trials))


def headings_of(tried: Sequence[Numbers], trials: Sequence[Blocks], paths: Sequence[Path]) -> list[list[Path]]:
    """Of each candidate the path on each trial, turned to north from the path without heading."""
    systems = [heading(numbers, trials[0].trial.rate) for numbers in tried]
    model = build("ekf", system=HeadingCandidates(systems, len(trials)).double())
    each, many = [one for one in systems for _ in trials], len(tried)
    return _grouped(with_heading(model, [*trials] * many, [*paths] * many, each), len(trials))


def _grouped(paths: list[Path], size: int) -> list[list[Path]]:
    return [paths[i : i + size] for i in range(0, len(paths), size)]
