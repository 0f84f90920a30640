"""The vertical from a drone's gyroscope and accelerometer: the usual attitude filters, and one that knows rotor drag.

All methods get the same input: the IMU less the constant difference from motion capture on the training flights
(:mod:`fwnkf.data.dido_tasks`), a start from the tilt of the first second, and the training flights to tune a gain on.
The figure is the inclination RMSE of a flight from its second second to its end, in degrees, averaged over flights.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tasks.broad.orientation import error_quaternion, inclination_error, integrate, tilt
from tasks.dido.protocol import GRAVITY, RATE, Flight
from torch import Tensor

from fwnkf.core import rotation
from fwnkf.core.gaussian import log_prob
from fwnkf.core.layout import Layout
from fwnkf.core.system import System
from fwnkf.errors import ConfigError
from fwnkf.filters.base import Filter, build
from fwnkf.filters.shaping import NoiseStates
from fwnkf.shapes import Float
from fwnkf.systems.multirotor import Multirotor, MultirotorConfig
from fwnkf.types import Gaussian, Trajectory

POOL = 16
"""Samples averaged into one step of the Kalman filters: 25 Hz, on the training flights as accurate as 50."""
CYCLES = ((0.04, 2.5), (0.96, 0.8), (0.5, 0.8))
"""Where the noise states start: radians a step, pole radius, amplitude over the white one; slow and fast."""
WINDOW, WARM, ITERATIONS, LEARNING_RATE, JITTER = 75, 10, 16, 0.1, 0.05
"""Training: steps of a window and of its start that do not count, optimizer steps, their size, spread of the start."""
SKIP = int(RATE)
"""Samples of the start, in which every method finds its tilt."""
START = (0.1,) * 3 + (0.01,) * 3 + (2e-4,) * 3 + (0.03,) * 2
"""Standard deviations of the first belief: velocity, attitude, gyro bias, force offset."""
GAINS: dict[str, tuple[float, ...]] = {
    "madgwick": (1e-4, 1e-3, 3e-3, 1e-2),
    "mahony": (1e-3, 1e-2, 3e-2, 0.1),
    "vqf": (3.0, 30.0, 100.0, 300.0),
    "ekf_gravity": (3.0, 10.0, 30.0, 100.0),
}
"""What each rung is tuned over: Madgwick's β, Mahony's proportional gain, VQF's time constant (s), the EKF's
standard deviation of the accelerometer (m/s²)."""


@dataclass(frozen=True)
class Calibration:
    """Constants of the drone from its training flights."""

    imu: tuple[float, ...]
    """Mean difference from motion capture: gyroscope, accelerometer."""
    drag: float
    offset: tuple[float, ...]
    """Force across the rotors' axis while the drone stands in the air: the axis is not the IMU's z."""


def calibrate(train: Sequence[Flight]) -> Calibration:
    """Biases by the mean, drag and offset by least squares of the force on the velocity in the body frame."""
    bias = torch.stack([(one.imu - one.clean)[100:-100].mean(0) for one in train]).mean(0)
    drags, offsets = [], []
    for one in train:
        v = (rotation.to_matrix(one.orientation).mT @ one.velocity.unsqueeze(-1)).squeeze(-1)
        for axis in (0, 1):
            known = torch.stack((-v[:, axis], torch.ones(len(v), dtype=v.dtype)), -1)
            slope, level = torch.linalg.lstsq(known, (one.imu - bias)[:, 3 + axis, None]).solution[:, 0].tolist()
            drags.append(slope)
            offsets.append(level)
    each = [float(np.mean(offsets[axis::2])) for axis in (0, 1)]
    return Calibration(tuple(bias.tolist()), float(np.mean(drags)), tuple(each))


def inclination(one: Flight, estimate: Float[Tensor, "T 4"]) -> float:
    """RMSE in degrees after the start; an estimate at every ``k``-th sample is scored there."""
    every = round(len(one) / len(estimate))
    truth = one.orientation[every - 1 :: every][: len(estimate)]
    error = inclination_error(error_quaternion(estimate, truth))[SKIP // every :]
    return math.degrees(float(error.square().mean().sqrt()))


# ---- the usual filters ----------------------------------------------------------------------------------------------


def start_of(imu: Tensor) -> Float[Tensor, " 4"]:
    """The tilt of the first second."""
    return tilt(imu[:SKIP, 3:].mean(0))


def strapdown(one: Flight, imu: Tensor, gain: float) -> Tensor:
    """The gyroscope integrated."""
    return integrate(start_of(imu), imu[:, :3], 1 / RATE)


def strapdown_given(one: Flight, imu: Tensor, gain: float) -> Tensor:
    """The gyroscope integrated from the true attitude, which no other method is given."""
    return integrate(one.orientation[0], imu[:, :3], 1 / RATE)


def vqf(one: Flight, imu: Tensor, gain: float) -> Tensor:
    """VQF with its accelerometer time constant tuned (3 s by default)."""
    gyro, accel = (np.ascontiguousarray(part.numpy()) for part in (imu[:, :3], imu[:, 3:]))
    made = _rival("vqf").VQF(1 / RATE, tauAcc=gain)
    return torch.from_numpy(made.updateBatch(gyro, accel)["quat6D"])


def madgwick(one: Flight, imu: Tensor, gain: float) -> Tensor:
    made = _rival("ahrs").filters.Madgwick(frequency=RATE, gain=gain)
    return _stepped(made, imu)


def mahony(one: Flight, imu: Tensor, gain: float) -> Tensor:
    """Mahony's filter; the integral gain in the ratio of the authors of BROAD."""
    made = _rival("ahrs").filters.Mahony(frequency=RATE, k_P=gain, k_I=gain * 0.0016)
    return _stepped(made, imu)


