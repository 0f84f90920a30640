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
    below = turn[moving][:, 2].mean(0)
    # as if forward were north: from the axes of the IMU to east, north, up, which the vehicle's axes are turned into
    to_world = rotation.compass(-below, ahead)
    vehicle = torch.tensor([0.0, 1.0, 1.0, 0.0], dtype=to_world.dtype) / 2**0.5
    turned = rotation.multiply(rotation.conjugate(to_world), vehicle)
    return rotation.log(turned).numpy()


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
