"""A Kalman filter for vibration that follows rotors: lines at multiples of speeds that are given, tracked, or both.

Each rotor ``j`` has a frequency ``f_j``, whose logarithm ``φ_j`` is a state that walks at random. Each order ``h`` of
each rotor is an oscillator in each channel, turned by ``θ = 2π h f_j dt`` in a step:

    φ⁺ = φ + w,      ν⁺ = r Rot(θ) ν + √(1 - r²) w,      y = h(x) + Σ std ν₁ + v

A speed from outside is a measurement of ``f_j`` that arrives with the control. With it the frequency is known within
its error; without it the frequency is tracked by what the lines do in ``y`` (an extended Kalman filter: the slope of
``ν⁺`` in ``φ_j`` is ``θ`` times ``ν⁺`` turned by a quarter), and its uncertainty grows by the random walk. Turning by
``θ`` folds a line above half the sampling rate to where the samples show it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ..core import oscillators
from ..core.forms import measured_precisely
from ..core.gaussian import DiagonalNoise, FullNoise, Noise, block_diagonal, condition, matvec, normalized_square
from ..core.gaussian import propagate as propagate_covariance
from ..core.system import System
from ..errors import ConfigError
from ..registry import FILTERS, at_least, limited
from ..shapes import Bool, Float
from ..types import Gaussian, StepOutput
from .base import adopt
from .extended import SystemFilter
from .options import arguments
from .outputs import step_output

LOWEST, HIGHEST = 1e-6, 1e6
"""Bounds of the level."""
WIDEST = 6.0
"""Standard deviations (``hz_std``) by which a frequency may differ from that before the first step."""
STRONGEST = 10.0
"""Standard deviations of a line up to which the slope in its frequency grows: an outlier of ``y`` is no line."""
SMALLEST = 1e-6
"""Share of the random walk that is left where a frequency is as uncertain as before the first step."""
FASTEST = 2.0
"""The natural logarithm by which one step may raise or lower the level of the noise."""


@dataclass(frozen=True)
class OrderTrackingConfig:
    """The options of :class:`OrderTrackingFilter`, which describes them."""

    rotors: int = at_least(1, 1)
    orders: tuple[float, ...] = limited((1.0,), above=0.0)
    hz: tuple[float, ...] = limited((100.0,), above=0.0)
    hz_std: float = limited(0.5, above=0.0)
    walk: float = at_least(0.0, 0.1)
    common: float = limited(0.0, min=0.0, max=1.0)
    speed_std: float = limited(0.01, above=0.0)
    speed_gate: float = limited(5.0, above=0.0)
    level: Literal["fixed", "all", "noise"] = "fixed"
    level_time: float = limited(0.1, above=0.0)

    def __post_init__(self) -> None:
        if not self.orders:
            raise ConfigError("filter order_tracking: orders is empty; give at least one multiple of the rotor speed")
        if len(self.hz) not in (1, self.rotors):
            raise ConfigError(f"filter order_tracking: hz has {len(self.hz)} values; give 1, or {self.rotors}")


class OrderTrackingState(NamedTuple):
    """The joint belief of state, oscillators and frequencies, and the level."""

    mean: Float[Tensor, "B n"]
    lines: Float[Tensor, "B s"]
    """The oscillators, two numbers each, channel by channel, rotor by rotor, order by order."""
    log_hz: Float[Tensor, "B j"]
    """Natural logarithms of the rotors' frequencies."""
    cov: Float[Tensor, "B D D"]
    level: Float[Tensor, " B"]


class Lines(NamedTuple):
    """What all steps share."""

    Q: Tensor
    R: Noise
    C: Float[Tensor, "m k"]
    """What the channels see of the oscillators, and of the frequencies: nothing."""
    radius: Float[Tensor, " c"]
    order: Float[Tensor, " c"]
    owner: Float[Tensor, "s j"]
    """1 where an oscillator is one of a rotor."""
    walk: Float[Tensor, "j j"]
    """Covariance of the logarithms of the frequencies after one second."""


