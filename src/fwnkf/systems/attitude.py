"""Attitude of a hand-held sensor from gyroscope and accelerometer, by bounding where a hand can be.

An accelerometer cannot separate gravity from motion at one instant. Over seconds it can: an error of the tilt makes the
integrated position diverge, while a hand stays within a metre or so. The position is therefore observed as zero plus a
displacement, a stochastic process with the spectrum of hand motion whose size grows with the speed of the hand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core import rotation
from ..core.composed import ComposedSystem, part_config
from ..core.gaussian import matvec
from ..core.layout import Layout
from ..core.motion import Motion
from ..core.sensor_definition import SensorDefinition
from ..registry import MOTIONS, SYSTEMS, at_least, limited
from ..shapes import Float
from ..types import Gaussian
from .sensors import (
    BoundedPosition,
    BoundedPositionConfig,
    GyroBias,
    GyroBiasConfig,
    Velocity,
    VelocityConfig,
)
from .strapdown import StrapdownMotion, StrapdownMotionConfig

REFERENCE_SPEED = 0.3
"""m/s, a slowly moved hand: the standard deviations of the displacement are those at this speed."""
SPEED_LIMITS = (0.05, 20.0)
"""Bounds of the speed in units of :data:`REFERENCE_SPEED`: the displacement of a hand at rest is small, not zero."""


@dataclass(frozen=True)
class HandheldMotionConfig:
    """Noise of the sensors, and the process that models the displacement of the hand.

    The displacement of each axis is the sum of an oscillator and a first-order Gauss-Markov process, times
    ``(speed / 0.3 m/s) ** speed_exponent``; both have unit variance here.

    >>> HandheldMotion(HandheldMotionConfig()).layout.size
    29
    """

    oscillation_hertz: float = limited(0.4, above=0.0)
    """Frequency of the oscillator (Hz)."""
    oscillation_seconds: float = limited(1.0, above=0.0)
    """Its correlation time (s)."""
    drift_seconds: float = limited(10.0, above=0.0)
    """Correlation time of the Gauss-Markov process (s)."""
    speed_exponent: float = at_least(0.0, 0.6)
    """How the displacement grows with the speed of the hand."""
    gyro_density: float = limited(2e-3, above=0.0)
    """Noise of the gyroscope (rad/s/√Hz)."""
    gyro_walk: float = limited(2e-5, above=0.0)
    """Random walk of its bias (rad/s²/√Hz)."""
    accelerometer_density: float = limited(0.02, above=0.0)
    """Noise of the accelerometer (m/s²/√Hz)."""
    accelerometer_walk: float = limited(1e-4, above=0.0)
    """Random walk of its bias (m/s³/√Hz)."""
    rate_error_std: float = limited(5e-3, above=0.0)
    """The gyroscope's error relative to the rate (scale factor, misalignment, timing)."""
    rate_error_seconds: float = limited(1.0, above=0.0)
    """Its correlation time (s)."""
    accelerometer_bias_std: float = limited(0.03, above=0.0)
    """Standard deviation of the accelerometer's bias in the initial belief (m/s²)."""
    dt: float = limited(0.084, above=0.0)
    """Nominal step (s)."""


