"""The magnetic field, measured in the body frame or in that of a filter which knows the vertical."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...core import rotation
from ...core.gaussian import matvec
from ...core.sensor_definition import SensorDefinition, SensorState
from ...registry import SENSORS, at_least, limited
from ...shapes import Float

UP = (0.0, 0.0, 1.0)


@dataclass(frozen=True)
class MagnetometerConfig:
    """Field, noise and disturbances of a :class:`Magnetometer`.

    >>> Magnetometer(MagnetometerConfig(hard_iron_std=5.0)).arguments
    ('orientation', 'hard_iron')
    """

    field: tuple[float, ...] = (0.0, 15.0, -41.0)
    """Field of the earth (µT) in the world frame: east, north, up, if z points up."""
    std: float | tuple[float, ...] = at_least(0.0, 1.0)
    """Standard deviation (µT), one for all axes or one for each."""
    field_std: float = at_least(0.0, 0.0)
    """Standard deviation of the field of the earth (µT); if it is not zero, the field is a state of the sensor."""
    field_walk: float = at_least(0.0, 0.0)
    """Random walk of that field (µT/√s)."""
    hard_iron_std: float = at_least(0.0, 0.0)
    """Standard deviation of the field fixed to the body (µT); if it is not zero, it is a state of the sensor."""
    hard_iron_walk: float = at_least(0.0, 0.0)
    """Random walk of that field (µT/√s)."""


@SENSORS.register("magnetometer")
class Magnetometer(SensorDefinition):
    """``R(q)ᵀ field + hard_iron`` (µT) in the body frame.

    Reads ``orientation`` (body to world), and its own states ``field`` and ``hard_iron`` where they are estimated.

    Args:
        config: field, noise and disturbances.

    >>> import torch, fwnkf
    >>> from fwnkf.systems import Strapdown, StrapdownConfig
    >>> system = Strapdown(StrapdownConfig()).with_sensor("compass", Magnetometer(MagnetometerConfig()))
    >>> system.observe(system.layout.origin(torch.zeros(())))[3:]
    tensor([  0.,  15., -41.])
    """

    Config = MagnetometerConfig
    diagonal_noise = True

    def __init__(self, config: MagnetometerConfig) -> None:
        super().__init__(config, {"field": 3})

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("orientation", *(state.name for state in self.states))

    @property
    def states(self) -> tuple[SensorState, ...]:
        config, states = self.config, []
        if config.field_std:
            states.append(SensorState("field", 3, std=config.field_std, walk=config.field_walk, mean=config.field))
        if config.hard_iron_std:
            states.append(SensorState("hard_iron", 3, std=config.hard_iron_std, walk=config.hard_iron_walk))
        return tuple(states)

    def observe(self, *parts: Tensor) -> Tensor:
        return self._outside(parts)[0] + self._hard_iron(parts)

    def linearize(self, *parts: Tensor) -> tuple[Tensor, Tensor]:
        """``R(q ⊗ exp δ)ᵀ m = (I - [δ]×) Rᵀ m``, so the derivative by the angles is ``[Rᵀ m]×``."""
        outside, to_body = self._outside(parts)
        slopes = [rotation.skew(outside)]
        if self.config.field_std:
            slopes.append(to_body)
        if self.config.hard_iron_std:
            slopes.append(self.eye.expand_as(to_body))
        return outside + self._hard_iron(parts), torch.cat(slopes, -1)

    def measurement_covariance(self) -> Tensor:
        return self.independent(self.config.std)

    def _outside(self, parts: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """The field of the earth in the body frame, and the rotation into it."""
        to_body = rotation.to_matrix(parts[0]).mT
        field = parts[1] if self.config.field_std else self.eye.new_tensor(self.config.field)
        return matvec(to_body, field), to_body

    def _hard_iron(self, parts: tuple[Tensor, ...]) -> Tensor | float:
        return parts[-1] if self.config.hard_iron_std else 0.0


@dataclass(frozen=True)
class LevelMagnetometerConfig:
    """Field and noise of a :class:`LevelMagnetometer`.

    >>> LevelMagnetometer(LevelMagnetometerConfig(std=2.0)).measurement_covariance().diagonal()
    tensor([4., 4., 4.])
    """

    field: tuple[float, ...] = (0.0, 15.0, -41.0)
    """Field of the earth (µT): east, north, up. An east component is the declination against the north wanted."""
    std: float = limited(3.0, above=0.0)
    """Standard deviation (µT)."""


@SENSORS.register("level_magnetometer")
class LevelMagnetometer(SensorDefinition):
    """``Rz(δ)ᵀ (field + disturbance) + R(q) hard_iron`` (µT), in the level frame of a filter that knows the vertical.

    Reads ``heading`` (the angle ``δ`` from that frame to the world), ``hard_iron``, ``disturbance`` and
    ``orientation`` (body to level frame), as :class:`fwnkf.systems.Heading` has them.

    Args:
        config: field and noise.

    >>> import torch
    >>> from fwnkf.systems import Heading, HeadingConfig
    >>> system = Heading(HeadingConfig())
    >>> system.observe(system.layout.origin(torch.zeros(()))).tolist()
    [0.0, 15.0, -41.0]
    """

    Config = LevelMagnetometerConfig
    arguments = ("heading", "hard_iron", "disturbance", "orientation")
    diagonal_noise = True
    field: Tensor
    up: Tensor

    def __init__(self, config: LevelMagnetometerConfig) -> None:
        super().__init__(config, {"magnetometer": 3})
        self.register_buffer("field", torch.tensor(config.field), persistent=False)
        self.register_buffer("up", torch.tensor(UP), persistent=False)

    def observe(self, *parts: Tensor) -> Tensor:
        heading, hard_iron, disturbance, orientation = parts
        return self._outside(heading, disturbance)[0] + matvec(rotation.to_matrix(orientation), hard_iron)

    def linearize(self, *parts: Tensor) -> tuple[Tensor, Tensor]:
        heading, hard_iron, disturbance, orientation = parts
        outside, turn = self._outside(heading, disturbance)
        R = rotation.to_matrix(orientation)
        # d Rz(δ)ᵀ f / dδ = -ẑ × Rz(δ)ᵀ f
        by_heading = torch.linalg.cross(outside, self.up.expand_as(outside)).unsqueeze(-1)
        by_orientation = -R @ rotation.skew(hard_iron)
        return outside + matvec(R, hard_iron), torch.cat((by_heading, R, turn, by_orientation), -1)

    def measurement_covariance(self) -> Tensor:
        return self.config.std**2 * self.eye

    def _outside(self, heading: Tensor, disturbance: Tensor) -> tuple[Float[Tensor, "*B 3"], Float[Tensor, "*B 3 3"]]:
        """The field outside the sensor in the level frame, and the rotation into that frame."""
        turn = rotation.to_matrix(rotation.exp(-heading * self.up))
        return matvec(turn, self.field + disturbance), turn
