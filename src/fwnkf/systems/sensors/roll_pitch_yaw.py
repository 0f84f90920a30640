"""Roll, pitch and yaw, as an attitude system or a motion capture system reports them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.sensor_definition import SensorDefinition
from ...registry import SENSORS, at_least
from ...shapes import Float


@dataclass(frozen=True)
class RollPitchYawConfig:
    """Noise of a :class:`RollPitchYaw`.

    >>> RollPitchYaw(RollPitchYawConfig(std=2.0)).measurement_covariance().diagonal()
    tensor([4., 4., 4.])
    """

    std: float | tuple[float, ...] = at_least(0.0, 0.01)
    """Standard deviation (rad), one for all angles or one for each."""


@SENSORS.register("roll_pitch_yaw")
class RollPitchYaw(SensorDefinition):
    """The angles of ``R(q) = R_z(yaw) R_y(pitch) R_x(roll)`` (rad); singular where the pitch is ±90 degrees.

    Reads ``orientation`` (body to world). The channels are angles: innovations are wrapped.

    Args:
        config: noise.

    >>> import torch, fwnkf
    >>> from fwnkf.systems import Strapdown, StrapdownConfig
    >>> system = Strapdown(StrapdownConfig()).with_sensor("angles", RollPitchYaw(RollPitchYawConfig()))
    >>> system.observation_layout.describe()
    (('position', 'euclidean', 3), ('angles', 'angle', 3))
    """

    Config = RollPitchYawConfig
    arguments = ("orientation",)
    diagonal_noise = True

    def __init__(self, config: RollPitchYawConfig) -> None:
        super().__init__(config, {"roll_pitch_yaw": ("angle", 3)})

    def observe(self, *parts: Tensor) -> Tensor:
        return roll_pitch_yaw(*parts)

    def linearize(self, *parts: Tensor) -> tuple[Tensor, Tensor]:
        angles = roll_pitch_yaw(*parts)
        return angles, euler_rates(angles)

    def measurement_covariance(self) -> Tensor:
        return self.independent(self.config.std)


def roll_pitch_yaw(q: Float[Tensor, "*B 4"]) -> Float[Tensor, "*B 3"]:
    """Angles of ``R = R_z(yaw) R_y(pitch) R_x(roll)``."""
    w, x, y, z = q.unbind(-1)
    roll = torch.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    sine = (2 * (w * y - z * x)).clamp(-1.0, 1.0)
    yaw = torch.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return torch.stack((roll, sine.asin(), yaw), -1)


def euler_rates(angles: Float[Tensor, "*B 3"]) -> Float[Tensor, "*B 3 3"]:
    """The derivative of roll, pitch and yaw by a small rotation in the body frame."""
    roll, pitch, _ = angles.unbind(-1)
    sine, cosine, tangent = roll.sin(), roll.cos(), pitch.tan()
    one, zero = torch.ones_like(roll), torch.zeros_like(roll)
    rows = (
        (one, sine * tangent, cosine * tangent),
        (zero, cosine, -sine),
        (zero, sine / pitch.cos(), cosine / pitch.cos()),
    )
    return torch.stack([torch.stack(row, -1) for row in rows], -2)
