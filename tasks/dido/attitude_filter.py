"""The attitude filter of a drone: constants from the training flights, and training by the innovations' likelihood."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fwnkf import FWNKF, Filter, Lines, build, fit
from fwnkf.core import rotation
from fwnkf.core.trajectory import Trajectory
from fwnkf.filters.parts.lines import LineStates
from fwnkf.identify import calibration
from fwnkf.preprocess.pooled_imu import PooledIMU, PooledIMUConfig
from fwnkf.shapes import Float
from fwnkf.systems.multirotor import Multirotor, MultirotorConfig
from fwnkf.types import Gaussian, StepOutput
from tasks.dido.protocol import RATE, Flight

POOL = 16
"""Samples averaged into one step: 25 Hz, on the training flights as accurate as 50."""
START_STD = (0.1,) * 3 + (0.01,) * 3 + (2e-4,) * 3 + (0.03,) * 2
"""Of the belief before a training window: velocity, attitude, gyro bias, force offset."""
BLIND_STD = (0.3, 0.05, 2e-3, 0.3)
"""The same at the start of a flight of which nothing is known but the mean force."""
OSCILLATORS = ((0.04, 2.5), (0.96, 0.8), (0.5, 0.8))
"""Where the noise states start, slow and fast: radians a step, pole radius, amplitude over the white noise."""
WINDOW, WARM, ITERATIONS, LEARNING_RATE, JITTER = 75, 10, 16, 0.1, 0.05
"""Training: steps of a window and of its start that do not count, optimizer steps, their size, spread of the start."""
EDGE = 100
"""Samples at both ends of a flight where the smoothed truth is extrapolated."""


@dataclass(frozen=True)
class DroneConstants:
    """Constants of the drone from its training flights."""

    bias: tuple[float, ...]
    """Mean difference of gyroscope and accelerometer from motion capture."""
    drag: float
    """1/s, across the rotors' axis."""
    offset: tuple[float, ...]
    """Force across the axis at zero velocity: the rotors' axis is not exactly the IMU's z axis."""


def body_velocity(flight: Flight) -> Float[Tensor, "T 3"]:
    return (rotation.to_matrix(flight.orientation).mT @ flight.velocity.unsqueeze(-1)).squeeze(-1)


def fit_constants(train: Sequence[Flight]) -> DroneConstants:
    """Biases by the mean difference, drag and offset by regression of the force on the body velocity."""
    inside = slice(EDGE, -EDGE)
    bias = calibration.fit([one.imu[inside] for one in train], [one.clean[inside] for one in train]).bias
    slopes, levels = [], []
    for flight in train:
        velocity, force = body_velocity(flight)[:, :2], (flight.imu - bias)[:, 3:5]
        centred = velocity - velocity.mean(0)
        slope = -(centred * force).sum(0) / centred.square().sum(0)
        slopes.append(slope)
        levels.append(force.mean(0) + slope * velocity.mean(0))
    return DroneConstants(
        tuple(bias.tolist()), float(torch.stack(slopes).mean()), tuple(torch.stack(levels).mean(0).tolist())
    )


def new_filter(
    constants: DroneConstants, *, noise_states: bool = True, start_std: tuple[float, ...] = START_STD[::3]
) -> Filter:
    """The untrained filter without preprocessing: rotor drag as the system, two oscillators of noise per channel.

    Without noise states it is the extended Kalman filter of the same system.
    """
    config = MultirotorConfig(
        drag=constants.drag, deviation=0.12, dt=POOL / RATE, initial_offset=constants.offset, initial_std=start_std
    )
    system = Multirotor(config).double()
    if not noise_states:
        return build("ekf", system=system)
    model = FWNKF(system, noise=Lines(2, shared=True))
    states = model.noise_states
    assert isinstance(states, LineStates)
    states.set_oscillators(*(torch.tensor([values], dtype=torch.float64) for values in OSCILLATORS))
    return model


def on_raw_samples(model: Filter, constants: DroneConstants) -> Filter:
    """Give a filter its preprocessing: bias off, mean over a block, force across the axis as observation."""
    config = PooledIMUConfig(block=POOL, observed=(3, 4), control=tuple(range(6)))
    bias = torch.tensor(constants.bias, dtype=torch.float64)
    model.preprocess = PooledIMU(config, model.system, bias=bias, matrix=torch.eye(6, dtype=torch.float64))
    return model


