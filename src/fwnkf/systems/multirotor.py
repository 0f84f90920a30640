"""A multirotor's attitude from its own IMU, with a model of rotor drag.

Thrust acts along the rotors' axis, so an accelerometer across it does not measure gravity: it measures drag, which is
proportional to velocity. A filter that takes the measured force for the vertical is wrong whenever the vehicle
accelerates; with a drag model the force tells the velocity, and through it the tilt that caused it (R. Leishman et al.,
Quadrotors and Accelerometers, IEEE Control Systems 34(1), 2014).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..core import rotation
from ..core.composed import ComposedSystem, part_config
from ..core.layout import Layout
from ..core.motion import Motion
from ..errors import ConfigError
from ..registry import MOTIONS, SYSTEMS, at_least, limited
from ..types import Gaussian
from .sensors import RotorDrag, RotorDragConfig

LAYOUT = Layout.parse(
    [
        ("velocity", "euclidean", 3),
        ("orientation", "quaternion", 4),
        ("gyro_bias", "euclidean", 3),
        ("offset", "euclidean", 2),
    ]
)


@dataclass(frozen=True)
class MultirotorMotionConfig:
    """Where learning starts from; the learned values are tensors of the motion.

    >>> MultirotorMotion(MultirotorMotionConfig()).layout.size
    12
    """

    velocity_density: float = at_least(0.0, 0.05)
    """Noise of the velocity, per root hertz (m/s²)."""
    angle_density: float = at_least(0.0, 1e-3)
    """Noise of the angles, per root hertz (rad/s)."""
    bias_density: float = at_least(0.0, 1e-5)
    """Walk of the gyro bias, per root hertz (rad/s²)."""
    offset_density: float = at_least(0.0, 1e-3)
    """Walk of the force offset, per root hertz (m/s³)."""
    sink: float = at_least(0.0, 0.2)
    """Rate (1/s) at which the vertical velocity, which is not observable here, goes to zero."""
    gravity: float = at_least(0.0, 9.81)
    """Size of gravity (m/s²); the world's z axis points up."""
    dt: float = 0.01
    """Nominal step (s)."""
    initial_seconds: float = limited(1.0, above=0.0)
    """Without a prior a filter starts at rest, at the tilt of the mean force of this time (s)."""
    initial_offset: tuple[float, ...] = (0.0, 0.0)
    """Initial offset of the force across the axis, x and y (m/s²)."""
    initial_std: tuple[float, ...] = at_least(0.0, (0.1, 0.01, 2e-4, 0.03))
    """Initial standard deviations of velocity (m/s), attitude (rad), gyro bias (rad/s) and offset (m/s²)."""

    def __post_init__(self) -> None:
        if len(self.initial_offset) != 2 or len(self.initial_std) != 4:
            raise ConfigError(
                f"multirotor: initial_offset {self.initial_offset} has two values (x, y), initial_std "
                f"{self.initial_std} four (velocity, attitude, gyro bias, offset)"
            )


