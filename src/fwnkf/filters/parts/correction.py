"""A linear correction of the estimates by the innovations: what the model of a filter leaves, taken off.

The innovations of a filter whose model is right are white, and say nothing about its errors. Where it is wrong, errors
follow from the innovations of the last steps, of all channels:

    x̂ₜ ← x̂ₜ ⊞ C zₜ,      z = A(dt) z + b Lᵀ Sₜ⁻¹ eₜ,

with innovations ``e`` and their covariance ``S``, and ``A`` a bank of damped oscillators for each channel. The filter
itself, its gains and innovations stay as they are; ``C`` is zero before it is fitted
(:func:`fwnkf.identify.fit_correction`). Since measurements and innovations follow from each other, such a correction of
any filter can come as near to the best linear filter as the bank allows.

Gaps. Had nothing been missing, ``S`` would be ``S° = L Lᵀ`` and the innovation ``e°``. The rest of ``e`` is due to what
was missing and independent of ``e°``, so ``S° Sₜ⁻¹ eₜ`` is the expectation of ``e°`` given the measurements up to its
time, with ``S`` and ``e`` of the channels that were measured: that of a missing innovation is zero. What later
measurements say about it is left out. Steps of any length are exact, as for all oscillators.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...core import constrain
from ...core.gaussian import matvec, solve_rows
from ...core.system import System
from ...errors import ConfigError
from ...native.oscillator_bank import run_bank
from ...registry import PARTS, at_least
from ...shapes import Float
from .part import Part, largest_radius, set_poles

MEMORY = 8.0
"""Steps in which the oscillators decay by a factor of e, if no time is given."""


@PARTS.register("correction")
@dataclass(frozen=True)
class Correction(Part):
    """Estimates corrected by a bank of damped oscillators that the innovations drive; zero before it is fitted.

    Args:
        count: oscillators for each channel, evenly from zero to half the sampling rate.
        seconds: time in which they decay by a factor of e; by default eight steps.
        pole_radius: bound on every pole.

    >>> import torch, fwnkf
    >>> one = torch.eye(1)
    >>> system = fwnkf.LinearSystem.of(F=one, H=one, Q=one, R=one, dt=0.01)
    >>> y = torch.randn(1, 9, 1)
    >>> corrected = fwnkf.FWNKF(system, correction=Correction(count=4))
    >>> torch.equal(corrected.run(y).mean, fwnkf.EKF(system).run(y).mean)
    True
    """

    kind = "correction"
    starts = ("seconds",)
    count: int = at_least(1, 16)
    seconds: float | None = None
    pole_radius: float = 0.9999

    def __post_init__(self) -> None:
        if not 0 < self.pole_radius < 1:
            raise ConfigError(f"correction: pole_radius = {self.pole_radius} must lie strictly between 0 and 1")
        if self.seconds is not None and not (self.seconds > 0 and math.isfinite(self.seconds)):
            raise ConfigError(f"correction: seconds = {self.seconds} must be positive")


class PreparedCorrection(NamedTuple):
    """What no step changes."""

    radius: Float[Tensor, " k"]
    frequency: Float[Tensor, " k"]
    """Radians per nominal step."""
    drive: Float[Tensor, " k"]
    """``√(1 - r²)``: white innovations give every oscillator the variance one."""
    root: Float[Tensor, "m m"]
    weights: Float[Tensor, "d s"]


class InnovationBank(nn.Module):
    """The tensors of :class:`Correction`.

    Args:
        options: the part.
        system: the system of the filter.
    """

    root: Tensor

    def __init__(self, options: Correction, system: System) -> None:
        super().__init__()
        channels, k = system.observation_layout.tangent_size, options.count
        self.channels, self.count, self.limit = channels, k, options.pole_radius
        self.raw_frequency = nn.Parameter(torch.zeros(k, dtype=torch.float64))
        self.raw_radius = nn.Parameter(torch.zeros(k, dtype=torch.float64))
        self.weights = nn.Parameter(torch.zeros(system.layout.tangent_size, 2 * k * channels))
        self.register_buffer("root", torch.eye(channels))
        memory = MEMORY if options.seconds is None else options.seconds / system.dt
        radius = math.exp(-1 / memory)
        if radius >= largest_radius(self.limit):
            raise ConfigError(
                f"correction: seconds = {options.seconds} with steps of {system.dt:g} s is a pole radius of "
                f"{radius:.6g}, at or above pole_radius = {self.limit}; give less, or a larger pole_radius"
            )
        with torch.no_grad():
            frequency = math.pi * torch.linspace(0, 1, k, dtype=torch.float64)
            set_poles(self.raw_frequency, self.raw_radius, frequency, torch.full_like(frequency, radius), self.limit)

    @torch.no_grad()
    def set(self, root: Float[Tensor, "m m"], weights: Float[Tensor, "j s"]) -> None:
        """Install a fit.

        Args:
            root: ``L`` of ``S° = L Lᵀ``, the covariance of innovations where nothing is missing.
            weights: ``C`` of the first ``j`` tangent coordinates of the state; the others are not corrected.
        """
        self.root.copy_(root)
        self.weights.zero_()
        self.weights[: len(weights)] = weights

    def prepare(self) -> PreparedCorrection:
        """What no step changes, from raw parameters."""
        radius = constrain.bounded(self.raw_radius, 0.0, largest_radius(self.limit))
        frequency = constrain.bounded(self.raw_frequency, 0.0, math.pi)
        return PreparedCorrection(radius, frequency, (1 - radius * radius).sqrt(), self.root, self.weights)

    def begin(self, batch: int, like: Tensor) -> Float[Tensor, "B k 2 m"]:
        """The oscillators at rest."""
        return like.new_zeros(batch, self.count, 2, self.channels)


def moved(
    prepared: PreparedCorrection, bank: Float[Tensor, "B k 2 m"], ratio: Float[Tensor, " B"] | None
) -> Float[Tensor, "B k 2 m"]:
    """The oscillators after a step of ``ratio`` nominal steps, or of one."""
    radius, frequency = prepared[:2]
    if ratio is not None:
        radius, frequency = radius ** ratio.unsqueeze(-1), frequency * ratio.unsqueeze(-1)
    cosine, sine = (radius * frequency.cos()).unsqueeze(-1), (radius * frequency.sin()).unsqueeze(-1)
    first, second = bank[..., 0, :], bank[..., 1, :]
    return torch.stack((cosine * first - sine * second, sine * first + cosine * second), -2)


def scaled(
    prepared: PreparedCorrection,
    innovation: Float[Tensor, "*B m"],
    cov: Float[Tensor, "*B m m"],
    weight: Float[Tensor, "*B m"],
) -> Float[Tensor, "*B m"]:
    """``Lᵀ S⁻¹ e`` of the channels that were measured; zero where ``S`` has no factor."""
    solved, ok, _ = solve_rows(innovation.unsqueeze(-2), cov, weight)
    return torch.where(ok.unsqueeze(-1), solved.squeeze(-2), 0.0) @ prepared.root


def driven(
    prepared: PreparedCorrection, bank: Float[Tensor, "B k 2 m"], drive: Float[Tensor, "B m"]
) -> Float[Tensor, "B k 2 m"]:
    """The oscillators after a measurement."""
    push = prepared.drive.unsqueeze(-1) * drive.unsqueeze(-2)
    return torch.stack((bank[..., 0, :] + push, bank[..., 1, :]), -2)


def correction(prepared: PreparedCorrection, bank: Float[Tensor, "B k 2 m"]) -> Float[Tensor, "B d"]:
    """What is added to an estimate."""
    return matvec(prepared.weights, bank.flatten(1))


def followed(
    prepared: PreparedCorrection,
    bank: Float[Tensor, "B k 2 m"],
    drive: Float[Tensor, "B T m"],
    ratio: Float[Tensor, "B T"],
) -> tuple[Float[Tensor, "B T d"], Float[Tensor, "B T d"], Float[Tensor, "B k 2 m"]]:
    """:func:`correction` before and after all measurements of recordings, and the last state, by compiled code."""
    return run_bank(*prepared[:3], prepared.weights, bank, drive, ratio)
