"""Velocity in the frame of the world or of the body, and the velocity of a vehicle that stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ...core import rotation
from ...core.gaussian import matvec
from ...core.motion import Linearity
from ...core.sensor_definition import SensorDefinition, SensorState
from ...errors import ConfigError
from ...registry import SENSORS, at_least, limited


@dataclass(frozen=True)
class VelocityConfig:
    """Noise and frame of a :class:`Velocity`.

    >>> Velocity(VelocityConfig(frame="body")).arguments
    ('velocity', 'orientation')
    """

    std: float | tuple[float, ...] = at_least(0.0, 0.1)
    """Standard deviation (m/s), one for all axes or one for each."""
    frame: Literal["world", "body"] = "world"
    """``"world"``: GNSS Doppler; ``"body"``: optical flow, wheels, a Doppler log."""
    dims: int = at_least(1, 3)
    """Number of coordinates."""
    lever_arm: tuple[float, ...] = ()
    """From the origin of the body to the point that is measured, in the body frame (m); empty for none."""
    drift_std: float = at_least(0.0, 0.0)
    """Standard deviation of an error that lasts (m/s), a first-order Gauss-Markov process; if it is not zero, it is a
    state. Receivers of GNSS smooth their velocities."""
    drift_seconds: float = limited(3.0, above=0.0)
    """Its correlation time (s)."""

    def __post_init__(self) -> None:
        if self.lever_arm and (len(self.lever_arm), self.dims) != (3, 3):
            raise ConfigError(f"sensor velocity: lever_arm = {self.lever_arm} must have three numbers, and dims be 3")
        if self.frame == "body" and self.dims != 3:
            raise ConfigError("sensor velocity: frame = 'body' needs dims = 3, because an orientation rotates it")


@SENSORS.register("velocity")
class Velocity(SensorDefinition):
    """``v`` in the world frame, or ``R(q)ᵀ v`` in the body frame (m/s).

    With a lever arm ``r`` the rotation ``ω`` of the body adds ``ω × r`` in its frame. Reads ``velocity`` (world) and,
    for the body frame or a lever arm, ``orientation`` (body to world), with a lever arm also ``rate`` (body). A
    zero-velocity update is a measurement of zero; in the body frame a vehicle that rolls on wheels has its side-slip
    masked out or in alone.

    Args:
        config: noise and frame.

    >>> import torch, fwnkf
    >>> from fwnkf.systems import Strapdown, StrapdownConfig
    >>> system = Strapdown(StrapdownConfig()).with_sensor("flow", Velocity(VelocityConfig(frame="body")))
    >>> system.sensor_channels["flow"]
    slice(3, 6, None)
    """

    Config = VelocityConfig
    diagonal_noise = True

    def __init__(self, config: VelocityConfig) -> None:
        super().__init__(config, {"velocity": config.dims})
        # asked once: while a fit installs its values they may be tensors that cannot be asked
        self.drifts = bool(config.drift_std)

    @property
    def arguments(self) -> tuple[str, ...]:
        own = tuple(state.name for state in self.states)
        if self.config.lever_arm:
            return ("velocity", "orientation", "rate", *own)
        return ("velocity", *own) if self.config.frame == "world" else ("velocity", "orientation", *own)

    @property
    def states(self) -> tuple[SensorState, ...]:
        config = self.config
        drift = SensorState("drift", config.dims, std=config.drift_std, seconds=config.drift_seconds)
        return (drift,) if self.drifts else ()

    @property
    def linearity(self) -> Linearity:
        return "constant" if "orientation" not in self.arguments else "state_dependent"

    def observe(self, *parts: Tensor) -> Tensor:
        return self.linearize(*parts)[0]

    def linearize(self, *parts: Tensor) -> tuple[Tensor, Tensor]:
        """``R(q ⊗ exp δ)ᵀ v = (I - [δ]×) Rᵀ v``, so the derivative by the angles is ``[Rᵀ v]×``."""
        if not self.drifts:
            return self._moving(*parts)
        seen, slopes = self._moving(*parts[:-1])
        return seen + parts[-1], torch.cat((slopes, self.eye.expand(*slopes.shape[:-1], -1)), -1)

    def _moving(self, *parts: Tensor) -> tuple[Tensor, Tensor]:
        """Without an error that lasts."""
        if len(parts) == 1:
            return parts[0], self.eye
        R = rotation.to_matrix(parts[1])
        swing, by_rate = torch.zeros_like(parts[0]), []
        if self.config.lever_arm:
            arm = self.eye.new_tensor(self.config.lever_arm)
            across = -rotation.skew(arm).expand_as(R)
            swing, by_rate = matvec(across, parts[2]), [across]
        if self.config.frame == "body":
            velocity = matvec(R.mT, parts[0])
            return velocity + swing, torch.cat((R.mT, rotation.skew(velocity), *by_rate), -1)
        slopes = [self.eye.expand_as(R), -R @ rotation.skew(swing), *(R @ block for block in by_rate)]
        return parts[0] + matvec(R, swing), torch.cat(slopes, -1)

    def measurement_covariance(self) -> Tensor:
        return self.independent(self.config.std)
