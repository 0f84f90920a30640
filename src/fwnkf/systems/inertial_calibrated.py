"""Inertial navigation with a learned calibration of the sensor.

The calibration is added to the classical mechanisation and starts at zero, so an untrained system is
:class:`fwnkf.systems.Strapdown`. The observation is velocity in the body frame, which something else has to measure.
:class:`fwnkf.systems.DragStrapdown` takes it from the drag of rotors; without such a source every channel is masked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..core import rotation
from ..core.gaussian import block_diagonal, matvec
from ..core.layout import Layout
from ..registry import SYSTEMS, at_least
from ..shapes import Float
from ..types import Gaussian
from .strapdown import Strapdown, StrapdownConfig

PARTS = {"gyro_bias": 3, "accelerometer_bias": 3, "gravity": 3, "delay": 1, "gyro_matrix": 9, "accelerometer_matrix": 9}
"""The parts of one calibration and their sizes, in the order in which they are stored."""
CALIBRATION = sum(PARTS.values())


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


@SYSTEMS.register("calibrated_strapdown")
class CalibratedStrapdown(Strapdown):
    """Strapdown with a learned calibration; ``u = (previous sample, current sample, one-hot site)``.

    The observation is velocity in the body frame, ``R(q)ᵀ v``. The preprocessing ``strapdown_imu`` makes the control
    from raw samples of the IMU:

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
    diagonal_noise = True
    bias_std: Tensor
    """Standard deviations of the biases that the calibration leaves, from one recording to the next."""

    def __init__(self, config: CalibratedStrapdownConfig) -> None:
        super().__init__(config)
        self.control_dim = 12 + config.sites
        self.observation_layout = Layout.parse([("body_velocity", "euclidean", 3)])
        self.calibration = nn.Parameter(torch.zeros(1 + config.sites, CALIBRATION))
        """The first row applies everywhere; each further row is added at its site."""
        self.register_buffer("bias_std", torch.zeros(6))

    # ---- motion ---------------------------------------------------------------------------------------------

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
        if u is None:
            return super().transition(x, None, dt)
        sensed, gravity = self.calibrated(u)
        return self._accelerated(super().transition(x, sensed, dt), gravity, dt)

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        if u is None:
            return super().linearize_transition(x, None, dt)
        sensed, gravity = self.calibrated(u)
        moved, F = super().linearize_transition(x, sensed, dt)
        return self._accelerated(moved, gravity, dt), F

    def _accelerated(self, x: Tensor, acceleration: Tensor, dt: Tensor | None) -> Tensor:
        """Add a constant acceleration of the world frame; it enters additively, so it can come after the step."""
        step = self._seconds(x, dt)
        position = x[..., :3] + 0.5 * step * step * acceleration
        return torch.cat((position, x[..., 3:6] + step * acceleration, x[..., 6:]), -1)

    def complete_prior(self, prior: Gaussian) -> Gaussian:
        """A belief about position, velocity and orientation, completed by the biases."""
        if prior.mean.shape[-1] != 10 or not self.config.biases:
            return prior
        bias_cov = self.bias_std.square().diag()
        return Gaussian(nn.functional.pad(prior.mean, (0, 6)), block_diagonal(prior.cov, bias_cov))

    # ---- observation ----------------------------------------------------------------------------------------

    def observe(self, x: Tensor) -> Tensor:
        return matvec(rotation.to_matrix(x[..., 6:10]).mT, x[..., 3:6])

    def linearize_observation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """``R(q ⊗ exp δ)ᵀ v = (I - [δ]×) Rᵀ v``, so the derivative by the angles is ``[Rᵀ v]×``."""
        to_body = rotation.to_matrix(x[..., 6:10]).mT
        velocity = matvec(to_body, x[..., 3:6])
        H = torch.cat((torch.zeros_like(to_body), to_body, rotation.skew(velocity)), -1)
        return velocity, nn.functional.pad(H, (0, self.layout.tangent_size - 9))

    def measurement_covariance(self) -> Tensor:
        return torch.diag_embed(self.eye.new_tensor(self.config.variances or [self.config.variance] * 3))


def calibrate(
    before: Float[Tensor, "... 6"], now: Float[Tensor, "... 6"], by: ImuCalibration
) -> tuple[Float[Tensor, "... 6"], Float[Tensor, "... 3"]]:
    """Two neighbouring samples to rate and force, and the correction of gravity; see :class:`ImuCalibration`."""
    u = before + by.delay * (now - before)
    rate, force = u[..., :3], u[..., 3:]
    rate = rate + matvec(by.gyro_matrix.unflatten(-1, (3, 3)), rate) - by.gyro_bias
    force = force + matvec(by.accelerometer_matrix.unflatten(-1, (3, 3)), force) - by.accelerometer_bias
    return torch.cat((rate, force), -1), by.gravity
