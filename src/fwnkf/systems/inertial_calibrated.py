"""Inertial navigation with what can be learned about the sensor: its calibration.

The calibration is added to the classical mechanisation and starts at zero, so an untrained system is
:class:`fwnkf.systems.Strapdown`. It sees velocity in the body frame, which something else has to measure: alone, every
channel is masked. :class:`fwnkf.systems.DragStrapdown` reads it off the drag of rotors.
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
from ..shapes import Bool, Float
from ..types import Gaussian
from .strapdown import Strapdown, StrapdownConfig

PARTS = {"gyro_bias": 3, "accelerometer_bias": 3, "gravity": 3, "delay": 1, "gyro_matrix": 9, "accelerometer_matrix": 9}
"""The numbers of one calibration, in the order in which they are stored."""
CALIBRATION = sum(PARTS.values())


@dataclass(frozen=True)
class CalibratedStrapdownConfig(StrapdownConfig):
    """As :class:`StrapdownConfig`, and how much is learned.

    ``sites`` is the number of calibrations that may be told apart, by a one-hot row in the control. ``variances`` of
    the velocities that are seen replace ``variance`` where they are given.
    """

    sites: int = at_least(0, 0)
    variances: tuple[float, ...] = ()


class Calibration(NamedTuple):
    """Additions to the data sheet: rate ``(I + M_g) u_g - b_g``, force ``(I + M_a) u_a - b_a``, gravity ``g + δg``.

    ``u`` is the sensor ``delay`` samples after the older of two neighbouring ones, by linear interpolation.
    """

    gyro_bias: Float[Tensor, "*B 3"]
    accelerometer_bias: Float[Tensor, "*B 3"]
    gravity: Float[Tensor, "*B 3"]
    delay: Float[Tensor, "*B 1"]
    gyro_matrix: Float[Tensor, "*B 9"]
    accelerometer_matrix: Float[Tensor, "*B 9"]


class Sighting(NamedTuple):
    """What ``filter.run`` takes as ``y``, ``mask`` and ``u``."""

    y: Float[Tensor, "B T m"]
    mask: Bool[Tensor, "B T m"]
    u: Float[Tensor, "B T p"]


@SYSTEMS.register("calibrated_strapdown")
class CalibratedStrapdown(Strapdown):
    """Strapdown with learned calibration; ``u = (sample before, sample now, one-hot site)``, velocity seen in the body.

    The observation is ``R(q)ᵀ v``. :meth:`sight` makes all a filter needs from the records of an IMU.

    >>> import torch
    >>> system = CalibratedStrapdown(CalibratedStrapdownConfig())
    >>> system.sight(torch.zeros(1, 40, 6)).u.shape
    torch.Size([1, 40, 12])
    """

    Config = CalibratedStrapdownConfig
    diagonal_noise = True
    bias_spread: Tensor
    """Standard deviations of what the calibration leaves of the biases, from one flight to the next."""

    def __init__(self, config: CalibratedStrapdownConfig) -> None:
        super().__init__(config)
        self.control_dim = 12 + config.sites
        self.observation_layout = Layout.parse([("body_velocity", "euclidean", 3)])
        self.calibration = nn.Parameter(torch.zeros(1 + config.sites, CALIBRATION))
        """The first row holds everywhere, the others are what each site adds."""
        self.register_buffer("bias_spread", torch.zeros(6))

    # ---- calibration ----------------------------------------------------------------------------------------

    def calibrated(self, u: Float[Tensor, "*B p"]) -> tuple[Float[Tensor, "*B 6"], Float[Tensor, "*B 3"]]:
        """Rate and specific force with the calibration applied, and what is added to gravity."""
        found = self.calibration[0] + u[..., 12:] @ self.calibration[1:]
        return calibrate(u[..., :6], u[..., 6:12], Calibration(*found.split(list(PARTS.values()), -1)))

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        if u is None:
            return super().transition(x, None, dt)
        sensed, pull = self.calibrated(u)
        return self._pulled(super().transition(x, sensed, dt), pull, dt)

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        if u is None:
            return super().linearize_transition(x, None, dt)
        sensed, pull = self.calibrated(u)
        moved, F = super().linearize_transition(x, sensed, dt)
        return self._pulled(moved, pull, dt), F

    def _pulled(self, x: Tensor, pull: Tensor, dt: Tensor | None) -> Tensor:
        """Gravity enters velocity and position by addition, so its correction can come afterwards."""
        step = self._seconds(x, dt)
        return torch.cat((x[..., :3] + 0.5 * step * step * pull, x[..., 3:6] + step * pull, x[..., 6:]), -1)

    def start(self, given: Gaussian) -> Gaussian:
        """A belief over position, velocity and orientation made one over the biases as well."""
        mean = nn.functional.pad(given.mean, (0, 6))
        return Gaussian(mean, block_diagonal(given.cov, self.bias_spread.square().diag()))

    # ---- sight ----------------------------------------------------------------------------------------------

    def observe(self, x: Tensor) -> Tensor:
        return matvec(rotation.to_matrix(x[..., 6:10]).mT, x[..., 3:6])

    def linearize_observation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """``R(q ⊗ exp δ)ᵀ v = (I - [δ]×) Rᵀ v``, so the angles act by ``[Rᵀ v]×``."""
        turned = rotation.to_matrix(x[..., 6:10]).mT
        seen = matvec(turned, x[..., 3:6])
        H = torch.cat((torch.zeros_like(turned), turned, rotation.skew(seen)), -1)
        return seen, nn.functional.pad(H, (0, self.layout.tangent_size - 9))

    def measurement_covariance(self) -> Tensor:
        return torch.diag_embed(self.eye.new_tensor(self.config.variances or [self.config.variance] * 3))

    def sight(self, imu: Float[Tensor, "B T 6"], site: Float[Tensor, "B s"] | None = None) -> Sighting:
        """Control of whole records, and velocities that are all masked."""
        before = torch.cat((imu[:, :1], imu[:, :-1]), 1)
        parts = [before, imu]
        if self.config.sites:
            known = imu.new_zeros(len(imu), self.config.sites) if site is None else site
            parts.append(known.unsqueeze(1).expand(-1, imu.shape[1], -1))
        y = torch.zeros_like(imu[..., :3])
        mask = torch.zeros_like(y, dtype=torch.bool)
        return Sighting(y, mask, torch.cat(parts, -1))


def calibrate(
    before: Float[Tensor, "... 6"], now: Float[Tensor, "... 6"], by: Calibration
) -> tuple[Float[Tensor, "... 6"], Float[Tensor, "... 3"]]:
    """Two neighbouring samples to rate and force, and what is added to gravity; see :class:`Calibration`."""
    u = before + by.delay * (now - before)
    rate, force = u[..., :3], u[..., 3:]
    rate = rate + matvec(by.gyro_matrix.unflatten(-1, (3, 3)), rate) - by.gyro_bias
    force = force + matvec(by.accelerometer_matrix.unflatten(-1, (3, 3)), force) - by.accelerometer_bias
    return torch.cat((rate, force), -1), by.gravity
