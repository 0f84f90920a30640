"""Heading from a magnetometer, for a sensor whose tilt is estimated by another filter.

The tilt filter (see :mod:`.attitude`) knows the vertical, and its heading is the integrated gyroscope, which drifts.
The magnetometer observes that drift. Two disturbances are states: the field of magnets and iron fixed to the sensor
(``hard_iron``), which rotates with it, and the deviation of the field inside a building (``disturbance``), which does
not; they can be separated once the sensor rotates. The tilt is not corrected: indoors, gravity determines it better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.composed import ComposedSystem, part_config
from ..core.layout import Layout
from ..core.motion import Motion
from ..registry import MOTIONS, SYSTEMS, limited
from ..shapes import Float
from ..types import Gaussian
from .sensors import LevelMagnetometer, LevelMagnetometerConfig


@dataclass(frozen=True)
class HeadingMotionConfig:
    """Drift of an integrated heading, and disturbances of the field that a magnetometer measures.

    >>> HeadingMotion(HeadingMotionConfig()).layout.size
    13
    """

    heading_std: float = limited(0.1, above=0.0)
    """Standard deviation of the initial heading (rad)."""
    bias_std: float = limited(1e-3, above=0.0)
    """Standard deviation of the drift's bias at the start (rad/s)."""
    bias_walk: float = limited(2e-5, above=0.0)
    """Random walk of that bias (rad/s²/√Hz)."""
    rate_error_std: float = limited(6e-3, above=0.0)
    """Standard deviation of the drift relative to the rate."""
    rate_error_seconds: float = limited(1.0, above=0.0)
    """Its correlation time (s)."""
    density: float = limited(1e-3, above=0.0)
    """White noise of the drift (rad/s/√Hz)."""
    hard_iron_std: float = limited(1.0, above=0.0)
    """Standard deviation of the constant field fixed to the sensor (µT)."""
    disturbance_std: float = limited(1.5, above=0.0)
    """Standard deviation of the field's deviation in the world frame (µT)."""
    disturbance_seconds: float = limited(8.0, above=0.0)
    """Its correlation time (s)."""
    dt: float = limited(0.084, above=0.0)
    """Nominal step (s)."""


@MOTIONS.register("heading")
class HeadingMotion(Motion):
    """The rotation ``δ`` about the vertical from the tilt filter's frame to the world.

    ``u = (|ω|, orientation in the tilt filter's frame)``; ``δ⁺ = δ + dt (b + |ω| e)``, ``e⁺ = r e``,
    ``disturbance⁺ = ρ disturbance``. The orientation ``q`` is a state only because the observation needs it.

    >>> HeadingMotion(HeadingMotionConfig()).control_dim
    5
    """

    Config = HeadingMotionConfig
    control_dim = 5
    eye: Tensor

    def __init__(self, config: HeadingMotionConfig) -> None:
        super().__init__(config)
        self.dt = config.dt
        drift = [("heading", "angle", 1), ("bias", "euclidean", 1), ("rate_error", "euclidean", 1)]
        fields = [("hard_iron", "euclidean", 3), ("disturbance", "euclidean", 3)]
        self.layout = Layout.parse([*drift, *fields, ("orientation", "quaternion", 4)])
        self.register_buffer("eye", torch.eye(12), persistent=False)

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        turning, q = (x.new_zeros(*x.shape[:-1], 1), x[..., 9:]) if u is None else (u[..., :1], u[..., 1:5])
        step = self._seconds(dt)
        rate, disturbance = self.decay(dt)
        angle = x[..., :1] + step * (x[..., 1:2] + turning * x[..., 2:3])
        return torch.cat((angle, x[..., 1:2], rate * x[..., 2:3], x[..., 3:6], disturbance * x[..., 6:9], q), -1)

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        turning = x.new_zeros(*x.shape[:-1], 1) if u is None else u[..., :1]
        step, one = self._seconds(dt), torch.ones_like(turning)
        rate, disturbance = self.decay(dt)
        by_orientation = one if u is None else torch.zeros_like(one)
        parts = [one, one, rate * one, *[one] * 3, *[disturbance * one] * 3, *[by_orientation] * 3]
        by_bias, by_error = (step * one).unsqueeze(-1), (step * turning).unsqueeze(-1)
        first = self.eye[:1].mT * (by_bias * self.eye[1] + by_error * self.eye[2])
        return self.transition(x, u, dt), torch.diag_embed(torch.cat(parts, -1)) + first

    def process_noise(self, dt: Tensor | None) -> Tensor:
        """Rate error and disturbance keep their stationary variance; hard iron is constant, the orientation given."""
        config, step = self.config, self._seconds(dt)
        rate, disturbance = self.decay(dt)
        drift = (config.density**2 * step, config.bias_walk**2 * step, config.rate_error_std**2 * (1 - rate**2))
        deviation = [config.disturbance_std**2 * (1 - disturbance**2)] * 3
        zero = [torch.zeros_like(step)] * 3
        return torch.diag_embed(torch.cat((*drift, *zero, *deviation, *zero), -1))

    def initial_variances(self) -> Float[Tensor, "*B 12"]:
        """Variances of the state before the first step, if its observation gave the heading.

        Returns:
            One for each tangent coordinate.
        """
        config = self.config
        fields = [config.hard_iron_std] * 3 + [config.disturbance_std] * 3
        stds = [config.heading_std, config.bias_std, config.rate_error_std, *fields, 0.0, 0.0, 0.0]
        return self.eye.new_tensor(stds).square()

    def decay(self, dt: Tensor | None) -> tuple[Float[Tensor, "*B 1"], Float[Tensor, "*B 1"]]:
        """``exp(-dt / correlation time)`` of rate error and disturbance.

        Args:
            dt: the length of the step in seconds; None for the nominal one.

        Returns:
            The factor of the rate error and that of the disturbance.
        """
        step = self._seconds(dt)
        return (-step / self.config.rate_error_seconds).exp(), (-step / self.config.disturbance_seconds).exp()

    # ---- parts of a step ------------------------------------------------------------------------------------

    def _seconds(self, dt: Tensor | None) -> Float[Tensor, "*B 1"]:
        return self.eye.new_tensor([self.dt]) if dt is None else dt.unsqueeze(-1)


