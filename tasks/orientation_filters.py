"""Published orientation filters as baselines: VQF, Madgwick, Mahony, and an EKF that takes the force for gravity.

All take one recording, ``[T, 3]`` per sensor in rad/s, m/s² and any unit of the magnetic field, and give the quaternion
from IMU to world ``[T, 4]`` for every sample. The world's z axis points up; with a magnetometer y is magnetic north
(east-north-up), without one the heading is arbitrary. They know no missing samples.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fwnkf.core import rotation
from fwnkf.errors import ConfigError
from fwnkf.shapes import Float
from fwnkf.systems import GravityAttitude, GravityAttitudeConfig

GRAVITY = 9.81


def vqf(
    gyro: Float[Tensor, "T 3"],
    accel: Float[Tensor, "T 3"],
    mag: Float[Tensor, "T 3"] | None = None,
    *,
    rate: float,
    **parameters: float,
) -> Float[Tensor, "T 4"]:
    """VQF, causal, at ``rate`` hertz; ``parameters`` are those of its class, ``tauAcc`` for instance."""
    sensors = [_array(item) for item in (gyro, accel, mag) if item is not None]
    outputs = _package("vqf").VQF(1 / rate, **parameters).updateBatch(*sensors)
    return torch.from_numpy(outputs["quat6D" if mag is None else "quat9D"])


def madgwick(
    gyro: Float[Tensor, "T 3"],
    accel: Float[Tensor, "T 3"],
    mag: Float[Tensor, "T 3"] | None = None,
    *,
    rate: float,
    gain: float,
    start: Float[Tensor, " 4"] | None = None,
) -> Float[Tensor, "T 4"]:
    """Madgwick's filter with ``gain`` β, from ``start`` or the first sample's tilt (and magnetic heading).

    With a magnetometer its equations put the horizontal field on the world's x axis, so its world is north-west-up: a
    quarter turn about the vertical leads to east-north-up. The class, given arrays, would start in north-east-down
    whatever the caller says, so it is stepped from the right start here.
    """
    method = _package("ahrs").filters.Madgwick(frequency=rate, gain=gain)
    first = _first(accel, mag) if start is None else start
    w, a = _array(gyro), _array(accel)
    if mag is None:
        return _stepped(first, lambda q, t: method.updateIMU(q, w[t], a[t]), len(w))
    m = _array(mag)
    quarter = rotation.exp(torch.tensor([0.0, 0.0, math.pi / 2], dtype=torch.float64))
    first = rotation.multiply(rotation.conjugate(quarter), first.double())
    path = _stepped(first, lambda q, t: method.updateMARG(q, w[t], a[t], m[t]), len(w))
    return rotation.multiply(quarter, path)


def mahony(
    gyro: Float[Tensor, "T 3"],
    accel: Float[Tensor, "T 3"],
    mag: Float[Tensor, "T 3"] | None = None,
    *,
    rate: float,
    gains: tuple[float, float],
    start: Float[Tensor, " 4"] | None = None,
) -> Float[Tensor, "T 4"]:
    """Mahony's filter with proportional and integral ``gains``, from ``start`` or the first sample.

    With a magnetometer this implementation puts the horizontal field on y, which is east-north-up already.
    """
    method = _package("ahrs").filters.Mahony(frequency=rate, k_P=gains[0], k_I=gains[1])
    first = _first(accel, mag) if start is None else start
    w, a = _array(gyro), _array(accel)
    if mag is None:
        return _stepped(first, lambda q, t: method.updateIMU(q, w[t], a[t]), len(w))
    m = _array(mag)
    return _stepped(first, lambda q, t: method.updateMARG(q, w[t], a[t], m[t]), len(w))


def gravity_attitude(deviation: float, dt: float) -> GravityAttitude:
    """The textbook's system: the accelerometer is taken for gravity with a standard deviation in m/s²."""
    return GravityAttitude(GravityAttitudeConfig(deviation=deviation, dt=dt)).double()


def _first(accel: Tensor, mag: Tensor | None) -> Tensor:
    return rotation.tilt(accel[0]) if mag is None else rotation.compass(accel[0], mag[0])


def _stepped(start: Tensor, step: Callable[[np.ndarray, int], np.ndarray], count: int) -> Tensor:
    path = np.empty((count, 4))
    path[0] = start.numpy()
    for t in range(1, count):
        path[t] = step(path[t - 1], t)
    return torch.from_numpy(path)


def _array(values: Tensor) -> np.ndarray:
    return np.ascontiguousarray(values.double().numpy())


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"this baseline needs the package {name!r}, which is not installed: pip install 'fwnkf[rivals]'"
        ) from error
