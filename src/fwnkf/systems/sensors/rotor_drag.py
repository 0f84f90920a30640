"""An accelerometer across the axis of rotors as a velocity sensor.

Thrust has no component across that axis, so the accelerometer measures drag there, which is proportional to velocity
(Abeywardena et al. 2013, Leishman et al. 2014).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...core import rotation
from ...core.gaussian import matvec
from ...core.motion import Linearity
from ...core.sensor_definition import SensorDefinition, SensorState
from ...registry import SENSORS, at_least, limited
from ...shapes import Float

FEATURES = 6
"""The regressors of velocity across the rotor axis: two forces, three angular accelerations, a constant."""


@dataclass(frozen=True)
class RotorDragConfig:
    """Where learning of a :class:`RotorDrag` starts from; the learned values are tensors of the sensor.

    >>> RotorDrag(RotorDragConfig(drag=0.4)).drag.tolist()
    [0.4000000059604645, 0.4000000059604645]
    """

    drag: float = at_least(0.0, 0.32)
    """Drag along body x and y (1/s)."""
    deviation: float = at_least(0.0, 0.3)
    """Standard deviation of the measured force (m/s²)."""


@SENSORS.register("rotor_drag")
class RotorDrag(SensorDefinition):
    """The specific force across the rotors' axis, ``-drag v + c`` along body x and y (m/s²).

    Reads ``velocity`` in the body frame and ``offset`` ``c``, as :class:`fwnkf.systems.Multirotor` has them. Drag and
    noise are parameters.

    Args:
        config: where learning starts from.

    >>> import torch
    >>> from fwnkf.systems import Multirotor, MultirotorConfig
    >>> system = Multirotor(MultirotorConfig(drag=0.5))
    >>> system.observe(torch.tensor([2.0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0.5, 0])).tolist()
    [-0.5, 0.0]
    """

    Config = RotorDragConfig
    arguments = ("velocity", "offset")
    diagonal_noise = True

    def __init__(self, config: RotorDragConfig) -> None:
        super().__init__(config, {"force": 2})
        self.drag = nn.Parameter(torch.full((2,), float(config.drag)))
        self.log_deviation = nn.Parameter(torch.full((2,), float(config.deviation)).log())

    @property
    def linearity(self) -> Linearity:
        return "constant"

    def observe(self, *parts: Tensor) -> Tensor:
        velocity, offset = parts
        return offset - self.drag * velocity[..., :2]

    def linearize(self, *parts: Tensor) -> tuple[Tensor, Tensor]:
        by_velocity = nn.functional.pad(torch.diag_embed(-self.drag), (0, 1))
        return self.observe(*parts), torch.cat((by_velocity, self.eye.expand_as(by_velocity[..., :2])), -1)

    def measurement_covariance(self) -> Tensor:
        return torch.diag_embed((2 * self.log_deviation).exp())


@dataclass(frozen=True)
class VelocityAcrossConfig:
    """Noise of a :class:`VelocityAcross`.

    >>> VelocityAcross(VelocityAcrossConfig(std=(0.1, 0.2))).measurement_covariance().diagonal()
    tensor([0.0100, 0.0400])
    """

    std: float | tuple[float, ...] = limited(0.1, min=0.0)
    """Standard deviation (m/s), one for both axes or one for each."""


@SENSORS.register("velocity_across")
class VelocityAcross(SensorDefinition):
    """Velocity across the axis of the rotors, ``(A R(q)ᵀ v)₂,₃ + o`` (m/s).

    The rotation ``A`` (``axes``) turns the axis of the rotors into the first axis. The velocity is measured by drag:
    ``D (f₂, f₃, α₁, α₂, α₃, 1)`` with the specific force ``f`` and the angular acceleration ``α`` in those axes. Reads
    ``velocity`` (world), ``orientation`` (body to world) and its own state ``offset`` ``o``, constant during a
    recording.

    Args:
        config: noise.

    >>> import torch
    >>> from fwnkf.systems import DragStrapdown, DragStrapdownConfig
    >>> DragStrapdown(DragStrapdownConfig()).sensor_channels["across"]
    slice(0, 2, None)
    """

    Config = VelocityAcrossConfig
    arguments = ("velocity", "orientation", "offset")
    diagonal_noise = True
    axes: Tensor
    drag: Tensor
    """``D``."""
    offset_std: Tensor
    """Standard deviations of the offset from one recording to the next, m/s."""

    def __init__(self, config: VelocityAcrossConfig) -> None:
        super().__init__(config, {"across": 2})
        self.register_buffer("axes", torch.eye(3))
        self.register_buffer("drag", torch.zeros(2, FEATURES))
        self.register_buffer("offset_std", torch.zeros(2))

    @property
    def states(self) -> tuple[SensorState, ...]:
        return (SensorState("offset", 2, std=self.offset_std),)

    def observe(self, *parts: Tensor) -> Tensor:
        velocity, orientation, offset = parts
        return matvec(self.axes[1:], matvec(rotation.to_matrix(orientation).mT, velocity)) + offset

    def linearize(self, *parts: Tensor) -> tuple[Tensor, Tensor]:
        velocity, orientation, offset = parts
        to_body = rotation.to_matrix(orientation).mT
        in_body = matvec(to_body, velocity)
        by_motion = self.axes[1:] @ torch.cat((to_body, rotation.skew(in_body)), -1)
        slopes = torch.cat((by_motion, self.eye.expand(*by_motion.shape[:-1], 2)), -1)
        return matvec(self.axes[1:], in_body) + offset, slopes

    def measurement_covariance(self) -> Tensor:
        return self.independent(self.config.std)

    def features(self, mean: Float[Tensor, "*B 6"], change: Float[Tensor, "*B 3"]) -> Float[Tensor, "*B 6"]:
        """The regressors of velocity.

        Args:
            mean: angular rate and specific force.
            change: angular acceleration.

        Returns:
            ``(f₂, f₃, α₁, α₂, α₃, 1)``.
        """
        across = matvec(self.axes, mean[..., 3:])[..., 1:]
        return torch.cat((across, matvec(self.axes, change), torch.ones_like(across[..., :1])), -1)
