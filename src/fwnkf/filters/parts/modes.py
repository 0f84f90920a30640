"""Lines that all channels of a sensor share: the vibration modes of what it is mounted on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...core import constrain, oscillators
from ...core.system import System
from ...registry import PARTS, at_least
from ...shapes import Float
from .lines import START, OscillatorStates, PreparedLines, plain_options
from .part import (
    NoisePart,
    Values,
    as_values,
    poles,
    set_poles,
    spread_evenly,
)


@PARTS.register("modes")
@dataclass(frozen=True)
class Modes(NoisePart):
    """Oscillators that all channels measure, each with its own gain and phase, as vibration modes of an airframe.

    Args:
        count: number of modes; by default as many as ``hz`` has.
        hz: frequencies; without them the modes cover the band and have no effect until they are trained or fitted.
        bandwidth_hz: full widths at half power; by default a hundredth of the frequency, at least 0.1 Hz.
        std: standard deviations in each channel, ``[modes]`` or ``[channels, modes]``; by default that of the white
            noise.
        phase: phases in radians, likewise.
        pole_radius: bound on the pole radius of a mode that is learned.
        sensor: the sensor that has them; None for all channels.

    >>> import torch, fwnkf
    >>> eye = torch.eye(2)
    >>> system = fwnkf.LinearSystem.of(F=eye, H=eye, Q=eye, R=eye, dt=0.01)
    >>> filter = fwnkf.FWNKF(system, noise=Modes(hz=23.0, std=[[0.3], [0.1]], phase=[[0.0], [1.0]]))
    >>> filter.noise_states.size
    2
    """

    kind = "modes"
    starts = ("hz", "bandwidth_hz", "std", "phase")
    count: int | None = at_least(1, None)
    hz: Any = None
    bandwidth_hz: Any = None
    std: Any = None
    phase: Any = None
    pole_radius: float = 0.9999

    def __post_init__(self) -> None:
        plain_options(self)
        if self.count is None:
            object.__setattr__(self, "count", len(self.hz) if isinstance(self.hz, tuple) else 1)

    def build(self, channels: slice, system: System) -> ModeStates:
        return ModeStates(self, channels, system)


class ModeStates(OscillatorStates):
    """The oscillators of :class:`Modes`, two states each, and the matrix ``mixing`` with which channels measure them.

    Args:
        options: the part.
        channels: the channels that measure the modes.
        system: the system of the filter.
    """

    def __init__(self, options: Modes, channels: slice, system: System) -> None:
        super().__init__(channels, system)
        assert options.count is not None
        self.count, self.limit = options.count, options.pole_radius
        self.size = 2 * self.count
        self.raw_frequency = nn.Parameter(spread_evenly(self.count))
        self.raw_radius = nn.Parameter(torch.full((self.count,), math.log(0.9 / 0.1)))
        self.mixing = nn.Parameter(torch.full((self.width, 2 * self.count), START))
        if options.hz is not None:
            hz = torch.as_tensor(options.hz, dtype=torch.float64)
            width = torch.clamp_min(0.01 * hz, 0.1) if options.bandwidth_hz is None else options.bandwidth_hz
            std = self.white_std.unsqueeze(-1) if options.std is None else options.std
            self.to(self.white_dtype)
            self.set(hz, width, std, 0.0 if options.phase is None else options.phase)

    @torch.no_grad()
    def set(self, hz: Values, bandwidth_hz: Values, std: Values, phase: Values = 0.0) -> None:
        """Set the modes; ``std`` and ``phase`` (radians) may differ from channel to channel.

        Args:
            hz: frequencies.
            bandwidth_hz: full widths at half power.
            std: standard deviations in the unit of the measurement.
            phase: phases in radians.
        """
        frequency, radius = poles(
            as_values("hz", hz, (self.count,)),
            as_values("bandwidth_hz", bandwidth_hz, (self.count,)),
            self.dt,
            self.limit,
        )
        seen = (self.width, self.count)
        relative = as_values("std", std, seen) / self.white_std.unsqueeze(-1)
        angle = torch.as_tensor(phase, dtype=torch.float64).expand(seen)
        self.set_modes(frequency, radius, torch.stack((relative * angle.cos(), relative * angle.sin()), -1).flatten(-2))

    @torch.no_grad()
    def set_modes(self, frequency: Float[Tensor, " k"], radius: Float[Tensor, " k"], mixing: Tensor) -> None:
        """Set modes by radians per step, pole radius, and ``[m, 2 k]`` over the white standard deviation.

        Args:
            frequency: radians per nominal step.
            radius: pole radii.
            mixing: what each channel measures of each state.
        """
        set_poles(self.raw_frequency, self.raw_radius, frequency, radius, self.limit)
        self.mixing.copy_(mixing)

    @property
    def std(self) -> Float[Tensor, "m k"]:
        """Standard deviations in each channel, in the unit of the measurement."""
        return self.mixing.unflatten(-1, (-1, 2)).norm(dim=-1) * self.white_std.to(self.mixing).unsqueeze(-1)

    def frequency(self) -> Float[Tensor, " k"]:
        """Radians per nominal step, in ``(0, π)``."""
        return constrain.bounded(self.raw_frequency, 0.0, math.pi)

    def radius(self) -> Float[Tensor, " k"]:
        """Pole radii, below the stated bound."""
        return constrain.bounded(self.raw_radius, 0.0, self.largest_radius)

    def prepare(self, white_std: Tensor) -> PreparedLines:
        radius, frequency = self.radius(), self.frequency()
        C = self.mixing * white_std.unsqueeze(-1)
        return PreparedLines(C, *oscillators.transition(radius, frequency), radius, frequency)

    def levels(self) -> list[int | None]:
        return [mode for mode in range(self.count) for _ in range(2)]
