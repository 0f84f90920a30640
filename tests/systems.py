"""Small systems for the tests: a pendulum, an attitude, a mildly nonlinear system and a linear one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import fwnkf
from fwnkf.core import rotation

GRAVITY = 9.81


def _covariance(variances: Tensor, correlation: float) -> Tensor:
    """Equal correlation between all channels; zero gives a diagonal matrix."""
    std = variances.sqrt()
    size = len(variances)
    return torch.outer(std, std) * (correlation + (1 - correlation) * torch.eye(size).to(std))


class _Toy(fwnkf.System):
    """Base class with the noise as buffers, and the nominal step where ``dt`` is None."""

    def __init__(self, config: Any, process: list[float], measurement: list[float]) -> None:
        super().__init__(config)
        self.dt = config.dt
        self.diagonal_noise = config.correlation == 0
        self.register_buffer("process", torch.tensor(process).diag())
        self.register_buffer("R", _covariance(torch.tensor(measurement), config.correlation))

    def seconds(self, x: Tensor, dt: Tensor | None) -> Tensor:
        return x.new_full(x.shape[:-1], self.dt) if dt is None else dt

    def process_noise(self, dt: Tensor | None) -> Tensor:
        return self.process * (self.dt if dt is None else dt[..., None, None])

    def measurement_covariance(self) -> Tensor:
        return self.R


@dataclass(frozen=True)
class PendulumConfig:
    length: float = 0.8
    damping: float = 0.1
    correlation: float = 0.0
    dt: float = 0.02


@fwnkf.register_system("tests/pendulum")
class Pendulum(_Toy):
    """Angle and rate, driven by a torque, with the position of the tip measured; Jacobians by differentiation."""

    Config = PendulumConfig
    layout = fwnkf.Layout.parse([("theta", "angle", 1), ("omega", "euclidean", 1)])
    observation_layout = fwnkf.Layout.euclidean(2, "tip")
    control_dim = 1

    def __init__(self, config: PendulumConfig) -> None:
        super().__init__(config, process=[1e-4, 1e-2], measurement=[4e-3, 9e-3])

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        theta, omega = x.unbind(-1)
        push = torch.zeros_like(theta) if u is None else u[..., 0]
        rate = -GRAVITY / self.config.length * theta.sin() - self.config.damping * omega + push
        step = self.seconds(x, dt)
        return self.layout.boxplus(x, torch.stack((step * omega, step * rate), -1))

    def observe(self, x: Tensor) -> Tensor:
        return self.config.length * torch.stack((x[..., 0].sin(), -x[..., 0].cos()), -1)


@fwnkf.register_system("tests/analytic-pendulum")
class AnalyticPendulum(Pendulum):
    """The same pendulum with Jacobians written by hand."""

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        step = self.seconds(x, dt)
        swing = -GRAVITY / self.config.length * x[..., 0].cos() * step
        rows = (torch.ones_like(step), step), (swing, 1 - self.config.damping * step)
        return self.transition(x, u, dt), torch.stack([torch.stack(row, -1) for row in rows], -2)

    def linearize_observation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        theta = x[..., 0]
        column = self.config.length * torch.stack((theta.cos(), theta.sin()), -1)
        return self.observe(x), torch.stack((column, torch.zeros_like(column)), -1)


@dataclass(frozen=True)
class AttitudeConfig:
    correlation: float = 0.0
    dt: float = 0.05


@fwnkf.register_system("tests/attitude")
class Attitude(_Toy):
    """Orientation and gyro bias, driven by the gyro, with the direction of gravity in the body frame measured."""

    Config = AttitudeConfig
    layout = fwnkf.Layout.parse([("q", "quaternion", 4), ("bias", "euclidean", 3)])
    observation_layout = fwnkf.Layout.euclidean(3, "down")
    control_dim = 3

    def __init__(self, config: AttitudeConfig) -> None:
        super().__init__(config, process=[2e-3, 1e-3, 4e-3, 1e-5, 1e-5, 1e-5], measurement=[2e-3, 4e-3, 3e-3])

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        bias = x[..., 4:]
        rate = -bias if u is None else u - bias
        turn = rate * self.seconds(x, dt).unsqueeze(-1)
        return self.layout.boxplus(x, torch.cat((turn, torch.zeros_like(turn)), -1))

    def observe(self, x: Tensor) -> Tensor:
        return rotation.to_matrix(x[..., :4])[..., 2, :]  # R(q)ᵀ e_z


@dataclass(frozen=True)
class WaveConfig:
    correlation: float = 0.0
    dt: float = 0.1


@fwnkf.register_system("tests/wave")
class Wave(_Toy):
    """Three states, mildly nonlinear and stable, with two measured combinations."""

    Config = WaveConfig
    layout = fwnkf.Layout.euclidean(3)
    observation_layout = fwnkf.Layout.euclidean(2, "y")
    control_dim = 1

    def __init__(self, config: WaveConfig) -> None:
        super().__init__(config, process=[0.2, 0.3, 0.1], measurement=[0.05, 0.08])

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        a, b, c = x.unbind(-1)
        push = torch.zeros_like(a) if u is None else u[..., 0]
        rate = torch.stack((b - 0.5 * a.sin(), -a - 0.4 * b + push, 0.3 * (a - c).tanh() - 0.1 * c), -1)
        return x + rate * self.seconds(x, dt).unsqueeze(-1)

    def observe(self, x: Tensor) -> Tensor:
        a, b, c = x.unbind(-1)
        return torch.stack((a + 0.1 * b.sin(), c + 0.2 * (a * 0.5).sin() * b.cos()), -1)


def pendulum(dtype: torch.dtype = torch.float64, **options: Any) -> Pendulum:
    return Pendulum(PendulumConfig(**options)).to(dtype)


def analytic_pendulum(dtype: torch.dtype = torch.float64, **options: Any) -> AnalyticPendulum:
    return AnalyticPendulum(PendulumConfig(**options)).to(dtype)


def attitude(dtype: torch.dtype = torch.float64, **options: Any) -> Attitude:
    return Attitude(AttitudeConfig(**options)).to(dtype)


def wave(dtype: torch.dtype = torch.float64, **options: Any) -> Wave:
    return Wave(WaveConfig(**options)).to(dtype)


def linear_matrices(dtype: torch.dtype = torch.float64, full: bool = False) -> dict[str, Tensor]:
    """A stable discrete model with three states, two channels and one control; ``full`` correlates the channels."""
    matrices = {
        "F": [[0.95, 0.1, 0.0], [-0.1, 0.9, 0.05], [0.0, 0.2, 0.8]],
        "B": [[0.0], [0.1], [0.3]],
        "H": [[1.0, 0.0, 0.5], [0.0, 1.0, -0.3]],
        "Q": [[0.05, 0.01, 0.0], [0.01, 0.04, 0.005], [0.0, 0.005, 0.03]],
        "R": [[0.2, 0.08 if full else 0.0], [0.08 if full else 0.0, 0.1]],
    }
    return {name: torch.tensor(value, dtype=dtype) for name, value in matrices.items()}


def continuous_matrices(dtype: torch.dtype = torch.float64, full: bool = False) -> dict[str, Tensor]:
    """Drift, input and spectral density of the same kind of model in continuous time."""
    changed = {
        "F": torch.tensor([[-0.3, 1.0, 0.0], [-1.5, -0.4, 0.2], [0.1, 0.0, -0.6]], dtype=dtype),
        "B": torch.tensor([[0.0], [1.0], [0.5]], dtype=dtype),
    }
    return {**linear_matrices(dtype, full), **changed}