def train_filter(
    train: Sequence[Flight],
    constants: DroneConstants,
    seed: int,
    say: Callable[[str], Any],
    *,
    noise_states: bool = True,
) -> Filter:
    """Drag and the spectrum of the noise by the likelihood of the innovations, over windows started from the truth.

    Windows of three seconds tell nothing of how fast attitude and biases drift, so those densities stay as given.
    """
    model = new_filter(constants, noise_states=noise_states)
    system = model.system
    assert isinstance(system, Multirotor)
    learned = [system.drag, system.log_deviation]
    if noise_states:
        learned += list(model.get_submodule("noise_states").parameters())
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in learned:
            parameter.mul_(1 + JITTER * torch.randn(parameter.shape, generator=generator).to(parameter))
    y, u, start = _windows(train, constants)
    optimizer = torch.optim.Adam(learned, lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=ITERATIONS, pct_start=0.2)
    for iteration in range(ITERATIONS):
        track = model.run(y, u=u, prior=start, prior_at="before_first_step").raise_for_status()
        loss = -track.step_log_likelihood[:, WARM:].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if iteration in (0, ITERATIONS - 1):
            say(f"dido-attitude, {model.name} seed {seed}, step {iteration}: {loss.item():.4f}")
    return on_raw_samples(model, constants)


def fit_filter_without_truth(train: Sequence[Flight], say: Callable[[str], Any]) -> Filter:
    """The same filter from the sensors alone: no motion capture for biases, drag or the start of windows.

    The gyroscope's bias is its mean, because a flight ends about as it began; the rest starts from usual values.
    """
    steps = min(len(flight) for flight in train) // POOL
    imu = torch.stack([flight.imu[: steps * POOL] for flight in train])
    bias = torch.cat((imu[..., :3].mean((0, 1)), torch.zeros(3, dtype=torch.float64)))
    constants = DroneConstants(tuple(bias.tolist()), MultirotorConfig().drag, (0.0, 0.0))
    u = (imu - bias).unflatten(1, (steps, POOL)).mean(2)
    model = new_filter(constants, start_std=BLIND_STD)
    learned = ("sensors.force.drag", "sensors.force.log_deviation", "oscillators")
    result = fit(model, u[..., 3:5], u, learn=learned, held_out=0.0, iterations=12, progress=say)
    for line in result.report.lines():
        say(line)
    return on_raw_samples(result.filter, constants)


def _windows(train: Sequence[Flight], constants: DroneConstants) -> tuple[Tensor, Tensor, Gaussian]:
    """Windows that do not overlap, and the true velocity and attitude before each."""
    bias = torch.tensor(constants.bias, dtype=torch.float64)
    offset = torch.tensor(constants.offset, dtype=torch.float64)
    parts, starts = [], []
    for flight in train:
        steps = len(flight) // POOL
        u = (flight.imu - bias)[: steps * POOL].unflatten(0, (steps, POOL)).mean(1)
        velocity = body_velocity(flight)
        for first in range(1, steps - WINDOW, WINDOW):
            parts.append(u[first : first + WINDOW])
            before = first * POOL - 1
            still = torch.zeros(3, dtype=torch.float64)
            starts.append(torch.cat((velocity[before], flight.orientation[before], still, offset)))
    u = torch.stack(parts)
    cov = torch.diag_embed(torch.tensor(START_STD, dtype=torch.float64).square())
    return u[..., 3:5], u, Gaussian(torch.stack(starts), cov)


@torch.no_grad()
def run(model: Filter, group: Sequence[Flight]) -> list[Trajectory]:
    """A filter over the raw samples of several flights side by side; one trajectory for each."""
    length = max(len(flight) for flight in group)
    imu = torch.zeros(len(group), length, 6, dtype=torch.float64)
    present = torch.zeros(len(group), length, 6, dtype=torch.bool)
    for i, flight in enumerate(group):
        imu[i, : len(flight)] = flight.imu
        present[i, : len(flight) // POOL * POOL] = True
    track = model.run(imu, mask=present).raise_for_status()
    return [
        Trajectory(**{name: getattr(track, name)[i, : len(flight) // POOL] for name in StepOutput._fields}, state=None)
        for i, flight in enumerate(group)
    ]
