"""Inertial navigation over the Earth, with the sensors of a vehicle: GNSS, barometer, magnetometer, airspeed, wheels.

Positions are north, east and down (m) of an origin on the ellipsoid, along the curved surface: a difference of latitude
and longitude times the radii of curvature at the origin, so that heights stay heights far away from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core import rotation
from ..core.composed import ComposedSystem, part_config
from ..core.gaussian import matvec
from ..core.layout import Layout
from ..core.motion import Motion
from ..errors import ConfigError
from ..registry import MOTIONS, SYSTEMS, at_least
from ..shapes import Float
from . import earth
from .sensors import (
    Airspeed,
    AirspeedConfig,
    Barometer,
    BarometerConfig,
    Magnetometer,
    MagnetometerConfig,
    Position,
    PositionConfig,
    Rolling,
    RollingConfig,
    Velocity,
    VelocityConfig,
)

BODY = 10
"""Numbers of position, velocity and orientation, which come first."""


@dataclass(frozen=True)
class NavigationMotionConfig:
    """Where on the Earth, and the errors of the IMU; the defaults are those of a small MEMS sensor on a vehicle.

    >>> NavigationMotion(NavigationMotionConfig(scales=True)).layout.size
    22
    """

    latitude: float = 45.0
    """Of the origin (degrees)."""
    height: float = 0.0
    """Of the origin above the ellipsoid (m)."""
    gyro_density: float = at_least(0.0, 1.5e-3)
    """Noise of the gyroscope (rad/s/√Hz)."""
    accelerometer_density: float = at_least(0.0, 3e-2)
    """Noise of the accelerometer (m/s²/√Hz)."""
    gyro_walk: float = at_least(0.0, 3e-5)
    """Random walk of the gyroscope's bias (rad/s/√s)."""
    accelerometer_walk: float = at_least(0.0, 1e-3)
    """Random walk of the accelerometer's bias (m/s²/√s)."""
    drift_seconds: float = at_least(0.0, 0.0)
    """Correlation time of the drift of biases (s): they are constants and first-order Gauss-Markov processes that start
    like the random walks; 0 for random walks."""
    scales: bool = False
    """Whether errors of the scale factors of gyroscope and accelerometer are in the state."""
    rate: bool = False
    """Whether the rate of rotation is in the state, which sensors with a lever arm read."""
    dt: float = 0.02
    """Nominal step (s)."""

    def __post_init__(self) -> None:
        if not -89.0 <= self.latitude <= 89.0:
            raise ConfigError(
                f"navigation: latitude = {self.latitude}; wanted -89 to 89 degrees, because there is no north at a pole"
            )


