"""How an IMU is mounted in a vehicle that rolls: from where it moves in the axes of the IMU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from ..core import rotation
from ..errors import DataError
from .estimate import Estimate
from .recording import NavigationRecording
from .timeline import Array, Readings

MOVING = 3.0
"""Speed from which on the direction of motion is known (m/s)."""
RATE = 1.0
"""How often a second a vehicle is said not to slip: what slip there is lasts about as long."""


def mounting(found: Estimate) -> Array:
    """The rotation vector that turns the axes of the vehicle into those of the IMU (rad).

    Forward is where the vehicle moves, down is where gravity points at the same times.

    Raises:
        DataError: the vehicle hardly moves.
    """
    turn = rotation.to_matrix(torch.from_numpy(found.part("orientation").copy()))
    velocity = torch.from_numpy(found.part("velocity").copy())
    speed = velocity.norm(dim=-1)
    moving = speed > MOVING
    if int(moving.sum()) < 10:
        raise DataError(f"the vehicle is never faster than {MOVING} m/s, so that its direction of rolling is not known")
    forward = (turn.mT @ velocity[..., None])[moving][..., 0] / speed[moving, None]
    ahead = forward.median(0).values
    ahead = ahead / ahead.norm()
    below = turn[moving][:, 2].mean(0)
    below = below - (below @ ahead) * ahead
    below = below / below.norm()
    axes = torch.stack((ahead, torch.linalg.cross(below, ahead), below), -1)
    return rotation.log(_quaternion(axes)).numpy()


def _quaternion(R: torch.Tensor) -> torch.Tensor:
    """Of a rotation matrix: the eigenvector of the largest eigenvalue of a symmetric matrix (Bar-Itzhack 2000)."""
    a = R.numpy()
    K = np.array(
        [
            [a[0, 0] - a[1, 1] - a[2, 2], a[1, 0] + a[0, 1], a[2, 0] + a[0, 2], a[2, 1] - a[1, 2]],
            [a[1, 0] + a[0, 1], a[1, 1] - a[0, 0] - a[2, 2], a[2, 1] + a[1, 2], a[0, 2] - a[2, 0]],
            [a[2, 0] + a[0, 2], a[2, 1] + a[1, 2], a[2, 2] - a[0, 0] - a[1, 1], a[1, 0] - a[0, 1]],
            [a[2, 1] - a[1, 2], a[0, 2] - a[2, 0], a[1, 0] - a[0, 1], a[0, 0] + a[1, 1] + a[2, 2]],
        ]
    )
    x, y, z, w = np.linalg.eigh(K)[1][:, -1]
    return torch.tensor([w, x, y, z]) * (1.0 if w >= 0 else -1.0)


def rolling(recording: NavigationRecording, speed: Readings | None = None) -> NavigationRecording:
    """The recording of a vehicle on wheels: it does not move across its direction of rolling.

    Args:
        recording: the sensors.
        speed: of the wheels (m/s), one channel; None for none.

    Returns:
        The same with the sensor ``wheels``.
    """
    if speed is None:
        begin, end = recording.span
        time = np.arange(begin, end, 1 / RATE)
        values = np.stack((np.full(len(time), np.nan), np.zeros(len(time)), np.zeros(len(time))), -1)
        wheels = Readings(time, values)
    else:
        wheels = Readings(speed.time, np.pad(speed.values, ((0, 0), (0, 2))), speed.delay).averaged(RATE)
    return replace(recording, sensors={**recording.sensors, "wheels": wheels})
