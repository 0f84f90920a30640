"""Lorenz's convection model of 1963: three states, chaotic, of which two or three are measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..core.layout import Layout
from ..core.system import System
from ..registry import SYSTEMS, at_least

LORENZ_STEP = 1 / 99
"""Seconds between samples: the public generator spreads 100 samples over ``linspace(0, 1, 100)``, ends included."""


@dataclass(frozen=True)
class LorenzConfig:
    """``dx/dt = σ (y - x)``, ``dy/dt = x (ρ - z) - y``, ``dz/dt = x y - β z``, integrated by RK4.

    >>> Lorenz(LorenzConfig(observed="full")).observation_layout.size
    3
    """

    sigma: float = 10.0
    """``σ``."""
    rho: float = 28.0
    """``ρ``."""
    beta: float = 8 / 3
    """``β``."""
    observed: Literal["partial", "full"] = "partial"
    """``"partial"``: ``x`` and ``y`` are measured; ``"full"``: all three states."""
    variance: float = at_least(0.0, 0.5**2 + 0.1**2)
    """Variance of one measurement.

    The default is 0.5² of the sensor and 0.1² of the paper's "process perturbation", which its generator adds to the
    measurements and not to the states.
    """
    process: float = at_least(0.0, 1e-6)
    """Variance per second and state.

    The truth follows the equations exactly, so this only keeps an EKF from trusting its linearisation: 1e-6 per second
    costs it nothing over one second and keeps its covariance definite; raise it where the equations are uncertain.
    """
    substeps: int = at_least(1, 1)
    """Runge-Kutta steps in one step."""
    dt: float = LORENZ_STEP
    """Nominal step (s)."""


@SYSTEMS.register("lorenz")
class Lorenz(System):
    """Lorenz-63 with ``(x, y)`` measured, or all three states with ``observed="full"``.

    >>> import torch
    >>> Lorenz(LorenzConfig()).transition(torch.tensor([[1.0, 1.0, 1.0]]), None, None).round(decimals=3)
    tensor([[1.0130, 1.2630, 0.9850]])
    """

    Config = LorenzConfig
    layout = Layout.euclidean(3)
    diagonal_noise = True
    eye: Tensor
    halves: Tensor

    def __init__(self, config: LorenzConfig) -> None:
        super().__init__(config)
        self.dt = config.dt
        self.observation_layout = Layout.euclidean(2 if config.observed == "partial" else 3, "y")
        # exact in every dtype; constants such as 8/3 stay Python numbers, so that float64 keeps all their digits
        self.register_buffer("eye", torch.eye(3), persistent=False)
        self.register_buffer("halves", torch.tensor([0.5, 1.0, 1.0, 1.0]), persistent=False)

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        return self._integrate(x.unsqueeze(-1), self.dt if dt is None else dt[..., None, None]).squeeze(-1)

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        """The state and the columns of its Jacobian run through RK4 side by side, so ``F`` is exactly that of RK4."""
        beside = torch.cat((x.unsqueeze(-1), self.eye.expand(*x.shape[:-1], 3, 3)), -1)
        moved = self._integrate(beside, self.dt if dt is None else dt[..., None, None])
        return moved[..., 0], moved[..., 1:]

    def observe(self, x: Tensor) -> Tensor:
        return x[..., : self.observation_layout.size]

    def linearize_observation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.observe(x), self.eye[: self.observation_layout.size]

    def process_noise(self, dt: Tensor | None) -> Tensor:
        return self.eye * (self.config.process * (self.dt if dt is None else dt[..., None, None]))

    def measurement_covariance(self) -> Tensor:
        size = self.observation_layout.size
        return self.eye[:size, :size] * self.config.variance

    def _rate(self, state: Tensor) -> Tensor:
        """``f(x)`` of ``x`` alone; ``f(x)`` in the first column and ``J(x) M`` in the others of ``[x, M]``.

        With ``a₀`` the first column, ``a₀ b + b₀ a`` is the derivative of a product, and twice the product itself in
        the first column.
        """
        x, y, z = state.unbind(-2)
        if state.shape[-1] == 1:
            xz, xy = x * z, x * y
        else:
            x0, y0, z0 = state[..., :1].unbind(-2)
            xz, xy = (x0 * z + z0 * x) * self.halves, (x0 * y + y0 * x) * self.halves
        config = self.config
        return torch.stack((config.sigma * (y - x), config.rho * x - y - xz, xy - config.beta * z), -2)

    def _integrate(self, state: Tensor, step: Tensor | float) -> Tensor:
        """Classical Runge-Kutta over ``step`` seconds in equal parts."""
        h = step / self.config.substeps
        for _ in range(self.config.substeps):
            k1 = self._rate(state)
            k2 = self._rate(state + 0.5 * h * k1)
            k3 = self._rate(state + 0.5 * h * k2)
            k4 = self._rate(state + h * k3)
            state = state + h / 6 * (k1 + 2 * (k2 + k3) + k4)
        return state
