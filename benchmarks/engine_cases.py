"""The models and records of ``engine.py``: as filters of this library, and as plain numbers for the others.

Everything is float64. Targets stay within a hundred metres: a model of free motion is not simulated, because it leaves
for 10⁸ m within the longest records, where rounding would be all that results differ by.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import fwnkf
from fwnkf.core import rotation
from fwnkf.systems import StrapdownMotion, StrapdownMotionConfig
from fwnkf.systems.sensors import (
    Magnetometer,
    MagnetometerConfig,
    Position,
    PositionConfig,
    Velocity,
    VelocityConfig,
)

Array = np.ndarray[Any, Any]
RATE = 100.0
"""Of the linear models, in Hz."""


class Case(NamedTuple):
    """A linear model and a record of it; ``y`` is NaN where a value is missing."""

    filter: fwnkf.Filter
    F: Array
    """Of a regular step."""
    Q: Array
    H: Array
    R: Array
    """The variances of the channels."""
    mean: Array
    """Of the belief at the first measurement."""
    cov: Array
    y: Array
    dt: Array | None = None
    """The lengths of the steps, of a :class:`Tracker`; None for a regular record."""
    tracker: Tracker | None = None

    @property
    def inputs(self) -> dict[str, Any]:
        """What ``filter.run`` takes."""
        y = torch.from_numpy(self.y)[None]
        given: dict[str, Any] = {"y": y, "prior": fwnkf.Gaussian(*map(torch.from_numpy, (self.mean, self.cov)))}
        if np.isnan(self.y).any():
            given["mask"] = ~y.isnan()
        if self.dt is not None:
            given["dt"] = torch.from_numpy(self.dt)[None]
        return given


def wandering(seconds: Array, axes: int) -> Array:
    """Positions of a target that turns, rises and sinks within a hundred metres."""
    turns = 0.3 * seconds[:, None] - np.array([0.0, 0.5, 0.2])[:axes] * np.pi
    return 40.0 * np.cos(turns) + 10.0 * np.sin(np.array([0.71, 0.83, 0.97])[:axes] * seconds[:, None])


def turn(steps: int, rate: float = 0.3, seed: int = 0) -> Case:
    """Two axes of position and velocity of a target that turns at a known rate; positions are measured.

    The turn couples the axes. Without one (``rate=0``) they are two independent filters.
    """
    h = 1 / RATE
    velocity = np.array([[math.cos(rate * h), -math.sin(rate * h)], [math.sin(rate * h), math.cos(rate * h)]])
    moved = h * np.eye(2)
    if rate:
        s, c = math.sin(rate * h) / rate, (1 - math.cos(rate * h)) / rate
        moved = np.array([[s, -c], [c, s]])
    F = np.block([[np.eye(2), moved], [np.zeros((2, 2)), velocity]])
    Q = np.kron([[h**3 / 3, h**2 / 2], [h**2 / 2, h]], np.eye(2))
    return linear(F, Q, np.eye(2, 4), np.array([0.04, 0.04]), wandering(h * np.arange(steps), 2), seed)


def linear(F: Array, Q: Array, H: Array, R: Array, true: Array, seed: int) -> Case:
    """A regular record of a model with constant matrices, from what its channels would measure without noise."""
    n, random = len(F), np.random.default_rng(seed)
    y = true + random.standard_normal(true.shape) * np.sqrt(R)
    matrices = {"F": F, "H": H, "Q": Q, "R": np.diag(R)}
    filter = fwnkf.KF(**{name: torch.from_numpy(value) for name, value in matrices.items()}, dt=1 / RATE)
    return Case(filter, F, Q, H, R, np.zeros(n), 1e3 * np.eye(n), y)


def chain(n: int, steps: int, seed: int = 0) -> Case:
    """Masses in a row with springs and dampers between them, ``n / 2`` of them; first and last are measured."""
    count = n // 2
    spring = -(2 * np.eye(count) - np.eye(count, k=1) - np.eye(count, k=-1)) * 400.0
    drift = np.block([[np.zeros((count, count)), np.eye(count)], [spring, 0.01 * spring]])
    F = torch.linalg.matrix_exp(torch.from_numpy(drift) / RATE).numpy()
    Q = np.diag([1e-8] * count + [1.0 / RATE] * count)
    H = np.eye(n)[sorted({0, count - 1})]
    x, true, drawn = np.zeros(n), np.empty((steps, len(H))), np.random.default_rng(seed + 1).standard_normal((steps, n))
    for t in range(steps):
        x = F @ x + np.sqrt(np.diagonal(Q)) * drawn[t]
        true[t] = H @ x
    return linear(F, Q, H, np.full(len(H), 1e-4), true, seed)


class Tracker(NamedTuple):
    """Three axes of position, velocity and acceleration, driven by white jerk, and the biases of the tracker.

    The tracker measures the position in its own axes, which are turned against those of the motion, plus a bias that
    varies slowly (Gauss-Markov). Motion and noise differ from axis to axis, so that nothing falls into parts.
    """

    density: Array = np.array([4.0, 4.0, 1.0])
    """Of the jerk (m²/s⁵)."""
    bias_std: Array = np.array([0.3, 0.3, 0.6])
    """Of the biases (m)."""
    seconds: float = 30.0
    """Their correlation time."""
    R: Array = np.array([0.01, 0.01, 0.04])
    mount: Array = np.array([0.3, -0.5, 0.8])
    """Rotation vector of the tracker; zero leaves three independent axes."""

    @property
    def H(self) -> Array:
        axes = rotation.to_matrix(rotation.exp(torch.from_numpy(self.mount))).numpy()
        return np.hstack([axes, np.zeros((3, 6)), np.eye(3)])

    @property
    def drift(self) -> Array:
        return np.kron(np.diag([1.0, 1.0, 0.0], 1), np.eye(3)) - np.diag([0.0] * 9 + [1 / self.seconds] * 3)

    @property
    def spectral_density(self) -> Array:
        return np.diag([*[0.0] * 6, *self.density, *(2 * self.bias_std**2 / self.seconds)])

    def filter(self) -> fwnkf.Filter:
        matrices = {"F": self.drift, "Q": self.spectral_density, "H": self.H, "R": np.diag(self.R)}
        given = {name: torch.from_numpy(value) for name, value in matrices.items()}
        return fwnkf.KF(**given, continuous=True, dt=1 / RATE)

    def learned(self) -> fwnkf.Filter:
        """The same filter with ten parameters: densities, standard deviations, the correlation time, variances."""

        def move(position: Tensor, velocity: Tensor, acceleration: Tensor, bias: Tensor, seconds: Tensor) -> Any:
            return velocity, acceleration, 0.0 * acceleration, -bias / seconds

        def measure(position: Tensor, bias: Tensor, axes: Tensor) -> Tensor:
            return (axes @ position.unsqueeze(-1)).squeeze(-1) + bias

        def process(density: Tensor, bias_std: Tensor, seconds: Tensor) -> Tensor:
            return torch.cat((torch.zeros(6).to(density), density, 2 * bias_std**2 / seconds))

        system = fwnkf.System.of(
            move, measure, Q=process, R=lambda variances: variances, dt=1 / RATE, continuous=True, linear=True,
            state={"position": 3, "velocity": 3, "acceleration": 3, "bias": 3}, measurement=3,
            constants={
                "density": self.density, "bias_std": self.bias_std, "seconds": self.seconds, "variances": self.R,
                "axes": self.H[:, :3],
            },
            learn=LEARNED, positive=LEARNED,
        )  # fmt: skip
        return fwnkf.EKF(system.double())


def rebuilt(filter: fwnkf.Filter, solve: str, dtype: torch.dtype) -> fwnkf.Filter:
    """A Kalman filter with the same matrices, in another form or precision."""
    system = filter.system
    with torch.no_grad():
        given = {"F": system.F, "H": system.H, "Q": system.Q(), "R": system.R()}
    return fwnkf.KF(**given, continuous=system.config.continuous, dt=system.dt, solve=solve).to(dtype)


LEARNED = ("density", "bias_std", "seconds", "variances")


def tracker(steps: int, every_step_differs: bool = False, mount: bool = True, seed: int = 0) -> Case:
    """A record of a :class:`Tracker` at irregular steps, with a fifth of the values missing.

    Lengths of steps are uniform within 20 % of the nominal one, by time stamps in whole microseconds, as logs have
    them; or no two of them are the same.
    """
    model = Tracker() if mount else Tracker(mount=np.zeros(3))
    random = np.random.default_rng(seed)
    dt = random.uniform(0.8, 1.2, steps) / RATE
    if not every_step_differs:
        dt = np.round(dt * 1e6) / 1e6
    filter = model.filter()
    with torch.no_grad():
        regular = [item.numpy() for item in filter.system.matrices(None)]
    decay = np.exp(-dt / model.seconds)[:, None]
    bias = model.bias_std * random.standard_normal((steps, 3))
    for t in range(1, steps):
        bias[t] = decay[t] * bias[t - 1] + np.sqrt(1 - decay[t] ** 2) * bias[t]
    y = wandering(np.cumsum(dt), 3) @ model.H[:, :3].T + bias
    y += random.standard_normal(y.shape) * np.sqrt(model.R)
    y[random.random(y.shape) < 0.2] = np.nan
    cov = np.diag(np.repeat([1e3, 1e2, 1e1, 0.1], 3))
    return Case(filter, regular[0], regular[2], model.H, model.R, np.zeros(12), cov, y, dt, model)


# ---- nonlinear ------------------------------------------------------------------------------------------------------

GRAVITY, FIELD = (0.0, 0.0, 9.81), (0.0, 15.0, -41.0)
STEP = 0.005
"""Seconds of a step of an inertial unit."""


class Inertial(NamedTuple):
    """A filter of an inertial unit with a record, and the numbers of its model in the order of the C++."""

    filter: fwnkf.Filter
    y: Array
    u: Array
    mean: Array
    cov: Array
    numbers: Array
    tangent: int

    @property
    def inputs(self) -> dict[str, Any]:
        """What ``filter.run`` takes."""
        y = torch.from_numpy(self.y)[None]
        given: dict[str, Any] = {"y": y, "u": torch.from_numpy(self.u)[None]}
        given["prior"] = fwnkf.Gaussian(torch.from_numpy(self.mean), torch.from_numpy(self.cov))
        if np.isnan(self.y).any():
            given["mask"] = ~y.isnan()
        return given


def swinging(steps: int, random: np.random.Generator) -> tuple[Array, Tensor]:
    """Angular rates of something that swings about all axes, and its orientations."""
    t = STEP * np.arange(steps)[:, None]
    rate = np.array([0.5, 0.7, 0.3]) * np.sin(t * np.array([1.1, 0.7, 0.4]) + random.uniform(0, 6, 3))
    start = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    return rate, rotation.integrate(start, torch.from_numpy(rate), STEP)


def attitude(steps: int, seed: int = 0) -> Inertial:
    """Attitude and gyroscope bias, with accelerometer and magnetometer measured: functions of one state."""

    def move(attitude: Tensor, bias: Tensor, gyro: Tensor, dt: Tensor) -> Any:
        return rotation.multiply(attitude, rotation.exp((gyro - bias) * dt[..., None])), bias

    def measure(attitude: Tensor, gravity: Tensor = GRAVITY, field: Tensor = FIELD) -> Any:  # type: ignore[assignment]
        to_body = rotation.to_matrix(attitude).mT
        return to_body @ gravity, to_body @ field

    Q, R = [1e-7] * 3 + [1e-11] * 3, [0.05] * 3 + [0.5] * 3
    system = fwnkf.System.of(
        move, measure, Q=Q, R=R, dt=STEP, control={"gyro": 3},
        state={"attitude": "quaternion", "bias": 3}, measurement={"accelerometer": 3, "magnetometer": 3},
    ).double()  # fmt: skip
    random = np.random.default_rng(seed)
    rate, q = swinging(steps, random)
    to_body = rotation.to_matrix(q).mT.numpy()
    y = np.concatenate([to_body @ np.array(GRAVITY), to_body @ np.array(FIELD)], -1)
    y += random.standard_normal(y.shape) * np.sqrt(R)
    gyro = rate + 0.02 + np.sqrt(Q[:3]) / STEP * random.standard_normal(rate.shape)
    mean, cov = np.array([1.0, *[0.0] * 6]), np.diag([0.01] * 3 + [0.001] * 3)
    numbers = np.concatenate([Q, R, GRAVITY, FIELD, [STEP], mean, cov.ravel()])
    return Inertial(fwnkf.EKF(system), y, gyro, mean, cov, numbers, 6)


def strapdown(steps: int, own_rates: bool = False, seed: int = 0) -> Inertial:
    """Strapdown navigation of 15 states with position, velocity and magnetometer, composed of parts.

    ``own_rates``: of 200 steps a second the receiver measures in five and the magnetometer in fifty; otherwise all
    sensors measure in every step.
    """
    motion = StrapdownMotionConfig(dt=STEP)
    stds = {"position": 0.5, "velocity": 0.1, "magnetometer": 1.0}
    sensors = {
        "position": Position(PositionConfig(std=stds["position"])),
        "velocity": Velocity(VelocityConfig(std=stds["velocity"])),
        "magnetometer": Magnetometer(MagnetometerConfig(field=FIELD, std=stds["magnetometer"])),
    }
    system = fwnkf.System(StrapdownMotion(motion), sensors=sensors).double()
    random = np.random.default_rng(seed)
    rate, q = swinging(steps, random)
    to_body = rotation.to_matrix(q).mT.numpy()
    velocity = 2.0 * np.sin(STEP * np.arange(steps)[:, None] * np.array([0.3, 0.2, 0.1]))
    position = np.cumsum(velocity, 0) * STEP
    acceleration = np.gradient(velocity, STEP, axis=0)
    force = (to_body @ (acceleration - np.array(motion.gravity))[..., None])[..., 0]
    y = np.concatenate([position, velocity, to_body @ np.array(FIELD)], -1)
    R = np.repeat([std**2 for std in stds.values()], 3)
    y += random.standard_normal(y.shape) * np.sqrt(R)
    if own_rates:
        y[np.arange(steps) % 40 != 0, :6] = np.nan
        y[np.arange(steps) % 4 != 0, 6:] = np.nan
    densities = (motion.gyro_density, motion.accelerometer_density)
    u = np.concatenate([rate + 0.01, force + 0.05], -1)
    u += np.repeat(densities, 3) / math.sqrt(STEP) * random.standard_normal(u.shape)
    mean, cov = np.array([*[0.0] * 6, 1.0, *[0.0] * 9]), np.diag(np.repeat([1.0, 0.1, 0.01, 1e-4, 1e-2], 3))
    walks = (motion.gyro_walk, motion.accelerometer_walk)
    numbers = np.concatenate([motion.gravity, densities, walks, R, FIELD, [STEP], mean, cov.ravel()])
    return Inertial(fwnkf.EKF(system), y, u, mean, cov, numbers, 15)


class Learned(NamedTuple):
    """A filter whose step is not linear, and a record."""

    filter: fwnkf.Filter
    y: Array

    @property
    def inputs(self) -> dict[str, Any]:
        """What ``filter.run`` takes."""
        return {"y": torch.from_numpy(self.y)[None]}


def learned_noise(steps: int) -> Learned:
    """An FW-NKF of two channels with lines, a level and a GRU of 64; weights at random, as after some training."""
    case = turn(steps)
    matrices = {name: torch.from_numpy(getattr(case, name)) for name in "FHQ"}
    system = fwnkf.LinearSystem.of(**matrices, R=torch.from_numpy(np.diag(case.R)), dt=1 / RATE)
    lines = fwnkf.Lines(hz=[12.0, 31.0], bandwidth_hz=1.0, std=0.1)
    torch.manual_seed(0)
    model = fwnkf.FWNKF(system, noise=lines, level=fwnkf.Level(seconds=2.0), encoder=fwnkf.GRU(64, 1)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return Learned(model, case.y)
