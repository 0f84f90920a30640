"""Constant velocity: a point whose acceleration is white noise."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.layout import Layout
from ..core.system import System
from ..registry import SYSTEMS, at_least


@dataclass(frozen=True)
class ConstantVelocityConfig:
    """Dimensions and noise of a :class:`ConstantVelocity`.

    >>> ConstantVelocity(ConstantVelocityConfig(dims=3, variance=0.01)).layout.size
    6
    """

    dims: int = at_least(1, 2)
    """Number of dimensions."""
    density: float = at_least(0.0, 1.0)
    """Spectral density of the acceleration (m²/s³)."""
    variance: float = at_least(0.0, 1.0)
    """Variance of each measured coordinate (m²)."""
    dt: float = 1.0
    """Nominal step (s)."""


@SYSTEMS.register("constant_velocity")
class ConstantVelocity(System):
    """Position and velocity in ``dims`` dimensions, position measured; ``Q`` is exact for every ``dt``.

    ``F = [I, dt I; 0, I]``, ``Q = density [dt³/3 I, dt²/2 I; dt²/2 I, dt I]``.

    >>> import torch
    >>> ConstantVelocity(ConstantVelocityConfig(dims=1)).process_noise(torch.tensor([2.0]))
    tensor([[[2.6667, 2.0000],
             [2.0000, 2.0000]]])
    """

    Config = ConstantVelocityConfig
    diagonal_noise = True
    transition_linearity = "constant"
    observation_linearity = "constant"
    eye: Tensor

    def __init__(self, config: ConstantVelocityConfig) -> None:
        super().__init__(config)
        self.dt = config.dt
        self.layout = Layout.parse([("position", "euclidean", config.dims), ("velocity", "euclidean", config.dims)])
        self.observation_layout = Layout.parse([("position", "euclidean", config.dims)])
        self.register_buffer("eye", torch.eye(2 * config.dims), persistent=False)

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        position, velocity = x.chunk(2, -1)
        step = self.dt if dt is None else dt.unsqueeze(-1)
        return torch.cat((position + step * velocity, velocity), -1)

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.transition(x, u, dt), self._blocks(1.0, self._seconds(dt), 0.0, 1.0)

    def observe(self, x: Tensor) -> Tensor:
        return x[..., : self.config.dims]

    def linearize_observation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.observe(x), self.eye[: self.config.dims]

    def process_noise(self, dt: Tensor | None) -> Tensor:
        step = self._seconds(dt)
        return self._blocks(step**3 / 3, step**2 / 2, step**2 / 2, step) * self.config.density

    def measurement_covariance(self) -> Tensor:
        return self.eye[: self.config.dims, : self.config.dims] * self.config.variance

    def _seconds(self, dt: Tensor | None) -> Tensor:
        return self.eye.new_tensor(self.dt) if dt is None else dt

    def _blocks(self, a: Tensor | float, b: Tensor, c: Tensor | float, d: Tensor | float) -> Tensor:
        """``[a I, b I; c I, d I]`` for numbers or one per batch item."""
        like = torch.zeros_like(b)
        small = torch.stack((a + like, b, c + like, d + like), -1).unflatten(-1, (2, 2))
        eye = self.eye[: self.config.dims, : self.config.dims]
        return (small[..., :, None, :, None] * eye[:, None, :]).flatten(-4, -3).flatten(-2)
