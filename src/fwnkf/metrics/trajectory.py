"""Errors of paths through space: ATE, RPE, rotation, and the distances between worn sensors.

Positions are ``(*B, T, 3)``, orientations unit quaternions ``(w, x, y, z)`` from body to world. Lengths come in the
unit of the positions, angles in radians. An estimate that is not finite is an error of infinity and is never dropped.
ATE and RPE are those of the tool ``evo``, ``APE`` and ``RPE`` there.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ..core import rotation
from ..core.gaussian import matvec
from ..core.layout import Layout
from ..errors import ConfigError, DataError, ShapeError
from ..shapes import Bool, Float
from .accuracy import raw_difference, residual

Alignment = Literal["none", "yaw", "se3"]
_ORIENTATION = Layout.parse([("orientation", "quaternion", 4)])


class Poses(NamedTuple):
    """A path with orientation."""

    position: Float[Tensor, "*B T 3"]
    orientation: Float[Tensor, "*B T 4"]


# ------------------------------------------------------------------------------------------------------ absolute errors


class Motion(NamedTuple):
    """A rigid motion ``x → R x + t``."""

    rotation: Float[Tensor, "*B 3 3"]
    translation: Float[Tensor, "*B 3"]


def align(estimate: Float[Tensor, "*B T 3"], truth: Float[Tensor, "*B T 3"], alignment: Alignment = "se3") -> Motion:
    """The rigid motion with the least ``Σ_t ‖R x̂_t + t - x_t‖²`` (Umeyama 1991, without scale).

    ``"se3"`` is free in all six directions, ``"yaw"`` in the four that an inertial sensor cannot observe: position and
    the turn about the vertical ``z``. Where the path is a straight line the turn about it is arbitrary; the position
    error does not depend on it.

    >>> there = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 2.0, 0.0], [1.0, 2.0, 3.0]])
    >>> align(there, there + 5).translation
    tensor([5., 5., 5.])
    """
    centre, goal = estimate.mean(-2), truth.mean(-2)
    cross = (truth - goal.unsqueeze(-2)).mT @ (estimate - centre.unsqueeze(-2))
    if alignment == "se3":
        # Not a covariance of ours, and not inverted: the factors are the answer, so the SVD has its place here and not
        # in core/gaussian.py.
        U, _, Vh = torch.linalg.svd(cross)
        sign = torch.ones_like(centre)
        sign[..., 2] = (torch.linalg.det(U) * torch.linalg.det(Vh)).sign()  # a rotation, not a reflection
        R = U * sign.unsqueeze(-2) @ Vh
    elif alignment == "yaw":  # the same in the plane, where the maximum of tr(Rᵀ cross) is an arctangent
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
    """``‖R x̂_t + t - x_t‖`` after alignment; a path that is not finite cannot be aligned and is wrong throughout."""
    lost = ~estimate.isfinite().all(-1)
    if alignment != "none":
        lost = lost.any(-1, keepdim=True).expand_as(lost)
        estimate = torch.where(lost.unsqueeze(-1), torch.zeros_like(estimate), estimate)  # the SVD raises on NaN
        R, t = align(estimate, truth, alignment)
        estimate = estimate @ R.mT + t.unsqueeze(-2)
    return raw_difference(estimate, truth).norm(dim=-1).masked_fill(lost, torch.inf)


class ATE(NamedTuple):
    """Absolute trajectory error of each path: the paper's ATE is ``mean`` and ``maximum``, that of ``evo`` ``rmse``."""

    rmse: Float[Tensor, "*B"]
    mean: Float[Tensor, "*B"]
    maximum: Float[Tensor, "*B"]


def ate(estimate: Float[Tensor, "*B T 3"], truth: Float[Tensor, "*B T 3"], alignment: Alignment = "none") -> ATE:
    """Average and largest distance from the true path.

    Without alignment it scores dead reckoning from a given start; with it, the shape of the path alone.

    >>> ate(torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0]]), torch.zeros(2, 3)).mean
    tensor(2.5000)
    """
    error = position_error(estimate, truth, alignment)
    return ATE(error.square().mean(-1).sqrt(), error.mean(-1), error.amax(-1))


def rotation_error(estimate: Float[Tensor, "*B 4"], truth: Float[Tensor, "*B 4"]) -> Float[Tensor, "*B"]:
    """Geodesic distance ``‖log(q⁻¹ ⊗ q̂)‖`` in radians; infinite where the estimate is no rotation."""
    return residual(_ORIENTATION, rotation.normalize(estimate), truth).norm(dim=-1)


