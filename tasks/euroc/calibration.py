"""The calibration of an inertial sensor from windows with known truth, by Gauss-Newton on the error that is scored."""

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
from fwnkf.systems.inertial_calibrated import CALIBRATION, PARTS, Calibration, calibrate
from fwnkf.systems.strapdown import StrapdownConfig

ALL = tuple(PARTS)
STEP = 1e-4
"""Of the difference quotients; everything is smooth and of the order of 0.01 to 1."""
RIDGE = 1e-6
"""Relative: gravity, scale and bias along the vertical are told apart by tilting alone, and barely."""


def integrate(task: Records, calibration: Float[Tensor, "P c"]) -> Float[Tensor, "P N T 10"]:
    """Strapdown from the given starts under each of several calibrations; what the filter does, without the filter.

    The sign of the quaternion follows the truth's, which is continuous.
    """
    y, count = task.y, len(calibration)
    by = Calibration(*calibration[:, None, None].split(list(PARTS.values()), -1))
    sensed, pull = calibrate(y[:, :-1], y[:, 1:], by)
    step = task.dt[:, 1:].unsqueeze(-1)
    q = task.start.mean[:, 6:].expand(count, -1, -1)
    turns = rotation.exp(sensed[..., :3] * step).unbind(2)
    path = [q]
    for turn in turns:
        q = rotation.multiply(q, turn)
        path.append(q)
    attitude = torch.stack(path, 2)
    halfway = rotation.multiply(attitude[:, :, :-1], rotation.exp(0.5 * sensed[..., :3] * step))
    gravity = y.new_tensor(StrapdownConfig().gravity) + pull
    acceleration = matvec(rotation.to_matrix(halfway), sensed[..., 3:]) + gravity
    velocity = _summed(task.start.mean[:, 3:6], acceleration * step)
    moved = velocity[:, :, :-1] * step + 0.5 * step * step * acceleration
    sign = torch.where((attitude * task.truth[..., 6:]).sum(-1, keepdim=True) < 0, -1.0, 1.0)
    return torch.cat((_summed(task.start.mean[:, :3], moved), velocity, attitude * sign), -1)


def _summed(first: Float[Tensor, "N 3"], steps: Float[Tensor, "P N S 3"]) -> Float[Tensor, "P N T 3"]:
    start = first[:, None].expand(len(steps), -1, 1, -1)
    return torch.cat((start, start + steps.cumsum(2)), 2)


def fit(
    task: Records,
    free: Sequence[str] = ALL,
    start: Float[Tensor, " c"] | None = None,
    *,
    rounds: int = 2,
    every: int = 10,
    most: int = 160,
    attitude: float = 1.0,
) -> Float[Tensor, " c"]:
    """The calibration with the least squared error over ``most`` of the windows, scored at each ``every``-th step.

    ``attitude`` weighs the errors of the quaternion against those in metres and metres a second.
    """
    spread = torch.linspace(0, len(task) - 1, min(most, len(task))).long()
    some = task.take(spread)
    names = [name for name, size in PARTS.items() for _ in range(size)]
    moving = torch.tensor([i for i, name in enumerate(names) if name in free])
    weight = task.y.new_tensor([1.0] * 6 + [attitude] * 4)
    found = task.y.new_zeros(CALIBRATION) if start is None else start.clone()
    nudges = STEP * torch.eye(CALIBRATION, dtype=task.y.dtype)[moving]
    for _ in range(rounds):
        paths = integrate(some, torch.cat((found[None], found + nudges)))
        errors = ((paths - some.truth) * weight)[:, :, every::every].flatten(1)
        slopes = (errors[1:] - errors[0]) / STEP
        normal = slopes @ slopes.mT
        normal = normal + RIDGE * normal.diagonal().diag()
        change, _ = solve_psd(normal, (slopes @ errors[0]).unsqueeze(-1))
        found = found.index_add(0, moving, -change.squeeze(-1))
    return found


def sources(task: Records) -> dict[str, list[int]]:
    """The rows of each sequence, by its name."""
    found: dict[str, list[int]] = {}
    for i, span in enumerate(task.spans):
        found.setdefault(span.source, []).append(i)
    return found


class Spread(NamedTuple):
    """Noise that explains what a calibration leaves: densities per root hertz, and constant biases."""

    gyro_density: float
    accelerometer_density: float
    biases: Float[Tensor, " 6"]


def spread(task: Records, table: Float[Tensor, "s c"], which: Sequence[int], early: int = 50) -> Spread:
    """From windows that start at the truth: variances grow by ``d² t`` of white noise and ``b² t²`` of bias.

    Two moments, at sample ``early`` and at the end, for velocity and attitude; half of the windows suffices.
    """
    sums, count = torch.zeros(2, 2, dtype=torch.float64), 0
    index = torch.tensor(which)
    for i, calibration in enumerate(table):
        mine = task.take((index == i).nonzero()[::2, 0])
        if len(mine) == 0:
            continue
        error = residual(task.layout, integrate(mine, calibration[None])[0], mine.truth)[:, [early, -1]]
        sums += error[..., 3:].unflatten(-1, (2, 3)).square().mean(-1).sum(0).double()
        count += len(mine)
    length = task.y.shape[1]
    seconds = task.dt[:, 1:].sum(1).mean().double() / (length - 1) * torch.tensor([early, length - 1.0])
    # variance / t = d² + b² t: a line through two points, neither part below a tenth of what there is
    rate = sums / count / seconds.unsqueeze(-1)
    slope = (rate[1] - rate[0]) / (seconds[1] - seconds[0])
    bias = torch.maximum(slope, 0.1 * rate[1] / seconds[1])
    white = torch.maximum(rate[0] - slope * seconds[0], 0.1 * rate[0])
    biases = torch.cat((bias[1].sqrt().repeat(3), bias[0].sqrt().repeat(3)))
    return Spread(float(white[1].sqrt()), float(white[0].sqrt()), biases.to(task.y))
