"""Calibration of an inertial sensor from windows with known truth: Gauss-Newton on the error that is scored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fwnkf.core import rotation
from fwnkf.core.gaussian import matvec, solve_psd
from fwnkf.data.protocols import Records
from fwnkf.metrics.accuracy import residual
from fwnkf.shapes import Float
from fwnkf.systems import StrapdownConfig
from fwnkf.systems.inertial_calibrated import CALIBRATION, PARTS, ImuCalibration, calibrate
from tasks.euroc.strapdown import same_sign

ALL = tuple(PARTS)
STEP = 1e-4
"""Of the difference quotients; everything is smooth and of the order of 0.01 to 1."""
RIDGE = 1e-6
"""Relative. Gravity, scale and bias along the vertical are separable only by tilting, so they are nearly collinear."""


def integrate(records: Records, calibration: Float[Tensor, "P c"]) -> Float[Tensor, "P N T 10"]:
    """Strapdown from the given initial states under each of several calibrations.

    The same mechanisation as the filter's prediction, vectorised over calibrations and windows.
    """
    y, count = records.y, len(calibration)
    by = ImuCalibration(*calibration[:, None, None].split(list(PARTS.values()), -1))
    sensed, correction = calibrate(y[:, :-1], y[:, 1:], by)
    step = records.dt[:, 1:].unsqueeze(-1)
    q = records.start.mean[:, 6:].expand(count, -1, -1)
    path = [q]
    for turn in rotation.exp(sensed[..., :3] * step).unbind(2):
        q = rotation.multiply(q, turn)
        path.append(q)
    attitude = torch.stack(path, 2)
    halfway = rotation.multiply(attitude[:, :, :-1], rotation.exp(0.5 * sensed[..., :3] * step))
    gravity = y.new_tensor(StrapdownConfig().gravity) + correction
    acceleration = matvec(rotation.to_matrix(halfway), sensed[..., 3:]) + gravity
    velocity = _summed(records.start.mean[:, 3:6], acceleration * step)
    moved = velocity[:, :, :-1] * step + 0.5 * step * step * acceleration
    states = torch.cat((_summed(records.start.mean[:, :3], moved), velocity, attitude), -1)
    return same_sign(states, records.truth)


def _summed(first: Float[Tensor, "N 3"], steps: Float[Tensor, "P N S 3"]) -> Float[Tensor, "P N T 3"]:
    start = first[:, None].expand(len(steps), -1, 1, -1)
    return torch.cat((start, start + steps.cumsum(2)), 2)


def fit(
    records: Records,
    free: Sequence[str] = ALL,
    start: Float[Tensor, " c"] | None = None,
    *,
    rounds: int = 2,
    every: int = 10,
    most: int = 160,
    attitude: float = 1.0,
) -> Float[Tensor, " c"]:
    """The calibration with the least squared error over ``most`` of the windows, scored at each ``every``-th step.

    ``free`` names the parts that are fitted. ``attitude`` weights the errors of the quaternion against those in metres
    and metres a second.
    """
    some = records.take(torch.linspace(0, len(records) - 1, min(most, len(records))).long())
    names = [name for name, size in PARTS.items() for _ in range(size)]
    moving = torch.tensor([i for i, name in enumerate(names) if name in free])
    weight = records.y.new_tensor([1.0] * 6 + [attitude] * 4)
    calibration = records.y.new_zeros(CALIBRATION) if start is None else start.clone()
    nudges = STEP * torch.eye(CALIBRATION, dtype=records.y.dtype)[moving]
    for _ in range(rounds):
        paths = integrate(some, torch.cat((calibration[None], calibration + nudges)))
        errors = ((paths - some.truth) * weight)[:, :, every::every].flatten(1)
        slopes = (errors[1:] - errors[0]) / STEP
        normal = slopes @ slopes.mT
        normal = normal + RIDGE * normal.diagonal().diag()
        change, _ = solve_psd(normal, (slopes @ errors[0]).unsqueeze(-1))
        calibration = calibration.index_add(0, moving, -change.squeeze(-1))
    return calibration


class NoiseFit(NamedTuple):
    """Noise that explains the errors a calibration leaves: densities per root hertz, and constant biases."""

    gyro_density: float
    accelerometer_density: float
    biases: Float[Tensor, " 6"]


def fit_noise(records: Records, table: Float[Tensor, "s c"], which: Sequence[int], early: int = 50) -> NoiseFit:
    """From windows that start at the truth: variances grow by ``d² t`` of white noise and ``b² t²`` of a bias.

    Both follow from the variance at two times, sample ``early`` and the last, for velocity and attitude. ``which``
    names the row of ``table`` that belongs to each window. Every second window is used.
    """
    sums, count = torch.zeros(2, 2, dtype=torch.float64), 0
    index = torch.tensor(which)
    for i, calibration in enumerate(table):
        part = records.take((index == i).nonzero()[::2, 0])
        if len(part) == 0:
            continue
        error = residual(records.layout, integrate(part, calibration[None])[0], part.truth)[:, [early, -1]]
        sums += error[..., 3:].unflatten(-1, (2, 3)).square().mean(-1).sum(0).double()
        count += len(part)
    length = records.y.shape[1]
    seconds = records.dt[:, 1:].sum(1).mean().double() / (length - 1) * torch.tensor([early, length - 1.0])
    # variance / t = d² + b² t: a line through two points, with a lower bound of a tenth of the total on either part
    rate = sums / count / seconds.unsqueeze(-1)
    slope = (rate[1] - rate[0]) / (seconds[1] - seconds[0])
    bias = torch.maximum(slope, 0.1 * rate[1] / seconds[1])
    white = torch.maximum(rate[0] - slope * seconds[0], 0.1 * rate[0])
    biases = torch.cat((bias[1].sqrt().repeat(3), bias[0].sqrt().repeat(3)))
    return NoiseFit(float(white[1].sqrt()), float(white[0].sqrt()), biases.to(records.y))
