"""Lines in the measurement noise: oscillators of fixed frequency, each seen by one channel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...core import constrain, oscillators
from ...core.gaussian import matvec
from ...core.system import System
from ...errors import ConfigError
from ...registry import PARTS, at_least
from ...shapes import Float
from .part import (
    Moved,
    NoisePart,
    NoiseStates,
    Values,
    as_values,
    bandwidth_hz,
    largest_radius,
    poles,
    set_poles,
    spread_evenly,
)

START = 1e-4
"""Amplitude of a line that is to be learned, over the white standard deviation: a power of 1e-8 leaves an untrained
filter the classical one, while at zero the gradient would vanish."""


@PARTS.register("lines")
@dataclass(frozen=True)
class Lines(NoisePart):
    """Noise at certain frequencies: each channel has ``count`` damped oscillators.

    With ``hz`` the lines are part of the model from the start. Without it they cover the band and are so weak that the
    filter equals the classical one until they are trained or fitted.

    Args:
        count: lines of each channel; by default as many as ``hz`` has.
        hz: frequencies, one for each line or a list of them for each channel; 0 is a drift.
        bandwidth_hz: full widths at half power; by default a hundredth of the frequency, at least 0.1 Hz.
        std: standard deviations in the unit of the measurement; by default that of the white noise.
        shared: whether all channels have the same lines, as strong as their white noise.
        pole_radius: bound on the pole radius of a line that is learned.
        sensor: the sensor that has them; None for all channels.

    >>> import torch, fwnkf
    >>> one = torch.eye(1)
    >>> system = fwnkf.LinearSystem.of(F=one, H=one, Q=one, R=one, dt=0.01)
    >>> filter = fwnkf.FWNKF(system, noise=Lines(hz=23.0, bandwidth_hz=0.2, std=0.3))
    >>> [round(value.item(), 4) for value in (filter.noise_states.hz, filter.noise_states.std)]
    [23.0, 0.3]
    """

    kind = "lines"
    starts = ("hz", "bandwidth_hz", "std")
    count: int | None = at_least(1, None)
    hz: Any = None
    bandwidth_hz: Any = None
    std: Any = None
    shared: bool = False
    pole_radius: float = 0.9999

    def __post_init__(self) -> None:
        plain_options(self)
        if self.count is None:
            given = 1 if self.hz is None or isinstance(self.hz, float) else len(_row(self.hz))
            object.__setattr__(self, "count", given)

    def build(self, channels: slice, system: System) -> LineStates:
        return LineStates(self, channels, system)


class PreparedLines(NamedTuple):
    """The matrices of a nominal step, and what those of other steps follow from."""

    C: Float[Tensor, "m s"]
    A: Float[Tensor, "s s"]
    Q: Float[Tensor, "s s"]
    radius: Float[Tensor, " c"]
    frequency: Float[Tensor, "*R c"]
    power: Float[Tensor, " R"] | None = None
    """Factors of ``Q`` where rows of a batch differ."""


class OscillatorStates(NoiseStates):
    """Damped oscillators, two states each: what lines and modes have in common."""

    limit: float

    def frequency(self) -> Float[Tensor, "..."]:
        """Radians per nominal step, in ``(0, π)``."""
        raise NotImplementedError

    def radius(self) -> Float[Tensor, "..."]:
        """Pole radii, below the stated bound."""
        raise NotImplementedError

    @property
    def hz(self) -> Float[Tensor, "..."]:
        """Frequencies in Hz at the nominal step."""
        return self.frequency() / (2 * math.pi * self.dt)

    @property
    def bandwidth_hz(self) -> Float[Tensor, "..."]:
        """Full widths at half power, in Hz."""
        return bandwidth_hz(self.radius(), self.dt)

    @property
    def largest_radius(self) -> float:
        """The bound on pole radii, less a margin for float32."""
        return largest_radius(self.limit)

    def move(self, prepared: PreparedLines, mean: Tensor, variance: Tensor | None, ratio: Tensor | None) -> Moved:
        A, Q = prepared.A, prepared.Q
        if ratio is not None or prepared.power is not None:
            A, Q = oscillators.transition(prepared.radius, prepared.frequency, ratio)
            Q = Q if prepared.power is None else Q * prepared.power[:, None, None]
        return Moved(matvec(A, mean), A, Q)

    def continuous(self, prepared: PreparedLines) -> tuple[Tensor, Tensor] | None:
        if prepared.frequency.ndim > 1 or prepared.power is not None:
            return None
        return oscillators.continuous(prepared.radius, prepared.frequency)


class LineStates(OscillatorStates):
    """The oscillators of :class:`Lines`: two states each, channel by channel.

    Amplitudes are in units of the white standard deviation of the channel.

    Args:
        options: the part.
        channels: the channels that have lines.
        system: the system of the filter.
        alternatives: number of sets of frequencies, for a filter with hypotheses; 0 for one set without an axis.
    """

    def __init__(self, options: Lines, channels: slice, system: System, alternatives: int = 0) -> None:
        super().__init__(channels, system)
        assert options.count is not None
        lead = 1 if options.shared else self.width
        self.count, self.limit = options.count, options.pole_radius
        self.size = 2 * self.width * self.count
        start = spread_evenly(max(1, alternatives) * self.count)
        shape = (alternatives, 1, self.count) if alternatives else (1, self.count)
        self.raw_frequency = nn.Parameter(start.reshape(shape).repeat_interleave(lead, -2))
        self.raw_radius = nn.Parameter(torch.full((lead, self.count), math.log(0.9 / 0.1)))
        self.amplitude = nn.Parameter(torch.full((lead, self.count), START))
        if options.hz is not None and alternatives <= 1:
            hz = torch.as_tensor(options.hz, dtype=torch.float64)
            width = torch.clamp_min(0.01 * hz, 0.1) if options.bandwidth_hz is None else options.bandwidth_hz
            std = self.white_std.unsqueeze(-1) if options.std is None else options.std
            self.to(self.white_dtype)
            self.set(hz, width, std)

    @torch.no_grad()
    def set(self, hz: Values, bandwidth_hz: Values, std: Values) -> None:
        """Set the lines; each argument is a number, one for each line, or such a list for each channel.

        The correlation of a line falls to ``1/e`` in ``1 / (π bandwidth)`` seconds.

        Args:
            hz: frequencies.
            bandwidth_hz: full widths at half power.
            std: standard deviations in the unit of the measurement.

        Raises:
            ConfigError: a value is out of range, or does not fit lines that channels share.
        """
        lead, count = self.amplitude.shape
        frequency, radius = poles(
            as_values("hz", hz, self.raw_frequency.shape),
            as_values("bandwidth_hz", bandwidth_hz, (lead, count)),
            self.dt,
            self.limit,
        )
        relative = as_values("std", std, (self.width, count)) / self.white_std.unsqueeze(-1)
        if lead == 1 and not torch.allclose(relative, relative[:1].expand_as(relative), rtol=1e-6):
            raise ConfigError(
                "lines with shared=True have one amplitude relative to the white noise of each channel, which these "
                "std do not have; use shared=False"
            )
        self.set_oscillators(frequency, radius, relative[:lead])

    @torch.no_grad()
    def set_oscillators(self, frequency: Tensor, radius: Tensor, amplitude: Tensor) -> None:
        """Set oscillators ``[m or 1, k]`` by radians per step, pole radius, and amplitude over the white std.

        Args:
            frequency: radians per nominal step.
            radius: pole radii.
            amplitude: amplitudes over the white standard deviation.
        """
        set_poles(self.raw_frequency, self.raw_radius, frequency, radius, self.limit)
        self.amplitude.copy_(amplitude)

    @property
    def std(self) -> Float[Tensor, "m k"]:
        """Standard deviations in the unit of the measurement."""
        return self.amplitude.abs() * self.white_std.to(self.amplitude).unsqueeze(-1)

    def frequency(self) -> Float[Tensor, "... m k"]:
        """Radians per nominal step, in ``(0, π)``."""
        bounded = constrain.bounded(self.raw_frequency, 0.0, math.pi)
        return bounded.expand(*bounded.shape[:-2], self.width, -1)

    def radius(self) -> Float[Tensor, "m k"]:
        """Pole radii, below the stated bound."""
        return constrain.bounded(self.raw_radius, 0.0, self.largest_radius).expand(self.width, -1)

    def prepare(self, white_std: Tensor) -> PreparedLines:
        radius, frequency = self.radius().flatten(), self.frequency().flatten(-2)
        C = oscillators.output(self.amplitude.expand(self.width, -1) * white_std.unsqueeze(-1))
        first = frequency if frequency.ndim == 1 else frequency[0]
        return PreparedLines(C, *oscillators.transition(radius, first), radius, frequency)

    def levels(self) -> list[int | None]:
        return [line for line in range(self.count) for _ in range(2)] * self.width


def plain_options(part: Any) -> None:
    """Make the values of :class:`Lines` or :class:`~fwnkf.Modes` plain numbers, and check them."""
    values = [name for name in part.starts if name != "hz"]
    for name in part.starts:
        object.__setattr__(part, name, plain_values(getattr(part, name)))
    if not 0 < part.pole_radius < 1:
        raise ConfigError(f"{part.kind}: pole_radius = {part.pole_radius} must lie strictly between 0 and 1")
    if part.hz is None and any(getattr(part, name) is not None for name in values):
        raise ConfigError(
            f"{part.kind}: {', '.join(values[:-1])} and {values[-1]} are those of given {part.kind}; give hz too"
        )


def plain_values(value: Any) -> Any:
    """Numbers as plain floats and tuples of them, from lists, tensors and integers."""
    if value is None:
        return None
    try:
        given = torch.as_tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise ConfigError(f"{value!r}: wanted a number, or lists of numbers of the same length") from None
    return _tuples(given.tolist())


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _row(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return values[0] if values and isinstance(values[0], tuple) else values
