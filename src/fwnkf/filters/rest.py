"""A filter whose system does not move, with which a belief is conditioned on a measurement without a prediction."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..core.system import System

ModuleType = TypeVar("ModuleType", bound=nn.Module)


class RestingSystem(System):
    """A system for a step of zero length: it stays where it is without noise, whatever control and ``dt`` are.

    Everything else is that of the system itself. A discrete system has no other step of zero length, and for a system
    in continuous time this one is exact also where its equations divide by ``dt``.
    """

    def __init__(self, system: System) -> None:
        super().__init__(system.config)
        self.moving = system
        self.layout, self.observation_layout = system.layout, system.observation_layout
        self.control_dim, self.dt, self.diagonal_noise = system.control_dim, system.dt, system.diagonal_noise

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("moving"), name)

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        return x

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        return x, torch.eye(self.layout.tangent_size, dtype=x.dtype, device=x.device)

    def process_noise(self, dt: Tensor | None) -> Tensor:
        return torch.zeros_like(self.moving.process_noise(None))

    def matrices(self, dt: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """``F, B, Q`` of a linear system."""
        linear: Any = self.moving
        F, B, Q = linear.matrices(None)
        return torch.eye(len(F), dtype=F.dtype, device=F.device), torch.zeros_like(B), torch.zeros_like(Q)

    def observe(self, x: Tensor) -> Tensor:
        return self.moving.observe(x)

    def linearize_observation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.moving.linearize_observation(x)

    def measurement_covariance(self) -> Tensor:
        return self.moving.measurement_covariance()


def at_rest(module: ModuleType) -> ModuleType:
    """A copy of a filter, or of a part of it, that shares all tensors and whose system does not move."""
    still = copy.copy(module)
    still.__dict__["_modules"] = {name: _resting(part) for name, part in module._modules.items()}
    return still


def _resting(part: nn.Module | None) -> nn.Module | None:
    if isinstance(part, System):
        return RestingSystem(part)
    return part