@MOTIONS.register("handheld")
class HandheldMotion(Motion):
    """Strapdown navigation with biases, a rate error relative to the rate, and the displacement of the hand.

    ``u = (gyro, accelerometer, speed of the hand)``, ``ω = gyro - b_g - |gyro| e``. Oscillation ``c⁺ = r R(2π f dt) c``
    and drift ``s⁺ = ρ s`` have unit variance. The factor of the displacement is a state only because the observation
    needs it.

    >>> import torch
    >>> motion = HandheldMotion(HandheldMotionConfig())
    >>> motion.disturbance_matrix(None).shape
    torch.Size([12, 12])
    """

    Config = HandheldMotionConfig
    control_dim = 7
    initial_steps = 1
    exponent: Tensor
    eye: Tensor

    def __init__(self, config: HandheldMotionConfig) -> None:
        super().__init__(config)
        self.dt = config.dt
        self.inner = StrapdownMotion(part_config(StrapdownMotionConfig, config))
        # oscillation: three sines, then three cosines
        parts = [("rate_error", "euclidean", 3), ("oscillation", "euclidean", 6), ("drift", "euclidean", 3)]
        self.layout = Layout.parse([*self.inner.layout.describe(), *parts, ("factor", "euclidean", 1)])
        self.register_buffer("exponent", torch.tensor([config.speed_exponent]), persistent=False)
        self.register_buffer("eye", torch.eye(28), persistent=False)

    def initial_belief(self, y: Tensor, weight: Tensor, u: Tensor | None) -> Gaussian:
        """At rest at the origin, level by the force of the first step; see :meth:`initial_variances`."""
        origin = self.layout.origin(y).expand(len(y), -1)
        level = origin[:, 6:10]
        if u is not None:
            known = u[:, 0, 3:6].norm(dim=-1, keepdim=True) > 0  # a force of zero has no direction
            level = torch.where(known, rotation.tilt(u[:, 0, 3:6]), level)
        mean = torch.cat((origin[:, :6], level, origin[:, 10:]), -1)
        return Gaussian(mean, torch.diag_embed(self.initial_variances()).expand(len(y), 28, 28))

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        moved = self.inner.transition(x[..., :16], self._sensed(x, u)[0], dt)
        return torch.cat((moved, matvec(self.disturbance_matrix(dt), x[..., 16:28]), self._factor(x, u)), -1)

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        sensed, turning = self._sensed(x, u)
        moved, F = self.inner.linearize_transition(x[..., :16], sensed, dt)
        disturbances = self.disturbance_matrix(dt)
        lead = torch.broadcast_shapes(F.shape[:-2], disturbances.shape[:-2], turning.shape[:-1])
        # the rate error acts as a bias times the rate, except on the bias itself
        by_error = (F[..., :, 9:12] - self.eye[:15, 9:12]) * turning.unsqueeze(-1)
        pad = torch.nn.functional.pad
        upper = torch.cat((F.expand(*lead, 15, 15), pad(by_error, (0, 10)).expand(*lead, 15, 13)), -1)
        lower = pad(disturbances, (15, 1, 0, 1)).expand(*lead, 13, 28)  # the factor depends on the input alone
        after = torch.cat((moved, matvec(disturbances, x[..., 16:28]), self._factor(x, u)), -1)
        return after, torch.cat((upper, lower), -2)

    def process_noise(self, dt: Tensor | None) -> Tensor:
        """Of the strapdown part as there; the disturbances keep their stationary variance."""
        inner = self.inner.process_noise(dt)
        rate, oscillation, drift = self._decay(dt)
        added = torch.cat(
            (
                self.config.rate_error_std**2 * (1 - rate**2).unsqueeze(-1).expand(*rate.shape, 3),
                (1 - oscillation**2).unsqueeze(-1).expand(*rate.shape, 6),
                (1 - drift**2).unsqueeze(-1).expand(*rate.shape, 3),
                torch.zeros_like(rate).unsqueeze(-1),
            ),
            -1,
        )
        pad = torch.nn.functional.pad
        return pad(inner, (0, 13, 0, 13)) + pad(torch.diag_embed(added), (15, 0, 15, 0))

    def initial_variances(self) -> Float[Tensor, "*B 28"]:
        """Variances of a state at rest before the first step: tilt known to a degree, gyro bias to half a degree/s.

        Returns:
            One for each tangent coordinate.
        """
        config = self.config
        stds = [0.01, 0.01, 0.02, math.radians(0.5), config.accelerometer_bias_std, config.rate_error_std, 1, 1, 1]
        return torch.nn.functional.pad(self.eye.new_tensor(stds).square().repeat_interleave(3), (0, 1))

    def disturbance_matrix(self, dt: Tensor | None) -> Float[Tensor, "*B 12 12"]:
        """Transition matrix of rate error, oscillation and drift.

        Args:
            dt: the length of the step in seconds; None for the nominal one.

        Returns:
            The matrix.
        """
        step = self.eye.new_tensor(self.dt) if dt is None else dt
        rate, oscillation, drift = (decay[..., None, None] for decay in self._decay(dt))
        turn = 2 * math.pi * self.config.oscillation_hertz * step[..., None, None]
        three = self.eye[:3, :3]
        zero = torch.zeros_like(three * rate)
        cosine, sine = oscillation * turn.cos() * three, oscillation * turn.sin() * three
        rows = (
            (rate * three, zero, zero, zero),
            (zero, cosine, sine, zero),
            (zero, -sine, cosine, zero),
            (zero, zero, zero, drift * three),
        )
        return torch.cat([torch.cat(row, -1) for row in rows], -2)

    # ---- parts of a step ------------------------------------------------------------------------------------

    def _decay(self, dt: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """``exp(-dt / correlation time)`` of rate error, oscillation and drift."""
        step = self.eye.new_tensor(self.dt) if dt is None else dt
        times = (self.config.rate_error_seconds, self.config.oscillation_seconds, self.config.drift_seconds)
        rate, oscillation, drift = ((-step / seconds).exp() for seconds in times)
        return rate, oscillation, drift

    def _factor(self, x: Tensor, u: Tensor | None) -> Float[Tensor, "B 1"]:
        speed = x.new_zeros(*x.shape[:-1], 1) if u is None else u[..., 6:7]
        return (speed / REFERENCE_SPEED).clamp(*SPEED_LIMITS) ** self.exponent

    def _sensed(self, x: Tensor, u: Tensor | None) -> tuple[Float[Tensor, "B 6"], Float[Tensor, "B 1"]]:
        """Rate and force with the rate error subtracted, and the norm of the rate."""
        sensed = x.new_zeros(*x.shape[:-1], 6) if u is None else u[..., :6]
        turning = sensed[..., :3].norm(dim=-1, keepdim=True)
        return torch.cat((sensed[..., :3] - turning * x[..., 16:19], sensed[..., 3:]), -1), turning


@dataclass(frozen=True)
class HandheldConfig(HandheldMotionConfig):
    """As :class:`HandheldMotionConfig`, the size of the displacement, and the noise of what is observed.

    >>> Handheld(HandheldConfig(position_std=0.02)).observation_layout.size
    9
    """

    oscillation_std: float = limited(0.3, above=0.0)
    """Standard deviation of the oscillator (m)."""
    drift_std: float = limited(0.45, above=0.0)
    """Standard deviation of the Gauss-Markov process (m)."""
    position_std: float = limited(0.01, above=0.0)
    """The white part of the position observation (m)."""
    rest_velocity_std: float = limited(0.01, above=0.0)
    """Standard deviation of the velocity observed at rest (m/s)."""
    rest_rate_std: float = limited(2e-3, above=0.0)
    """Standard deviation of the gyroscope bias observed at rest (rad/s)."""


@SYSTEMS.register("handheld")
class Handheld(ComposedSystem):
    """:class:`HandheldMotion`, observed where a hand can be, and at rest.

    Observed are the position minus the displacement (0 at every step) and, at rest, the velocity (0) and the
    gyroscope's bias (the measured rate). :class:`fwnkf.preprocess.PreintegratedIMU` computes all of it from samples.

    >>> import torch
    >>> system = Handheld(HandheldConfig())
    >>> system.observe(system.layout.origin(torch.zeros(()))).shape
    torch.Size([9])
    """

    Config = HandheldConfig
    motion: HandheldMotion

    def __init__(self, config: HandheldConfig) -> None:
        motion, sensors = self.part_configs(config)
        super().__init__(HandheldMotion(motion), sensors_of(sensors), config=config)

    @classmethod
    def part_configs(cls, config: Any) -> tuple[Any, dict[str, Any]]:
        sensors = {
            "position": part_config(BoundedPositionConfig, config, std=config.position_std),
            "velocity": VelocityConfig(std=config.rest_velocity_std),
            "gyro_bias": GyroBiasConfig(std=config.rest_rate_std),
        }
        return part_config(HandheldMotionConfig, config), sensors


def sensors_of(configs: dict[str, Any]) -> dict[str, SensorDefinition]:
    """The sensors of a :class:`Handheld` from their configs."""
    return {
        "position": BoundedPosition(configs["position"]),
        "velocity": Velocity(configs["velocity"]),
        "gyro_bias": GyroBias(configs["gyro_bias"]),
    }