@MOTIONS.register("navigation")
class NavigationMotion(Motion):
    """Strapdown inertial navigation; ``u = (gyroscope, accelerometer)`` in the axes forward, right, down.

    Position and velocity are north, east, down; the orientation turns the body frame into it. With the rate ``Ω`` of
    the Earth, ``ρ(v)`` of the vertical over its curved surface, ``ω = gyro - b_g`` and ``f = accelerometer - b_a``:
    ``q⁺ = exp(-(Ω + ρ) dt) ⊗ q ⊗ exp(ω dt)``, ``a = R f + g - (2Ω + ρ) × v`` with the orientation ``R`` halfway,
    ``v⁺ = v + a dt`` and ``p⁺ = p + v dt + ½ a dt²``. A step may be longer than a sample of the IMU if samples are
    preintegrated into the mean rate and the mean force halfway (:func:`fwnkf.navigation.timeline.preintegrated`).

    >>> import torch
    >>> motion = NavigationMotion(NavigationMotionConfig())
    >>> level = torch.tensor([[0.0, 0, 0, 0, 0, -motion.gravity]])
    >>> moved = motion.transition(motion.layout.origin(torch.zeros(()))[None], level, torch.tensor([1.0]))
    >>> bool(moved[0, :6].abs().max() < 1e-3)
    True
    """

    Config = NavigationMotionConfig
    control_dim = 6
    eye: Tensor
    earth_rate: Tensor
    curvature: Tensor

    def __init__(self, config: NavigationMotionConfig) -> None:
        super().__init__(config)
        self.dt = config.dt
        parts: list[tuple[str, str, int]] = [
            ("position", "euclidean", 3),
            ("velocity", "euclidean", 3),
            ("orientation", "quaternion", 4),
            ("gyro_bias", "euclidean", 3),
            ("accelerometer_bias", "euclidean", 3),
        ]
        if config.drift_seconds:
            parts += [("gyro_drift", "euclidean", 3), ("accelerometer_drift", "euclidean", 3)]
        if config.scales:
            parts += [("gyro_scale", "euclidean", 3), ("accelerometer_scale", "euclidean", 3)]
        if config.rate:
            parts += [("rate", "euclidean", 3)]
        self.layout = Layout.parse(parts)
        latitude = math.radians(config.latitude)
        north, east = earth.radii(latitude)
        self.gravity = earth.gravity(latitude, config.height)
        self.register_buffer("eye", torch.eye(self.layout.tangent_size), persistent=False)
        turn = earth.RATE * torch.tensor([math.cos(latitude), 0.0, -math.sin(latitude)])
        self.register_buffer("earth_rate", turn, persistent=False)
        curvature = [1 / (north + config.height), 1 / (east + config.height), math.tan(latitude)]
        self.register_buffer("curvature", torch.tensor(curvature), persistent=False)

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        rate, force, _ = self._sensed(x, u)
        step = self._seconds(x, dt)
        middle = rotation.multiply(self._under_way(x, step), rotation.exp(0.5 * rate * step))
        return self._move(x, rate, matvec(rotation.to_matrix(middle), force), step)

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        """``F`` for perturbations in the body frame, ``q ⊞ δ = q ⊗ exp(δ)``, block by block."""
        rate, force, sensed = self._sensed(x, u)
        step = self._seconds(x, dt)
        half = rotation.exp(0.5 * rate * step)
        orientation = rotation.to_matrix(self._under_way(x, step))
        inner = rotation.to_matrix(half)
        middle = orientation @ inner
        moved = self._move(x, rate, matvec(middle, force), step)
        h = step.unsqueeze(-1)
        eye = self.eye[:3, :3].expand(*h.shape[:-2], 3, 3)
        zero = torch.zeros_like(eye)
        turned = rotation.to_matrix(rotation.conjugate(rotation.multiply(half, half)))
        by_angle = -orientation @ rotation.skew(matvec(inner, force))
        velocity = x[..., 3:6]
        world, by_velocity = self.earth_rate + self.transport(velocity), self._transport_matrix()
        # the vertical turns under the vehicle, by an angle of half of the step and of the whole of it
        turn_half, turn_whole = (rotation.right_jacobian(-share * step * world) @ by_velocity for share in (0.5, 1.0))
        outer = rotation.to_matrix(rotation.exp(-0.5 * step * world))
        turned_force = rotation.skew(matvec(rotation.to_matrix(x[..., 6:10]) @ inner, force))
        coriolis = rotation.skew(velocity) @ by_velocity - rotation.skew(self.earth_rate + world)
        coriolis = coriolis + 0.5 * h * outer @ turned_force @ turn_half
        # gravity falls with height, that is, it grows downwards
        down = eye * self.eye[2, :3]
        by_position = 2.0 * self.gravity * self.curvature[0] * down
        by_gyro = 0.5 * h * middle @ rotation.skew(force) @ rotation.right_jacobian(0.5 * rate * step)
        angle_by_gyro = -h * rotation.right_jacobian(rate * step)
        accelerations = [by_position, coriolis, by_angle, by_gyro, -middle]
        seen = rotation.to_matrix(rotation.multiply(x[..., 6:10], rotation.multiply(half, half)))
        angles = [zero, -h * seen.mT @ turn_whole, turned, angle_by_gyro, zero]
        # how the numbers of the IMU move from step to step, and what the rate reads of them
        kept, read = [eye, eye], [-eye, zero]
        if self.config.drift_seconds:
            accelerations += [by_gyro, -middle]
            angles += [angle_by_gyro, zero]
            kept += [eye * self._decay(step).unsqueeze(-1)] * 2
            read += [-eye, zero]
        if self.config.scales:
            by_rate, by_force = sensed[..., None, :3], sensed[..., None, 3:]
            accelerations += [by_gyro * by_rate, -middle * by_force]
            angles += [angle_by_gyro * by_rate, zero]
            kept += [eye, eye]
            read += [-eye * by_rate, zero]
        if self.config.rate:
            accelerations.append(zero)
            angles.append(zero)
        count = len(accelerations)
        metric, slopes = self._metric(x)
        way = step * velocity + 0.5 * step * (moved[..., 3:6] - velocity)
        rows = [
            [0.5 * h * h * metric.unsqueeze(-1) * block for block in accelerations],
            [h * block for block in accelerations],
            angles,
        ]
        rows[0][0] = rows[0][0] + eye + way.unsqueeze(-1) * slopes
        rows[0][1], rows[1][1] = rows[0][1] + h * metric.unsqueeze(-1) * eye, rows[1][1] + eye
        for number, block in enumerate(kept, 3):
            rows.append([block if place == number else zero for place in range(count)])
        if self.config.rate:
            rows.append([zero, zero, zero, *read, zero])
        return moved, torch.cat([torch.cat(row, -1) for row in rows], -2)

    def process_noise(self, dt: Tensor | None) -> Tensor:
        """White acceleration integrated twice (exactly), white rate once, biases as random walks or drifts."""
        h = self.eye.new_tensor(self.dt) if dt is None else dt
        config = self.config
        white = config.accelerometer_density**2
        variances = [white * h**3 / 3, white * h, config.gyro_density**2 * h]
        walks = [config.gyro_walk**2, config.accelerometer_walk**2]
        if config.drift_seconds:
            # as long as the random walk in a short step, and stationary
            growth = 0.5 * config.drift_seconds * (1.0 - (-2.0 * h / config.drift_seconds).exp())
            variances += [torch.zeros_like(h)] * 2 + [walk * growth for walk in walks]
        else:
            variances += [walk * h for walk in walks]
        if config.scales:
            variances += [torch.zeros_like(h)] * 2
        if config.rate:
            variances.append(config.gyro_density**2 / h.clamp_min(1e-4))
        diagonal = torch.diag_embed(torch.stack(variances, -1).repeat_interleave(3, -1))
        beside = self.eye[:3, :3] * (white * h**2 / 2)[..., None, None]
        d = diagonal.shape[-1]
        upper = torch.nn.functional.pad(beside, (3, d - 6, 0, d - 3))
        return diagonal + upper + upper.mT

    def transport(self, velocity: Float[Tensor, "B 3"]) -> Float[Tensor, "B 3"]:
        """The rate of the local vertical, which follows the surface.

        Args:
            velocity: north, east, down (m/s).

        Returns:
            The rate in these axes (rad/s).
        """
        north, east, tangent = self.curvature.unbind()
        across = velocity[..., 1] * east
        return torch.stack((across, -velocity[..., 0] * north, -across * tangent), -1)

    # ---- parts of a step ------------------------------------------------------------------------------------

    def _seconds(self, x: Tensor, dt: Tensor | None) -> Float[Tensor, "B 1"]:
        return x.new_full((*x.shape[:-1], 1), self.dt) if dt is None else dt.unsqueeze(-1)

    def _sensed(self, x: Tensor, u: Tensor | None) -> tuple[Tensor, Tensor, Float[Tensor, "B 6"]]:
        """Rate and specific force with their errors taken out, and what was measured."""
        measured = x.new_zeros(*x.shape[:-1], 6) if u is None else u
        sensed, at = measured - x[..., BODY : BODY + 6], BODY + 6
        if self.config.drift_seconds:
            sensed, at = sensed - x[..., at : at + 6], at + 6
        if self.config.scales:
            sensed = sensed - measured * x[..., at : at + 6]
        return sensed[..., :3], sensed[..., 3:], measured

    def _decay(self, step: Tensor) -> Tensor:
        """By what drifts shrink in a step."""
        return (-step / self.config.drift_seconds).exp()

    def _transport_matrix(self) -> Float[Tensor, "3 3"]:
        """The derivative of :meth:`transport`."""
        north, east, tangent = self.curvature.unbind()
        zero = torch.zeros_like(north)
        rows = (zero, east, zero), (-north, zero, zero), (zero, -east * tangent, zero)
        return torch.stack([torch.stack(row) for row in rows])

    def _metric(self, x: Tensor) -> tuple[Float[Tensor, "B 3"], Float[Tensor, "3 3"]]:
        """Metres along the surface at the origin for a metre where the vehicle is, and the slopes by its position."""
        north, east, tangent = self.curvature.unbind()
        zero = torch.zeros_like(north)
        rows = (zero, zero, north), (east * tangent, zero, east), (zero, zero, zero)
        slopes = torch.stack([torch.stack(row) for row in rows])
        return 1.0 + matvec(slopes.expand(*x.shape[:-1], 3, 3), x[..., :3]), slopes

    def _under_way(self, x: Tensor, step: Tensor) -> Float[Tensor, "B 4"]:
        """The orientation, relative to the world frame of the middle of the step."""
        turn = self.earth_rate + self.transport(x[..., 3:6])
        return rotation.multiply(rotation.exp(-0.5 * step * turn), x[..., 6:10])

    def _move(self, x: Tensor, rate: Tensor, force: Tensor, step: Tensor) -> Tensor:
        """The next state from the specific force in the world frame."""
        position, velocity = x[..., :3], x[..., 3:6]
        north = self.curvature[0]
        transport = self.transport(velocity)
        down = self.eye[2, :3]
        gravity = self.gravity * (1.0 + 2.0 * north * position[..., 2:3]) * down
        acceleration = force + gravity - torch.linalg.cross(2.0 * self.earth_rate + transport, velocity)
        metric, _ = self._metric(x)
        moved = position + metric * (step * velocity + 0.5 * step * step * acceleration)
        turned = rotation.multiply(rotation.exp(-step * (self.earth_rate + transport)), x[..., 6:10])
        turned = rotation.normalize(rotation.multiply(turned, rotation.exp(step * rate)))
        end = x.shape[-1] - 3 * self.config.rate
        rest = [x[..., BODY:end]]
        if self.config.drift_seconds:
            rest = [x[..., BODY : BODY + 6], x[..., BODY + 6 : BODY + 12] * self._decay(step), x[..., BODY + 12 : end]]
        if self.config.rate:
            rest.append(rate)
        return torch.cat((moved, velocity + step * acceleration, turned, *rest), -1)


