"""The belief a filter starts from where neither a prior nor a true state is known."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..filters.base import Filter
from ..shapes import Bool, Float
from ..types import Gaussian

STEPS = 8
"""First steps that are read, for each coordinate of the state."""
SAME = 1e-3
"""Relative difference up to which steps have the nominal length here, where they need not be exact."""
WIDEN = 10.0
"""Factor on the variance: the belief should not decide what the measurements say."""


@torch.no_grad()
def starting_belief(
    model: Filter,
    y: Float[Tensor, "N T m"],
    u: Float[Tensor, "N T p"] | None = None,
    mask: Bool[Tensor, "N T m"] | None = None,
    dt: Float[Tensor, "N T"] | None = None,
) -> Gaussian:
    """The filter's own initial belief, or mean and widened covariance of the states that fit the first samples best.

    The states are least-squares fits of the system without noise, linearised at its origin, to the first samples of
    each record. Coordinates that the first samples do not determine get the variance 1, angles and rotations π²/3.

    Args:
        model: the filter.
        y, u, mask, dt: records, as for ``filter.run``.

    Returns:
        The belief before the first step.

    >>> import fwnkf
    >>> one = torch.ones(1, 1)
    >>> model = fwnkf.build("kf", F=one, H=one, Q=one, R=one)
    >>> starting_belief(model, torch.full((3, 50, 1), 7.0)).mean
    tensor([7.])
    """
    own = model.initial_belief(y, u, mask, dt)
    if own is not None:
        return own
    layout, system = model.layout, model.system
    like = model._like()
    origin = layout.origin(like)
    kinds = [part.kind for part in layout.parts for _ in range(3 if part.kind == "quaternion" else part.size)]
    default = like.new_tensor([1.0 if kind == "euclidean" else math.pi**2 / 3 for kind in kinds])
    if system is None or not layout.flat or not model.observation_layout.flat or model.preprocess is not None:
        return Gaussian(origin, default.diag())
    steps = min(y.shape[1], STEPS * layout.size)
    present = y.isfinite() if mask is None else y.isfinite() & mask
    x = origin.expand(len(y), -1)
    reach = torch.eye(layout.size).to(like)
    dt = dt if model.takes_dt else None
    if dt is not None and bool((dt[:, :steps] == dt[0, 0]).all()) and abs(float(dt[0, 0]) / system.dt - 1) < SAME:
        dt = None
    nominal = system.nominal()
    rows, targets = [], []
    for t in range(steps):
        if t:  # the belief is that at the first sample
            x, F, _ = system.linearized_step(
                nominal, x, None if u is None else u[:, t], None if dt is None else dt[:, t]
            )
            reach = F @ reach
        seen, H = system.linearize_observation(x)
        weight = present[:, t].to(like)
        rows.append((H @ reach).expand(len(y), -1, -1) * weight.unsqueeze(-1))
        targets.append((y[:, t].nan_to_num() - seen) * weight)
    A, b = torch.cat(rows, 1), torch.cat(targets, 1).unsqueeze(-1)
    inverse = torch.linalg.pinv(A, rtol=1e-6)
    states = (inverse @ b).squeeze(-1)
    residual = (A @ states.unsqueeze(-1) - b).square().sum((1, 2)) / max(1, b.shape[1] - layout.size)
    mean = states.mean(0)
    spread = (states - mean).square().mean(0) + (residual[:, None] * inverse.square().sum(-1)).mean(0)
    return Gaussian(mean, torch.where(spread > 0, WIDEN * spread, default).diag())
