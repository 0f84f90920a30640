"""Baselines of inertial navigation that need no training, or no more than a constant bias.

Each takes records whose observations are gyroscope and accelerometer and whose state is position, velocity and
quaternion, and gives an estimate for every sample.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fwnkf import Gaussian, build
from fwnkf.core import rotation
from fwnkf.data.protocols import Records
from fwnkf.shapes import Float
from fwnkf.systems import Strapdown, StrapdownConfig

FIRST_SHARE = 5
"""A constant bias is estimated on the first fifth of a sequence."""


def hold(records: Records) -> Float[Tensor, "N T n"]:
    """The initial state throughout."""
    return records.start.mean.expand(len(records), -1).unsqueeze(1).expand_as(records.truth)


def constant_velocity(records: Records) -> Float[Tensor, "N T n"]:
    """The initial velocity and attitude throughout; no sensor."""
    held = hold(records)
    position = held[..., :3] + held[..., 3:6] * records.dt.cumsum(1).unsqueeze(-1)
    return torch.cat((position, held[..., 3:]), -1)


def strapdown(records: Records, bias: Float[Tensor, "N 6"] | None = None) -> Float[Tensor, "N T n"]:
    """Integrate the sensor from the initial state, less a constant bias of each record.

    A sample is held until the next one comes. The sign of the quaternion follows that of the truth, for errors that
    compare quaternions number by number.
    """
    system = Strapdown(StrapdownConfig(biases=False)).to(records.y)
    x = records.start.mean
    states = [x]
    for t in range(1, records.y.shape[1]):
        sample = records.y[:, t - 1] if bias is None else records.y[:, t - 1] - bias
        x = system.transition(x, sample, records.dt[:, t])
        states.append(x)
    return same_sign(torch.stack(states, 1), records.truth)


def same_sign(state: Float[Tensor, "*B 10"], truth: Float[Tensor, "*B 10"]) -> Float[Tensor, "*B 10"]:
    """The state with the quaternion in the hemisphere of the truth's."""
    q = state[..., 6:]
    sign = torch.where((q * truth[..., 6:]).sum(-1, keepdim=True) < 0, -1.0, 1.0)
    return torch.cat((state[..., :6], q * sign), -1)


def sensor_residual(records: Records) -> Float[Tensor, "N S 6"]:
    """Sensor minus the rate and force of the true motion, between neighbouring samples: bias and noise."""
    gravity = records.y.new_tensor(StrapdownConfig().gravity)
    q, v = records.truth[..., 6:], records.truth[..., 3:6]
    dt = records.dt[:, 1:].unsqueeze(-1)
    rate = rotation.log(rotation.multiply(rotation.conjugate(q[:, :-1]), q[:, 1:])) / dt
    halfway = rotation.multiply(q[:, :-1], rotation.exp(0.5 * rate * dt))
    force = (rotation.to_matrix(halfway).mT @ (v.diff(dim=1) / dt - gravity).unsqueeze(-1)).squeeze(-1)
    return records.y[:, :-1] - torch.cat((rate, force), -1)


def constant_bias(records: Records) -> Float[Tensor, "N 6"]:
    """One bias for each sequence, from the truth of its first fifth.

    The interquartile mean over samples: the velocity of the truth has jumps, which would distort a plain mean.
    """
    residual = sensor_residual(records)
    biases: dict[tuple[str, str], Tensor] = {}
    keys = [(span.source, span.digest) for span in records.spans]
    for key in dict.fromkeys(keys):
        rows = [i for i, other in enumerate(keys) if other == key]
        first = min(records.spans[i].start for i in rows)
        last = max(records.spans[i].stop for i in rows)
        early = [i for i in rows if records.spans[i].stop <= first + (last - first) / FIRST_SHARE] or rows[:1]
        biases[key] = interquartile_mean(residual[early].flatten(0, 1))
    return torch.stack([biases[key] for key in keys])


def interquartile_mean(samples: Float[Tensor, "S c"]) -> Float[Tensor, " c"]:
    """The mean of the middle half of each column: nearly as efficient as the mean, and robust to outliers."""
    ordered = samples.sort(0).values
    quarter = len(ordered) // 4
    return ordered[quarter : len(ordered) - quarter].mean(0)


def trained_bias(train: Records, count: int) -> Float[Tensor, "N 6"]:
    """One bias for all test records, the mean over the training sequences: all were flown with the same sensor."""
    return constant_bias(train).mean(0).expand(count, -1)


def strapdown_ekf(records: Records, train: Records) -> Gaussian:
    """Strapdown with a covariance: an EKF without measurements, biases with the variance of the training sequences."""
    biases = constant_bias(train)
    system = Strapdown(StrapdownConfig()).to(records.y)
    count = len(records)
    initial = torch.cat((records.start.mean, biases.mean(0).expand(count, -1)), -1)
    variance = torch.cat((records.start.cov.diagonal(), biases.var(0)))
    held = torch.cat((records.y[:, :1], records.y[:, :-1]), 1)  # a sample acts until the next one comes
    missing = records.y.new_zeros(count, records.y.shape[1], 3)
    with torch.no_grad():
        track = build("ekf", system=system).run(
            missing, held, torch.zeros_like(missing, dtype=torch.bool), records.dt, Gaussian(initial, variance.diag())
        )
    n, d = records.layout.size, records.layout.tangent_size
    return Gaussian(track.mean[..., :n], track.cov[..., :d, :d])
