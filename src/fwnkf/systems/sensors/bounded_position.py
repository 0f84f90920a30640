"""The position of something that stays within reach: zero plus a displacement, which is a stochastic process."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.gaussian import matvec
from ...core.sensor_definition import SensorDefinition
from ...registry import SENSORS, limited


@dataclass(frozen=True)
class BoundedPositionConfig:
    """Sizes of the displacement of a :class:`BoundedPosition`.

    >>> BoundedPosition(BoundedPositionConfig(std=0.02)).layout.size
    3
    """

    oscillation_std: float = limited(0.3, above=0.0)
    """Standard deviation of the oscillator (m)."""
    drift_std: float = limited(0.45, above=0.0)
    """Standard deviation of the Gauss-Markov process (m)."""
    std: float = limited(0.01, above=0.0)
    """The white part of the observation (m)."""


@SENSORS.register("bounded_position")
class BoundedPosition(SensorDefinition):
    """``p + factor (oscillation_std c + drift_std s)`` (m), which is zero at every step.

    Reads ``position``, ``oscillation`` (three sines ``c``, then three cosines), ``drift`` ``s`` and ``factor``, as
    :class:`fwnkf.systems.Handheld` has them.

    Args:
        config: sizes of the displacement.

    >>> import torch
    >>> from fwnkf.systems import Handheld, HandheldConfig
    >>> Handheld(HandheldConfig()).sensor_channels["position"]
    slice(0, 3, None)
    """

    Config = BoundedPositionConfig
    arguments = ("position", "oscillation", "drift", "factor")
    diagonal_noise = True
    displacement: Tensor
    """The derivative of the displacement of unit factor by oscillation and drift."""

    def __init__(self, config: BoundedPositionConfig) -> None:
        super().__init__(config, {"position": 3})
        three = torch.eye(3)
        blocks = (config.oscillation_std * three, torch.zeros(3, 3), config.drift_std * three)
        self.register_buffer("displacement", torch.cat(blocks, -1), persistent=False)

    def observe(self, *parts: Tensor) -> Tensor:
        position, oscillation, drift, factor = parts
        return position + factor * matvec(self.displacement, torch.cat((oscillation, drift), -1))

    def linearize(self, *parts: Tensor) -> tuple[Tensor, Tensor]:
        position, oscillation, drift, factor = parts
        displacement = matvec(self.displacement, torch.cat((oscillation, drift), -1))
        by_process = factor.unsqueeze(-1) * self.displacement
        by_position = self.eye.expand(*by_process.shape[:-1], 3)
        return position + factor * displacement, torch.cat((by_position, by_process, displacement.unsqueeze(-1)), -1)

    def measurement_covariance(self) -> Tensor:
        return self.independent(self.config.std)