@FILTERS.register("order_tracking")
class OrderTrackingFilter(SystemFilter):
    """Kalman filter on a given system with lines that follow rotors, of given or unknown speed.

    The control is that of the system, followed by the frequency of each rotor in Hz (revolutions per second). NaN, zero
    and negative values are missing: the last frequency is kept and its uncertainty grows. :meth:`set_lines` sets how
    strong and how wide the lines are; both are parameters, so that they can be fitted.

    Args:
        system: the equations of motion and the white noise of the sensor.
        rotors: number of rotors.
        orders: multiples of each rotor's frequency at which there are lines; those above half the sampling rate are
            folded as samples fold them.
        hz: frequency of each rotor before the first step, or one for all.
        hz_std: its relative standard deviation; a frequency stays within six of them.
        walk: relative standard deviation of the change of a frequency in one second. A frequency that nothing tells of
            becomes as uncertain as before the first step (``hz_std``), and no more.
        common: share of the variance of this change that all rotors have together, as under one throttle.
        speed_std: relative standard deviation of a given frequency.
        speed_gate: a given frequency further from the predicted one than this many standard deviations of their
            difference is taken as missing.
        level: what the innovations scale: nothing, ``"all"`` covariances, which leaves the estimates as they are, or
            the ``"noise"``, lines and white noise together, which lowers the gains where the noise grows.
        level_time: time constant of the level in seconds.

    >>> import torch, fwnkf
    >>> system = fwnkf.systems.ConstantVelocity(fwnkf.systems.ConstantVelocityConfig(dims=1, dt=0.001))
    >>> filter = fwnkf.build("order_tracking", system=system, rotors=2, orders=(1.0, 2.0), hz=(80.0,))
    >>> filter.set_lines(std=0.5, bandwidth_hz=2.0)
    >>> speeds = torch.full((1, 100, 2), 82.0)
    >>> trajectory = filter.run(torch.zeros(1, 100, 1), u=speeds)
    >>> [round(value, 1) for value in filter.hz(trajectory.state)[0].tolist()]
    [82.0, 82.0]
    """

    Config = OrderTrackingConfig
    takes_missing_controls = True  # a rotor without telemetry

    def __init__(
        self,
        system: System,
        *,
        rotors: int = 1,
        orders: tuple[float, ...] = (1.0,),
        hz: tuple[float, ...] = (100.0,),
        hz_std: float = 0.5,
        walk: float = 0.1,
        common: float = 0.0,
        speed_std: float = 0.01,
        speed_gate: float = 5.0,
        level: Literal["fixed", "all", "noise"] = "fixed",
        level_time: float = 0.1,
    ) -> None:
        super().__init__(**arguments(locals()))

    def setup(self, config: OrderTrackingConfig, system: System | None, arrays: dict[str, Tensor]) -> None:
        self.system = adopt(self, system)
        self.control_dim = self.system.control_dim + config.rotors
        lead = (self.observation_layout.size, config.rotors, len(config.orders))
        self.log_std = nn.Parameter(torch.full(lead, math.log(1e-4)))
        self.log_bandwidth = nn.Parameter(torch.zeros(lead[1:]))
        if config.level == "all" and self._samples() <= 4:
            raise ConfigError(
                f"filter order_tracking: level_time = {config.level_time} s is too short for a level with steps of "
                f"{self.system.dt:g} s; give several steps"
            )

    @torch.no_grad()
    def set_lines(self, std: Any = None, bandwidth_hz: Any = None) -> None:
        """Set the lines; each argument is a number or values that broadcast, None leaves them as they are.

        Args:
            std: standard deviations in the unit of the measurement, ``[channels, rotors, orders]``.
            bandwidth_hz: full widths at half power, ``[rotors, orders]``.

        Raises:
            ConfigError: a value is not positive, or the shape does not fit.
        """
        for name, given, parameter in (
            ("std", std, self.log_std),
            ("bandwidth_hz", bandwidth_hz, self.log_bandwidth),
        ):
            if given is None:
                continue
            value = torch.as_tensor(given, dtype=torch.float64).detach().cpu()
            if not bool((value > 0).all()):
                raise ConfigError(f"{name} = {value.flatten().tolist()} must be positive")
            try:
                parameter.copy_(value.log().expand(parameter.shape))
            except RuntimeError:
                wanted = list(parameter.shape)
                raise ConfigError(f"{name} has shape {list(value.shape)}; wanted what broadcasts to {wanted}") from None

    def hz(self, state: Any) -> Float[Tensor, "B j"]:
        """The frequency of each rotor in a state, in Hz.

        Args:
            state: a state of the filter, as ``trajectory.state``.

        Returns:
            The frequencies.
        """
        return self._own(state).log_hz.exp()

    def hz_std(self, state: Any) -> Float[Tensor, "B j"]:
        """The standard deviation of each rotor's frequency in a state, in Hz.

        Args:
            state: a state of the filter.

        Returns:
            The standard deviations.
        """
        own = self._own(state)
        variance = torch.diagonal(own.cov, dim1=-2, dim2=-1)[..., -self.config.rotors :]
        return own.log_hz.exp() * variance.clamp_min(0).sqrt()

    def _own(self, state: Any) -> OrderTrackingState:
        return state if self.preprocess is None else state.filter

    def init_state(self, belief: Gaussian, generator: torch.Generator | None) -> OrderTrackingState:  # type: ignore[override]
        config, batch, like = self.config, len(belief.mean), belief.mean
        lines = 2 * self.log_std.numel()
        variance = torch.cat((like.new_ones(lines), like.new_full((config.rotors,), config.hz_std**2)))
        return OrderTrackingState(
            belief.mean,
            like.new_zeros(batch, lines),
            self._start(like).expand(batch, -1).clone(),
            block_diagonal(belief.cov, variance.diag()),
            like.new_ones(batch),
        )

    def prepare(self) -> Lines:
        config, (channels, rotors, orders) = self.config, self.log_std.shape
        like = self.log_std
        radius = torch.exp(-math.pi * self.system.dt * self.log_bandwidth.exp())
        numbers = torch.tensor(config.orders, dtype=like.dtype, device=like.device)
        own = torch.eye(rotors, dtype=like.dtype, device=like.device)
        each = own.repeat_interleave(2 * orders, 0).repeat(channels, 1)
        together = config.common + (1 - config.common) * own
        return Lines(
            self.system.process_noise(None),
            self.system.measurement_noise(),
            torch.nn.functional.pad(oscillators.output(self.log_std.exp().flatten(1)), (0, rotors)),
            radius.flatten().repeat(channels),
            numbers.repeat(rotors * channels),
            each,
            config.walk**2 * together,
        )

    def advance(
        self,
        prepared: Lines,
        state: OrderTrackingState,
        y: Tensor,
        weight: Tensor,
        u: Tensor | None,
        dt: Tensor | None,
    ) -> tuple[OrderTrackingState, StepOutput]:
        own, speeds = (None, None) if u is None else (u[..., : self.system.control_dim], u[..., -self.config.rotors :])
        own = own if self.system.control_dim else None
        if speeds is not None:
            state = self._given(state, speeds)
        mean, lines, cov = self._predict(prepared, state, own, dt)
        predicted, Hx = self.system.linearize_observation(mean)
        innovation = self.innovation(y, predicted + matvec(prepared.C[:, : lines.shape[-1]], lines), weight)
        H = torch.cat((Hx, prepared.C.expand(*Hx.shape[:-2], -1, -1)), -1)
        R = _scaled(prepared.R, state.level) if self.config.level == "noise" else prepared.R
        update = condition(cov, innovation, H, R, weight)
        d, s = self.layout.tangent_size, lines.shape[-1]
        moved, turned, faster = update.correction.split((d, s, self._rotors), -1)
        posterior = Gaussian(self.layout.boxplus(mean, moved), update.cov[..., :d, :d])
        precise = measured_precisely(update.precise, y, R, weight)
        prior = Gaussian(mean, cov[..., :d, :d])
        out = step_output(prior, posterior, innovation, update.innovation_cov, update.ok, precise)
        level = self._next_level(state.level, out, weight, dt)
        following = OrderTrackingState(
            posterior.mean, lines + turned, self._bounded(state.log_hz + faster), update.cov, level
        )
        if self.config.level == "all":
            before, after = state.level[..., None, None], level[..., None, None]
            out = out._replace(
                cov=after * out.cov, prior_cov=before * out.prior_cov, innovation_cov=before * out.innovation_cov
            )
        return following, out

    @property
    def _rotors(self) -> int:
        return int(self.config.rotors)

    def _given(self, state: OrderTrackingState, speeds: Float[Tensor, "B j"]) -> OrderTrackingState:
        """The belief conditioned on the frequencies that were given and that are near the predicted ones."""
        present = speeds > 0  # False for NaN too
        measured = torch.where(present, speeds, 1.0).log()
        difference = measured - state.log_hz
        variance = torch.diagonal(state.cov, dim1=-2, dim2=-1)[..., -self._rotors :]
        noise = self.config.speed_std**2
        near: Bool[Tensor, "B j"] = difference.square() <= self.config.speed_gate**2 * (variance + noise)
        weight = (present & near).to(speeds.dtype)
        rest = state.cov.shape[-1] - self._rotors
        H = torch.nn.functional.pad(torch.eye(self._rotors, dtype=speeds.dtype, device=speeds.device), (rest, 0))
        update = condition(state.cov, difference * weight, H, DiagonalNoise(torch.full_like(speeds[0], noise)), weight)
        d = self.layout.tangent_size
        moved, turned, faster = update.correction.split((d, rest - d, self._rotors), -1)
        return state._replace(
            mean=self.layout.boxplus(state.mean, moved),
            lines=state.lines + turned,
            log_hz=self._bounded(state.log_hz + faster),
            cov=update.cov,
        )

    def _predict(
        self, prepared: Lines, state: OrderTrackingState, u: Tensor | None, dt: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Means of state and oscillators after a step, and the joint covariance."""
        step = self.system.dt if dt is None else dt[..., None]
        ratio = None if dt is None else dt / self.system.dt
        mean, Fx = self.system.linearize_transition(state.mean, u, dt)
        Qx = prepared.Q if dt is None else self.system.process_noise(dt)
        hz = state.log_hz.exp() @ prepared.owner[::2].mT
        angle = 2 * math.pi * self.system.dt * prepared.order * hz
        A, drive = oscillators.transition(prepared.radius, angle, ratio)
        lines = matvec(A, state.lines)
        pairs = lines.clamp(-STRONGEST, STRONGEST).unflatten(-1, (-1, 2))
        quarter = torch.stack((-pairs[..., 1], pairs[..., 0]), -1)
        turn = 2 * math.pi * step * prepared.order * hz
        slope = (turn.unsqueeze(-1) * quarter).flatten(-2).unsqueeze(-1) * prepared.owner
        walk = self._room(state) * prepared.walk * (self.system.dt if dt is None else dt[..., None, None])
        eye = torch.eye(self._rotors, dtype=A.dtype, device=A.device).expand(len(A), -1, -1)
        below = torch.cat((torch.zeros_like(slope.mT), eye), -1)
        F = block_diagonal(Fx, torch.cat((torch.cat((A, slope), -1), below), -2))
        if self.config.level == "noise":
            drive = drive * state.level[..., None, None]
        return mean, lines, propagate_covariance(state.cov, F, block_diagonal(block_diagonal(Qx, drive), walk))

    def _start(self, like: Tensor) -> Float[Tensor, " j"]:
        return torch.tensor(self.config.hz, dtype=torch.float64).log().expand(self._rotors).to(like)

    def _bounded(self, log_hz: Float[Tensor, "B j"]) -> Float[Tensor, "B j"]:
        start, width = self._start(log_hz), WIDEST * self.config.hz_std
        return torch.minimum(torch.maximum(log_hz, start - width), start + width)

    def _room(self, state: OrderTrackingState) -> Float[Tensor, "B j j"]:
        """Factors of the walk that let no variance of a frequency grow beyond that before the first step."""
        variance = torch.diagonal(state.cov, dim1=-2, dim2=-1)[..., -self._rotors :]
        root = (1 - variance / self.config.hz_std**2).clamp_min(SMALLEST).sqrt()
        return root.unsqueeze(-1) * root.unsqueeze(-2)

    def _samples(self) -> float:
        """Degrees of freedom of the level: the measurements that its exponential mean is worth."""
        keep = math.exp(-self.system.dt / self.config.level_time)
        return (1 + keep) / (1 - keep) * self.observation_layout.size

    def _next_level(self, level: Tensor, out: StepOutput, weight: Tensor, dt: Tensor | None) -> Float[Tensor, " B"]:
        if self.config.level == "fixed":
            return level
        count = weight.sum(-1)
        nis = normalized_square(out.innovation, out.innovation_cov, weight)[0] / count.clamp_min(1)
        step = torch.full_like(level, self.system.dt) if dt is None else dt
        learn = -torch.expm1(-step / self.config.level_time)
        if self.config.level == "all":
            free = self._samples()  # a mean of d squares is too small by (d - 2) / d where it divides
            moved = level + learn * (nis * free / (free - 2) - level)
        else:
            moved = level * (learn * (nis - 1)).clamp(-FASTEST, FASTEST).exp()
        return torch.where(count > 0, moved.clamp(LOWEST, HIGHEST), level)


def _scaled(noise: Noise, level: Float[Tensor, " B"]) -> Noise:
    if isinstance(noise, FullNoise):
        return FullNoise(noise.cov * level[..., None, None])
    return DiagonalNoise(noise.variance * level[..., None])
