"""Errors of trajectories: absolute (ATE), relative (RPE), and of rotation.

Positions are ``(*B, T, 3)``, orientations unit quaternions ``(w, x, y, z)`` from body to world. Lengths come in the
unit of the positions, angles in radians. An estimate that is not finite is an error of infinity and is never dropped.
ATE and RPE are defined as ``APE`` and ``RPE`` of the tool ``evo``.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fwnkf.core import rotation
from fwnkf.core.gaussian import matvec
from fwnkf.core.layout import Layout
from fwnkf.errors import ConfigError, ShapeError
from fwnkf.metrics.accuracy import raw_difference, residual
from fwnkf.shapes import Float

Alignment = Literal["none", "yaw", "se3"]
_ORIENTATION = Layout.parse([("orientation", "quaternion", 4)])


class Poses(NamedTuple):
    """Positions and orientations of a trajectory."""

    position: Float[Tensor, "*B T 3"]
    orientation: Float[Tensor, "*B T 4"]


# ------------------------------------------------------------------------------------------------------ absolute errors


class Motion(NamedTuple):
    """A rigid motion ``x → R x + t``."""

    rotation: Float[Tensor, "*B 3 3"]
    translation: Float[Tensor, "*B 3"]


def align(estimate: Float[Tensor, "*B T 3"], truth: Float[Tensor, "*B T 3"], alignment: Alignment = "se3") -> Motion:
    """The rigid motion that minimises ``Σ_t ‖R x̂_t + t - x_t‖²`` (Umeyama 1991, without scale).

    ``"se3"`` has all six degrees of freedom, ``"yaw"`` the four that an inertial sensor cannot observe: position and
    rotation about the vertical ``z``. If the positions lie on a line the rotation about it is arbitrary; the position
    error does not depend on it.

    >>> there = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 2.0, 0.0], [1.0, 2.0, 3.0]])
    >>> align(there, there + 5).translation
    tensor([5., 5., 5.])
    """
    centre, goal = estimate.mean(-2), truth.mean(-2)
    cross = (truth - goal.unsqueeze(-2)).mT @ (estimate - centre.unsqueeze(-2))
    if alignment == "se3":
        # no covariance of a filter, and not inverted: the factors themselves are the solution
        U, _, Vh = torch.linalg.svd(cross)
        sign = torch.ones_like(centre)
        sign[..., 2] = (torch.linalg.det(U) * torch.linalg.det(Vh)).sign()  # a rotation, not a reflection
        R = U * sign.unsqueeze(-2) @ Vh
    elif alignment == "yaw":  # the same problem in the plane: the maximum of tr(Rᵀ cross) is an arctangent
        angle = torch.atan2(cross[..., 1, 0] - cross[..., 0, 1], cross[..., 0, 0] + cross[..., 1, 1])
        R = rotation.to_matrix(rotation.exp(torch.nn.functional.pad(angle.unsqueeze(-1), (2, 0))))
    elif alignment == "none":
        R = torch.eye(3, dtype=estimate.dtype, device=estimate.device).expand_as(cross)
        return Motion(R, torch.zeros_like(centre))
    else:
        raise ConfigError(f"alignment {alignment!r} is none of 'none', 'yaw', 'se3'")
    return Motion(R, goal - matvec(R, centre))


def position_error(
    estimate: Float[Tensor, "*B T 3"], truth: Float[Tensor, "*B T 3"], alignment: Alignment = "none"
) -> Float[Tensor, "*B T"]:
    """``‖R x̂_t + t - x_t‖`` after alignment; infinite throughout if a trajectory to be aligned is not finite."""
    invalid = ~estimate.isfinite().all(-1)
    if alignment != "none":
        invalid = invalid.any(-1, keepdim=True).expand_as(invalid)
        estimate = torch.where(invalid.unsqueeze(-1), torch.zeros_like(estimate), estimate)  # the SVD raises on NaN
        R, t = align(estimate, truth, alignment)
        estimate = estimate @ R.mT + t.unsqueeze(-2)
    return raw_difference(estimate, truth).norm(dim=-1).masked_fill(invalid, torch.inf)


class ATE(NamedTuple):
    """Absolute trajectory error of each trajectory; most publications mean ``rmse``."""

    rmse: Float[Tensor, "*B"]
    mean: Float[Tensor, "*B"]
    maximum: Float[Tensor, "*B"]


def ate(estimate: Float[Tensor, "*B T 3"], truth: Float[Tensor, "*B T 3"], alignment: Alignment = "none") -> ATE:
    """Mean, root mean squared and largest distance from the true positions.

    Without alignment it scores dead reckoning from a given initial state; with it, the shape of the trajectory alone.

    >>> ate(torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0]]), torch.zeros(2, 3)).mean
    tensor(2.5000)
    """
    error = position_error(estimate, truth, alignment)
    return ATE(error.square().mean(-1).sqrt(), error.mean(-1), error.amax(-1))


def rotation_error(estimate: Float[Tensor, "*B 4"], truth: Float[Tensor, "*B 4"]) -> Float[Tensor, "*B"]:
    """Geodesic distance ``‖log(q⁻¹ ⊗ q̂)‖`` in radians; infinite where the estimate is no rotation."""
    return residual(_ORIENTATION, rotation.normalize(estimate), truth).norm(dim=-1)


# ------------------------------------------------------------------------------------------------------ relative errors


class RPE(NamedTuple):
    """Relative pose error of each trajectory: the drift of position and rotation over a number of frames."""

    translation_rmse: Float[Tensor, "*B"]
    translation_mean: Float[Tensor, "*B"]
    rotation_rmse: Float[Tensor, "*B"]
    rotation_mean: Float[Tensor, "*B"]


def _relative(poses: Poses, first: slice, last: slice) -> Poses:
    """The pose at the end of each segment relative to its beginning, ``T_i⁻¹ T_j``."""
    back = rotation.conjugate(poses.orientation[..., first, :])
    moved = poses.position[..., last, :] - poses.position[..., first, :]
    return Poses(matvec(rotation.to_matrix(back), moved), rotation.multiply(back, poses.orientation[..., last, :]))


def rpe(estimate: Poses, truth: Poses, frames: int = 1, overlap: bool = True) -> RPE:
    """``E_i = (T_i⁻¹ T_{i+Δ})⁻¹ (T̂_i⁻¹ T̂_{i+Δ})``: its translation and its angle, for ``Δ = frames``.

    It does not depend on alignment. With ``overlap`` a segment begins at every frame (``all_pairs`` in ``evo``),
    without it where the last one ended (the default there).

    >>> still = torch.tensor([[1.0, 0.0, 0.0, 0.0]]).expand(3, 4)
    >>> walk = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    >>> rpe(Poses(walk, still), Poses(torch.zeros(3, 3), still)).translation_rmse
    tensor(1.)
    """
    length = truth.position.shape[-2]
    if not 1 <= frames < length:
        raise ShapeError(f"no segment of {frames} frames in a trajectory of {length}; frames must be 1 to {length - 1}")
    stride = 1 if overlap else frames
    first, last = slice(0, length - frames, stride), slice(frames, length, stride)
    unit = Poses(estimate.position, rotation.normalize(estimate.orientation))
    ours, true = _relative(unit, first, last), _relative(truth, first, last)
    angle = rotation_error(ours.orientation, true.orientation)
    # without a rotation there is no frame for the relative translation, so that is invalid as well
    shift = raw_difference(ours.position, true.position).norm(dim=-1).masked_fill(angle.isinf(), torch.inf)
    return RPE(shift.square().mean(-1).sqrt(), shift.mean(-1), angle.square().mean(-1).sqrt(), angle.mean(-1))