@MOTIONS.register("multirotor")
class MultirotorMotion(Motion):
    """Velocity (body), orientation (body to world), gyro bias, offset of the force; ``u = (gyro, accelerometer)``.

    ``v⁺ = v + h (a + Rᵀg - ω × v - sink v_z)`` with ``R`` halfway, ``q⁺ = q ⊗ exp(ω h)``, ``ω = gyro - b``. Noise
    levels are parameters.

    >>> MultirotorMotion(MultirotorMotionConfig(dt=0.02)).initial_steps
    50
    """

    Config = MultirotorMotionConfig
    control_dim = 6
    eye: Tensor

    def __init__(self, config: MultirotorMotionConfig) -> None:
        super().__init__(config)
        self.dt, self.layout = config.dt, LAYOUT
        self.initial_steps = max(1, round(config.initial_seconds / config.dt))
        densities = (config.velocity_density, config.angle_density, config.bias_density, config.offset_density)
        self.log_density = nn.Parameter(torch.tensor(densities).log())
        self.register_buffer("eye", torch.eye(LAYOUT.tangent_size), persistent=False)

    def initial_belief(self, y: Tensor, weight: Tensor, u: Tensor | None) -> Gaussian:
        """At rest, tilted as the mean force of the first steps says; level where none was measured."""
        batch = len(y)
        level = y.new_tensor([0.0, 0.0, self.config.gravity]).expand(batch, 3)
        if u is None:
            force = level
        else:
            measured = (weight > 0).all(-1, keepdim=True).to(u)
            total = measured.sum(1)
            force = torch.where(total > 0, (u[..., 3:] * measured).sum(1) / total.clamp_min(1), level)
        offset = y.new_tensor(self.config.initial_offset).expand(batch, 2)
        mean = torch.cat((torch.zeros_like(force), rotation.tilt(force), torch.zeros_like(force), offset), -1)
        std = y.new_tensor(self.config.initial_std).repeat_interleave(torch.tensor([3, 3, 3, 2], device=y.device))
        return Gaussian(mean, torch.diag_embed(std.square()))

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        rate, force = self._sensed(x, u)
        return self._move(x, rate, force, self._seconds(x, dt))

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        """``F`` for perturbations in the body frame, ``q ⊞ δ = q ⊗ exp(δ)``, written out block by block."""
        rate, force = self._sensed(x, u)
        step = self._seconds(x, dt)
        h = step.unsqueeze(-1)
        eye = self.eye[:3, :3].expand(*h.shape[:-2], 3, 3)
        zero, narrow = torch.zeros_like(eye), torch.zeros_like(eye[..., :2])
        sink = torch.zeros_like(eye) + torch.diag_embed(eye.new_tensor([0.0, 0.0, self.config.sink]))
        back = rotation.to_matrix(rotation.exp(-0.5 * step * rate))
        down = self._down(x)
        by_turn = rotation.skew((back @ down.unsqueeze(-1)).squeeze(-1)) @ rotation.right_jacobian(0.5 * step * rate)
        rows = [
            [
                eye - h * (rotation.skew(rate) + sink),
                h * back @ rotation.skew(down),
                -h * (rotation.skew(x[..., :3]) + 0.5 * h * by_turn),
                narrow,
            ],
            [zero, back @ back, -h * rotation.right_jacobian(rate * step), narrow],
            [zero, zero, eye, narrow],
        ]
        last = torch.cat((torch.zeros_like(eye[..., :2, :]).repeat(1, 1, 3), eye[..., :2, :2]), -1)
        F = torch.cat([*(torch.cat(row, -1) for row in rows), last], -2)
        return self._move(x, rate, force, step), F

    def process_noise(self, dt: Tensor | None) -> Tensor:
        step = self.eye.new_tensor(self.dt) if dt is None else dt
        sizes = self.log_density.exp().square().repeat_interleave(torch.tensor([3, 3, 3, 2]))
        return torch.diag_embed(sizes * step.unsqueeze(-1))

    # ---- parts of a step ------------------------------------------------------------------------------------

    def _seconds(self, x: Tensor, dt: Tensor | None) -> Tensor:
        return x.new_full((*x.shape[:-1], 1), self.dt) if dt is None else dt.unsqueeze(-1)

    def _sensed(self, x: Tensor, u: Tensor | None) -> tuple[Tensor, Tensor]:
        """Rate without its bias, and force; without sensors, those of free fall."""
        sensed = x.new_zeros(*x.shape[:-1], 6) if u is None else u
        return sensed[..., :3] - x[..., 7:10], sensed[..., 3:]

    def _down(self, x: Tensor) -> Tensor:
        """Gravity in the body frame."""
        return -self.config.gravity * rotation.to_matrix(x[..., 3:7])[..., 2, :]

    def _move(self, x: Tensor, rate: Tensor, force: Tensor, step: Tensor) -> Tensor:
        v = x[..., :3]
        sink = v * v.new_tensor([0.0, 0.0, self.config.sink])
        back = rotation.to_matrix(rotation.exp(-0.5 * step * rate))
        pull = force + (back @ self._down(x).unsqueeze(-1)).squeeze(-1) - torch.linalg.cross(rate, v) - sink
        still = torch.zeros_like(x[..., 7:])
        return self.layout.boxplus(x, torch.cat((step * pull, step * rate, still), -1))


@dataclass(frozen=True)
class MultirotorConfig(MultirotorMotionConfig):
    """As :class:`MultirotorMotionConfig`, and drag and noise of the measured force.

    >>> Multirotor(MultirotorConfig(drag=0.4)).drag.tolist()
    [0.4000000059604645, 0.4000000059604645]
    """

    drag: float = at_least(0.0, 0.32)
    """Drag along body x and y (1/s)."""
    deviation: float = at_least(0.0, 0.3)
    """Standard deviation of the measured force (m/s²)."""


@SYSTEMS.register("multirotor")
class Multirotor(ComposedSystem):
    """:class:`MultirotorMotion` with the force across the rotors' axis observed, ``-drag v + c``.

    Drag and noise levels are parameters. The preprocessing ``pooled_imu`` makes observation and control of raw IMU
    samples.

    >>> import torch, fwnkf
    >>> still = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 9.81]).expand(1, 5, 6)
    >>> fwnkf.EKF(Multirotor(MultirotorConfig())).run(torch.zeros(1, 5, 2), still).mean[0, -1, :3].abs().max() < 1e-4
    tensor(True)
    """

    Config = MultirotorConfig

    def __init__(self, config: MultirotorConfig) -> None:
        motion, sensors = self.part_configs(config)
        super().__init__(MultirotorMotion(motion), {"force": RotorDrag(sensors["force"])}, config=config)

    @classmethod
    def part_configs(cls, config: Any) -> tuple[Any, dict[str, Any]]:
        return part_config(MultirotorMotionConfig, config), {"force": part_config(RotorDragConfig, config)}

    @property
    def drag(self) -> nn.Parameter:
        """Drag along body x and y (1/s)."""
        return self._force.drag

    @property
    def log_deviation(self) -> nn.Parameter:
        """Logarithm of the standard deviation of the measured force (m/s²)."""
        return self._force.log_deviation

    @property
    def _force(self) -> RotorDrag:
        return self.sensors["force"]  # type: ignore[return-value]
