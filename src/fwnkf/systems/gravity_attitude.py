"""Attitude from gyroscope and accelerometer, the force taken for gravity: the attitude EKF of textbooks.

The accelerometer measures gravity and the motion's acceleration. Over a time in which the velocity stays bounded the
acceleration averages out, in a frame that does not turn with the sensor; a large ``deviation`` makes the filter average
that long. Tilt is then known, heading is that of the integrated gyroscope. At rest the gyroscope measures its own bias,
which is what heading needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import rotation
from ..core.layout import Layout
from ..core.system import System
from ..errors import ConfigError
from ..registry import SYSTEMS, at_least, limited
from ..shapes import Float
from ..types import Gaussian


@dataclass(frozen=True)
class GravityAttitudeConfig:
    """Noise of the sensors and of the start.

    >>> GravityAttitude(GravityAttitudeConfig()).layout.tangent_size
    6
    >>> GravityAttitude(GravityAttitudeConfig(vertical_std=0.01)).layout.tangent_size
    8
    """

    deviation: float = limited(3.0, above=0.0)
    """Standard deviation of the measured force from gravity (m/s²)."""
    angle_density: float = at_least(0.0, 1e-3)
    """Noise of the angles, per root hertz (rad/s)."""
    bias_density: float = at_least(0.0, 1e-5)
    """Walk of the gyro bias, per root hertz (rad/s²)."""
    attitude_std: float = at_least(0.0, 0.05)
    """Standard deviation of the tilt that the first force gives (rad)."""
    bias_std: tuple[float, ...] = at_least(0.0, (math.radians(0.5),) * 3)
    """Standard deviations of the gyro bias at the start, for each axis (rad/s)."""
    vertical_std: float = at_least(0.0, 0.0)
    """Standard deviation of the angle between gravity and the frame's z axis (rad); above zero it is a state."""
    vertical_density: float = at_least(0.0, 1e-6)
    """Walk of that angle, per root hertz (rad/√s)."""
    rest_rate_std: float = at_least(0.0, 0.0)
    """Standard deviation of the rate measured at rest (rad/s); above zero it is observed, after the force."""
    gravity: float = limited(9.81, above=0.0)
    """Size of gravity (m/s²)."""
    dt: float = limited(0.01, above=0.0)
    """Nominal step (s)."""

    def __post_init__(self) -> None:
        if len(self.bias_std) != 3:
            raise ConfigError(f"gravity_attitude: bias_std {self.bias_std} has three values, one for each axis")


