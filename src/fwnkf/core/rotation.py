"""Rotations: unit quaternions ``(w, x, y, z)``, rotation vectors and matrices.

A perturbation ``δ`` is a rotation vector in the body frame: ``q ⊞ δ = q ⊗ exp(δ)``. All functions and their gradients
are finite at the identity.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..shapes import Float

__all__ = [
    "compass",
    "conjugate",
    "cumulative",
    "distance",
    "exp",
    "extrapolate",
    "integrate",
    "log",
    "multiply",
    "normalize",
    "right_jacobian",
    "skew",
    "tilt",
    "to_matrix",
    "wrap",
]


def _small(squared_angle: Tensor) -> tuple[Tensor, Tensor]:
    """A mask of angles too small to divide by, and the angle with these replaced by 1."""
    tiny = squared_angle < torch.finfo(squared_angle.dtype).eps
    return tiny, torch.where(tiny, torch.ones_like(squared_angle), squared_angle).sqrt()


def multiply(p: Float[Tensor, "*A 4"], q: Float[Tensor, "*B 4"]) -> Float[Tensor, "*C 4"]:
    """Hamilton product ``p ⊗ q``; leading axes broadcast.

    Args:
        p, q: quaternions.

    Returns:
        The product: first ``q``, then ``p``.

    >>> half = exp(torch.tensor([0.0, 0.0, 0.5]))
    >>> round(float(log(multiply(half, half))[2]), 4)
    1.0
    """
    pw, px, py, pz = p.unbind(-1)
    qw, qx, qy, qz = q.unbind(-1)
    return torch.stack(
        (
            pw * qw - px * qx - py * qy - pz * qz,
            pw * qx + px * qw + py * qz - pz * qy,
            pw * qy - px * qz + py * qw + pz * qx,
            pw * qz + px * qy - py * qx + pz * qw,
        ),
        -1,
    )


def conjugate(q: Float[Tensor, "*B 4"]) -> Float[Tensor, "*B 4"]:
    """The inverse of a unit quaternion.

    Args:
        q: the quaternion.

    Returns:
        The inverse rotation.

    >>> conjugate(torch.tensor([0.6, 0.8, 0.0, 0.0]))
    tensor([ 0.6000, -0.8000, -0.0000, -0.0000])
    """
    return torch.cat((q[..., :1], -q[..., 1:]), -1)


def normalize(q: Float[Tensor, "*B 4"]) -> Float[Tensor, "*B 4"]:
    """``q / |q|``. A unit quaternion (up to rounding) is returned unchanged, a zero quaternion stays zero.

    Args:
        q: the quaternion.

    Returns:
        The unit quaternion.

    >>> normalize(torch.tensor([3.0, 4.0, 0.0, 0.0]))
    tensor([0.6000, 0.8000, 0.0000, 0.0000])
    """
    squared = q.square().sum(-1, keepdim=True)
    unit = (squared - 1).abs() <= 8 * torch.finfo(q.dtype).eps
    scaled = q * squared.clamp_min(torch.finfo(q.dtype).tiny).rsqrt()
    # the value of q with the gradient of q / |q|: the difference is exact, because both are equal up to rounding
    return scaled + torch.where(unit, q - scaled, torch.zeros_like(q)).detach()


def exp(rotvec: Float[Tensor, "*B 3"]) -> Float[Tensor, "*B 4"]:
    """Unit quaternion of a rotation vector.

    Args:
        rotvec: axis times angle, in radians.

    Returns:
        The quaternion, w first.

    >>> exp(torch.zeros(3))
    tensor([1., 0., 0., 0.])
    """
    squared = rotvec.square().sum(-1, keepdim=True)
    tiny, angle = _small(squared)
    half_sinc = torch.where(tiny, 0.5 - squared / 48, (angle / 2).sin() / angle)
    w = torch.where(tiny, 1 - squared / 8, (angle / 2).cos())
    return torch.cat((w, half_sinc * rotvec), -1)


def log(q: Float[Tensor, "*B 4"]) -> Float[Tensor, "*B 3"]:
    """Rotation vector of a unit quaternion along the shortest arc: ``|log q| ≤ π``, ``log(-q) = log(q)``.

    Args:
        q: the quaternion.

    Returns:
        Axis times angle, in radians.

    >>> log(torch.tensor([1.0, 0.0, 0.0, 0.0]))
    tensor([0., 0., 0.])
    """
    q = torch.where(q[..., :1] < 0, -q, q)
    w, v = q[..., :1], q[..., 1:]
    squared = v.square().sum(-1, keepdim=True)
    tiny, sine = _small(squared)
    scale = torch.where(tiny, 2 / w.clamp_min(0.5) - 2 * squared / 3, 2 * torch.atan2(sine, w) / sine)
    return scale * v


def to_matrix(q: Float[Tensor, "*B 4"]) -> Float[Tensor, "*B 3 3"]:
    """Rotation matrix of a unit quaternion: ``v_world = R(q) v_body``.

    Args:
        q: the quaternion, body to world.

    Returns:
        The matrix.

    >>> to_matrix(torch.tensor([0.0, 1.0, 0.0, 0.0])).diagonal()
    tensor([ 1., -1., -1.])
    """
    w, x, y, z = q.unbind(-1)
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    return torch.stack([torch.stack(row, -1) for row in rows], -2)


def skew(v: Float[Tensor, "*B 3"]) -> Float[Tensor, "*B 3 3"]:
    """The skew-symmetric matrix of the cross product ``v ×``.

    Args:
        v: the vector.

    Returns:
        The matrix.

    >>> skew(torch.tensor([0.0, 0.0, 1.0])) @ torch.tensor([1.0, 0.0, 0.0])
    tensor([0., 1., 0.])
    """
    x, y, z = v.unbind(-1)
    zero = torch.zeros_like(x)
    return torch.stack(
        [torch.stack(row, -1) for row in ((zero, -z, y), (z, zero, -x), (-y, x, zero))],
        -2,
    )


def right_jacobian(rotvec: Float[Tensor, "*B 3"]) -> Float[Tensor, "*B 3 3"]:
    """``J_r`` with ``exp(θ + δ) = exp(θ) ⊗ exp(J_r(θ) δ)`` to first order.

    Args:
        rotvec: ``θ``, in radians.

    Returns:
        The matrix; the identity at zero.

    >>> bool((right_jacobian(torch.zeros(3)) == torch.eye(3)).all())
    True
    """
    squared = rotvec.square().sum(-1, keepdim=True).unsqueeze(-1)
    tiny, angle = _small(squared)
    first = torch.where(tiny, 0.5 - squared / 24, (1 - angle.cos()) / angle**2)
    second = torch.where(tiny, 1 / 6 - squared / 120, (angle - angle.sin()) / angle**3)
    cross = skew(rotvec)
    return torch.eye(3, dtype=rotvec.dtype, device=rotvec.device) - first * cross + second * (cross @ cross)


def distance(p: Float[Tensor, "*B 4"], q: Float[Tensor, "*B 4"]) -> Float[Tensor, "*B"]:
    """Geodesic distance of two rotations.

    Args:
        p, q: unit quaternions.

    Returns:
        The angle between them in radians, from 0 to π.

    >>> distance(exp(torch.tensor([0.3, 0.0, 0.0])), exp(torch.tensor([0.1, 0.0, 0.0]))).round(decimals=4)
    tensor(0.2000)
    """
    return log(multiply(conjugate(p), q)).norm(dim=-1)


def wrap(angle: Tensor) -> Tensor:
    """The same angle in ``[-π, π]``; an angle already in this range is returned unchanged.

    Args:
        angle: angles in radians, of any shape.

    Returns:
        The wrapped angles.

    >>> wrap(torch.tensor([3.0, 4.0]))
    tensor([ 3.0000, -2.2832])
    """
    return angle - 2 * torch.pi * torch.round(angle / (2 * torch.pi))


# ---- from sensors ---------------------------------------------------------------------------------------------------


def tilt(accel: Float[Tensor, "*B 3"]) -> Float[Tensor, "*B 4"]:
    """The smallest rotation that aligns the measured specific force with the vertical; correct at rest only.

    A sensor that is upside down is rotated about its x axis. A specific force of zero gives NaN.

    Args:
        accel: specific force in the body frame; its length does not matter.

    Returns:
        A unit quaternion, body to a level frame.

    >>> tilt(torch.tensor([0.0, 0.0, 9.81]))
    tensor([1., 0., -0., 0.])
    """
    x, y, z = (accel / accel.norm(dim=-1, keepdim=True)).unbind(-1)
    zero = torch.zeros_like(z)
    turn = torch.stack((1 + z, y, -x, zero), -1)
    upside_down = torch.stack((zero, torch.ones_like(z), zero, zero), -1)
    turn = torch.where((turn.norm(dim=-1, keepdim=True) < 1e-9), upside_down, turn)
    return turn / turn.norm(dim=-1, keepdim=True)


def compass(accel: Float[Tensor, "*B 3"], mag: Float[Tensor, "*B 3"]) -> Float[Tensor, "*B 4"]:
    """The orientation in east-north-up from the directions of the specific force and of the magnetic field.

    Args:
        accel: specific force in the body frame.
        mag: magnetic field in the body frame.

    Returns:
        A unit quaternion, body to world.

    >>> log(compass(torch.tensor([0.0, 0.0, 9.81]), torch.tensor([0.0, 15.0, -41.0]))).abs().max()
    tensor(0.)
    """
    level = tilt(accel)
    field = (to_matrix(level) @ mag.unsqueeze(-1)).squeeze(-1)
    to_north = torch.atan2(field[..., 0], field[..., 1])
    zero = torch.zeros_like(to_north)
    return multiply(exp(torch.stack((zero, zero, to_north), -1)), level)


def cumulative(q: Float[Tensor, "*B T 4"]) -> Float[Tensor, "*B T 4"]:
    """All prefix products ``q_0 ⊗ … ⊗ q_t``, by doubling: a logarithmic number of operations on complete tensors.

    Args:
        q: unit quaternions.

    Returns:
        The products.

    >>> half = exp(torch.tensor([0.0, 0.0, 0.5]))
    >>> [round(angle, 6) for angle in log(cumulative(half.expand(3, 4)))[:, 2].tolist()]
    [0.5, 1.0, 1.5]
    """
    reach = 1
    while reach < q.shape[-2]:
        q = torch.cat((q[..., :reach, :], multiply(q[..., :-reach, :], q[..., reach:, :])), -2)
        q = q / q.norm(dim=-1, keepdim=True)
        reach *= 2
    return q


def integrate(start: Float[Tensor, " 4"], gyro: Float[Tensor, "T 3"], dt: float) -> Float[Tensor, "T 4"]:
    """``q_t = q_{t-1} ⊗ exp(ω_t dt)`` from ``start`` at the first sample.

    Args:
        start: orientation at the first sample.
        gyro: angular rate in the body frame, rad/s.
        dt: seconds between samples.

    Returns:
        The orientation at every sample.

    >>> turn = integrate(torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.full((11, 3), 0.1), dt=0.1)
    >>> log(turn[-1]).round(decimals=4)
    tensor([0.1000, 0.1000, 0.1000])
    """
    return cumulative(torch.cat((start.unsqueeze(0), exp(gyro[1:] * dt))))


def extrapolate(
    q: Float[Tensor, "*B 4"], gyro: Float[Tensor, "*B 3"], seconds: float | Float[Tensor, "*C 1"]
) -> Float[Tensor, "*B 4"]:
    """The orientation after some seconds (before, if negative) at a constant rate; compensates a known delay.

    Args:
        q: the orientation, body to world.
        gyro: angular rate in the body frame, rad/s.
        seconds: how long.

    Returns:
        The orientation then.

    >>> log(extrapolate(torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([0.2, 0.0, 0.0]), 0.5)).round(decimals=4)
    tensor([0.1000, 0.0000, 0.0000])
    """
    return multiply(q, exp(gyro * seconds))
