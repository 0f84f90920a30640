"""Inertial navigation with a learned calibration of the sensor.

The calibration is added to the classical mechanisation and starts at zero, so an untrained motion is
:class:`fwnkf.systems.StrapdownMotion`. Velocity in the body frame is observed, which something else has to measure.
:class:`fwnkf.systems.DragStrapdown` takes it from the drag of rotors; without such a source every channel is masked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..core.composed import ComposedSystem, part_config
from ..core.gaussian import block_diagonal, matvec
from ..core.layout import Layout, Part
from ..core.motion import Motion
from ..core.sensor_definition import root
from ..errors import ConfigError
from ..registry import MOTIONS, SYSTEMS, at_least
from ..shapes import Float
from ..types import Gaussian
from .sensors import Velocity, VelocityConfig
from .strapdown import StrapdownConfig, StrapdownMotion, StrapdownMotionConfig

PARTS = {"gyro_bias": 3, "accelerometer_bias": 3, "gravity": 3, "delay": 1, "gyro_matrix": 9, "accelerometer_matrix": 9}
"""The parts of one calibration and their sizes, in the order in which they are stored."""
CALIBRATION = sum(PARTS.values())


class ImuCalibration(NamedTuple):
    """Corrections of an IMU: rate ``(I + M_g) u_g - b_g``, force ``(I + M_a) u_a - b_a``, gravity ``g + δg``.

    ``u`` is the sensor ``delay`` samples after the older of two neighbouring ones, by linear interpolation.
    """

    gyro_bias: Float[Tensor, "*B 3"]
    accelerometer_bias: Float[Tensor, "*B 3"]
    gravity: Float[Tensor, "*B 3"]
    delay: Float[Tensor, "*B 1"]
    gyro_matrix: Float[Tensor, "*B 9"]
    accelerometer_matrix: Float[Tensor, "*B 9"]


@dataclass(frozen=True)
class CalibratedStrapdownMotionConfig(StrapdownMotionConfig):
    """As :class:`StrapdownMotionConfig`, how many calibrations there are, and whether the vertical is estimated.

    >>> CalibratedStrapdownMotion(CalibratedStrapdownMotionConfig(sites=2)).control_dim
    14
    """

    sites: int = at_least(0, 0)
    """Number of calibrations beside the common one, selected by a one-hot row in the control."""
    tilt: bool = False
    """Whether the horizontal acceleration is in the state by which the vertical of the given initial state differs from
    gravity: two numbers, constant during a recording."""

    def __post_init__(self) -> None:
        if self.tilt and not self.biases:
            raise ConfigError("motion calibrated_strapdown: tilt needs the biases in the state: leave biases = True")


@MOTIONS.register("calibrated_strapdown")
class CalibratedStrapdownMotion(Motion):
    """Strapdown with a learned calibration; ``u = (previous sample, current sample, one-hot site)``.

    The preprocessing ``strapdown_imu`` makes the control from raw samples of the IMU.

    >>> motion = CalibratedStrapdownMotion(CalibratedStrapdownMotionConfig(tilt=True))
    >>> [part.name for part in motion.layout.parts]
    ['position', 'velocity', 'orientation', 'gyro_bias', 'accelerometer_bias', 'tilt']
    """

    Config = CalibratedStrapdownMotionConfig
    bias_std: Tensor
    """Standard deviations of the biases that the calibration leaves, from one recording to the next."""
    tilt_std: Tensor
    """Standard deviations of the tilt from one world frame to the next, m/s²."""
    eye: Tensor

    def __init__(self, config: CalibratedStrapdownMotionConfig) -> None:
        super().__init__(config)
        self.inner = StrapdownMotion(part_config(StrapdownMotionConfig, config))
        self.dt, self.control_dim = config.dt, 12 + config.sites
        tilt = (Part("tilt", "euclidean", 2),) if config.tilt else ()
        self.layout = Layout((*self.inner.layout.parts, *tilt))
        self.calibration = nn.Parameter(torch.zeros(1 + config.sites, CALIBRATION))
        """The first row applies everywhere; each further row is added at its site."""
        self.register_buffer("bias_std", torch.zeros(6))
        if config.tilt:
            self.register_buffer("tilt_std", torch.zeros(2))
        self.register_buffer("eye", torch.eye(self.layout.tangent_size), persistent=False)

    @property
    def config(self) -> Any:
        """The options; those of the mechanisation are handed on to it."""
        return self._config

    @config.setter
    def config(self, config: Any) -> None:
        self._config = config
        if "inner" in self._modules:
            self.inner.config = part_config(StrapdownMotionConfig, config)

    def calibrated(self, u: Float[Tensor, "*B p"]) -> tuple[Float[Tensor, "*B 6"], Float[Tensor, "*B 3"]]:
        """Rate and specific force with the calibration applied, and the correction of gravity.

        Args:
            u: the control: previous sample, current sample, one-hot site.

        Returns:
            Rate and force, and the correction of gravity.
        """
        numbers = self.calibration[0] + u[..., 12:] @ self.calibration[1:]
        return calibrate(u[..., :6], u[..., 6:12], ImuCalibration(*numbers.split(list(PARTS.values()), -1)))

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        n = self.inner.layout.size
        sensed, gravity = (None, None) if u is None else self.calibrated(u)
        return self._finished(x, self.inner.transition(x[..., :n], sensed, dt), gravity, dt)

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        n = self.inner.layout.size
        sensed, gravity = (None, None) if u is None else self.calibrated(u)
        moved, F = self.inner.linearize_transition(x[..., :n], sensed, dt)
        if self.config.tilt:
            step = self._seconds(x, dt).unsqueeze(-1)
            level = self.eye[:3, :2]
            by_tilt = torch.cat((0.5 * step * step * level, step * level, torch.zeros_like(F[..., 6:, :2])), -2)
            above = torch.cat((F, by_tilt), -1)
            F = torch.cat((above, self.eye[-2:].expand(*F.shape[:-2], 2, -1)), -2)
        return self._finished(x, moved, gravity, dt), F

    def _finished(self, x: Tensor, moved: Tensor, gravity: Tensor | None, dt: Tensor | None) -> Tensor:
        """The next state with the accelerations that enter additively, so that they can come after the step."""
        if gravity is not None:
            moved = self._accelerated(moved, gravity, dt)
        if not self.config.tilt:
            return moved
        tilt = x[..., 16:]
        return torch.cat((self._accelerated(moved, nn.functional.pad(tilt, (0, 1)), dt), tilt), -1)

    def _accelerated(self, x: Tensor, acceleration: Tensor, dt: Tensor | None) -> Tensor:
        step = self._seconds(x, dt)
        position = x[..., :3] + 0.5 * step * step * acceleration
        return torch.cat((position, x[..., 3:6] + step * acceleration, x[..., 6:]), -1)

    def _seconds(self, x: Tensor, dt: Tensor | None) -> Float[Tensor, "B 1"]:
        return x.new_full((*x.shape[:-1], 1), self.dt) if dt is None else dt.unsqueeze(-1)

    def process_noise(self, dt: Tensor | None) -> Tensor:
        Q = self.inner.process_noise(dt)
        return nn.functional.pad(Q, (0, 2, 0, 2)) if self.config.tilt else Q

    def complete_prior(self, prior: Gaussian) -> Gaussian:
        """A belief about position, velocity and orientation, completed by the biases and the tilt."""
        if prior.mean.shape[-1] == 10 and self.config.biases:
            prior = _extended(prior, self.bias_std)
        return _extended(prior, self.tilt_std) if prior.mean.shape[-1] == 16 and self.config.tilt else prior


@dataclass(frozen=True)
class CalibratedStrapdownConfig(StrapdownConfig):
    """As :class:`StrapdownConfig`, and how many calibrations there are.

    >>> CalibratedStrapdown(CalibratedStrapdownConfig(sites=2)).control_dim
    14
    """

    sites: int = at_least(0, 0)
    """Number of calibrations beside the common one, selected by a one-hot row in the control."""
    variances: tuple[float, ...] = ()
    """Variances of the observed velocities (m²/s²), which replace ``variance`` where they are given."""


@SYSTEMS.register("calibrated_strapdown")
class CalibratedStrapdown(ComposedSystem):
    """:class:`CalibratedStrapdownMotion` with the velocity in the body frame observed, ``R(q)ᵀ v``.

    >>> import torch, fwnkf
    >>> from fwnkf.preprocess import StrapdownIMU, StrapdownIMUConfig
    >>> system = CalibratedStrapdown(CalibratedStrapdownConfig())
    >>> model = fwnkf.build("ekf", system=system)
    >>> model.preprocess = StrapdownIMU(StrapdownIMUConfig(), system)
    >>> start = fwnkf.Gaussian(torch.eye(10)[6:7], 0.01 * torch.eye(9))
    >>> model.run(torch.tensor([[[0, 0, 0, 0, 0, 9.81]]]).expand(1, 20, 6), prior=start).mean.shape
    torch.Size([1, 20, 16])
    """

    Config = CalibratedStrapdownConfig
    motion: CalibratedStrapdownMotion

    def __init__(self, config: CalibratedStrapdownConfig) -> None:
        motion, sensors = self.part_configs(config)
        super().__init__(
            CalibratedStrapdownMotion(motion), {"body_velocity": Velocity(sensors["body_velocity"])}, config=config
        )

    @classmethod
    def part_configs(cls, config: Any) -> tuple[Any, dict[str, Any]]:
        std = tuple(map(root, config.variances)) or root(config.variance)
        return part_config(CalibratedStrapdownMotionConfig, config), {"body_velocity": VelocityConfig(std, "body")}

    @property
    def calibration(self) -> Tensor:
        """The numbers of the calibration: a common row, and one for each site."""
        return self.motion.calibration

    @property
    def bias_std(self) -> Tensor:
        """Standard deviations of the biases that the calibration leaves, from one recording to the next."""
        return self.motion.bias_std


def _extended(belief: Gaussian, std: Float[Tensor, " k"]) -> Gaussian:
    """A belief with further parts of mean zero."""
    mean = nn.functional.pad(belief.mean, (0, len(std)))
    return Gaussian(mean, block_diagonal(belief.cov, std.square().diag()))


def calibrate(
    before: Float[Tensor, "... 6"], now: Float[Tensor, "... 6"], by: ImuCalibration
) -> tuple[Float[Tensor, "... 6"], Float[Tensor, "... 3"]]:
    """Two neighbouring samples to rate and force, and the correction of gravity; see :class:`ImuCalibration`."""
    u = before + by.delay * (now - before)
    rate, force = u[..., :3], u[..., 3:]
    rate = rate + matvec(by.gyro_matrix.unflatten(-1, (3, 3)), rate) - by.gyro_bias
    force = force + matvec(by.accelerometer_matrix.unflatten(-1, (3, 3)), force) - by.accelerometer_bias
    return torch.cat((rate, force), -1), by.gravity
