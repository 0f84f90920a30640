"""Baselines on BROAD: the published orientation filters, the textbook EKF, and each sensor alone.

Published figures. The 2.9° of D. Laidig, T. Seel: VQF, Information Fusion 91, 2023, is an average over several public
sets and not comparable with a figure from here. The authors of BROAD publish Madgwick's and Mahony's errors with
magnetometer for each trial (``example_code/out``); at their gains, which are the defaults here, the mean is 4.96° and
7.49° over all 39 trials, 4.30° and 7.12° over the ten trials 01 06 08 12 16 21 24 25 26 27, none of which has a magnet.
Their Madgwick halves the magnetic reference vector, as the original C code does; ``ahrs`` follows Madgwick's report, so
its heading differs from theirs. With their variant the metric here reproduces their figures to four digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fwnkf import Gaussian, build
from fwnkf.core import rotation
from fwnkf.core.gaussian import matvec
from fwnkf.data.recording import Recording
from fwnkf.preprocess.preintegration import between_steps, preintegrate
from fwnkf.shapes import Float
from fwnkf.systems import GravityAttitude, GravityAttitudeConfig
from tasks import orientation_filters as published
from tasks.broad.trials import BLOCK, errors, side_by_side

MADGWICK_GAIN = 0.12
"""β: the best single value for BROAD's 39 trials by its authors' grid search (with magnetometer, total error)."""
MAHONY_GAINS = (0.74, 0.0012)
"""Proportional and integral gain: likewise. The same gains serve without magnetometer."""
VQF = "VQF"
DELAYED = " with the learned delay"
GRAVITY = "gravity EKF"
DEVIATIONS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""m/s²: standard deviations of the force from gravity among which the gravity EKF's is tuned."""
Method = Callable[[Recording], Tensor]


def methods(*, magnetometer: bool) -> dict[str, Method]:
    """By name; each takes a trial and gives the quaternion from IMU to east-north-up for every sample."""

    def sensors(trial: Recording) -> tuple[Tensor, ...]:
        gyro, accel, mag = side_by_side([trial])[0].split(3, -1)
        return (gyro, accel, mag) if magnetometer else (gyro, accel)

    def level(trial: Recording) -> Tensor:
        _, accel, *mag = sensors(trial)
        return rotation.compass(accel, mag[0]) if mag else rotation.tilt(accel)

    return {
        VQF: lambda trial: published.vqf(*sensors(trial), rate=trial.rate),
        "Madgwick": lambda trial: published.madgwick(*sensors(trial), rate=trial.rate, gain=MADGWICK_GAIN),
        "Mahony": lambda trial: published.mahony(*sensors(trial), rate=trial.rate, gains=MAHONY_GAINS),
        "accelerometer and magnetometer alone" if magnetometer else "accelerometer alone": level,
        "gyroscope alone": lambda trial: rotation.integrate(level(trial)[0], sensors(trial)[0], 1 / trial.rate),
    }


def delayed(path: Float[Tensor, "T 4"], trial: Recording, seconds: float) -> Float[Tensor, "T 4"]:
    """An estimate with the delay of the gyroscope compensated, as our filter does it."""
    return rotation.extrapolate(path.to(trial.observations), trial.observations[:, :3], seconds)


class Deviations(GravityAttitude):
    """The textbook's system with a standard deviation of the force for each item of a batch."""

    def __init__(self, deviations: Float[Tensor, " B"], dt: float) -> None:
        super().__init__(GravityAttitudeConfig(dt=dt))
        self.double().register_buffer("variances", torch.diag_embed(deviations.square()[:, None].expand(-1, 3)))

    def measurement_covariance(self) -> Tensor:
        return self.get_buffer("variances")


@torch.no_grad()
def gravity_ekf(trials: Sequence[Recording], deviations: Sequence[float]) -> list[Float[Tensor, "N T 4"]]:
    """The textbook's EKF, which takes the accelerometer for gravity, on the same blocks of samples as our filter.

    One estimate of all trials for each standard deviation of the force.
    """
    samples, step = side_by_side(trials), 1 / trials[0].rate
    missing = -samples.shape[1] % BLOCK
    samples = torch.cat((samples, samples[:, -1:].expand(-1, missing, -1)), 1).unflatten(1, (-1, BLOCK))
    dt = samples.new_full(samples.shape[:-1], step)
    block = preintegrate(samples[..., :3], samples[..., 3:6], dt)
    # the force at the end of the block, where the filter's state is
    force = matvec(rotation.to_matrix(rotation.exp(-block.rate * (BLOCK * step / 2))), block.force)
    many, records = len(deviations), len(samples)
    system = Deviations(force.new_tensor(deviations).repeat_interleave(records), BLOCK * step)
    start = rotation.tilt(block.force[:, 0])
    cov = torch.diag(force.new_tensor([0.02**2] * 3 + [0.01**2] * 3))
    prior = Gaussian(
        torch.cat((start, torch.zeros_like(start[:, :3])), -1).repeat(many, 1), cov.expand(many * records, 6, 6)
    )
    model = build("ekf", system=system)
    y, u = force.repeat(many, 1, 1), block.rate.repeat(many, 1, 1)
    mean = model.run(y, u, prior=prior, prior_at="before_first_step").mean
    paths = []
    for states in mean.split(records):
        q, bias = states[..., :4], states[..., 4:]
        before = torch.cat((start.unsqueeze(1), q[:, :-1]), 1)
        known = torch.cat((torch.zeros_like(bias[:, :1]), bias[:, :-1]), 1)
        paths.append(between_steps(block.rotations, before, known, q, dt).flatten(1, 2))
    return paths


def tuned_deviation(trials: Sequence[Recording]) -> float:
    """The deviation of the gravity EKF with the smallest geometric mean of the inclination errors."""
    each = [errors(trials, paths, "inclination_deg") for paths in gravity_ekf(trials, DEVIATIONS)]
    return DEVIATIONS[int(torch.tensor(each).log().mean(-1).argmin())]
