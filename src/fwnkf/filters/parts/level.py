"""A level of the noise that follows the innovations.

``of="noise"`` and ``of="each"``: the levels are states of the filter, moved by one scoring step of the likelihood for
each measurement (:mod:`fwnkf.core.levels`); gains follow. ``of="all"``: all covariances share a factor ``λ``, on which
gains do not depend, so the estimates stay as they are and the stated covariances are ``λ`` times those of the filter
(variance discounting: West and Harrison, Bayesian Forecasting and Dynamic Models, 1997, section 10.8),

    λ ← k λ + (1 - k) d / (d - 2) νᵀ S⁻¹ ν / m,      k = exp(-dt / seconds),

with ``ν`` and ``S`` of the filter at ``λ = 1`` and ``d`` degrees of freedom of the running mean, which make the NIS one
on average. A step that measures some of the channels counts for as much of a step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ...core.gaussian import factored_density
from ...errors import ConfigError
from ...native.running_mean import running_mean
from ...registry import PARTS, limited
from ...shapes import Float
from ...types import Status, StepOutput
from .part import Part

LOWEST, HIGHEST = 1e-6, 1e6
"""Bounds of the level: a sensor that repeats a value must not make a filter certain, nor a shock overflow float32."""


@PARTS.register("level")
@dataclass(frozen=True)
class Level(Part):
    """Noise whose level is not constant: vibration that grows and shrinks, a flight that turns rough.

    Args:
        seconds: time constant with which what was learned of a level is forgotten.
        of: what has the level: the measurement ``"noise"``, white noise and noise states together; ``"each"`` of the
            white noise and the lines its own; or ``"all"`` covariances, which leaves the estimates as they are.

    >>> import torch, fwnkf
    >>> one = torch.eye(1)
    >>> system = fwnkf.LinearSystem.of(F=one, H=one, Q=one, R=one, dt=0.1)
    >>> filter = fwnkf.FWNKF(system, level=Level(seconds=1.0, of="all"))
    >>> levels = [filter.run(size * torch.randn(1, 80, 1)).state.levels[0].item() for size in (0.1, 10)]
    >>> levels[0] < 1 < levels[1]
    True
    """

    kind = "level"
    seconds: float = limited(5.0, above=0.0)
    of: Literal["noise", "each", "all"] = "noise"


def freedom(level: Level, dt: float, channels: int) -> float:
    """Degrees of freedom of the level: the measurements that its running mean is worth."""
    kept = math.exp(-dt / level.seconds)
    free = (1 + kept) / (1 - kept) * channels
    if free <= 4:
        raise ConfigError(
            f"level: seconds = {level.seconds} is too short for steps of {dt:g} s and {channels} channel(s); "
            "give several steps"
        )
    return free


def discounted(
    options: Level,
    free: float,
    level: Float[Tensor, " B"],
    out: StepOutput,
    weight: Float[Tensor, "B m"],
    dt: Float[Tensor, " B"],
) -> Float[Tensor, " B"]:
    """The level of all covariances after a measurement; ``out`` is that of the filter at the level one."""
    kept, squares = _forgotten(options, free, out.innovation, out.innovation_cov, out.status, weight, dt)
    return (kept * level + (1 - kept) * squares).clamp(LOWEST, HIGHEST)


def followed(
    options: Level,
    free: float,
    level: Float[Tensor, " B"],
    out: StepOutput,
    weight: Float[Tensor, "B T m"],
    dt: Float[Tensor, "B T"],
) -> Float[Tensor, "B T"]:
    """:func:`discounted` over all steps of recordings, by compiled code."""
    kept, squares = _forgotten(options, free, out.innovation, out.innovation_cov, out.status, weight, dt)
    return running_mean(kept, squares, level, LOWEST, HIGHEST)


def _forgotten(
    options: Level,
    free: float,
    innovation: Float[Tensor, "*B m"],
    cov: Float[Tensor, "*B m m"],
    status: Tensor,
    weight: Float[Tensor, "*B m"],
    dt: Float[Tensor, "*B"],
) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B"]]:
    """The share of a level that is kept over a step, and what the rest is replaced by."""
    density = factored_density(innovation, cov, weight)
    known = density.ok & ((status & int(Status.FACTORIZATION_FAILED | Status.REJECTED)) == 0)
    channels = weight.sum(-1)
    nis = torch.where(known, density.white.square().sum(-1), 0.0) / channels.clamp_min(1.0)
    kept = torch.exp(-torch.where(known, channels / weight.shape[-1], 0.0) * dt / options.seconds)
    return kept, (nis * free / (free - 2)).clamp_max(HIGHEST)


def with_level(out: StepOutput, before: Float[Tensor, "*B"], after: Float[Tensor, "*B"]) -> StepOutput:
    """The output with its covariances at the levels before and after the measurement."""
    levels = {"cov": after, "prior_cov": before, "innovation_cov": before}
    stated = {name: getattr(out, name) for name in levels}
    return out._replace(
        **{name: item * levels[name][..., None, None] for name, item in stated.items() if item is not None}
    )
