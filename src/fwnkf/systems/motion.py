"""Constant velocity: a point whose acceleration is white noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.composed import ComposedSystem, part_config
from ..core.layout import Layout
from ..core.motion import Motion
from ..core.sensor_definition import root
from ..registry import MOTIONS, SYSTEMS, at_least
from .sensors import Position, PositionConfig


@dataclass(frozen=True)
class ConstantVelocityMotionConfig:
    """Dimensions and noise of a :class:`ConstantVelocityMotion`.

    >>> ConstantVelocityMotion(ConstantVelocityMotionConfig(dims=3)).layout.size
    6
    """

    dims: int = at_least(1, 2)
    """Number of dimensions."""
    density: float = at_least(0.0, 1.0)
    """Spectral density of the acceleration (m²/s³)."""
    dt: float = 1.0
    """Nominal step (s)."""


@MOTIONS.register("constant_velocity")
class ConstantVelocityMotion(Motion):
    """Position and velocity in ``dims`` dimensions; ``Q`` is exact for every ``dt``.

    ``F = [I, dt I; 0, I]``, ``Q = density [dt³/3 I, dt²/2 I; dt²/2 I, dt I]``.

    >>> import torch
    >>> ConstantVelocityMotion(ConstantVelocityMotionConfig(dims=1)).process_noise(torch.tensor([2.0]))
    tensor([[[2.6667, 2.0000],
             [2.0000, 2.0000]]])
    """

    Config = ConstantVelocityMotionConfig
    transition_linearity = "constant"
    eye: Tensor

    def __init__(self, config: ConstantVelocityMotionConfig) -> None:
        super().__init__(config)
        self.dt = config.dt
        self.layout = Layout.parse([("position", "euclidean", config.dims), ("velocity", "euclidean", config.dims)])
        self.register_buffer("eye", torch.eye(2 * config.dims), persistent=False)

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        position, velocity = x.chunk(2, -1)
        step = self.dt if dt is None else dt.unsqueeze(-1)
        return torch.cat((position + step * velocity, velocity), -1)

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.transition(x, u, dt), self._blocks(1.0, self._seconds(dt), 0.0, 1.0)

    def process_noise(self, dt: Tensor | None) -> Tensor:
        step = self._seconds(dt)
        return self._blocks(step**3 / 3, step**2 / 2, step**2 / 2, step) * self.config.density

    def _seconds(self, dt: Tensor | None) -> Tensor:
        return self.eye.new_tensor(self.dt) if dt is None else dt

    def _blocks(self, a: Tensor | float, b: Tensor, c: Tensor | float, d: Tensor | float) -> Tensor:
        """``[a I, b I; c I, d I]`` for numbers or one per batch item."""
        like = torch.zeros_like(b)
        small = torch.stack((a + like, b, c + like, d + like), -1).unflatten(-1, (2, 2))
        eye = self.eye[: self.config.dims, : self.config.dims]
        return (small[..., :, None, :, None] * eye[:, None, :]).flatten(-4, -3).flatten(-2)


@dataclass(frozen=True)
class ConstantVelocityConfig(ConstantVelocityMotionConfig):
    """Dimensions and noise of a :class:`ConstantVelocity`.

    >>> ConstantVelocity(ConstantVelocityConfig(dims=3, variance=0.01)).layout.size
    6
    """

    variance: float = at_least(0.0, 1.0)
    """Variance of each measured coordinate (m²)."""


@SYSTEMS.register("constant_velocity")
class ConstantVelocity(ComposedSystem):
    """:class:`ConstantVelocityMotion` with the position measured.

    >>> import torch
    >>> ConstantVelocity(ConstantVelocityConfig(dims=1)).observe(torch.tensor([3.0, 0.5]))
    tensor([3.])
    """

    Config = ConstantVelocityConfig

    def __init__(self, config: ConstantVelocityConfig) -> None:
        motion, sensors = self.part_configs(config)
        super().__init__(ConstantVelocityMotion(motion), {"position": Position(sensors["position"])}, config=config)

    @classmethod
    def part_configs(cls, config: Any) -> tuple[Any, dict[str, Any]]:
        position = PositionConfig(std=root(config.variance), dims=config.dims)
        return part_config(ConstantVelocityMotionConfig, config), {"position": position}
