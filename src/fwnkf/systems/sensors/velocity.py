"""Velocity in the frame of the world or of the body, and the velocity of a vehicle that stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ...core import rotation
from ...core.gaussian import matvec
from ...core.motion import Linearity
from ...core.sensor_definition import SensorDefinition
from ...errors import ConfigError
from ...registry import SENSORS, at_least


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

    def __post_init__(self) -> None:
        if self.frame == "body" and self.dims != 3:
            raise ConfigError("sensor velocity: frame = 'body' needs dims = 3, because an orientation rotates it")


@SENSORS.register("velocity")
class Velocity(SensorDefinition):
    """``v`` in the world frame, or ``R(q)ᵀ v`` in the body frame (m/s).

    Reads ``velocity`` (world) and, for the body frame, ``orientation`` (body to world). A zero-velocity update is a
    measurement of zero; in the body frame a vehicle that rolls on wheels has its side-slip masked out or in alone.

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

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("velocity",) if self.config.frame == "world" else ("velocity", "orientation")

    @property
    def linearity(self) -> Linearity:
        return "constant" if self.config.frame == "world" else "state_dependent"

    def observe(self, *parts: Tensor) -> Tensor:
        return parts[0] if len(parts) == 1 else matvec(rotation.to_matrix(parts[1]).mT, parts[0])

    def linearize(self, *parts: Tensor) -> tuple[Tensor, Tensor]:
        """``R(q ⊗ exp δ)ᵀ v = (I - [δ]×) Rᵀ v``, so the derivative by the angles is ``[Rᵀ v]×``."""
        if len(parts) == 1:
            return parts[0], self.eye
        to_body = rotation.to_matrix(parts[1]).mT
        velocity = matvec(to_body, parts[0])
        return velocity, torch.cat((to_body, rotation.skew(velocity)), -1)

    def measurement_covariance(self) -> Tensor:
        return self.independent(self.config.std)