def _stepped(made: Any, imu: Tensor) -> Tensor:
    gyro, accel = imu[:, :3].numpy(), imu[:, 3:].numpy()
    q = start_of(imu).numpy()
    path = [q]
    for t in range(1, len(gyro)):
        q = made.updateIMU(q, gyro[t], accel[t])
        path.append(q)
    return torch.from_numpy(np.stack(path))


def _rival(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        raise ConfigError(f"{name} is not installed: pip install 'fwnkf[rivals]'") from missing


class Gravity(System):
    """Orientation and gyro bias; the accelerometer is taken for gravity with a variance: the textbook's EKF."""

    control_dim = 3
    diagonal_noise = True

    def __init__(self, deviation: float) -> None:
        super().__init__(None)
        self.dt, self.layout = POOL / RATE, Layout.parse([("orientation", "quaternion", 4), ("bias", "euclidean", 3)])
        self.observation_layout = Layout.euclidean(3, "force")
        self.register_buffer("variance", torch.full((3,), deviation**2, dtype=torch.float64))

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        assert u is not None
        turn = (u - x[..., 4:]) * self.dt
        return self.layout.boxplus(x, torch.cat((turn, torch.zeros_like(turn)), -1))

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        assert u is not None
        turn = (u - x[..., 4:]) * self.dt
        eye = torch.eye(3).to(x).expand(len(x), 3, 3)
        above = torch.cat((rotation.to_matrix(rotation.exp(-turn)), -self.dt * rotation.right_jacobian(turn)), -1)
        return self.transition(x, u, dt), torch.cat((above, torch.cat((torch.zeros_like(eye), eye), -1)), -2)

    def observe(self, x: Tensor) -> Tensor:
        return GRAVITY * rotation.to_matrix(x[..., :4])[..., 2, :]

    def linearize_observation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        seen = self.observe(x)
        return seen, torch.cat((rotation.skew(seen), torch.zeros_like(rotation.skew(seen))), -1)

    def process_noise(self, dt: Tensor | None) -> Tensor:
        sizes = torch.tensor([1e-3**2] * 3 + [1e-5**2] * 3, dtype=torch.float64)
        return torch.diag_embed(sizes * self.dt)

    def measurement_covariance(self) -> Tensor:
        return torch.diag_embed(self.get_buffer("variance"))


def ekf_gravity(group: Sequence[Flight], imus: Sequence[Tensor], gain: float) -> list[Tensor]:
    """The textbook's EKF over several flights at once."""
    u, mask = pooled(imus)
    model = build("ekf", system=Gravity(gain))
    first = torch.cat((torch.stack([start_of(imu) for imu in imus]), torch.zeros(len(imus), 3).double()), -1)
    cov = torch.diag_embed(torch.tensor(START[3:9], dtype=torch.float64).square())
    with torch.no_grad():
        track = model.run(u[..., 3:], u=u[..., :3], mask=mask.expand(-1, -1, 3), prior=Gaussian(first, cov))
    return [track.mean[i, : len(imu) // POOL, :4] for i, imu in enumerate(imus)]


SINGLE: dict[str, Callable[[Flight, Tensor, float], Tensor]] = {
    "strapdown": strapdown,
    "strapdown_given_start": strapdown_given,
    "vqf_default": vqf,
    "vqf": vqf,
    "madgwick": madgwick,
    "mahony": mahony,
}
RUNGS = ("strapdown_uncalibrated", *SINGLE, "ekf_gravity")


def rung(name: str, group: Sequence[Flight], known: Calibration, gain: float) -> list[float]:
    """Inclination errors of a rung on every flight."""
    bias = torch.tensor(known.imu, dtype=torch.float64)
    raw = name == "strapdown_uncalibrated"
    imus = [one.imu if raw else one.imu - bias for one in group]
    if name == "ekf_gravity":
        found = ekf_gravity(group, imus, gain)
    else:
        method = SINGLE["strapdown" if raw else name]
        found = [method(one, imu, gain) for one, imu in zip(group, imus, strict=True)]
    return [inclination(one, q) for one, q in zip(group, found, strict=True)]


def tune(train: Sequence[Flight], known: Calibration) -> dict[str, float]:
    """The best gain of every rung that has one, on the training flights."""
    found = dict.fromkeys(RUNGS, 0.0) | {"vqf_default": 3.0}
    for name, gains in GAINS.items():
        errors = [sum(rung(name, train, known, gain)) for gain in gains]
        found[name] = gains[errors.index(min(errors))]
    return found


# ---- ours -----------------------------------------------------------------------------------------------------------


def pooled(imus: Sequence[Tensor]) -> tuple[Float[Tensor, "N T 6"], Tensor]:
    """Means over :data:`POOL` samples, flights padded to one length, and where there is something."""
    steps = [len(imu) // POOL for imu in imus]
    u = torch.zeros(len(imus), max(steps), 6, dtype=torch.float64)
    for i, (imu, n) in enumerate(zip(imus, steps, strict=True)):
        u[i, :n] = imu[: n * POOL].unflatten(0, (n, POOL)).mean(1)
    return u, torch.arange(max(steps)).unsqueeze(-1) < torch.tensor(steps)[:, None, None]


def new_filter(known: Calibration) -> Filter:
    """The untrained filter: rotor drag as the system, two cycles of noise, slow (what drag leaves out) and fast."""
    system = Multirotor(MultirotorConfig(drag=known.drag, deviation=0.12, dt=POOL / RATE)).double()
    model = build("fwnkf", system=system, shaping="noise", hidden=0, sections=2, residual_width=1, pole_radius=0.9999)
    states = model.get_submodule("noise_states")
    assert isinstance(states, NoiseStates)
    states.set_oscillators(*(torch.tensor([v], dtype=torch.float64) for v in CYCLES))
    return model


def train_filter(train: Sequence[Flight], known: Calibration, seed: int, say: Callable[[str], None]) -> Filter:
    """Drag and the spectrum of the noise by the likelihood of the innovations, over windows started from the truth.

    Windows of three seconds say nothing of how fast attitude and biases drift, so those densities stay as given.
    """
    model = new_filter(known)
    system, states = model.get_submodule("system"), model.get_submodule("noise_states")
    assert isinstance(system, Multirotor)
    learned = [system.drag, system.log_deviation, *states.parameters()]
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for one in learned:
            one.mul_(1 + JITTER * torch.randn(one.shape, generator=generator).to(one))
    y, u, start = _windows(train, known)
    optimizer = torch.optim.Adam(learned, lr=LEARNING_RATE)
    course = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=ITERATIONS, pct_start=0.2)
    for number in range(ITERATIONS):
        track = model.run(y, u=u, prior=start).raise_for_status()
        value = -log_prob(track.innovation, track.innovation_cov)[0][:, WARM:].mean()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        course.step()
        if number in (0, ITERATIONS - 1):
            say(f"attitude seed {seed}, step {number}: {value.item():.4f}")
    return model


def _windows(train: Sequence[Flight], known: Calibration) -> tuple[Tensor, Tensor, Gaussian]:
    """Windows that do not overlap, and the true velocity and attitude before each."""
    bias = torch.tensor(known.imu, dtype=torch.float64)
    sensed, starts = [], []
    for one in train:
        u, _ = pooled([one.imu - bias])
        v = (rotation.to_matrix(one.orientation).mT @ one.velocity.unsqueeze(-1)).squeeze(-1)
        for first in range(1, u.shape[1] - WINDOW, WINDOW):
            sensed.append(u[0, first : first + WINDOW])
            at = first * POOL - 1
            starts.append(
                torch.cat((v[at], one.orientation[at], torch.zeros(3).to(v), torch.tensor(known.offset).to(v)))
            )
    u = torch.stack(sensed)
    cov = torch.diag_embed(torch.tensor(START, dtype=torch.float64).square())
    return u[..., 3:5], u, Gaussian(torch.stack(starts), cov)


def prior(imus: Sequence[Tensor], known: Calibration) -> Gaussian:
    """At rest, tilted as the first second says; biases are taken off already."""
    n = len(imus)
    parts = (torch.zeros(n, 3), torch.stack([start_of(imu) for imu in imus]), torch.zeros(n, 3))
    mean = torch.cat([*(part.double() for part in parts), torch.tensor(known.offset).double().expand(n, 2)], -1)
    return Gaussian(mean, torch.diag_embed(torch.tensor(START, dtype=torch.float64).square()))


def run(model: Filter, group: Sequence[Flight], known: Calibration, **options: Any) -> tuple[Trajectory, Tensor]:
    """The filter over flights, and where they have samples."""
    bias = torch.tensor(known.imu, dtype=torch.float64)
    imus = [one.imu - bias for one in group]
    u, mask = pooled(imus)
    with torch.no_grad():
        track = model.run(
            u[..., 3:5], u=u, mask=mask.expand(-1, -1, 2), prior=prior(imus, known), **options
        ).raise_for_status()
    return track, mask[..., 0]


def scores(model: Filter, group: Sequence[Flight], known: Calibration) -> tuple[list[float], float]:
    """Inclination errors of every flight, and NIS per channel over all."""
    track, present = run(model, group, known)
    errors = [inclination(one, track.mean[i, : len(one) // POOL, 3:7]) for i, one in enumerate(group)]
    S = torch.diagonal(track.innovation_cov, dim1=-2, dim2=-1)
    r, cross = track.innovation, track.innovation_cov[..., 0, 1]
    # of two channels the whole square is written out
    square = (r[..., 0] ** 2 * S[..., 1] + r[..., 1] ** 2 * S[..., 0] - 2 * cross * r[..., 0] * r[..., 1]) / (
        S.prod(-1) - cross**2
    )
    return errors, float(square[present].mean()) / 2
