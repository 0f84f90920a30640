"""Position of an antenna, a marker or the vehicle itself, in the frame of the world."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...core import rotation
from ...core.gaussian import matvec
from ...core.motion import Linearity
from ...core.sensor_definition import SensorDefinition, SensorState
from ...errors import ConfigError
from ...registry import SENSORS, at_least, limited


@dataclass(frozen=True)
class PositionConfig:
    """Noise of a :class:`Position`, and where on the vehicle it is measured.

    >>> Position(PositionConfig(lever_arm=(0.2, 0.0, 0.1))).arguments
    ('position', 'orientation')
    """

    std: float | tuple[float, ...] = at_least(0.0, 1.0)
    """Standard deviation (m), one for all axes or one for each."""
    dims: int = at_least(1, 3)
    """Number of coordinates."""
    lever_arm: tuple[float, ...] = ()
    """From the origin of the body to the point that is measured, in the body frame (m); empty for none."""
    lever_arm_std: float = at_least(0.0, 0.0)
    """Standard deviation of the lever arm (m); if it is not zero, the lever arm is a state of the sensor."""
    drift_std: float = at_least(0.0, 0.0)
    """Standard deviation of a slow error (m), a first-order Gauss-Markov process; if it is not zero, it is a state."""
    drift_seconds: float = limited(60.0, above=0.0)
    """Its correlation time (s)."""

    def __post_init__(self) -> None:
        if self.lever_arm and (len(self.lever_arm), self.dims) != (3, 3):
            raise ConfigError(f"sensor position: lever_arm = {self.lever_arm} must have three numbers, and dims be 3")
        if self.lever_arm_std and not self.lever_arm:
            raise ConfigError("sensor position: lever_arm_std needs lever_arm, the expected value: (0, 0, 0), say")


@SENSORS.register("position")
class Position(SensorDefinition):
    """``p``, or with a lever arm ``p + R(q) r``: GNSS, motion capture, UWB (m).

    Reads ``position``; with a lever arm also ``orientation`` (body to world), and its own states ``lever_arm`` and
    ``drift`` where they are estimated.

    Args:
        config: noise and lever arm.

    >>> import torch, fwnkf
    >>> from fwnkf.systems import ConstantVelocity, ConstantVelocityConfig
    >>> system = ConstantVelocity(ConstantVelocityConfig(dims=3)).with_sensor("gps", Position(PositionConfig(std=2.0)))
    >>> system.observe(torch.tensor([1.0, 2, 3, 0, 0, 0]))
    tensor([1., 2., 3., 1., 2., 3.])
    """

    Config = PositionConfig
    diagonal_noise = True

    def __init__(self, config: PositionConfig) -> None:
        super().__init__(config, {"position": config.dims})
        # asked once: while a fit installs its values they may be tensors that cannot be asked
        self.drifts = bool(config.drift_std)

    @property
    def arguments(self) -> tuple[str, ...]:
        read = ("position", "orientation") if self.config.lever_arm else ("position",)
        return (*read, *(state.name for state in self.states))

    @property
    def states(self) -> tuple[SensorState, ...]:
        config, states = self.config, []
        if config.lever_arm_std:
            states.append(SensorState("lever_arm", 3, std=config.lever_arm_std, mean=config.lever_arm))
        if self.drifts:
            seconds = config.drift_seconds
            states.append(SensorState("drift", config.dims, std=config.drift_std, seconds=seconds))
        return tuple(states)

    @property
    def linearity(self) -> Linearity:
        return "state_dependent" if self.config.lever_arm else "constant"

    def observe(self, *parts: Tensor) -> Tensor:
        place = parts[0]
        if self.config.lever_arm:
            R = rotation.to_matrix(parts[1])
            place = place + matvec(R, self._arm(parts).expand(*R.shape[:-2], 3))
        return place + parts[-1] if self.drifts else place

    def linearize(self, *parts: Tensor) -> tuple[Tensor, Tensor]:
        """``R(q ⊗ exp δ) r = R (r + δ × r)``, so the derivative by the angles is ``-R [r]×``."""
        slopes = [self.eye]
        if self.config.lever_arm:
            R = rotation.to_matrix(parts[1])
            arm = self._arm(parts).expand(*R.shape[:-2], 3)
            slopes = [self.eye.expand_as(R), -R @ rotation.skew(arm)]
            if self.config.lever_arm_std:
                slopes.append(R)
        if self.drifts:
            slopes.append(self.eye.expand_as(slopes[0]))
        return self.observe(*parts), slopes[0] if len(slopes) == 1 else torch.cat(slopes, -1)

    def measurement_covariance(self) -> Tensor:
        return self.independent(self.config.std)

    def _arm(self, parts: tuple[Tensor, ...]) -> Tensor:
        return parts[2] if self.config.lever_arm_std else self.eye.new_tensor(self.config.lever_arm)
