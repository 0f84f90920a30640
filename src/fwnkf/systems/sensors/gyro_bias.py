"""The bias of a gyroscope, which is what it measures at rest."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...core.motion import Linearity
from ...core.sensor_definition import SensorDefinition
from ...registry import SENSORS, limited


@dataclass(frozen=True)
class GyroBiasConfig:
    """Noise of a :class:`GyroBias`.

    >>> GyroBias(GyroBiasConfig(std=0.1)).layout.size
    3
    """

    std: float = limited(2e-3, above=0.0)
    """Standard deviation (rad/s)."""


@SENSORS.register("gyro_bias")
class GyroBias(SensorDefinition):
    """The bias of the gyroscope (rad/s): measured as the angular rate while the vehicle stands, masked otherwise.

    Reads ``gyro_bias``. Beside a :class:`~fwnkf.systems.sensors.Velocity` of zero it is all that rest tells.

    Args:
        config: noise.

    >>> from fwnkf.systems import Strapdown, StrapdownConfig
    >>> Strapdown(StrapdownConfig()).with_sensor("rest", GyroBias(GyroBiasConfig())).sensor_channels["rest"]
    slice(3, 6, None)
    """

    Config = GyroBiasConfig
    arguments = ("gyro_bias",)
    diagonal_noise = True

    def __init__(self, config: GyroBiasConfig) -> None:
        super().__init__(config, {"gyro_bias": 3})

    @property
    def linearity(self) -> Linearity:
        return "constant"

    def observe(self, *parts: Tensor) -> Tensor:
        return parts[0]

    def linearize(self, *parts: Tensor) -> tuple[Tensor, Tensor]:
        return parts[0], self.eye

    def measurement_covariance(self) -> Tensor:
        return self.independent(self.config.std)
