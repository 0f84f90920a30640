"""References for inertial navigation: what can be had without learning anything.

Each takes a task whose observations are gyroscope and accelerometer and whose state is position, velocity and
quaternion, and gives its estimate for every sample.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fwnkf.core import rotation
from fwnkf.data.protocols import Records
from fwnkf.filters.base import build
from fwnkf.shapes import Float
from fwnkf.systems.strapdown import Strapdown, StrapdownConfig
from fwnkf.types import Gaussian

FIRST_SHARE = 5
"""A constant bias is estimated on the first fifth of a sequence."""


def hold(task: Records) -> Float[Tensor, "N T n"]:
    """The initial state, for ever."""
    return task.start.mean.expand(len(task), -1).unsqueeze(1).expand_as(task.truth)


def constant_velocity(task: Records) -> Float[Tensor, "N T n"]:
    """The initial velocity and attitude, for ever; no sensor."""
    held = hold(task)
    moved = held[..., :3] + held[..., 3:6] * task.dt.cumsum(1).unsqueeze(-1)
    return torch.cat((moved, held[..., 3:]), -1)


def strapdown(task: Records, bias: Float[Tensor, "N 6"] | None = None) -> Float[Tensor, "N T n"]:
    """Integrate the sensor from the initial state, less a constant bias for each record.

    A sample acts until the next one comes. The sign of the quaternion follows the truth's, which is continuous.
    """
    system = Strapdown(StrapdownConfig(biases=False)).to(task.y)
    x = task.start.mean
    path = [x]
    for t in range(1, task.y.shape[1]):
        sensed = task.y[:, t - 1] if bias is None else task.y[:, t - 1] - bias
        x = system.transition(x, sensed, task.dt[:, t])
        path.append(x)
    found = torch.stack(path, 1)
    q, true = found[..., 6:], task.truth[..., 6:]
    sign = torch.where((q * true).sum(-1, keepdim=True) < 0, -1.0, 1.0)
    return torch.cat((found[..., :6], q * sign), -1)


def sensor_residual(task: Records) -> Float[Tensor, "N S 6"]:
    """What the sensor reads more than the truth moves, between neighbouring samples: bias and noise."""
    gravity = task.y.new_tensor(StrapdownConfig().gravity)
    q, v = task.truth[..., 6:], task.truth[..., 3:6]
    dt = task.dt[:, 1:].unsqueeze(-1)
    rate = rotation.log(rotation.multiply(rotation.conjugate(q[:, :-1]), q[:, 1:])) / dt
    halfway = rotation.multiply(q[:, :-1], rotation.exp(0.5 * rate * dt))
    force = (rotation.to_matrix(halfway).mT @ (v.diff(dim=1) / dt - gravity).unsqueeze(-1)).squeeze(-1)
    return task.y[:, :-1] - torch.cat((rate, force), -1)


def constant_bias(task: Records) -> Float[Tensor, "N 6"]:
    """One bias for each sequence, from the truth of its first fifth.

    The interquartile mean over samples: the truth's velocity jumps here and there, and a plain mean follows the jumps.
    """
    residual = sensor_residual(task)
    biases: dict[tuple[str, str], Tensor] = {}
    keys = [(span.source, span.digest) for span in task.spans]
    for key in dict.fromkeys(keys):
        rows = [i for i, other in enumerate(keys) if other == key]
        first = min(task.spans[i].start for i in rows)
        last = max(task.spans[i].stop for i in rows)
        early = [i for i in rows if task.spans[i].stop <= first + (last - first) / FIRST_SHARE] or rows[:1]
        biases[key] = interquartile_mean(residual[early].flatten(0, 1))
    return torch.stack([biases[key] for key in keys])


def strapdown_ekf(task: Records, train: Records) -> Gaussian:
    """Strapdown with error bars: an EKF without any fix, biases as uncertain as the training sequences differ."""
    biases = constant_bias(train)
    system = Strapdown(StrapdownConfig()).to(task.y)
    count = len(task)
    start = torch.cat((task.start.mean, biases.mean(0).expand(count, -1)), -1)
    spread = torch.cat((task.start.cov.diagonal(), biases.var(0)))
    held = torch.cat((task.y[:, :1], task.y[:, :-1]), 1)  # a sample acts until the next one comes
    blind = task.y.new_zeros(count, task.y.shape[1], 3)
    with torch.no_grad():
        track = build("ekf", system=system).run(
            blind, held, torch.zeros_like(blind, dtype=torch.bool), task.dt, Gaussian(start, spread.diag())
        )
    n, d = task.layout.size, task.layout.tangent_size
    return Gaussian(track.mean[..., :n], track.cov[..., :d, :d])


def interquartile_mean(samples: Float[Tensor, "S c"]) -> Float[Tensor, " c"]:
    """The mean of the middle half of each column: nearly as exact as the mean, and deaf to outliers."""
    ordered = samples.sort(0).values
    quarter = len(ordered) // 4
    return ordered[quarter : len(ordered) - quarter].mean(0)


def trained_bias(train: Records, count: int) -> Float[Tensor, "N 6"]:
    """One bias for all test records, the mean of the training sequences': one sensor flew them all."""
    return constant_bias(train).mean(0).expand(count, -1)
