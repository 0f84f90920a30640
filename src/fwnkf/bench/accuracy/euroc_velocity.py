"""Velocity from how a multirotor shakes and leans: the training of the network, and how wrong it is on flights unseen.

The drag of the rotors makes the sideways specific force tell of the velocity, and how one flies a multirotor (lean, go,
lean back) tells the rest. What the network gets wrong stays wrong for a second or so: it is coloured noise.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import NamedTuple

import torch
from torch import Tensor

from ...core import rotation
from ...core.gaussian import matvec
from ...data import catalogue
from ...shapes import Bool, Float
from ...systems.inertial_calibrated import CalibratedStrapdown

STEPS, BATCH, LENGTH, RATE = 400, 48, 200, 6e-3
"""Optimizer steps, windows in each, blocks in a window (10 s), greatest learning rate."""
JITTER = (0.005, 0.05)
"""Biases that vary from flight to flight: rad/s and m/s², drawn anew for every window."""
DROPOUT = 0.2


class Flight(NamedTuple):
    """One sequence: the sensor, the true velocity in the body frame, and where that is known."""

    imu: Float[Tensor, "T 6"]
    velocity: Float[Tensor, "T 3"]
    known: Bool[Tensor, " T"]


class Colour(NamedTuple):
    """Noise of the network for each axis: white and drifting standard deviation, and seconds it takes to forget."""

    white: Float[Tensor, " 3"]
    drift: Float[Tensor, " 3"]
    seconds: Float[Tensor, " 3"]


def flights(names: Many[str], folder: str | None = None) -> dict[str, Flight]:
    """Sequences of EuRoC by name."""
    found = {}
    for one in catalogue.load("euroc", folder, sequences=tuple(names)):
        assert one.truth is not None
        assert one.truth_mask is not None
        truth = torch.where(one.truth_mask.unsqueeze(-1), one.truth, 0.0)
        turned = rotation.to_matrix(truth[:, 6:]).mT
        found[one.source] = Flight(one.observations, matvec(turned, truth[:, 3:6]), one.truth_mask)
    return found


def train_velocity(
    system: CalibratedStrapdown,
    data: Many[Flight],
    seed: int,
    *,
    steps: int = STEPS,
) -> None:
    """Fit ``system``'s network to flights by the likelihood of the true velocity, in place.

    Windows begin anywhere, and each has a bias of its own.
    """
    generator = torch.Generator().manual_seed(seed)
    block = system.config.block
    span = LENGTH * block
    every = torch.cat([flight.imu for flight in data])
    system.shift.copy_(every.mean(0))
    system.scale.copy_(every.std(0))
    sizes = torch.tensor([len(flight.imu) - span for flight in data]).double()
    wanted = [*system.encoder.parameters(), *system.head.parameters()]
    optimizer = torch.optim.AdamW(wanted, RATE, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps)
    like = system.shift
    spread = like.new_tensor(JITTER).repeat_interleave(3)
    for _ in range(steps):
        which = torch.multinomial(sizes, BATCH, replacement=True, generator=generator).tolist()
        starts = [int(torch.randint(int(sizes[i]), (1,), generator=generator)) for i in which]
        imu = torch.stack([data[i].imu[at : at + span] for i, at in zip(which, starts, strict=True)])
        ends = slice(block - 1, span, block)
        goal = torch.stack([data[i].velocity[at : at + span][ends] for i, at in zip(which, starts, strict=True)])
        known = torch.stack([data[i].known[at : at + span][ends] for i, at in zip(which, starts, strict=True)])
        read = system.blocks(imu.to(like)) + spread * torch.randn(BATCH, 1, 6, generator=generator).to(like)
        goal = goal.to(like)
        hidden, _ = system.encoder((read - system.shift) / system.scale)
        keep = torch.rand(hidden.shape, generator=generator) > DROPOUT
        mean, log_std = system.head(hidden * keep.to(like) / (1 - DROPOUT)).split(3, -1)
        each = 0.5 * ((mean - goal) / log_std.exp()).square() + log_std
        loss = (each * known.unsqueeze(-1)).sum() / (3 * known.sum())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(wanted, 1.0)
        optimizer.step()
        schedule.step()


@torch.no_grad()
def residuals(system: CalibratedStrapdown, flight: Flight) -> tuple[Float[Tensor, "W K 3"], Bool[Tensor, "W K"]]:
    """Errors of the network on windows of 10 s, warm-up left out, and where they are known."""
    block = system.config.block
    span = LENGTH * block
    starts = range(0, len(flight.imu) - span + 1, span // 2)
    imu = torch.stack([flight.imu[at : at + span] for at in starts])
    goal = torch.stack([flight.velocity[at + block - 1 : at + span : block] for at in starts])
    known = torch.stack([flight.known[at + block - 1 : at + span : block] for at in starts])
    mean, _ = system.velocity(system.blocks(imu.to(system.shift)))
    late = slice(system.config.warmup, None)
    return (mean.to(goal) - goal)[:, late], known[:, late]


def colour(errors: Many[tuple[Tensor, Tensor]], seconds_per_block: float, lag: int = 10) -> Colour:
    """White and drifting parts from the variance and two correlations: ``ρ(k) = share · exp(-k dt / τ)``."""
    power, near, far, counts = (torch.zeros(3, dtype=torch.float64) for _ in range(4))
    for error, known in errors:
        error = torch.where(known.unsqueeze(-1), error.double(), 0.0)
        power += error.square().sum((0, 1))
        near += (error[:, lag:] * error[:, :-lag]).sum((0, 1)) * error.shape[1] / (error.shape[1] - lag)
        far += (error[:, 2 * lag :] * error[:, : -2 * lag]).sum((0, 1)) * error.shape[1] / (error.shape[1] - 2 * lag)
        counts += known.sum()
    forget = (far / near).clamp(0.05, 0.95)
    share = (near / power / forget).clamp(0.5, 0.98)
    variance = power / counts
    return Colour(((1 - share) * variance).sqrt(), (share * variance).sqrt(), -lag * seconds_per_block / forget.log())
