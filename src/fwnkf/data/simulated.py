"""Simulated records with their truth: constant velocity, and Lorenz and pendulum as the paper generates them.

The generators are in NumPy, batched, with explicit seeds: the same arguments give the same bits. Motion and measurement
noise have separate random streams, so that all scenarios of one seed are about the same trajectories.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.system import System
from ..errors import ConfigError
from ..registry import SYSTEMS, parse_config
from ..shapes import Bool, Float
from ..systems import noise
from ..systems.lorenz import Lorenz, LorenzConfig
from ..systems.motion import ConstantVelocity, ConstantVelocityConfig
from ..systems.noise import Scenario
from ..systems.pendulum import Pendulum, PendulumConfig
from ..types import Gaussian

Array = NDArray[np.float64]
Config = ConstantVelocityConfig | LorenzConfig | PendulumConfig

LORENZ_SPREAD = 5.0
"""Standard deviation of each initial Lorenz state, as in the paper."""
LORENZ_SUBSTEPS = 10
"""RK4 steps per sample: within 1e-6 of a solution at a relative tolerance of 1e-12 over the paper's second."""
PENDULUM_SPEED = 2.0
"""Initial rates are uniform within this bound, initial angles on the circle.

The paper does not state them. Of the choices tried, this one reproduces the measured figures of the benchmarks: the
error of an EKF, its part due to the unknown rate in the first ten steps, and the error with a known initial state.
"""
CHUNK = 3000
"""Pendulums simulated at a time, so that they fit a cache. It shapes the stream, so it must not change."""
PENDULUM_CONTROL = 0.5
"""Standard deviation of the torque, as in the paper."""
VELOCITY_SPREAD = 10.0
"""Standard deviation of each initial position (m) and velocity (m/s) of constant velocity."""


@dataclass(frozen=True, eq=False)
class Simulated:
    """Trajectories of one system; the first sample is the initial state.

    ``dt[:, 0]`` is zero, because the prior is at the time of the first sample (the default of ``filter.run``), and
    ``u[:, t]`` is the control between samples ``t - 1`` and ``t``. Missing measurements are NaN and False in ``mask``.
    """

    truth: Float[Tensor, "N T n"]
    y: Float[Tensor, "N T m"]
    clean: Float[Tensor, "N T m"]
    """The measurements without noise."""
    mask: Bool[Tensor, "N T m"]
    dt: Float[Tensor, "N T"]
    u: Float[Tensor, "N T p"] | None
    prior: Gaussian
    """Mean and covariance of the generator's initial states, ``[n]`` and ``[n, n]``."""
    start: Gaussian
    """The initial belief of a filter if the initial state is unknown (protocol ``strict``).

    It is the prior except for an unknown angle, whose mean is the angle of the first measurement and whose variance is
    that of a uniform distribution on the circle. On a circle every centre is equivalent, and a filter that linearises
    needs one near the truth.
    """
    system: System
    """The system with its true parameters, in the dtype of the data."""

    def given(self) -> Gaussian:
        """The true initial states with zero covariance: what a filter starts from in protocol ``paper``."""
        first = self.truth[:, 0]
        d = self.system.layout.tangent_size
        return Gaussian(first.clone(), first.new_zeros(len(first), d, d))

    def inputs(self) -> dict[str, Any]:
        """The keyword arguments of ``filter.run`` except the prior."""
        return {"y": self.y, "u": self.u, "mask": self.mask, "dt": self.dt}

    def take(self, index: Any) -> Simulated:
        """A selection of the trajectories, by a slice, a mask or a list of indices."""
        changed: dict[str, Any] = {
            name: None if getattr(self, name) is None else getattr(self, name)[index]
            for name in ("truth", "y", "clean", "mask", "dt", "u")
        }
        if self.start.mean.ndim == 2:
            changed["start"] = self.start._replace(mean=self.start.mean[index])
        return dataclasses.replace(self, **changed)

    def __len__(self) -> int:
        return len(self.truth)


class Motion(NamedTuple):
    """The result of a generator: truth, noise-free measurements, controls, and the initial distribution."""

    truth: Array
    clean: Array
    u: Array | None
    mean: Array
    variance: Array


