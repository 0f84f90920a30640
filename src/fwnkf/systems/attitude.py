"""A sensor moved by hand: its attitude from gyroscope and accelerometer, because a hand does not travel.

An accelerometer cannot tell gravity from motion at one instant. Over seconds it can: a wrong tilt sends the integrated
position away, a hand stays within reach. So the position is "measured" as zero, with a disturbance that moves as hands
do; a hand that moves fast reaches further.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.gaussian import matvec
from ..core.layout import Layout
from ..core.system import System
from ..registry import SYSTEMS, at_least, limited
from ..shapes import Float
from .strapdown import Strapdown, StrapdownConfig

REACH_SPEED = 0.3
"""m/s: a hand moved slowly."""
REACH_LIMITS = (0.05, 20.0)
"""Of the speed in parts of :data:`REACH_SPEED`: a hand at rest still reaches somewhere."""


@dataclass(frozen=True)
class HandheldConfig:
    """Noise of the sensors, and how a hand wanders.

    The wander of each axis is a cycle (``cycle_std`` m, ``cycle_hertz``, memory ``cycle_seconds``) plus a slow walk
    (``slow_std`` m, memory ``slow_seconds``). ``rate_std`` is the gyroscope's error in parts of the rate (scale,
    misalignment, timing), with a memory of ``rate_seconds``. ``position_std`` is what the wander leaves open; at rest
    ``rest_velocity_std`` (m/s) and ``rest_rate_std`` (rad/s) say how still things are. ``accelerometer_bias_std``
    (m/s²) belongs to the start. The wander grows with the hand's speed to the power ``reach_power``; its size above is
    that at :data:`REACH_SPEED`. ``delay`` is the age of a reading of the gyroscope in seconds: the state is as old, and
    whoever wants the attitude now turns it on by the last rate. The others as in :class:`StrapdownConfig`.
    """

    cycle_std: float = limited(0.3, above=0.0)
    cycle_hertz: float = limited(0.4, above=0.0)
    cycle_seconds: float = limited(1.0, above=0.0)
    slow_std: float = limited(0.45, above=0.0)
    slow_seconds: float = limited(10.0, above=0.0)
    reach_power: float = at_least(0.0, 0.6)
    gyro_density: float = limited(2e-3, above=0.0)
    gyro_walk: float = limited(2e-5, above=0.0)
    accelerometer_density: float = limited(0.02, above=0.0)
    accelerometer_walk: float = limited(1e-4, above=0.0)
    rate_std: float = limited(5e-3, above=0.0)
    rate_seconds: float = limited(1.0, above=0.0)
    position_std: float = limited(0.01, above=0.0)
    rest_velocity_std: float = limited(0.01, above=0.0)
    rest_rate_std: float = limited(2e-3, above=0.0)
    accelerometer_bias_std: float = limited(0.03, above=0.0)
    delay: float = at_least(0.0, 0.0)
    dt: float = limited(0.084, above=0.0)


@SYSTEMS.register("handheld")
class Handheld(System):
    """Strapdown with biases, a rate error in parts of the rate, and the hand's wander.

    ``u = (gyro, accelerometer, speed of the hand)``; ``ω = gyro - b_g - |gyro| d``; wander ``c⁺ = r R(2π f dt) c``,
    ``s⁺ = ρ s``, and its reach ``l⁺ = (speed / 0.3)^power``, a state only to carry it to the observation. Observed are
    the position and ``l`` times the wander (always 0 together), and at rest the velocity (0) and the gyroscope's bias
    (what it reads).

    >>> import torch
    >>> system = Handheld(HandheldConfig())
    >>> system.observe(system.layout.origin(torch.zeros(()))).shape
    torch.Size([9])
    """

    Config = HandheldConfig
    control_dim = 7
    diagonal_noise = True
    fixed: Tensor
    hand: Tensor
    power: Tensor
    eye: Tensor

    def __init__(self, config: HandheldConfig) -> None:
        super().__init__(config)
        self.dt = config.dt
        self.inner = Strapdown(
            StrapdownConfig(
                gyro_density=config.gyro_density,
                accelerometer_density=config.accelerometer_density,
                gyro_walk=config.gyro_walk,
                accelerometer_walk=config.accelerometer_walk,
                dt=config.dt,
            )
        )
        # cycle: three sines, then three cosines
        parts = [("rate_error", "euclidean", 3), ("cycle", "euclidean", 6), ("slow", "euclidean", 3)]
        self.layout = Layout.parse([*self.inner.layout.describe(), *parts, ("reach", "euclidean", 1)])
        self.observation_layout = Layout.parse([(name, "euclidean", 3) for name in ("place", "velocity", "gyro_bias")])
        three = torch.eye(3)
        fixed, hand = torch.zeros(9, 28), torch.zeros(9, 28)
        fixed[:3, :3], fixed[3:6, 3:6], fixed[6:9, 9:12] = three, three, three
        hand[:3, 18:21], hand[:3, 24:27] = config.cycle_std * three, config.slow_std * three
        self.register_buffer("fixed", fixed, persistent=False)
        self.register_buffer("hand", hand, persistent=False)
        self.register_buffer("power", torch.tensor([config.reach_power]), persistent=False)
        self.register_buffer("eye", torch.eye(28), persistent=False)

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        moved = self.inner.transition(x[..., :16], self._sensed(x, u)[0], dt)
        return torch.cat((moved, matvec(self._outer(x, dt), x[..., 16:28]), self._reach(x, u)), -1)

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        sensed, turning = self._sensed(x, u)
        moved, F = self.inner.linearize_transition(x[..., :16], sensed, dt)
        outer = self._outer(x, dt)
        lead = torch.broadcast_shapes(F.shape[:-2], outer.shape[:-2], turning.shape[:-1])
        # the rate error acts as a bias does, but for the bias itself
        by_error = (F[..., :, 9:12] - self.eye[:15, 9:12]) * turning.unsqueeze(-1)
        pad = torch.nn.functional.pad
        upper = torch.cat((F.expand(*lead, 15, 15), pad(by_error, (0, 10)).expand(*lead, 15, 13)), -1)
        lower = pad(outer, (15, 1, 0, 1)).expand(*lead, 13, 28)  # the reach forgets what it was
        after = torch.cat((moved, matvec(outer, x[..., 16:28]), self._reach(x, u)), -1)
        return after, torch.cat((upper, lower), -2)

    def process_noise(self, dt: Tensor | None) -> Tensor:
        """Of the strapdown part as there; the others keep their stationary variance (the wander's is one)."""
        inner = self.inner.process_noise(dt)
        rate, cycle, slow = self._kept(dt)
        added = torch.cat(
            (
                self.config.rate_std**2 * (1 - rate**2).unsqueeze(-1).expand(*rate.shape, 3),
                (1 - cycle**2).unsqueeze(-1).expand(*rate.shape, 6),
                (1 - slow**2).unsqueeze(-1).expand(*rate.shape, 3),
                torch.zeros_like(rate).unsqueeze(-1),
            ),
            -1,
        )
        pad = torch.nn.functional.pad
        return pad(inner, (0, 13, 0, 13)) + pad(torch.diag_embed(added), (15, 0, 15, 0))

    def observe(self, x: Tensor) -> Tensor:
        parts = torch.cat((x[..., :6], x[..., 7:29]), -1)  # the quaternion is not seen: any three of its numbers do
        return matvec(self.fixed, parts) + x[..., 28:29] * matvec(self.hand, parts)

    def linearize_observation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        parts = torch.cat((x[..., :6], x[..., 7:29]), -1)
        wander = matvec(self.hand, parts)
        H = self.fixed + x[..., 28:29].unsqueeze(-1) * self.hand + wander.unsqueeze(-1) * self.eye[27]
        return matvec(self.fixed, parts) + x[..., 28:29] * wander, H

    def measurement_covariance(self) -> Tensor:
        config = self.config
        stds = [config.position_std] * 3 + [config.rest_velocity_std] * 3 + [config.rest_rate_std] * 3
        return torch.diag_embed(self.eye.new_tensor(stds).square())

    def start_variances(self) -> Float[Tensor, "*B 28"]:
        """Of the state at rest before the first step: tilt known to a degree, bias to half a degree/s."""
        config = self.config
        stds = [0.01, 0.01, 0.02, math.radians(0.5), config.accelerometer_bias_std, config.rate_std, 1.0, 1.0, 1.0]
        return torch.nn.functional.pad(self.eye.new_tensor(stds).square().repeat_interleave(3), (0, 1))

    # ---- parts of a step ------------------------------------------------------------------------------------

    def _kept(self, dt: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """What a step leaves of rate error, cycle and slow walk."""
        step = self.eye.new_tensor(self.dt) if dt is None else dt
        memories = (self.config.rate_seconds, self.config.cycle_seconds, self.config.slow_seconds)
        rate, cycle, slow = ((-step / seconds).exp() for seconds in memories)
        return rate, cycle, slow

    def _outer(self, x: Tensor, dt: Tensor | None) -> Float[Tensor, "*B 12 12"]:
        step = self.eye.new_tensor(self.dt) if dt is None else dt
        rate, cycle, slow = (kept[..., None, None] for kept in self._kept(dt))
        turn = 2 * math.pi * self.config.cycle_hertz * step[..., None, None]
        three = self.eye[:3, :3]
        zero = torch.zeros_like(three * rate)
        cosine, sine = cycle * turn.cos() * three, cycle * turn.sin() * three
        rows = (
            (rate * three, zero, zero, zero),
            (zero, cosine, sine, zero),
            (zero, -sine, cosine, zero),
            (zero, zero, zero, slow * three),
        )
        return torch.cat([torch.cat(row, -1) for row in rows], -2)

    def _reach(self, x: Tensor, u: Tensor | None) -> Float[Tensor, "B 1"]:
        speed = x.new_zeros(*x.shape[:-1], 1) if u is None else u[..., 6:7]
        return (speed / REACH_SPEED).clamp(*REACH_LIMITS) ** self.power

    def _sensed(self, x: Tensor, u: Tensor | None) -> tuple[Float[Tensor, "B 6"], Float[Tensor, "B 1"]]:
        """The sensors with the rate error taken off, and the length of the rate."""
        sensed = x.new_zeros(*x.shape[:-1], 6) if u is None else u[..., :6]
        turning = sensed[..., :3].norm(dim=-1, keepdim=True)
        return torch.cat((sensed[..., :3] - turning * x[..., 16:19], sensed[..., 3:]), -1), turning