def rho(estimate: Float[Tensor, "*B 4"], truth: Float[Tensor, "*B 4"]) -> Float[Tensor, ""]:
    """The rotation error ``ρ``: the mean geodesic distance, in radians, over everything.

    The paper's table of UIP-DB has a column ``ρ`` and the paper nowhere says what it is. This is our choice: it
    depends on no parametrisation and ``q`` and ``-q`` are the same. Whether published values can be compared with it,
    and whether they are radians, is unknown.

    >>> rho(torch.tensor([[-1.0, 0.0, 0.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    tensor(0.)
    """
    return rotation_error(estimate, truth).mean()


# ------------------------------------------------------------------------------------------------------ relative errors


class RPE(NamedTuple):
    """Relative pose error of each path: what is gained or lost in position and rotation over some frames."""

    translation_rmse: Float[Tensor, "*B"]
    translation_mean: Float[Tensor, "*B"]
    rotation_rmse: Float[Tensor, "*B"]
    rotation_mean: Float[Tensor, "*B"]


def _relative(poses: Poses, first: slice, last: slice) -> Poses:
    """The pose at the end of each stretch as seen from its beginning, ``T_i⁻¹ T_j``."""
    back = rotation.conjugate(poses.orientation[..., first, :])
    moved = poses.position[..., last, :] - poses.position[..., first, :]
    return Poses(matvec(rotation.to_matrix(back), moved), rotation.multiply(back, poses.orientation[..., last, :]))


def rpe(estimate: Poses, truth: Poses, frames: int = 1, overlap: bool = True) -> RPE:
    """``E_i = (T_i⁻¹ T_{i+Δ})⁻¹ (T̂_i⁻¹ T̂_{i+Δ})``: its translation and its angle, for ``Δ = frames``.

    It does not depend on how the paths are aligned. With ``overlap`` a stretch begins at every frame (``all_pairs`` in
    ``evo``), without it where the last one ended (the default there).

    >>> still = torch.tensor([[1.0, 0.0, 0.0, 0.0]]).expand(3, 4)
    >>> walk = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    >>> rpe(Poses(walk, still), Poses(torch.zeros(3, 3), still)).translation_rmse
    tensor(1.)
    """
    length = truth.position.shape[-2]
    if not 1 <= frames < length:
        raise ShapeError(f"no stretch of {frames} frames in a path of {length}; it takes 1 to {length - 1}")
    stride = 1 if overlap else frames
    first, last = slice(0, length - frames, stride), slice(frames, length, stride)
    unit = Poses(estimate.position, rotation.normalize(estimate.orientation))
    ours, true = _relative(unit, first, last), _relative(truth, first, last)
    angle = rotation_error(ours.orientation, true.orientation)
    # a step whose rotation is lost has no frame to see the next one from: its relative translation is lost as well
    shift = raw_difference(ours.position, true.position).norm(dim=-1).masked_fill(angle.isinf(), torch.inf)
    return RPE(shift.square().mean(-1).sqrt(), shift.mean(-1), angle.square().mean(-1).sqrt(), angle.mean(-1))


# --------------------------------------------------------------------------------------- distances between worn sensors


class DistanceError(NamedTuple):
    """Root mean square and mean absolute error over everything that was scored."""

    rmse: Float[Tensor, ""]
    mae: Float[Tensor, ""]


def pairwise_distances(positions: Float[Tensor, "*B s 3"]) -> Float[Tensor, "*B p"]:
    """Distances between sensors, 15 for six of them: the upper triangle, row by row, as UIP-DB stores its ranges.

    >>> pairwise_distances(torch.tensor([[0.0, 0.0, 0.0], [3.0, 4.0, 0.0], [0.0, 0.0, 1.0]])).shape
    torch.Size([3])
    """
    count = positions.shape[-2]
    i, j = torch.triu_indices(count, count, 1, device=positions.device)
    return (positions[..., i, :] - positions[..., j, :]).norm(dim=-1)


def range_error(
    estimate: Float[Tensor, "*B p"], truth: Float[Tensor, "*B p"], mask: Bool[Tensor, "*B p"] | None = None
) -> DistanceError:
    """Error of distances against true or measured ones, the latter scored only where ``mask`` is true.

    Means over all that is scored. The paper's sums over sensors are ``mse_paper`` and ``mae_paper`` of ``accuracy``.

    >>> range_error(torch.tensor([1.0, 2.0]), torch.tensor([0.0, torch.nan]), torch.tensor([True, False])).rmse
    tensor(1.)
    """
    error = raw_difference(estimate, truth)
    if mask is not None:
        error = error[mask]
    if error.numel() == 0:
        raise DataError("no range to score: the mask leaves none; hold out some measured ones")
    return DistanceError(error.square().mean().sqrt(), error.abs().mean())


def sensor_distance_error(estimate: Float[Tensor, "*B s 3"], truth: Float[Tensor, "*B s 3"]) -> DistanceError:
    """:func:`range_error` of the distances between sensors at known positions, whatever the frame of either."""
    return range_error(pairwise_distances(estimate), pairwise_distances(truth))
