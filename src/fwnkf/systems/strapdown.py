"""Strapdown inertial navigation: integration of a gyroscope and an accelerometer fixed to the body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ..core import rotation
from ..core.composed import ComposedSystem, part_config
from ..core.gaussian import matvec
from ..core.layout import Layout
from ..core.motion import Motion
from ..core.sensor_definition import SensorDefinition, root
from ..registry import MOTIONS, SYSTEMS, at_least
from ..shapes import Float
from .sensors import (
    Position,
    PositionConfig,
    RollPitchYaw,
    RollPitchYawConfig,
    Velocity,
    VelocityConfig,
)


@dataclass(frozen=True)
class StrapdownMotionConfig:
    """Noise of the sensors (by default that of the data sheet of an ADIS16448) and gravity.

    >>> StrapdownMotion(StrapdownMotionConfig(biases=False)).layout.size
    10
    """

    biases: bool = True
    """Whether those of gyroscope and accelerometer are in the state."""
    gravity: tuple[float, ...] = (0.0, 0.0, -9.81)
    """In the world frame (m/s²)."""
    gyro_density: float = at_least(0.0, 1.6968e-4)
    """Noise of the gyroscope (rad/s/√Hz)."""
    accelerometer_density: float = at_least(0.0, 2.0e-3)
    """Noise of the accelerometer (m/s²/√Hz)."""
    gyro_walk: float = at_least(0.0, 1.9393e-5)
    """Random walk of the gyroscope's bias (rad/s²/√Hz)."""
    accelerometer_walk: float = at_least(0.0, 3.0e-3)
    """Random walk of the accelerometer's bias (m/s³/√Hz)."""
    dt: float = 0.005
    """Nominal step (s)."""


