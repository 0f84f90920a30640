"""Baselines of the attitude task: integration, published orientation filters, and EKFs with and without rotor drag.

All get the IMU less the constant bias of the training flights (but ``strapdown_uncalibrated``), start from the tilt of
the first second (but ``strapdown_given_start``, an oracle), and have their gain tuned on the training flights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fwnkf import Filter, build
from fwnkf.core import rotation
from fwnkf.metrics.orientation import error_quaternion, inclination_error, rms_degrees
from fwnkf.shapes import Float
from fwnkf.systems.multirotor import Multirotor
from fwnkf.types import Gaussian
from tasks import orientation_filters
from tasks.dido.attitude_filter import POOL, START_STD, DroneConstants, new_filter, on_raw_samples
from tasks.dido.protocol import RATE, Flight

SKIP = int(RATE)
"""Samples of the first second, in which every method finds its tilt; they are not scored."""
ORACLE = "strapdown_given_start"
GAINS: dict[str, tuple[float, ...]] = {
    "vqf": (3.0, 30.0, 100.0, 300.0),
    "madgwick": (1e-4, 1e-3, 3e-3, 1e-2),
    "mahony": (1e-3, 1e-2, 3e-2, 0.1),
    "ekf_gravity": (3.0, 10.0, 30.0, 100.0),
}
"""What each is tuned over: VQF's time constant of the accelerometer (s), Madgwick's β, Mahony's proportional gain, the
EKF's standard deviation of the force from gravity (m/s²)."""
INTEGRAL_RATIO = 0.0016
"""Mahony's integral gain over its proportional one, as the authors of BROAD have it."""
STANDARD = ("strapdown_uncalibrated", "strapdown", ORACLE, "vqf_default", "vqf", "madgwick", "mahony", "ekf_gravity")
"""Methods without a model of the drone, against which the target is set."""
PLAIN_EKF, UNTRAINED = "ekf_rotor_drag", "untrained"
"""The same system without noise states, trained alike; and the filter before training."""


def inclination(flight: Flight, estimate: Float[Tensor, "T 4"]) -> float:
    """RMSE in degrees after the first second; an estimate at every ``k``-th sample is scored there."""
    every = round(len(flight) / len(estimate))
    truth = flight.orientation[every - 1 :: every][: len(estimate)]
    return rms_degrees(inclination_error(error_quaternion(estimate, truth))[SKIP // every :])


def start_of(imu: Float[Tensor, "T 6"]) -> Float[Tensor, " 4"]:
    """The tilt of the first second."""
    return rotation.tilt(imu[:SKIP, 3:].mean(0))


# ---- one flight at a time -------------------------------------------------------------------------------------------


def strapdown(flight: Flight, imu: Tensor, gain: float) -> Tensor:
    """The gyroscope integrated."""
    return rotation.integrate(start_of(imu), imu[:, :3], 1 / RATE)


def strapdown_given_start(flight: Flight, imu: Tensor, gain: float) -> Tensor:
    """The gyroscope integrated from the true attitude, which no other method is given."""
    return rotation.integrate(flight.orientation[0], imu[:, :3], 1 / RATE)


def vqf(flight: Flight, imu: Tensor, gain: float) -> Tensor:
    return orientation_filters.vqf(imu[:, :3], imu[:, 3:], rate=RATE, tauAcc=gain)


def madgwick(flight: Flight, imu: Tensor, gain: float) -> Tensor:
    return orientation_filters.madgwick(imu[:, :3], imu[:, 3:], rate=RATE, gain=gain, start=start_of(imu))


def mahony(flight: Flight, imu: Tensor, gain: float) -> Tensor:
    gains = (gain, gain * INTEGRAL_RATIO)
    return orientation_filters.mahony(imu[:, :3], imu[:, 3:], rate=RATE, gains=gains, start=start_of(imu))


@torch.no_grad()
def ekf_gravity(flight: Flight, imu: Tensor, gain: float) -> Tensor:
    """The textbook's EKF on the same means over blocks of samples as ours."""
    steps = len(imu) // POOL
    u = imu[: steps * POOL].unflatten(0, (steps, POOL)).mean(1).unsqueeze(0)
    model = build("ekf", system=orientation_filters.gravity_attitude(gain, POOL / RATE))
    mean = torch.cat((start_of(imu), torch.zeros(3, dtype=imu.dtype)))
    cov = torch.diag_embed(torch.tensor(START_STD[3:9], dtype=imu.dtype).square())
    start = Gaussian(mean, cov)
    track = model.run(u[..., 3:], u=u[..., :3], prior=start, prior_at="before_first_step")
    return track.raise_for_status().mean[0, :, :4]


METHODS: dict[str, Callable[[Flight, Tensor, float], Tensor]] = {
    "strapdown_uncalibrated": strapdown,
    "strapdown": strapdown,
    ORACLE: strapdown_given_start,
    "vqf_default": vqf,
    "vqf": vqf,
    "madgwick": madgwick,
    "mahony": mahony,
    "ekf_gravity": ekf_gravity,
}


def errors(name: str, group: Sequence[Flight], constants: DroneConstants, gain: float) -> dict[str, float]:
    """Inclination error of a standard method on every flight."""
    bias = torch.tensor(constants.bias, dtype=torch.float64) * float(name != "strapdown_uncalibrated")
    return {flight.name: inclination(flight, METHODS[name](flight, flight.imu - bias, gain)) for flight in group}


def tune(train: Sequence[Flight], constants: DroneConstants) -> dict[str, float]:
    """The best gain of every method that has one, on the training flights."""
    tuned = dict.fromkeys(STANDARD, 0.0) | {"vqf_default": 3.0}
    for name, gains in GAINS.items():
        tuned[name] = min(gains, key=lambda gain: math.fsum(errors(name, train, constants, gain).values()))
    return tuned


# ---- filters of the same system -------------------------------------------------------------------------------------


def describe_ekf(model: Filter) -> dict[str, list[float]]:
    """The trained numbers of the plain EKF, to be kept beside the results."""
    system = model.system
    assert isinstance(system, Multirotor)
    return {"drag": system.drag.tolist(), "log_deviation": system.log_deviation.tolist()}


@torch.no_grad()
def same_system(constants: DroneConstants, ekf: Mapping[str, Sequence[float]]) -> Iterator[tuple[str, Filter]]:
    """The trained EKF without noise states, from its kept numbers, and the filter before training."""
    model = new_filter(constants, noise_states=False)
    system: Any = model.system
    for name, values in ekf.items():
        getattr(system, name).copy_(torch.tensor(values, dtype=torch.float64))
    yield PLAIN_EKF, on_raw_samples(model, constants)
    yield UNTRAINED, on_raw_samples(new_filter(constants), constants)
