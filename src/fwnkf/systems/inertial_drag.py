"""Inertial navigation of a multirotor whose rotor drag makes the accelerometer a velocity sensor.

Thrust has no component across the axis of the rotors, so the accelerometer measures drag there, ``f = -K v``, plus the
effect of the sensor's lever arm and an offset (Abeywardena et al. 2013, Leishman et al. 2014). This holds in flight
only; the vibration and the motion of the sensor tell flight from standing on the ground.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..core import rotation
from ..core.composed import ComposedSystem, part_config
from ..core.sensor_definition import root
from ..errors import ConfigError
from ..registry import SYSTEMS, at_least
from ..shapes import Bool, Float
from .inertial_calibrated import (
    CalibratedStrapdownConfig,
    CalibratedStrapdownMotion,
    CalibratedStrapdownMotionConfig,
)
from .sensors import Velocity, VelocityAcross, VelocityAcrossConfig, VelocityConfig

STANDING_BLOCKS = 5
"""Blocks that must be there before standing can be detected: the deviation of fewer says little."""


@dataclass(frozen=True)
class DragStrapdownConfig(CalibratedStrapdownConfig):
    """As :class:`CalibratedStrapdownConfig` with five ``variances``, and how flight is told from standing.

    The sensor is averaged over blocks of samples. Vibration is the root mean square of the second difference of the
    specific force (m/s²) in a block. Motion is the standard deviation of the block means, of the angular rate (rad/s)
    and of the specific force (m/s²). The vehicle stands if both kinds of motion are small, from the fifth block on. It
    flies if it does not stand and its vibration is large. Otherwise (carried by hand, rotors off) its velocity is
    unknown.

    >>> DragStrapdown(DragStrapdownConfig(block=20)).blocks(torch.zeros(1, 100, 6)).shape
    torch.Size([1, 5, 6])
    """

    block: int = at_least(1, 10)
    """Number of samples in a block."""
    flying: float = at_least(0.0, 2.5)
    """Vibration above which the vehicle may fly (m/s²)."""
    still: tuple[float, ...] = (0.025, 0.12)
    """Motion below which it may stand: angular rate (rad/s), specific force (m/s²)."""
    recent: int = at_least(1, 10)
    """Number of blocks over which vibration and motion are taken, or as many as there are."""


class Modes(NamedTuple):
    """Whether the vehicle flies or stands at the end of a block; neither if it is moved with the rotors off."""

    flying: Bool[Tensor, "*B"]
    standing: Bool[Tensor, "*B"]


@SYSTEMS.register("drag_strapdown")
class DragStrapdown(ComposedSystem):
    """A calibrated strapdown that observes velocity across the rotor axis in flight, and zero velocity when standing.

    The observation is ``(A R(q)ᵀ v)₂,₃ + o`` and ``R(q)ᵀ v``, where the rotation ``A`` (``axes``) turns the axis of
    the rotors into the first axis. In flight the former is measured once a block: ``D (f₂, f₃, α₁, α₂, α₃, 1)`` with
    the specific force ``f`` in those axes and the angular acceleration ``α`` from block to block. The latter is zero
    while the vehicle stands. The preprocessing ``rotor_drag`` makes these measurements from raw samples of the IMU.

    Two further pairs of numbers are constant during a recording: ``tilt``, the horizontal acceleration by which the
    vertical of the given initial state differs from gravity, and the offset ``o``.

    >>> import torch
    >>> DragStrapdown(DragStrapdownConfig()).modes(torch.zeros(1, 100, 6)).standing[0].tolist()
    [False, False, False, False, True, True, True, True, True, True]
    """

    Config = DragStrapdownConfig
    motion: CalibratedStrapdownMotion

    def __init__(self, config: DragStrapdownConfig) -> None:
        if not config.biases:
            raise ConfigError("system drag_strapdown needs the biases in its state: leave biases = True")
        motion, options = self.part_configs(config)
        across = VelocityAcross(options["across"]).reading(offset="offset")
        sensors = {"across": across, "standing": Velocity(options["standing"])}
        super().__init__(CalibratedStrapdownMotion(motion), sensors, config=config)

    @classmethod
    def part_configs(cls, config: Any) -> tuple[Any, dict[str, Any]]:
        std = tuple(map(root, config.variances or [config.variance] * 5))
        sensors = {"across": VelocityAcrossConfig(std[:2]), "standing": VelocityConfig(std[2:], "body")}
        return part_config(CalibratedStrapdownMotionConfig, config, tilt=True), sensors

    @property
    def _across(self) -> VelocityAcross:
        return self.sensors["across"]  # type: ignore[return-value]

    @property
    def axes(self) -> Tensor:
        """The rotation ``A`` that turns the axis of the rotors into the first axis."""
        return self._across.axes

    @property
    def drag(self) -> Tensor:
        """The regression ``D`` of velocity across that axis."""
        return self._across.drag

    @property
    def offset_std(self) -> Tensor:
        """Standard deviations of the offset from one recording to the next, m/s."""
        return self._across.offset_std

    @property
    def calibration(self) -> Tensor:
        """The numbers of the calibration: a common row, and one for each site."""
        return self.motion.calibration

    @property
    def bias_std(self) -> Tensor:
        """Standard deviations of the biases that the calibration leaves, from one recording to the next."""
        return self.motion.bias_std

    @property
    def tilt_std(self) -> Tensor:
        """Standard deviations of the tilt from one world frame to the next, m/s²."""
        return self.motion.tilt_std

    # ---- blocks of samples ----------------------------------------------------------------------------------

    def block_features(self, mean: Float[Tensor, "*B 6"], before: Float[Tensor, "*B 6"]) -> Float[Tensor, "*B 6"]:
        """The regressors of velocity from the mean of a block and that of the block before it.

        Args:
            mean: mean of the block.
            before: mean of the block before.

        Returns:
            ``(f₂, f₃, α₁, α₂, α₃, 1)``.
        """
        return self._across.features(mean, (mean[..., :3] - before[..., :3]) / (self.config.block * self.dt))

    def block_modes(self, window: Float[Tensor, "*B recent 7"], count: Float[Tensor, "*B"]) -> Modes:
        """Flying and standing from the last ``recent`` blocks.

        Args:
            window: block means and vibration, newest last; the first rows of a window not yet full are ignored.
            count: number of blocks so far.

        Returns:
            The mode at the end of the last block.
        """
        recent = self.config.recent
        filled = count.clamp_max(recent)
        age = torch.arange(recent - 1, -1, -1, device=window.device)
        weight = ((age < filled.unsqueeze(-1)) / filled.clamp_min(1).unsqueeze(-1)).to(window).unsqueeze(-1)
        mean = (window * weight).sum(-2)
        variance = ((window - mean.unsqueeze(-2)).square() * weight).sum(-2)[..., :6]
        rate, force = variance.unflatten(-1, (2, 3)).sum(-1).sqrt().unbind(-1)
        standing = (rate < self.config.still[0]) & (force < self.config.still[1]) & (count >= STANDING_BLOCKS)
        return Modes((mean[..., 6] > self.config.flying) & ~standing, standing)

    def blocks(self, imu: Float[Tensor, "B T 6"]) -> Float[Tensor, "B K 6"]:
        """Means over whole blocks of samples.

        Args:
            imu: angular rate and specific force.

        Returns:
            One row for each block.
        """
        whole = imu.shape[1] // self.config.block * self.config.block
        return imu[:, :whole].unflatten(1, (-1, self.config.block)).mean(2)

    def features(self, imu: Float[Tensor, "B T 6"]) -> Float[Tensor, "B K 6"]:
        """:meth:`block_features` of whole recordings; the first block counts as one without angular acceleration.

        Args:
            imu: angular rate and specific force.

        Returns:
            One row for each block.
        """
        means = self.blocks(imu)
        return self.block_features(means, torch.cat((means[:, :1], means[:, :-1]), 1))

    def modes(self, imu: Float[Tensor, "B T 6"]) -> Modes:
        """:meth:`block_modes` of whole recordings, at the end of each block.

        Args:
            imu: angular rate and specific force.

        Returns:
            The mode at the end of each block.
        """
        means = self.blocks(imu)
        recent, count = self.config.recent, means.shape[1]
        squares = nn.functional.pad(imu[..., 3:].diff(n=2, dim=1), (0, 0, 2, 0)).square().sum(-1, keepdim=True)
        squares = squares[:, : count * self.config.block]
        vibration = squares.unflatten(1, (count, self.config.block)).mean(2).sqrt()
        padded = nn.functional.pad(torch.cat((means, vibration), -1), (0, 0, recent - 1, 0))
        windows = padded.unfold(1, recent, 1).mT
        return self.block_modes(windows, torch.arange(1, count + 1, device=imu.device).to(imu).expand(len(imu), -1))


def axes_of(thrust: Float[Tensor, " 3"]) -> Float[Tensor, "3 3"]:
    """The shortest rotation that turns ``thrust`` into the first axis."""
    first = torch.zeros_like(thrust)
    first[0] = 1.0
    unit = thrust / thrust.norm()
    around = torch.linalg.cross(unit, first)
    sine = around.norm()
    if float(sine) == 0.0:
        return torch.eye(3).to(thrust)
    return rotation.to_matrix(rotation.exp(around / sine * torch.atan2(sine, unit[0])))