@MOTIONS.register("strapdown")
class StrapdownMotion(Motion):
    """Position, velocity (world), orientation (body to world) and, optionally, biases; ``u = (gyro, accelerometer)``.

    With ``ω = gyro - b_g``, ``f = accelerometer - b_a`` and ``a = R(q ⊗ exp(ω dt/2)) f + g``, the acceleration halfway:
    ``q⁺ = q ⊗ exp(ω dt)``, ``v⁺ = v + a dt``, ``p⁺ = p + v dt + ½ a dt²``. Second order in ``dt``, exact for the
    orientation at a constant rate and for the position in free fall.

    >>> import torch
    >>> motion = StrapdownMotion(StrapdownMotionConfig(biases=False))
    >>> rest, level = motion.layout.origin(torch.zeros(())), torch.tensor([[0, 0, 0, 0, 0, 9.81]])
    >>> bool((motion.transition(rest[None], level, None) == rest).all())
    True
    """

    Config = StrapdownMotionConfig
    control_dim = 6
    eye: Tensor

    def __init__(self, config: StrapdownMotionConfig) -> None:
        super().__init__(config)
        self.dt = config.dt
        parts: list[tuple[str, str, int]] = [
            ("position", "euclidean", 3),
            ("velocity", "euclidean", 3),
            ("orientation", "quaternion", 4),
        ]
        if config.biases:
            parts += [("gyro_bias", "euclidean", 3), ("accelerometer_bias", "euclidean", 3)]
        self.layout = Layout.parse(parts)
        self.register_buffer("eye", torch.eye(self.layout.tangent_size), persistent=False)

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        rate, force = self._sensed(x, u)
        step = self._seconds(x, dt)
        _, halfway = self._turn(x[..., 6:10], rate * step)
        return self._move(x, rate, matvec(rotation.to_matrix(halfway), force), step)

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        """``F`` for perturbations in the body frame, ``q ⊞ δ = q ⊗ exp(δ)``, block by block."""
        rate, force = self._sensed(x, u)
        step = self._seconds(x, dt)
        half, halfway = self._turn(x[..., 6:10], rate * step)
        orientation, middle = rotation.to_matrix(x[..., 6:10]), rotation.to_matrix(halfway)
        moved = self._move(x, rate, matvec(middle, force), step)
        h = step.unsqueeze(-1)
        eye = self.eye[:3, :3].expand(*h.shape[:-2], 3, 3)
        zero = torch.zeros_like(eye)
        turned = rotation.to_matrix(rotation.conjugate(rotation.multiply(half, half)))
        # d a / d δ: R(q ⊗ exp δ ⊗ exp φ) f = R(q) (I + [δ]×) R(φ) f
        by_angle = -orientation @ rotation.skew(matvec(rotation.to_matrix(half), force))
        rows = [
            [eye, eye * h, 0.5 * h * h * by_angle],
            [zero, eye, h * by_angle],
            [zero, zero, turned],
        ]
        if self.config.biases:
            by_gyro = 0.5 * h * middle @ rotation.skew(force) @ rotation.right_jacobian(0.5 * rate * step)
            rows[0] += [0.5 * h * h * by_gyro, -0.5 * h * h * middle]
            rows[1] += [h * by_gyro, -h * middle]
            rows[2] += [-h * rotation.right_jacobian(rate * step), zero]
            rows += [[zero, zero, zero, eye, zero], [zero, zero, zero, zero, eye]]
        return moved, torch.cat([torch.cat(row, -1) for row in rows], -2)

    def process_noise(self, dt: Tensor | None) -> Tensor:
        """White acceleration integrated twice (exactly), white rate once, biases as random walks.

        Isotropic, therefore the same for every orientation. The effect of a bias walk on velocity and angle within the
        same step is neglected: it is smaller than their own noise by ``(walk dt / density)²``.
        """
        h = self.eye.new_tensor(self.dt) if dt is None else dt
        config = self.config
        white, walk = config.accelerometer_density**2, (config.gyro_walk**2, config.accelerometer_walk**2)
        variances = [white * h**3 / 3, white * h, config.gyro_density**2 * h]
        if config.biases:
            variances += [walk[0] * h, walk[1] * h]
        diagonal = torch.diag_embed(torch.stack(variances, -1).repeat_interleave(3, -1))
        # position and velocity of the same axis lie three apart
        beside = self.eye[:3, :3] * (white * h**2 / 2)[..., None, None]
        d = diagonal.shape[-1]
        upper = torch.nn.functional.pad(beside, (3, d - 6, 0, d - 3))
        return diagonal + upper + upper.mT

    # ---- parts of a step ------------------------------------------------------------------------------------

    def _seconds(self, x: Tensor, dt: Tensor | None) -> Float[Tensor, "B 1"]:
        return x.new_full((*x.shape[:-1], 1), self.dt) if dt is None else dt.unsqueeze(-1)

    def _sensed(self, x: Tensor, u: Tensor | None) -> tuple[Float[Tensor, "B 3"], Float[Tensor, "B 3"]]:
        """Rate and specific force with the biases subtracted; without sensors, those of free fall."""
        sensed = x.new_zeros(*x.shape[:-1], 6) if u is None else u
        if self.config.biases:
            sensed = sensed - x[..., 10:16]
        return sensed[..., :3], sensed[..., 3:]

    def _turn(self, q: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
        """Half of the step's rotation, and the orientation after it."""
        half = rotation.exp(0.5 * angle)
        return half, rotation.multiply(q, half)

    def _move(self, x: Tensor, rate: Tensor, force: Tensor, step: Tensor) -> Tensor:
        """The next state from the specific force in the world frame."""
        acceleration = force + x.new_tensor(self.config.gravity)
        velocity = x[..., 3:6]
        change = [step * velocity + 0.5 * step * step * acceleration, step * acceleration, step * rate]
        if self.config.biases:
            change.append(torch.zeros_like(x[..., 10:]))
        return self.layout.boxplus(x, torch.cat(change, -1))


@dataclass(frozen=True)
class StrapdownConfig(StrapdownMotionConfig):
    """As :class:`StrapdownMotionConfig`, and what is observed.

    >>> Strapdown(StrapdownConfig(observed="pose")).observation_layout.size
    6
    """

    observed: Literal["position", "velocity", "pose"] = "position"
    """``"position"``, ``"velocity"`` (a zero-velocity update, say) or ``"pose"``.

    A pose is position, roll, pitch and yaw, that is six channels, of which the angles wrap; it is singular where the
    pitch is ±90 degrees. Pure inertial navigation is any of these with every channel masked.
    """
    variance: float = at_least(0.0, 1e-4)
    """Variance of an observed position (m²) or velocity (m²/s²)."""
    angle_variance: float = at_least(0.0, 1e-4)
    """Variance of observed roll, pitch and yaw (rad²)."""


@SYSTEMS.register("strapdown")
class Strapdown(ComposedSystem):
    """:class:`StrapdownMotion` with position, velocity or pose measured; :meth:`with_sensor` adds other sensors.

    >>> import torch
    >>> Strapdown(StrapdownConfig(observed="velocity")).sensor_channels
    {'velocity': slice(0, 3, None)}
    """

    Config = StrapdownConfig

    def __init__(self, config: StrapdownConfig) -> None:
        motion, sensors = self.part_configs(config)
        kinds: dict[str, Any] = {"position": Position, "velocity": Velocity, "roll_pitch_yaw": RollPitchYaw}
        built: dict[str, SensorDefinition] = {name: kinds[name](options) for name, options in sensors.items()}
        super().__init__(StrapdownMotion(motion), built, config=config)

    @classmethod
    def part_configs(cls, config: Any) -> tuple[Any, dict[str, Any]]:
        std = root(config.variance)
        sensors: dict[str, Any] = {"velocity": VelocityConfig(std=std)}
        if config.observed != "velocity":
            sensors = {"position": PositionConfig(std=std)}
        if config.observed == "pose":
            sensors["roll_pitch_yaw"] = RollPitchYawConfig(std=root(config.angle_variance))
        return part_config(StrapdownMotionConfig, config), sensors
