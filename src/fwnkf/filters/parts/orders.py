"""Lines that follow rotors: multiples of speeds that are measured, tracked, or both.

Each rotor ``j`` has a frequency ``f_j``, whose logarithm ``φ_j`` is a state that walks at random. Each order ``h`` of
each rotor is an oscillator in each channel, turned by ``θ = 2π h f_j dt`` in a step:

    φ⁺ = φ + w,      ν⁺ = r Rot(θ) ν + √(1 - r²) w,      y = h(x) + Σ std ν₁ + v

A speed from telemetry is a measurement of ``f_j`` that arrives with the control. With it the frequency is known within
its error; without it the frequency is tracked by what the lines do in ``y`` (an extended Kalman filter: the slope of
``ν⁺`` in ``φ_j`` is ``θ`` times ``ν⁺`` turned by a quarter), and its uncertainty grows by the random walk. Turning by
``θ`` folds a line above half the sampling rate to where the samples show it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...core import oscillators
from ...core.gaussian import block_diagonal, matvec
from ...core.system import System
from ...errors import ConfigError
from ...registry import PARTS, at_least, limited
from ...shapes import Bool, Float
from .lines import START
from .part import Moved, NoisePart, NoiseStates, OwnMeasurement, as_values

WIDEST = 6.0
"""Standard deviations (``hz_std``) by which a frequency may differ from that before the first step."""
STRONGEST = 10.0
"""Standard deviations of a line up to which the slope in its frequency grows: an outlier of ``y`` is no line."""
SMALLEST = 1e-6
"""Share of the random walk that is left where a frequency is as uncertain as before the first step."""


MOST_ORDERS = 1000
"""Of a number of orders, which may come from a file."""


@PARTS.register("orders")
@dataclass(frozen=True)
class Orders(NoisePart):
    """Lines at multiples of the speed of each rotor.

    The control of the filter is that of the system, followed by the frequency of each rotor in Hz (revolutions per
    second). NaN, zero and negative values are missing: the last frequency is kept and its uncertainty grows.

    Args:
        rotors: number of rotors.
        orders: multiples of each rotor's frequency at which there are lines, or their number: 3 stands for 1, 2, 3.
            Those above half the sampling rate are folded as samples fold them.
        hz: frequency of each rotor before the first step, or one for all.
        hz_std: its relative standard deviation; a frequency stays within six of them.
        walk: relative standard deviation of the change of a frequency in one second. The variance of a frequency does
            not grow beyond that before the first step (``hz_std``).
        common: share of the variance of this change that all rotors have together, as under one throttle.
        speed_std: relative standard deviation of a measured frequency.
        speed_gate: a measured frequency further from the predicted one than this many standard deviations of their
            difference is taken as missing.
        std: standard deviation of every line in the unit of the measurement; None starts so small that the filter
            equals the classical one until it is fitted.
        bandwidth_hz: full width at half power of every line.
        sensor: the sensor that has the lines; None for all channels.

    >>> import torch, fwnkf
    >>> system = fwnkf.systems.ConstantVelocity(fwnkf.systems.ConstantVelocityConfig(dims=1, dt=0.001))
    >>> filter = fwnkf.FWNKF(system, noise=Orders(rotors=2, orders=2, hz=80.0, std=0.5, bandwidth_hz=2.0))
    >>> trajectory = filter.run(torch.zeros(1, 100, 1), u=torch.full((1, 100, 2), 82.0))
    >>> [round(value, 1) for value in filter.noise_states.hz(trajectory.state.noise)[0].tolist()]
    [82.0, 82.0]
    """

    kind = "orders"
    starts = ("std", "bandwidth_hz")
    rotors: int = at_least(1, 1)
    orders: int | tuple[float, ...] = limited((1.0,), above=0.0)
    hz: float | tuple[float, ...] = limited((100.0,), above=0.0)
    hz_std: float = limited(0.5, above=0.0)
    walk: float = at_least(0.0, 0.1)
    common: float = limited(0.0, min=0.0, max=1.0)
    speed_std: float = limited(0.01, above=0.0)
    speed_gate: float = limited(5.0, above=0.0)
    std: float | None = limited(None, above=0.0)
    bandwidth_hz: float = limited(1.0, above=0.0)

    def __post_init__(self) -> None:
        if isinstance(self.orders, int):
            if self.orders > MOST_ORDERS:
                raise ConfigError(
                    f"orders: orders = {self.orders}; wanted at most {MOST_ORDERS}, or a list of multiples"
                )
            object.__setattr__(self, "orders", tuple(float(order) for order in range(1, self.orders + 1)))
        hz = (float(self.hz),) if isinstance(self.hz, int | float) else tuple(self.hz)
        object.__setattr__(self, "hz", hz)
        if not self.orders:
            raise ConfigError("orders: orders is empty; give at least one multiple of the rotor speed")
        if len(hz) not in (1, self.rotors):
            raise ConfigError(f"orders: hz has {len(hz)} values; give 1, or {self.rotors}")

    def build(self, channels: slice, system: System) -> OrderStates:
        return OrderStates(self, channels, system)


class PreparedOrders(NamedTuple):
    """What all steps share."""

    C: Float[Tensor, "m s"]
    """What the channels measure of the oscillators, and of the frequencies: nothing."""
    radius: Float[Tensor, " c"]
    order: Float[Tensor, " c"]
    owner: Float[Tensor, "t j"]
    """1 where a state of an oscillator is one of a rotor."""
    walk: Float[Tensor, "j j"]
    """Covariance of the logarithms of the frequencies after one second."""


class OrderStates(NoiseStates):
    """Oscillators, two states each, channel by channel, rotor by rotor, order by order; then the log-frequencies.

    Args:
        options: the part.
        channels: the channels that have the lines.
        system: the system of the filter.
    """

    reads_variance = True
    linear = False

    def __init__(self, options: Orders, channels: slice, system: System) -> None:
        super().__init__(channels, system)
        assert isinstance(options.orders, tuple)
        self.options, self.rotors, self.controls = options, options.rotors, options.rotors
        shape = (self.width, options.rotors, len(options.orders))
        self.oscillating = 2 * math.prod(shape)
        self.size = self.oscillating + options.rotors
        std = START * self.white_std if options.std is None else torch.full_like(self.white_std, options.std)
        log_std = std.log().to(self.white_dtype)
        self.log_std = nn.Parameter(log_std[:, None, None].expand(shape).clone())
        self.log_bandwidth = nn.Parameter(torch.full(shape[1:], math.log(options.bandwidth_hz), dtype=self.white_dtype))

    @torch.no_grad()
    def set(self, std: Any = None, bandwidth_hz: Any = None) -> None:
        """Set the lines; each argument is a number or values that broadcast, None leaves them as they are.

        Args:
            std: standard deviations in the unit of the measurement, ``[channels, rotors, orders]``.
            bandwidth_hz: full widths at half power, ``[rotors, orders]``.

        Raises:
            ConfigError: a value is not positive, or the shape does not fit.
        """
        for name, given, parameter in (("std", std, self.log_std), ("bandwidth_hz", bandwidth_hz, self.log_bandwidth)):
            if given is not None:
                parameter.copy_(as_values(name, given, parameter.shape, positive=True).log())

    def hz(self, noise: Float[Tensor, "B s"]) -> Float[Tensor, "B j"]:
        """The frequency of each rotor in Hz.

        Args:
            noise: the states of this part, as ``state.noise`` of a filter that has no other.

        Returns:
            The frequencies.
        """
        return noise[..., self.oscillating :].exp()

    def begin(self, like: Tensor) -> tuple[Tensor, Tensor]:
        zeros, ones = like.new_zeros(self.oscillating), like.new_ones(self.oscillating)
        spread = like.new_full((self.rotors,), self.options.hz_std**2)
        return torch.cat((zeros, self._start(like))), torch.cat((ones, spread))

    def prepare(self, white_std: Tensor) -> PreparedOrders:
        (channels, rotors, orders), like = self.log_std.shape, self.log_std
        radius = torch.exp(-math.pi * self.dt * self.log_bandwidth.exp())
        numbers = torch.tensor(self.options.orders, dtype=like.dtype, device=like.device)
        own = torch.eye(rotors, dtype=like.dtype, device=like.device)
        together = self.options.common + (1 - self.options.common) * own
        return PreparedOrders(
            nn.functional.pad(oscillators.output(self.log_std.exp().flatten(1)), (0, rotors)),
            radius.flatten().repeat(channels),
            numbers.repeat(rotors * channels),
            own.repeat_interleave(2 * orders, 0).repeat(channels, 1),
            self.options.walk**2 * together,
        )

    def move(self, prepared: PreparedOrders, mean: Tensor, variance: Tensor | None, ratio: Tensor | None) -> Moved:
        assert variance is not None
        log_hz = mean[..., self.oscillating :]
        step = self.dt if ratio is None else self.dt * ratio[..., None]
        hz = log_hz.exp() @ prepared.owner[::2].mT
        A, drive = oscillators.transition(prepared.radius, 2 * math.pi * self.dt * prepared.order * hz, ratio)
        lines = matvec(A, mean[..., : self.oscillating])
        pairs = lines.clamp(-STRONGEST, STRONGEST).unflatten(-1, (-1, 2))
        quarter = torch.stack((-pairs[..., 1], pairs[..., 0]), -1)
        turn = 2 * math.pi * step * prepared.order * hz
        slope = (turn.unsqueeze(-1) * quarter).flatten(-2).unsqueeze(-1) * prepared.owner
        # factors of the walk that let no variance of a frequency grow beyond that before the first step
        left = 1 - variance[..., self.oscillating :] / self.options.hz_std**2
        root = left.clamp_min(SMALLEST).sqrt()
        walk = root.unsqueeze(-1) * root.unsqueeze(-2) * prepared.walk
        walk = walk * (self.dt if ratio is None else self.dt * ratio[..., None, None])
        eye = torch.eye(self.rotors, dtype=A.dtype, device=A.device).expand(len(A), -1, -1)
        below = torch.cat((torch.zeros_like(slope.mT), eye), -1)
        whole = torch.cat((torch.cat((A, slope), -1), below), -2)
        return Moved(torch.cat((lines, log_hz), -1), whole, block_diagonal(drive, walk))

    def own_measurement(self, mean: Tensor, variance: Tensor, control: Tensor) -> OwnMeasurement:
        """The frequencies that were measured and that are near the predicted ones."""
        present = control > 0  # False for NaN too
        difference = torch.where(present, control, 1.0).log() - mean[..., self.oscillating :]
        noise = self.options.speed_std**2
        limit = self.options.speed_gate**2 * (variance[..., self.oscillating :] + noise)
        near: Bool[Tensor, "B j"] = difference.square() <= limit
        weight = (present & near).to(mean.dtype)
        H = nn.functional.pad(torch.eye(self.rotors, dtype=mean.dtype, device=mean.device), (self.oscillating, 0))
        return OwnMeasurement(difference * weight, H, mean.new_full((self.rotors,), noise), weight)

    def bounded(self, mean: Tensor) -> Tensor:
        lines, log_hz = mean.split([self.oscillating, self.rotors], -1)
        start, width = self._start(log_hz), WIDEST * self.options.hz_std
        return torch.cat((lines, torch.minimum(torch.maximum(log_hz, start - width), start + width)), -1)

    def levels(self) -> list[int | None]:
        _, rotors, orders = self.log_std.shape
        lines: list[int | None] = [line for line in range(rotors * orders) for _ in range(2)] * self.width
        return [*lines, *[None] * rotors]

    def _start(self, like: Tensor) -> Float[Tensor, " j"]:
        return torch.tensor(self.options.hz, dtype=torch.float64).log().expand(self.rotors).to(like)
