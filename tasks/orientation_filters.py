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
from fwnkf.core.layout import Layout
from fwnkf.core.system import System
from fwnkf.errors import ConfigError
from fwnkf.shapes import Float

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


class GravityAttitude(System):
    """Orientation and gyro bias, ``u`` the gyroscope; the accelerometer is taken for gravity: the textbook's EKF.

    ``deviation`` (m/s²) is the standard deviation of the measured force from gravity, densities are per root hertz of
    the angle (rad/s) and the gyro bias (rad/s²).
    """

    control_dim = 3
    diagonal_noise = True
    densities: Tensor
    variance: Tensor

    def __init__(
        self,
        deviation: float,
        dt: float,
        *,
        angle_density: float = 1e-3,
        bias_density: float = 1e-5,
        gravity: float = GRAVITY,
    ) -> None:
        super().__init__(None)
        self.dt, self.gravity = dt, gravity
        self.layout = Layout.parse([("orientation", "quaternion", 4), ("bias", "euclidean", 3)])
        self.observation_layout = Layout.euclidean(3, "force")
        densities = torch.tensor([angle_density**2] * 3 + [bias_density**2] * 3, dtype=torch.float64)
        self.register_buffer("densities", densities)
        self.register_buffer("variance", torch.full((3,), deviation**2, dtype=torch.float64))

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        turn = self._turn(x, u, dt)
        return self.layout.boxplus(x, torch.cat((turn, torch.zeros_like(turn)), -1))

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        turn = self._turn(x, u, dt)
        eye = torch.eye(3).to(x).expand(len(x), 3, 3)
        by_bias = -self._seconds(x, dt).unsqueeze(-1) * rotation.right_jacobian(turn)
        above = torch.cat((rotation.to_matrix(rotation.exp(-turn)), by_bias), -1)
        return self.transition(x, u, dt), torch.cat((above, torch.cat((torch.zeros_like(eye), eye), -1)), -2)

    def observe(self, x: Tensor) -> Tensor:
        return self.gravity * rotation.to_matrix(x[..., :4])[..., 2, :]

    def linearize_observation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        force = self.observe(x)
        by_turn = rotation.skew(force)
        return force, torch.cat((by_turn, torch.zeros_like(by_turn)), -1)

    def process_noise(self, dt: Tensor | None) -> Tensor:
        step = self.densities.new_tensor(self.dt) if dt is None else dt
        return torch.diag_embed(self.densities * step.unsqueeze(-1))

    def measurement_covariance(self) -> Tensor:
        return torch.diag_embed(self.variance)

    def _seconds(self, x: Tensor, dt: Tensor | None) -> Tensor:
        return x.new_full((*x.shape[:-1], 1), self.dt) if dt is None else dt.unsqueeze(-1)

    def _turn(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        if u is None:
            raise ConfigError("the attitude EKF turns by the gyroscope; give it as u")
        return (u - x[..., 4:]) * self._seconds(x, dt)


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
