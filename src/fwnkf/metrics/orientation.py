"""Errors of an estimated orientation: inclination, heading and total error.

The error quaternion ``q_estimate ⊗ q_true⁻¹`` is expressed in the earth frame. Its rotation about the vertical is the
heading error, the remaining rotation is the inclination error, and its angle is the total error, as defined by Laidig
et al. (2021).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import rotation
from ..shapes import Float

__all__ = ["error_quaternion", "heading_error", "inclination_error", "rms_degrees", "tilt_vector", "total_error"]


def error_quaternion(estimate: Float[Tensor, "*B 4"], truth: Float[Tensor, "*B 4"]) -> Float[Tensor, "*B 4"]:
    """The rotation in the earth frame from the true to the estimated orientation.

    Args:
        estimate: estimated orientation, body to earth.
        truth: true orientation.

    Returns:
        The error, a unit quaternion.

    >>> error_quaternion(torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([1.0, 0.0, 0.0, 0.0]))
    tensor([1., 0., 0., 0.])
    """
    return rotation.multiply(rotation.normalize(estimate), rotation.conjugate(rotation.normalize(truth)))


def inclination_error(error: Float[Tensor, "*B 4"]) -> Float[Tensor, "*B"]:
    """Angle in radians between the estimated and the true vertical: ``2 acos √(w² + z²)``, accurate near zero.

    Args:
        error: that of :func:`error_quaternion`.

    Returns:
        The angle in radians.

    >>> yaw = rotation.exp(torch.tensor([0.0, 0.0, 1.0]))
    >>> float(inclination_error(yaw))
    0.0
    """
    w, x, y, z = error.unbind(-1)
    return 2 * torch.atan2(torch.hypot(x, y), torch.hypot(w, z))


def tilt_vector(error: Float[Tensor, "*B 4"]) -> Float[Tensor, "*B 2"]:
    """The inclination error as a small rotation vector about the horizontal axes of the earth frame.

    The error is decomposed as ``e = tilt ⊗ Rz``; the result is ``2 (x', y')`` of ``tilt``, with the length
    ``2 sin(inclination / 2)``. Its covariance, for NEES and coverage, is the first two axes of ``R(q) P R(q)ᵀ``.

    Args:
        error: that of :func:`error_quaternion`.

    Returns:
        The vector in radians.

    >>> tilt = rotation.exp(torch.tensor([0.02, -0.01, 0.0]))
    >>> tilt_vector(rotation.multiply(tilt, rotation.exp(torch.tensor([0.0, 0.0, 1.0]))))
    tensor([ 0.0200, -0.0100])
    """
    w, x, y, z = error.unbind(-1)
    return 2 * torch.stack((w * x - z * y, w * y + z * x), -1) / torch.hypot(w, z).unsqueeze(-1)


def heading_error(error: Float[Tensor, "*B 4"]) -> Float[Tensor, "*B"]:
    """Absolute rotation about the vertical in radians: ``2 atan |z / w|``, between 0 and π.

    Args:
        error: that of :func:`error_quaternion`.

    Returns:
        The angle in radians.

    >>> heading_error(rotation.exp(torch.tensor([0.0, 0.0, -0.5]))).round(decimals=4)
    tensor(0.5000)
    """
    return 2 * torch.atan2(error[..., 3].abs(), error[..., 0].abs())


def total_error(error: Float[Tensor, "*B 4"]) -> Float[Tensor, "*B"]:
    """Angle of the error in radians: ``2 acos |w|``, between 0 and π, for either sign of the quaternion.

    Args:
        error: that of :func:`error_quaternion`.

    Returns:
        The angle in radians.

    >>> total_error(rotation.exp(torch.tensor([0.3, 0.0, 0.0]))).round(decimals=4)
    tensor(0.3000)
    """
    return 2 * torch.atan2(error[..., 1:].norm(dim=-1), error[..., 0].abs())


def rms_degrees(angle: Float[Tensor, "*B"]) -> float:
    """Root mean square of angles in radians, in degrees.

    Args:
        angle: angles in radians.

    Returns:
        Degrees.

    >>> round(rms_degrees(torch.tensor([0.1, -0.1])), 3)
    5.73
    """
    return math.degrees(float(angle.square().mean().sqrt()))