@SYSTEMS.register("gravity_attitude")
class GravityAttitude(System):
    """Orientation (sensor to world, z up) and gyro bias; ``u`` is the gyroscope, the force is observed.

    ``q⁺ = q ⊗ exp((u - b) h)``, ``y = R(q)ᵀ exp(v) g e_z``. The angle ``v`` (about the world's x and y axes) is a state
    if the frame in which the orientation is wanted need not be level, such as that of a camera or a motion capture
    system: the filter then starts from an orientation known in that frame (:meth:`belief_at`). With ``rest_rate_std``
    the rate is observed too, ``y = b``: it is to be masked while the sensor turns.

    >>> import torch, fwnkf
    >>> model = fwnkf.EKF(GravityAttitude(GravityAttitudeConfig()))
    >>> still = torch.tensor([0.0, 0.0, 9.81]).expand(1, 5, 3)
    >>> model.run(still, torch.zeros(1, 5, 3)).mean[0, -1, :4]
    tensor([1., 0., 0., 0.])
    """

    Config = GravityAttitudeConfig
    control_dim = 3
    diagonal_noise = True
    initial_steps = 1
    eye: Tensor

    def __init__(self, config: GravityAttitudeConfig) -> None:
        super().__init__(config)
        self.dt = config.dt
        vertical = [("vertical", "euclidean", 2)] if config.vertical_std > 0 else []
        self.layout = Layout.parse([("orientation", "quaternion", 4), ("gyro_bias", "euclidean", 3), *vertical])
        rest = [("rest_rate", "euclidean", 3)] if config.rest_rate_std > 0 else []
        self.observation_layout = Layout.parse([("force", "euclidean", 3), *rest])
        self.register_buffer("eye", torch.eye(self.layout.tangent_size), persistent=False)

    def initial_belief(self, y: Tensor, weight: Tensor, u: Tensor | None) -> Gaussian:
        """Level by the force of the first step, where it was measured; the heading is zero."""
        force, weight = y[:, 0, :3], weight[:, 0, :3]
        known = (weight > 0).all(-1, keepdim=True) & (force.norm(dim=-1, keepdim=True) > 0)
        level = self.layout.origin(y)[:4].expand(len(y), 4)
        up = y.new_tensor([0.0, 0.0, 1.0])
        tilt = torch.where(known, rotation.tilt(torch.where(known, force, up)), level)
        return self.belief_at(tilt, self.config.attitude_std)

    def belief_at(self, orientation: Float[Tensor, "B 4"], std: float = 0.0) -> Gaussian:
        """The belief of a start at a given orientation.

        Args:
            orientation: unit quaternions, sensor to world.
            std: standard deviation of its angles about the sensor's axes (rad).

        Returns:
            A prior of the state before the first step.
        """
        rest = orientation.new_zeros(len(orientation), self.layout.size - 4)
        tail = (self.config.vertical_std,) * (self.layout.size - 7)
        stds = orientation.new_tensor((std,) * 3 + self.config.bias_std + tail)
        cov = torch.diag_embed(stds.square()).expand(len(orientation), -1, -1)
        return Gaussian(torch.cat((orientation, rest), -1), cov)

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        turn = self._turn(x, u, dt)
        return self.layout.boxplus(x, torch.nn.functional.pad(turn, (0, self.eye.shape[0] - 3)))

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        turn = self._turn(x, u, dt)
        size = self.eye.shape[0]
        by_bias = -self._seconds(x, dt).unsqueeze(-1) * rotation.right_jacobian(turn)
        back = rotation.to_matrix(rotation.exp(-turn))
        above = torch.nn.functional.pad(torch.cat((back, by_bias), -1), (0, size - 6))
        below = self.eye[3:].expand(*x.shape[:-1], size - 3, size)
        return self.transition(x, u, dt), torch.cat((above, below), -2)

    def observe(self, x: Tensor) -> Tensor:
        force = (rotation.to_matrix(x[..., :4]).mT @ self._up(x).unsqueeze(-1)).squeeze(-1)
        return torch.cat((force, x[..., 4 : 1 + self.observation_layout.size]), -1)

    def linearize_observation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        seen = self.observe(x)
        force = seen[..., :3]
        by_turn = rotation.skew(force)
        columns = [by_turn, torch.zeros_like(by_turn)]
        if self.layout.size > 7:
            angle = self._angle(x)
            # exp(v + δ) = exp(v) exp(J δ): gravity moves by -exp(v) [g e_z]× J δ
            tilted = rotation.to_matrix(rotation.exp(angle))
            pull = rotation.skew(self.eye.new_tensor([0.0, 0.0, self.config.gravity]))
            by_angle = -tilted @ pull @ rotation.right_jacobian(angle)
            columns.append((rotation.to_matrix(x[..., :4]).mT @ by_angle)[..., :2])
        at_rest = self.eye[3 : self.observation_layout.size].expand(*x.shape[:-1], -1, -1)
        return seen, torch.cat((torch.cat(columns, -1), at_rest), -2)

    def process_noise(self, dt: Tensor | None) -> Tensor:
        step = self.eye.new_tensor(self.dt) if dt is None else dt
        config = self.config
        vertical = (config.vertical_density,) * (self.eye.shape[0] - 6)
        densities = self.eye.new_tensor((config.angle_density,) * 3 + (config.bias_density,) * 3 + vertical)
        return torch.diag_embed(densities.square() * step.unsqueeze(-1))

    def measurement_covariance(self) -> Tensor:
        rest = (self.config.rest_rate_std,) * (self.observation_layout.size - 3)
        return torch.diag_embed(self.eye.new_tensor((self.config.deviation,) * 3 + rest).square())

    # ---- parts of a step ------------------------------------------------------------------------------------

    def _seconds(self, x: Tensor, dt: Tensor | None) -> Tensor:
        return x.new_full((*x.shape[:-1], 1), self.dt) if dt is None else dt.unsqueeze(-1)

    def _turn(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        if u is None:
            raise ConfigError("gravity_attitude turns by the gyroscope; give it as u")
        return (u - x[..., 4:7]) * self._seconds(x, dt)

    def _angle(self, x: Tensor) -> Tensor:
        return torch.nn.functional.pad(x[..., 7:], (0, 3 - x[..., 7:].shape[-1]))

    def _up(self, x: Tensor) -> Tensor:
        """The force of rest in the world frame."""
        return self.config.gravity * rotation.to_matrix(rotation.exp(self._angle(x)))[..., 2]