@dataclass(frozen=True)
class HeadingConfig(HeadingMotionConfig):
    """As :class:`HeadingMotionConfig`, and the field a magnetometer measures.

    >>> Heading(HeadingConfig(magnetometer_std=2.0)).measurement_covariance().diagonal()
    tensor([4., 4., 4.])
    """

    field: tuple[float, ...] = (0.0, 15.0, -41.0)
    """Field of the earth (µT): east, north, up. An east component is the declination against the north wanted."""
    magnetometer_std: float = limited(3.0, above=0.0)
    """Standard deviation of the noise of one observation (µT)."""


@SYSTEMS.register("heading")
class Heading(ComposedSystem):
    """:class:`HeadingMotion` with a magnetometer, whose measurement is turned into the tilt filter's frame.

    :class:`fwnkf.preprocess.TiltCompensatedMagnetometer` computes control and measurement from samples.

    >>> import torch
    >>> system = Heading(HeadingConfig())
    >>> system.observe(system.layout.origin(torch.zeros(()))).tolist()
    [0.0, 15.0, -41.0]
    """

    Config = HeadingConfig
    motion: HeadingMotion
    initial_steps = 1

    def __init__(self, config: HeadingConfig) -> None:
        motion, sensors = self.part_configs(config)
        magnetometer = LevelMagnetometer(sensors["magnetometer"])
        super().__init__(HeadingMotion(motion), {"magnetometer": magnetometer}, config=config)

    @classmethod
    def part_configs(cls, config: Any) -> tuple[Any, dict[str, Any]]:
        magnetometer = part_config(LevelMagnetometerConfig, config, std=config.magnetometer_std)
        return part_config(HeadingMotionConfig, config), {"magnetometer": magnetometer}

    def initial_belief(self, y: Tensor, weight: Tensor, u: Tensor | None) -> Gaussian:
        """The heading the first observation points to; of unknown heading if it is missing."""
        origin = self.layout.origin(y).expand(len(y), -1)
        orientation = origin[:, 9:] if u is None else u[:, 0, 1:5]
        field = self.get_buffer("sensors.magnetometer.field")
        north = torch.atan2(field[..., 0], field[..., 1])
        known = (weight[:, 0, :2] > 0).all(-1)
        heading = torch.where(known, torch.atan2(y[:, 0, 0], y[:, 0, 1]) - north, 0.0)
        variances = self.motion.initial_variances().expand(len(y), 12)
        uniform = torch.full_like(heading, math.pi**2 / 3)
        variances = torch.cat((torch.where(known, variances[:, 0], uniform).unsqueeze(-1), variances[:, 1:]), -1)
        mean = torch.cat((heading.unsqueeze(-1), origin[:, 1:9], orientation), -1)
        return Gaussian(mean, torch.diag_embed(variances))
