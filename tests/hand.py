"""A simulated IMU in a hand: exact readings of a motion whose orientation is known."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fwnkf.core import rotation

RATE = 285.714
SWAY_HERTZ, SWAY_METRES = 0.7, 0.1
FIELD = torch.tensor([-0.5, 15.0, -41.0], dtype=torch.float64)
"""µT: east, north, up."""


class Motion(NamedTuple):
    """Times, samples ``(gyroscope, accelerometer, magnetometer)``, true orientation, and whether the hand moves."""

    time: Tensor
    samples: Tensor
    truth: Tensor
    moving: Tensor


def swaying_hand(seconds: float = 20.0, magnetometer_delay: float = 0.0) -> Motion:
    """Four seconds of rest, then rotation about all axes and a sway along x (and half of it along y)."""
    t = torch.arange(int(seconds * RATE)).double() / RATE
    moving = (t > 4).double()
    gyro = torch.stack((0.8 * (1.3 * t).sin(), 0.6 * (0.9 * t).cos(), 0.3 * torch.ones_like(t)), -1) * moving[:, None]
    truth = rotation.integrate(gyro.new_tensor([1.0, 0.0, 0.0, 0.0]), gyro, 1 / RATE)
    omega = 2 * math.pi * SWAY_HERTZ
    sway = SWAY_METRES * omega**2 * (omega * (t - 4)).cos() * moving  # of a hand that starts at rest
    world = torch.stack((sway, 0.5 * sway, torch.full_like(t, 9.81)), -1)
    force = (rotation.to_matrix(truth).mT @ world.unsqueeze(-1)).squeeze(-1)
    then = rotation.multiply(truth, rotation.exp(-gyro * magnetometer_delay))
    field = rotation.to_matrix(then).mT @ FIELD
    return Motion(t, torch.cat((gyro, force, field), -1), truth, moving > 0)
