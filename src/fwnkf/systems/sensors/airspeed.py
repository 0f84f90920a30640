"""Airspeed from a pitot tube, with the wind as a state of the sensor."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.sensor_definition import SensorDefinition, SensorState
from ...registry import SENSORS, at_least, limited


@dataclass(frozen=True)
class AirspeedConfig:
    """Noise of an :class:`Airspeed`, and how the wind changes.

    >>> Airspeed(AirspeedConfig(wind_std=3.0)).states[0].std
    3.0
    """

    std: float = at_least(0.0, 1.0)
    """Standard deviation (m/s)."""
    wind_std: float = limited(5.0, above=0.0)
    """Standard deviation of each component of the wind at the start (m/s)."""
    wind_walk: float = at_least(0.0, 0.1)
    """Random walk of the wind (m/s/√s)."""


@SENSORS.register("airspeed")
class Airspeed(SensorDefinition):
    """``|v - w|`` (m/s), the true airspeed, with the horizontal wind ``w`` as a random walk.

    Reads ``velocity`` (world, three components with the vertical one last) and its own state ``wind``. Its derivative
    is taken as zero where there is no airspeed.

    Args:
        config: noise and wind.

    >>> import torch, fwnkf
    >>> from fwnkf.systems import ConstantVelocity, ConstantVelocityConfig
    >>> pitot = Airspeed(AirspeedConfig())
    >>> system = ConstantVelocity(ConstantVelocityConfig(dims=3)).with_sensor("pitot", pitot)
    >>> system.observe(torch.tensor([0.0, 0, 0, 20, 0, 0, 5, 0]))[-1]  # a tailwind of 5 m/s
    tensor(15.)
    """

    Config = AirspeedConfig
    arguments = ("velocity", "wind")
    diagonal_noise = True

    def __init__(self, config: AirspeedConfig) -> None:
        super().__init__(config, {"airspeed": 1})

    @property
    def states(self) -> tuple[SensorState, ...]:
        return (SensorState("wind", 2, std=self.config.wind_std, walk=self.config.wind_walk),)

    def observe(self, *parts: Tensor) -> Tensor:
        return _relative(*parts).norm(dim=-1, keepdim=True)

    def linearize(self, *parts: Tensor) -> tuple[Tensor, Tensor]:
        air = _relative(*parts)
        speed = air.norm(dim=-1, keepdim=True)
        direction = (air / speed.clamp_min(torch.finfo(speed.dtype).tiny)).unsqueeze(-2)
        return speed, torch.cat((direction, -direction[..., :2]), -1)

    def measurement_covariance(self) -> Tensor:
        return self.independent(self.config.std)


def _relative(velocity: Tensor, wind: Tensor) -> Tensor:
    """Velocity through the air."""
    return velocity - torch.nn.functional.pad(wind, (0, 1))
