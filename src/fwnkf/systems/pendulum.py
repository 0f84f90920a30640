"""A damped pendulum driven by a torque, the position of its tip measured, discretised as in the paper."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.layout import Layout
from ..core.system import System
from ..registry import SYSTEMS, at_least


@dataclass(frozen=True)
class PendulumConfig:
    """``dθ/dt = ω``, ``dω/dt = -(g/L) sin θ - (b/m) ω + u/m`` by one forward Euler step.

    >>> Pendulum(PendulumConfig(length=2.0)).observe(torch.zeros(1, 2))
    tensor([[ 0., -2.]])
    """

    gravity: float = 9.81
    """``g`` (m/s²)."""
    length: float = 1.0
    """``L`` (m)."""
    damping: float = 0.1
    """``b`` (kg/s)."""
    mass: float = 1.0
    """``m`` (kg)."""
    process: float = at_least(0.0, 0.05**2)
    """Variance of both states per nominal step; a step of another length gets its share, as a random walk does."""
    variance: float = at_least(0.0, 0.1**2)
    """Variance of each coordinate of the tip (m²)."""
    dt: float = 0.02
    """Nominal step (s)."""


@SYSTEMS.register("pendulum")
class Pendulum(System):
    """Angle (wrapped) and rate, torque ``u``, tip ``(L sin θ, -L cos θ)``.

    >>> import torch
    >>> Pendulum(PendulumConfig()).observe(torch.tensor([[torch.pi / 2, 0.0]])).round(decimals=3).abs()
    tensor([[1., 0.]])
    """

    Config = PendulumConfig
    layout = Layout.parse([("theta", "angle", 1), ("omega", "euclidean", 1)])
    observation_layout = Layout.euclidean(2, "tip")
    control_dim = 1
    diagonal_noise = True
    eye: Tensor

    def __init__(self, config: PendulumConfig) -> None:
        super().__init__(config)
        self.dt = config.dt
        self.register_buffer("eye", torch.eye(2), persistent=False)

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        config = self.config
        theta, omega = x.unbind(-1)
        rate = -(config.gravity / config.length) * theta.sin() - (config.damping / config.mass) * omega
        if u is not None:
            rate = rate + u[..., 0] / config.mass
        step = self.dt if dt is None else dt
        return self.layout.boxplus(x, torch.stack((step * omega, step * rate), -1))

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        config = self.config
        step = x.new_full(x.shape[:-1], self.dt) if dt is None else dt
        swing = -(config.gravity / config.length) * x[..., 0].cos() * step
        rows = (torch.ones_like(step), step), (swing, 1 - (config.damping / config.mass) * step)
        return self.transition(x, u, dt), torch.stack([torch.stack(row, -1) for row in rows], -2)

    def observe(self, x: Tensor) -> Tensor:
        theta = x[..., 0]
        return self.config.length * torch.stack((theta.sin(), -theta.cos()), -1)

    def linearize_observation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        tip = self.observe(x)
        # turned by a right angle: d(sin, -cos) = (cos, sin)
        column = torch.stack((-tip[..., 1], tip[..., 0]), -1)
        return tip, torch.stack((column, torch.zeros_like(column)), -1)

    def process_noise(self, dt: Tensor | None) -> Tensor:
        Q = self.eye * self.config.process
        return Q if dt is None else Q * (dt / self.dt)[..., None, None]

    def measurement_covariance(self) -> Tensor:
        return self.eye * self.config.variance