KINDS: dict[str, Any] = {
    "gnss_position": Position,
    "gnss_velocity": Velocity,
    "barometer": Barometer,
    "magnetometer": Magnetometer,
    "airspeed": Airspeed,
    "wheels": Rolling,
}
"""Sensors by the name that they have in the system."""


@dataclass(frozen=True)
class NavigationConfig(NavigationMotionConfig):
    """As :class:`NavigationMotionConfig`, which sensors there are, and their noise.

    >>> Navigation(NavigationConfig(sensors=("gnss_position", "barometer"))).sensor_channels
    {'gnss_position': slice(0, 3, None), 'barometer': slice(3, 4, None)}
    """

    sensors: tuple[str, ...] = ("gnss_position", "gnss_velocity")
    """Of ``gnss_position``, ``gnss_velocity``, ``barometer``, ``magnetometer``, ``airspeed`` and ``wheels``."""
    gnss_position_std: float = at_least(0.0, 0.5)
    """Horizontal position (m)."""
    gnss_height_std: float = at_least(0.0, 0.75)
    """Height of GNSS (m)."""
    gnss_velocity_std: float = at_least(0.0, 0.2)
    """Horizontal velocity (m/s)."""
    gnss_climb_std: float = at_least(0.0, 0.3)
    """Vertical velocity (m/s)."""
    gnss_drift_std: float = at_least(0.0, 0.0)
    """Slow error of the position, a Gauss-Markov process (m); 0 for none."""
    gnss_drift_seconds: float = at_least(0.0, 60.0)
    """Its correlation time (s)."""
    velocity_drift_std: float = at_least(0.0, 0.0)
    """Error of the velocity that lasts, a Gauss-Markov process (m/s); 0 for none."""
    velocity_drift_seconds: float = at_least(0.0, 3.0)
    """Its correlation time (s)."""
    lever_arm: tuple[float, ...] = ()
    """From the IMU to the antenna, forward, right, down (m); empty for none."""
    lever_arm_std: float = at_least(0.0, 0.0)
    """Standard deviation of the lever arm (m); if it is not zero, it is estimated."""
    barometer_std: float = at_least(0.0, 1.0)
    """Height of the barometer (m)."""
    barometer_offset_std: float = at_least(0.0, 10.0)
    """Its offset at the start (m)."""
    barometer_walk: float = at_least(0.0, 0.05)
    """Random walk of that offset (m/√s)."""
    field: tuple[float, ...] = (20.0, 0.0, 45.0)
    """Magnetic field of the Earth, north, east, down (µT)."""
    magnetometer_std: float = at_least(0.0, 2.0)
    """Each axis (µT)."""
    field_std: float = at_least(0.0, 2.0)
    """Field of the Earth at the start (µT); if it is not zero, it is estimated."""
    field_walk: float = at_least(0.0, 0.05)
    """Random walk of the field of the Earth (µT/√s)."""
    hard_iron_std: float = at_least(0.0, 1.5)
    """What the calibration of the magnetometer left of the field fixed to the body (µT); if it is not zero, it is
    estimated."""
    hard_iron_walk: float = at_least(0.0, 0.05)
    """Random walk of the field fixed to the body (µT/√s)."""
    airspeed_std: float = at_least(0.0, 1.0)
    """True airspeed (m/s)."""
    wind_std: float = at_least(0.0, 5.0)
    """Wind at the start (m/s)."""
    wind_walk: float = at_least(0.0, 0.1)
    """Random walk of the wind (m/s/√s)."""
    wheel_std: float = at_least(0.0, 0.1)
    """Forward speed by the wheels (m/s)."""
    slip_std: float = at_least(0.0, 0.2)
    """Velocity across the direction of rolling (m/s)."""
    mounting: tuple[float, ...] = (0.0, 0.0, 0.0)
    """Rotation vector that turns the axes of the vehicle into those of the IMU (rad)."""
    mounting_std: float = at_least(0.0, 0.05)
    """Standard deviation of pitch and yaw of the mounting (rad); if it is not zero, they are estimated."""
    axle: float = 0.0
    """How far ahead of the IMU the axle is that does not slip (m); negative behind it."""
    axle_std: float = at_least(0.0, 0.0)
    """Standard deviation of that distance (m); if it is not zero, it is estimated."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := [name for name in self.sensors if name not in KINDS]:
            raise ConfigError(f"navigation: no sensor {', '.join(unknown)}; there are {', '.join(KINDS)}")
        if "wheels" in self.sensors and not self.rate:
            raise ConfigError("navigation: wheels need the rate of rotation in the state: rate = True")


@SYSTEMS.register("navigation")
class Navigation(ComposedSystem):
    """:class:`NavigationMotion` with the sensors of a vehicle; :meth:`with_sensor` adds others.

    >>> system = Navigation(NavigationConfig())
    >>> [part.name for part in system.layout.parts]
    ['position', 'velocity', 'orientation', 'gyro_bias', 'accelerometer_bias']
    """

    Config = NavigationConfig

    def __init__(self, config: NavigationConfig) -> None:
        motion, sensors = self.part_configs(config)
        built = {name: KINDS[name](options) for name, options in sensors.items()}
        if "airspeed" in built:
            built["airspeed"].reading(wind="wind")
        super().__init__(NavigationMotion(motion), built, config=config)

    @classmethod
    def part_configs(cls, config: Any) -> tuple[Any, dict[str, Any]]:
        c = config
        arm = {"lever_arm": c.lever_arm, "lever_arm_std": c.lever_arm_std}
        sensors: dict[str, Any] = {
            "gnss_position": PositionConfig(
                std=(c.gnss_position_std, c.gnss_position_std, c.gnss_height_std),
                drift_std=c.gnss_drift_std,
                drift_seconds=c.gnss_drift_seconds,
                **arm,
            ),
            "gnss_velocity": VelocityConfig(
                std=(c.gnss_velocity_std, c.gnss_velocity_std, c.gnss_climb_std),
                lever_arm=c.lever_arm if c.rate else (),
                drift_std=c.velocity_drift_std,
                drift_seconds=c.velocity_drift_seconds,
            ),
            "barometer": BarometerConfig(
                std=c.barometer_std,
                offset_std=c.barometer_offset_std,
                offset_walk=c.barometer_walk,
                up=(0.0, 0.0, -1.0),
            ),
            "magnetometer": MagnetometerConfig(
                field=c.field,
                std=c.magnetometer_std,
                field_std=c.field_std,
                field_walk=c.field_walk,
                hard_iron_std=c.hard_iron_std,
                hard_iron_walk=c.hard_iron_walk,
            ),
            "airspeed": AirspeedConfig(std=c.airspeed_std, wind_std=c.wind_std, wind_walk=c.wind_walk),
            "wheels": RollingConfig(
                forward_std=c.wheel_std,
                slip_std=c.slip_std,
                mounting=c.mounting,
                mounting_std=c.mounting_std,
                axle=c.axle,
                axle_std=c.axle_std,
            ),
        }
        return part_config(NavigationMotionConfig, config), {name: sensors[name] for name in c.sensors}