def generate(
    system: str | Config,
    trajectories: int,
    steps: int = 100,
    scenario: str | Scenario = "white",
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    **options: Any,
) -> Simulated:
    """Simulate a system by name (with options of its config) or config; ``scenario`` by name or composed.

    There are ``constant_velocity``, ``lorenz`` and ``pendulum``. A named scenario has the total variance of the
    system's measurements; :class:`~fwnkf.systems.noise.Scenario` composes others, with missing samples if wanted.
    Lorenz follows its equations to 1e-6, so its ``process`` is for filters and is not simulated; the pendulum moves by
    its Euler step with process noise, constant velocity by the exact discretisation of white acceleration.

    >>> data = generate("pendulum", trajectories=3, steps=5, scenario="drift", seed=1)
    >>> data.truth.shape, data.y.shape, data.u.shape
    (torch.Size([3, 5, 2]), torch.Size([3, 5, 2]), torch.Size([3, 5, 1]))
    >>> gaps = noise.Scenario((noise.White(0.1),), (noise.Dropout(0.2, burst=3.0),))
    >>> generate("constant_velocity", 100, scenario=gaps, dims=1, dt=0.1).mask.double().mean().round(decimals=1)
    tensor(0.8000, dtype=torch.float64)
    """
    config = _parse(system, options)
    if trajectories < 1 or steps < 1:
        raise ConfigError(f"{trajectories} trajectories of {steps} steps: there must be at least one of each")
    moving, measuring = _streams(seed)
    motion = _SIMULATORS[type(config)](config, trajectories, steps, moving)
    if isinstance(scenario, str):
        scenario = noise.scenario(scenario, config.variance)
    y, mask = scenario.apply(motion.clean, measuring)
    dt = np.full(steps, config.dt)
    dt[0] = 0.0
    start = _aim(y[:, 0], motion.mean) if isinstance(config, PendulumConfig) else motion.mean

    def tensor(array: Array) -> Tensor:
        return torch.from_numpy(array).to(dtype)

    cov = tensor(np.diag(motion.variance))
    return Simulated(
        truth=tensor(motion.truth),
        y=tensor(y),
        clean=tensor(motion.clean),
        mask=torch.from_numpy(mask),
        dt=tensor(dt).expand(trajectories, steps),
        u=None if motion.u is None else tensor(motion.u),
        prior=Gaussian(tensor(motion.mean), cov),
        start=Gaussian(tensor(start), cov.clone()),
        system=_SYSTEMS[type(config)](config).to(dtype),
    )


def tone_frequencies(trajectories: int, seed: int) -> Float[Tensor, " N"]:
    """The true frequency (fraction of Nyquist) of each trajectory made by ``generate(…, scenario="tone", seed=seed)``.

    For oracles, which know the noise; no other filter may see it.
    """
    _, measuring = _streams(seed)
    (tone,) = (part for part in noise.scenario("tone", 1.0).parts if isinstance(part, noise.Tone))
    return torch.from_numpy(tone.frequency(trajectories, measuring))


