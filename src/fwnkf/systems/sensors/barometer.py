"""Height from a barometer, whose offset drifts with the weather."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.gaussian import matvec
from ...core.motion import Linearity
from ...core.sensor_definition import SensorDefinition, SensorState
from ...registry import SENSORS, at_least


@dataclass(frozen=True)
class BarometerConfig:
    """Noise of a :class:`Barometer` and drift of its offset.

    >>> Barometer(BarometerConfig(offset_std=0.0)).arguments
    ('position',)
    """

    std: float = at_least(0.0, 0.5)
    """Standard deviation (m)."""
    offset_std: float = at_least(0.0, 5.0)
    """Standard deviation of the offset at the start (m); 0 for a barometer without offset."""
    offset_walk: float = at_least(0.0, 0.02)
    """Random walk of the offset (m/√s)."""
    up: tuple[float, ...] = (0.0, 0.0, 1.0)
    """The direction of height in the frame of the position; ``(0, 0, -1)`` where z points down (NED)."""


@SENSORS.register("barometer")
class Barometer(SensorDefinition):
    """``up · p + offset`` (m), with the offset as a state of the sensor: a random walk.

    Reads ``position``.

    Args:
        config: noise and drift.

    >>> import torch, fwnkf
    >>> from fwnkf.systems import ConstantVelocity, ConstantVelocityConfig
    >>> system = ConstantVelocity(ConstantVelocityConfig(dims=3)).with_sensor("baro", Barometer(BarometerConfig()))
    >>> [part.name for part in system.layout.parts]
    ['position', 'velocity', 'baro_offset']
    """

    Config = BarometerConfig
    diagonal_noise = True

    def __init__(self, config: BarometerConfig) -> None:
        super().__init__(config, {"height": 1})

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("position", "offset") if self.config.offset_std else ("position",)

    @property
    def states(self) -> tuple[SensorState, ...]:
        if not self.config.offset_std:
            return ()
        return (SensorState("offset", std=self.config.offset_std, walk=self.config.offset_walk),)

    @property
    def linearity(self) -> Linearity:
        return "constant"

    def observe(self, *parts: Tensor) -> Tensor:
        height = matvec(self._up(), parts[0])
        return height if len(parts) == 1 else height + parts[1]

    def linearize(self, *parts: Tensor) -> tuple[Tensor, Tensor]:
        slopes = self._up() if len(parts) == 1 else torch.cat((self._up(), self.eye), -1)
        return self.observe(*parts), slopes

    def measurement_covariance(self) -> Tensor:
        return self.independent(self.config.std)

    def _up(self) -> Tensor:
        return self.eye.new_tensor([self.config.up])
