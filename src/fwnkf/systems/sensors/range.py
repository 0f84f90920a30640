"""Distances to anchors at known places: UWB, acoustic transponders, a radar altimeter over flat ground."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...core.sensor_definition import SensorDefinition, SensorState
from ...errors import ConfigError
from ...registry import SENSORS, at_least


@dataclass(frozen=True)
class RangeConfig:
    """Anchors and noise of a :class:`Range`.

    >>> Range(RangeConfig(anchors=((0.0, 0.0, 2.0), (5.0, 0.0, 2.0)))).layout.size
    2
    """

    anchors: tuple[Any, ...] = ((0.0, 0.0, 0.0),)
    """The place of each anchor (m), in the frame of the position."""
    std: float | tuple[float, ...] = at_least(0.0, 0.1)
    """Standard deviation (m), one for all anchors or one for each."""
    offset_std: float = at_least(0.0, 0.0)
    """Standard deviation of a constant error of each distance (m), a state of the sensor; 0 for none."""

    def __post_init__(self) -> None:
        sizes = {len(anchor) if isinstance(anchor, tuple) else 0 for anchor in self.anchors}
        if len(sizes) != 1 or 0 in sizes:
            raise ConfigError(f"sensor range: anchors = {self.anchors}: wanted coordinates, as many for each anchor")


@SENSORS.register("range")
class Range(SensorDefinition):
    """``|p - anchor|`` for each anchor, plus an offset if it is estimated (m).

    Reads ``position``. Its derivative is the direction from the anchor; at the anchor itself there is none, and it is
    taken as zero.

    Args:
        config: anchors and noise.

    >>> import torch, fwnkf
    >>> from fwnkf.systems import ConstantVelocity, ConstantVelocityConfig
    >>> uwb = Range(RangeConfig(anchors=((0.0, 0.0), (6.0, 0.0))))
    >>> ConstantVelocity(ConstantVelocityConfig()).with_sensor("uwb", uwb).observe(torch.tensor([3.0, 4.0, 0.0, 0.0]))
    tensor([3., 4., 5., 5.])
    """

    Config = RangeConfig
    diagonal_noise = True

    def __init__(self, config: RangeConfig) -> None:
        super().__init__(config, {"range": len(config.anchors)})

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("position", "offset") if self.config.offset_std else ("position",)

    @property
    def states(self) -> tuple[SensorState, ...]:
        std = self.config.offset_std
        return (SensorState("offset", self.layout.size, std=std),) if std else ()

    def observe(self, *parts: Tensor) -> Tensor:
        distance = self._from_anchors(parts[0]).norm(dim=-1)
        return distance if len(parts) == 1 else distance + parts[1]

    def linearize(self, *parts: Tensor) -> tuple[Tensor, Tensor]:
        apart = self._from_anchors(parts[0])
        distance = apart.norm(dim=-1)
        tiny = torch.finfo(distance.dtype).tiny
        slopes = apart / distance.clamp_min(tiny).unsqueeze(-1)
        if len(parts) == 1:
            return distance, slopes
        return distance + parts[1], torch.cat((slopes, self.eye.expand(*slopes.shape[:-1], -1)), -1)

    def measurement_covariance(self) -> Tensor:
        return self.independent(self.config.std)

    def _from_anchors(self, position: Tensor) -> Tensor:
        return position.unsqueeze(-2) - self.eye.new_tensor(self.config.anchors)
