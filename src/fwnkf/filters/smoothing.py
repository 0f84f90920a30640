"""Smoothing: estimates that use the measurements after each step as well as those before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor

from ..core.gaussian import block_diagonal, factor_psd, matvec, symmetrize
from ..core.layout import Layout
from ..core.linearize import mix
from ..core.smoothing import Coordinates, Factors, LinearStep, back, end, factorize, fixed_interval, fixed_lag
from ..core.trajectory import Trajectory
from ..core.tree import tree_map
from ..errors import ConfigError
from ..shapes import Float
from ..types import Frame, FrameT, Gaussian
from .base import Filter, PriorAt
from .engines import LinearRecord
from .outputs import covariance_factor


class Smoothed(NamedTuple):
    """The belief in every step given the measurements after it too; see :func:`smooth`.

    Covariances are scaled as those of the filter are (:meth:`Filter.calibrate_covariance`).

    >>> import torch, fwnkf
    >>> one = torch.eye(1)
    >>> kf = fwnkf.KF(F=one, H=one, Q=one, R=one)
    >>> smoothed = fwnkf.smooth(kf, kf.run(torch.zeros(1, 5, 1), smoothing=True))
    >>> smoothed.mean.shape, smoothed.cross_cov.shape
    (torch.Size([1, 5, 1]), torch.Size([1, 4, 1, 1]))
    """

    mean: Float[Tensor, "B T n"]
    """Smoothed means."""
    cov: Float[Tensor, "B T d d"]
    """Smoothed covariances, in the tangent space at :attr:`mean`."""
    cross_cov: Float[Tensor, "B S d d"] | None = None
    """The covariance of step ``t`` with step ``t + 1``, for ``S = T - 1`` steps; None for a fixed lag or a mixture."""
    noise: Gaussian | None = None
    """The belief in noise states, or in the lagged states of an ``arkf``; None without any, and for a mixture."""


@overload
def smooth(model: Filter, trajectory: Trajectory, *, lag: int | None = None) -> Smoothed: ...


@overload
def smooth(
    model: Filter,
    trajectory: FrameT,
    *,
    lag: int | None = None,
    columns: Mapping[str, str] | None = None,
    prior: Gaussian | None = None,
    prior_at: PriorAt = "first_measurement",
) -> FrameT: ...


@torch.no_grad()
def smooth(
    model: Filter,
    trajectory: Trajectory | Frame,
    *,
    lag: int | None = None,
    columns: Mapping[str, str] | None = None,
    prior: Gaussian | None = None,
    prior_at: PriorAt = "first_measurement",
) -> Smoothed | Frame:
    """Smooth a trajectory of ``model.run(…, smoothing=True)``.

    On a linear Gaussian system this is the exact posterior. Elsewhere it is the Rauch-Tung-Striebel recursion on the
    linear models that the filter used, about its own estimates. Gradients are not computed.

    Args:
        model: the filter that ran.
        trajectory: what it returned; or a frame of measurements, as :meth:`Filter.run` takes it, which is filtered and
            smoothed.
        lag: None for the fixed interval, in which every step uses all measurements; ``k`` for a fixed lag, in which
            each uses those up to ``k`` steps later.
        columns, prior, prior_at: of a frame, as in :meth:`Filter.run`.

    Returns:
        The smoothed belief in every step; of a frame the estimates as a frame of the same library and time.

    Raises:
        ConfigError: the trajectory was made without ``smoothing=True``, or the lag is negative.
        DataError: a frame has no column for a channel, or its stamps go back or do not fit the filter.

    >>> import fwnkf
    >>> one = torch.eye(1)
    >>> kf = fwnkf.build("kf", F=one, H=one, Q=one, R=one)
    >>> track = kf.run(torch.tensor([[[0.0], [3.0]]]), smoothing=True)
    >>> smooth(kf, track).mean.flatten()
    tensor([0.7500, 1.8750])
    """
    if lag is not None and lag < 0:
        raise ConfigError(f"lag = {lag}: give a number of steps, or None to use all measurements")
    if not isinstance(trajectory, Trajectory):
        from .frames import smooth_frame

        frame: Frame = smooth_frame(model, smooth, trajectory, columns, lag, prior=prior, prior_at=prior_at)
        return frame
    if columns is not None or prior is not None:
        raise ConfigError(
            "columns=… and prior=… are for a frame of measurements; a trajectory has been filtered already"
        )
    if trajectory.linear is None:
        raise ConfigError(
            "the trajectory does not hold the linear models of its steps; run the filter with smoothing=True: "
            "trajectory = filter.run(y, …, smoothing=True)"
        )
    if isinstance(trajectory.linear, LinearRecord):
        if lag is None:
            smoothed, _ = linear_part(model, trajectory.linear, None)
            return smoothed._replace(cross_cov=None if smoothed.cross_cov is None else smoothed.cross_cov[:, 1:])
        trajectory = trajectory._replace(linear=trajectory.linear.steps())
    steps = trajectory.linear.steps
    before, forward = factorized(model, trajectory)
    links = tree_map(lambda item: item[:, 1:], forward.links)
    last = end(forward.factors[:, -1])
    z = fixed_interval(links, last) if lag is None else fixed_lag(links, last, lag)
    log_weight = steps.log_weight
    if log_weight is not None:
        length = log_weight.shape[1]
        used = torch.arange(length, device=log_weight.device) + (length if lag is None else lag)
        log_weight = log_weight[:, used.clamp_max(length - 1)]
    smoothed = _from_coordinates(model, before, forward, steps, z, log_weight)
    if lag is not None or smoothed.cross_cov is None:
        return smoothed._replace(cross_cov=None)
    return smoothed._replace(cross_cov=smoothed.cross_cov[:, 1:])


class Forward(NamedTuple):
    """The factors of a filtered part of a recording: of the covariance before its first step, and of all steps."""

    before: Float[Tensor, "R D D"]
    factors: Factors

    @property
    def last(self) -> Float[Tensor, "R D D"]:
        """The factor after the last step, with which the next part begins."""
        return self.factors.factors[:, -1]


def factorized(model: Filter, track: Trajectory, before: Tensor | None = None) -> Forward:
    """Factors of a trajectory; ``before`` is :attr:`Forward.last` of the part before it, None for the first."""
    start, steps = track.linear.steps() if isinstance(track.linear, LinearRecord) else track.linear
    before = factor_psd(start) if before is None else before
    return Forward(before, factorize(before, steps, transport(model.layout, steps.correction)))


def linear_part(model: Filter, record: LinearRecord, following: Any) -> tuple[Smoothed, Any]:
    """A smoothed part of a recording by the engine that filtered it, and what the part before it needs."""
    mean, cov, cross, left = record.smoothed(following)
    n = model.layout.size
    noise = Gaussian(mean[..., n:], cov[..., n:, n:]) if record.extra else None
    mean, cov, cross = mean[..., :n], cov[..., :n, :n], cross[..., :n, :n]
    if model.covariance_scale is not None:
        scale = covariance_factor(model.covariance_scale)
        cov, cross = cov * scale, cross * scale
    return Smoothed(mean, cov, cross, noise), left


def last_factor(model: Filter, track: Trajectory, before: Tensor | None) -> Tensor | None:
    """What the part of a recording after this one needs for its smoothing; None where that is in its state."""
    return None if _in_parts(track) else factorized(model, track, before).last


def _steps(track: Trajectory) -> LinearStep:
    record = track.linear
    steps: LinearStep = record.steps().steps if isinstance(record, LinearRecord) else record.steps
    return steps


def _in_parts(track: Trajectory) -> bool:
    """Whether the engine that filtered a part smooths it too."""
    return isinstance(track.linear, LinearRecord) and track.linear.engine == "native"


def smoothed_part(
    model: Filter, track: Trajectory, before: Tensor | None, last: Any, log_weight: Tensor | None
) -> tuple[Smoothed, Any]:
    """A smoothed part of a recording, and that from which the part before it goes on.

    Args:
        model: the filter.
        track: its trajectory over the part.
        before: :func:`last_factor` of the part before it; None for the first.
        last: what the next part returned; None for the last part.
        log_weight: the weights of a mixture over the last part; None without one.
    """
    if _in_parts(track):
        return linear_part(model, track.linear, last)
    forward = factorized(model, track, before)
    last = end(forward.last) if last is None else last
    z = fixed_interval(tree_map(lambda item: item[:, 1:], forward.factors.links), last)
    final = None if log_weight is None else log_weight[:, -1:].expand(-1, z.mean.shape[1], -1)
    smoothed = _from_coordinates(model, forward.before, forward.factors, _steps(track), z, final)
    return smoothed, _before_first(forward.factors, z)


def joined(parts: Sequence[Smoothed]) -> Smoothed:
    """Parts one after the other as one."""
    return Smoothed(*(_joined(items) for items in zip(*parts, strict=True)))


def transport(layout: Layout, correction: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D D"] | None:
    """Jacobians of ``x ⊞ δ`` with respect to ``δ``: they take errors of ``δ`` to the tangent space at ``x ⊞ δ``.

    None where they are identities, for a state without quaternions. Coordinates beyond the layout are flat.
    """
    if all(part.kind != "quaternion" for part in layout.parts):
        return None
    d = layout.tangent_size
    _, jacobian = layout.boxplus_jacobians(correction[..., :d])
    return block_diagonal(jacobian, torch.eye(correction.shape[-1] - d).to(jacobian))


def _transported(
    layout: Layout, delta: Float[Tensor, "*B D"], factor: Float[Tensor, "*B D D"]
) -> Float[Tensor, "*B D D"]:
    """A factor of the covariance at ``x`` as one at ``x ⊞ δ``."""
    jacobian = transport(layout, delta)
    return factor if jacobian is None else jacobian @ factor


def _before_first(forward: Factors, z: Coordinates) -> Coordinates:
    """The coordinates of the state before the first step."""
    return back(*(tree_map(lambda item: item[:, 0], part) for part in (forward.links, z)))


def _from_coordinates(
    model: Filter,
    before: Float[Tensor, "R D D"],
    forward: Factors,
    steps: LinearStep,
    z: Coordinates,
    log_weight: Float[Tensor, "B T K"] | None,
) -> Smoothed:
    """The smoothed belief from its coordinates; ``cross_cov`` begins with that of the state before the first step."""
    layout, d = model.layout, model.layout.tangent_size
    delta = matvec(forward.factors, z.mean)
    delta_before = matvec(before, _before_first(forward, z).mean)
    # from the tangent spaces at the filtered means to those at the smoothed ones
    factors = _transported(layout, delta, forward.factors)
    earlier = torch.cat((_transported(layout, delta_before, before).unsqueeze(1), factors[:, :-1]), 1)
    cov = symmetrize(factors @ z.cov @ factors.mT)
    cross = (earlier @ forward.links.gain @ z.cov @ factors.mT)[..., :d, :d]
    mean = layout.boxplus(steps.mean, delta[..., :d])
    scale = None if model.covariance_scale is None else covariance_factor(model.covariance_scale)
    if log_weight is not None:
        batch, length, count = log_weight.shape
        members = (item.unflatten(0, (batch, count)).movedim(1, 2).flatten(0, 1) for item in (mean, cov[..., :d, :d]))
        mixture = mix(layout, log_weight.exp().flatten(0, 1), *members)
        mean, cov = (item.unflatten(0, (batch, length)) for item in mixture)
        return Smoothed(mean, cov if scale is None else cov * scale)
    noise = None
    if steps.extra is not None:
        noise = Gaussian(steps.extra + delta[..., d:], cov[..., d:, d:])
    cov = cov[..., :d, :d]
    if scale is not None:
        cov, cross = cov * scale, cross * scale
    return Smoothed(mean, cov, cross, noise)


def _joined(items: tuple[Any, ...]) -> Any:
    """Tensors, or tuples of them, joined along time; None stays None."""
    if isinstance(items[0], tuple):
        return type(items[0])(*(_joined(leaves) for leaves in zip(*items, strict=True)))
    return None if items[0] is None else torch.cat(items, 1)
