"""Wheels: the speed along their direction, and that a vehicle does not move across it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...core import rotation
from ...core.gaussian import matvec
from ...core.sensor_definition import SensorDefinition, SensorState
from ...registry import SENSORS, at_least


@dataclass(frozen=True)
class RollingConfig:
    """Noise of a :class:`Rolling`, and how the IMU is mounted in the vehicle.

    >>> Rolling(RollingConfig(axle_std=1.0)).arguments
    ('velocity', 'orientation', 'rate', 'mounting', 'axle')
    """

    forward_std: float = at_least(0.0, 0.1)
    """Standard deviation of the speed of the wheels (m/s)."""
    slip_std: float = at_least(0.0, 0.2)
    """Standard deviation of the velocity across the direction of rolling (m/s)."""
    mounting: tuple[float, ...] = (0.0, 0.0, 0.0)
    """Rotation vector that turns the axes of the vehicle into those of the IMU (rad)."""
    mounting_std: float = at_least(0.0, 0.05)
    """Standard deviation of pitch and yaw of the mounting (rad); if it is not zero, they are states of the sensor."""
    axle: float = 0.0
    """How far ahead of the IMU the axle is that does not slip (m); negative behind it."""
    axle_std: float = at_least(0.0, 0.0)
    """Standard deviation of that distance (m); if it is not zero, it is a state of the sensor."""


@SENSORS.register("rolling")
class Rolling(SensorDefinition):
    """Velocity of the axle in the axes of the vehicle, forward, right and down (m/s); the last two measure zero.

    With the velocity ``w = C R(q)ᵀ v`` of the IMU in these axes, where ``C`` is the mounting, the axle at ``(l, 0, 0)``
    moves with ``w + (0, ω_z l, -ω_y l)``. Reads ``velocity``, ``orientation`` (body to world), ``rate`` (rad/s, body),
    and its own states ``mounting`` (pitch and yaw) and ``axle`` where they are estimated.

    Args:
        config: noise and mounting.

    >>> import torch
    >>> from fwnkf.systems import Navigation, NavigationConfig
    >>> system = Navigation(NavigationConfig(sensors=("wheels",), rate=True))
    >>> x = system.layout.origin(torch.zeros(()))
    >>> x[3] = 12.0
    >>> system.observe(x).tolist()
    [12.0, 0.0, 0.0]
    """

    Config = RollingConfig
    diagonal_noise = True
    turn: Tensor

    def __init__(self, config: RollingConfig) -> None:
        super().__init__(config, {"velocity": 3})

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("velocity", "orientation", "rate", *(state.name for state in self.states))

    @property
    def states(self) -> tuple[SensorState, ...]:
        config, states = self.config, []
        if config.mounting_std:
            states.append(SensorState("mounting", 2, std=config.mounting_std))
        if config.axle_std:
            states.append(SensorState("axle", std=config.axle_std, mean=config.axle))
        return tuple(states)

    def observe(self, *parts: Tensor) -> Tensor:
        return self.linearize(*parts)[0]

    def linearize(self, *parts: Tensor) -> tuple[Tensor, Tensor]:
        """The mounting is ``exp(-δ) C`` with ``δ = (0, pitch, yaw)``, to first order in ``δ``."""
        velocity, orientation, rate, *own = parts
        nominal = rotation.to_matrix(rotation.exp(self.eye.new_tensor(self.config.mounting))).mT
        to_body = rotation.to_matrix(orientation).mT
        inside = matvec(to_body, velocity)
        seen = matvec(nominal.expand_as(to_body), inside)
        angle = torch.nn.functional.pad(own[0], (1, 0)) if self.config.mounting_std else torch.zeros_like(seen)
        eye = self.eye.expand_as(to_body)
        turn = (eye - rotation.skew(angle)) @ nominal
        axle = own[-1] if self.config.axle_std else torch.full_like(seen[..., :1], self.config.axle)
        turning = matvec(nominal.expand_as(to_body), rate)
        # the cross product with the forward axis
        across = torch.stack((torch.zeros_like(turning[..., 0]), turning[..., 2], -turning[..., 1]), -1)
        by_rate = -rotation.skew(eye[..., 0, :] * axle) @ nominal
        slopes = [turn @ to_body, turn @ rotation.skew(inside), by_rate]
        if self.config.mounting_std:
            slopes.append(rotation.skew(seen)[..., 1:])
        if self.config.axle_std:
            slopes.append(across.unsqueeze(-1))
        return matvec(turn, inside) + axle * across, torch.cat(slopes, -1)

    def measurement_covariance(self) -> Tensor:
        config = self.config
        return self.independent((config.forward_std, config.slip_std, config.slip_std))
