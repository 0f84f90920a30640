"""Errors of an estimated orientation: of the vertical, of the heading, and as a whole.

The error quaternion ``q_estimate ⊗ q_true⁻¹`` lives in the earth frame. Its rotation about the vertical is the heading
error, what is left the inclination error, its whole angle the total error; the decomposition is that of the evaluation
code of BROAD (Laidig et al. 2021).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import rotation
from ..shapes import Float


def error_quaternion(estimate: Float[Tensor, "*B 4"], truth: Float[Tensor, "*B 4"]) -> Float[Tensor, "*B 4"]:
    """The rotation, in the earth frame, that leads from the true orientation to the estimated one."""
    return rotation.multiply(rotation.normalize(estimate), rotation.conjugate(rotation.normalize(truth)))


def inclination_error(error: Float[Tensor, "*B 4"]) -> Float[Tensor, "*B"]:
    """Angle in radians between the estimated and the true vertical: ``2 acos √(w² + z²)``, exact near zero too.

    >>> yaw = rotation.exp(torch.tensor([0.0, 0.0, 1.0]))
    >>> float(inclination_error(yaw))
    0.0
    """
    w, x, y, z = error.unbind(-1)
    return 2 * torch.atan2(torch.hypot(x, y), torch.hypot(w, z))


def heading_error(error: Float[Tensor, "*B 4"]) -> Float[Tensor, "*B"]:
    """Absolute rotation about the vertical in radians: ``2 atan |z / w|``, between 0 and π."""
    return 2 * torch.atan2(error[..., 3].abs(), error[..., 0].abs())


def total_error(error: Float[Tensor, "*B 4"]) -> Float[Tensor, "*B"]:
    """The whole angle of the error in radians: ``2 acos |w|``, between 0 and π; either sign of the quaternion."""
    return 2 * torch.atan2(error[..., 1:].norm(dim=-1), error[..., 0].abs())


def rms_degrees(angle: Float[Tensor, "*B"]) -> float:
    """Root mean square of angles in radians, in degrees.

    >>> round(rms_degrees(torch.tensor([0.1, -0.1])), 3)
    5.73
    """
    return math.degrees(float(angle.square().mean().sqrt()))