def _streams(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """One stream for the motion, one for the measurements."""
    moving, measuring = (np.random.Generator(np.random.PCG64(s)) for s in np.random.SeedSequence(seed).spawn(2))
    return moving, measuring


def _parse(system: str | Config, options: dict[str, Any]) -> Config:
    kind = SYSTEMS[system].Config if isinstance(system, str) else type(system)
    if kind not in _SIMULATORS:
        names = sorted(SYSTEMS.name_of(known) or "" for known in _SYSTEMS.values())
        raise ConfigError(f"no generator for {system!r}; there are: {', '.join(names)}")
    if isinstance(system, str):
        return parse_config(kind, options, f"system {system}")
    return dataclasses.replace(system, **options)


# ---- motion ---------------------------------------------------------------------------------------------------------


def _constant_velocity(
    config: ConstantVelocityConfig, trajectories: int, steps: int, generator: np.random.Generator
) -> Motion:
    """White acceleration, integrated exactly: position and velocity of one step have correlated noise."""
    truth = np.empty((trajectories, steps, 2 * config.dims))
    truth[:, 0] = VELOCITY_SPREAD * generator.standard_normal((trajectories, 2 * config.dims))
    scale, dt = np.sqrt(config.density * config.dt), config.dt
    for t in range(1, steps):
        drawn = scale * generator.standard_normal((2, trajectories, config.dims))
        position, velocity = np.split(truth[:, t - 1], 2, axis=-1)
        # Q = density [dt³/3, dt²/2; dt²/2, dt] has the factor √(density dt) [dt/2, dt/√12; 1, 0]
        noise_of_position = dt * (drawn[0] / 2 + drawn[1] / np.sqrt(12))
        truth[:, t] = np.concatenate((position + dt * velocity + noise_of_position, velocity + drawn[0]), -1)
    clean = np.ascontiguousarray(truth[..., : config.dims])
    return Motion(truth, clean, None, np.zeros(2 * config.dims), np.full(2 * config.dims, VELOCITY_SPREAD**2))


def _lorenz(config: LorenzConfig, trajectories: int, steps: int, generator: np.random.Generator) -> Motion:
    initial = LORENZ_SPREAD * generator.standard_normal((trajectories, 3))
    truth = np.empty((trajectories, steps, 3))
    truth[:, 0] = initial
    state = np.ascontiguousarray(initial.T)
    h = config.dt / LORENZ_SUBSTEPS
    for t in range(1, steps):
        for _ in range(LORENZ_SUBSTEPS):
            state = _runge_kutta(lambda x: _lorenz_rate(config, x), state, h)
        truth[:, t] = state.T
    clean = np.ascontiguousarray(truth[..., : 2 if config.observed == "partial" else 3])
    return Motion(truth, clean, None, np.zeros(3), np.full(3, LORENZ_SPREAD**2))


def _lorenz_rate(config: LorenzConfig, state: Array) -> Array:
    x, y, z = state
    rate = np.empty_like(state)
    rate[0] = config.sigma * (y - x)
    rate[1] = x * (config.rho - z) - y
    rate[2] = x * y - config.beta * z
    return rate


def _runge_kutta(rate: Callable[[Array], Array], state: Array, h: float) -> Array:
    k1 = rate(state)
    k2 = rate(state + 0.5 * h * k1)
    k3 = rate(state + 0.5 * h * k2)
    k4 = rate(state + h * k3)
    return state + h / 6 * (k1 + 2 * (k2 + k3) + k4)


def _pendulum(config: PendulumConfig, trajectories: int, steps: int, generator: np.random.Generator) -> Motion:
    """Forward Euler, then process noise, then wrapping, in the order of the paper."""
    truth, clean, u = (np.empty((trajectories, steps, size)) for size in (2, 2, 1))
    # time first while it runs, so that every step reads and writes in one piece; the same memory for every chunk
    width = min(CHUNK, trajectories)
    path, tip, push = (np.empty((steps, size, width)) for size in (2, 2, 1))
    scale = np.array([config.length, -config.length])
    for begin in range(0, trajectories, CHUNK):
        rows, size = slice(begin, begin + CHUNK), min(CHUNK, trajectories - begin)
        _swing(config, path[..., :size], tip[..., :size], push[:, 0, :size], generator)
        truth[rows], u[rows] = path[..., :size].transpose(2, 0, 1), push[..., :size].transpose(2, 0, 1)
        np.multiply(tip[..., :size].transpose(2, 0, 1), scale, out=clean[rows])
    return Motion(truth, clean, u, np.zeros(2), np.array([np.pi**2 / 3, PENDULUM_SPEED**2 / 3]))


def _swing(config: PendulumConfig, path: Array, tip: Array, push: Array, generator: np.random.Generator) -> None:
    """Fill the states, sine and cosine of the angle, both ``[T, 2, size]``, and the controls ``[T, size]``."""
    size = path.shape[-1]
    drive, spare = np.empty((3, size)), np.empty(size)
    swing, drag, dt, std = config.gravity / config.length, config.damping / config.mass, config.dt, config.process**0.5
    path[0, 0] = generator.uniform(-np.pi, np.pi, size)
    path[0, 1] = generator.uniform(-PENDULUM_SPEED, PENDULUM_SPEED, size)
    push[0] = 0.0
    for t, (theta, omega) in enumerate(path):
        if t:
            generator.standard_normal(out=drive)
            np.multiply(drive[2], PENDULUM_CONTROL, out=push[t])
            angle, rate = path[t - 1]
            # in place, step by step: θ + dt ω + noise, wrapped
            np.multiply(drive[:2], std, out=path[t])
            theta += angle
            theta += np.multiply(rate, dt, out=spare)
            np.multiply(theta, 1 / (2 * np.pi), out=spare)
            theta -= np.multiply(np.rint(spare, out=spare), 2 * np.pi, out=spare)
            # ω + dt (u/m - (g/L) sin θ - (b/m) ω) + noise
            omega += np.multiply(rate, 1 - dt * drag, out=spare)
            omega -= np.multiply(tip[t - 1, 0], dt * swing, out=spare)
            omega += np.multiply(push[t], dt / config.mass, out=spare)
        np.sin(theta, out=tip[t, 0])
        np.cos(theta, out=tip[t, 1])


def _aim(first: Array, mean: Array) -> Array:
    """The prior mean with its angle where the tip was first seen, if it was: ``[N, 2]``."""
    start = np.tile(mean, (len(first), 1))
    seen = np.isfinite(first).all(-1)
    start[seen, 0] = np.arctan2(first[seen, 0], -first[seen, 1])
    return start


_SIMULATORS: dict[type, Callable[..., Motion]] = {
    ConstantVelocityConfig: _constant_velocity,
    LorenzConfig: _lorenz,
    PendulumConfig: _pendulum,
}
_SYSTEMS: dict[type, type[System]] = {
    ConstantVelocityConfig: ConstantVelocity,
    LorenzConfig: Lorenz,
    PendulumConfig: Pendulum,
}
