"""A linear system with control from recordings, by least squares (subspace identification).

What the past says about the outputs of the next steps, given the control in between, is a linear map of the past; its
strongest directions are the state. The measurement itself is the first part of the state, so that ``H = [I, 0]``, and
the rest is what the past tells beyond it (Van Overschee and De Moor: Subspace Identification for Linear Systems, 1996;
the weighting by the covariance of the past is that of canonical variate analysis).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..core.gaussian import safe_cholesky
from ..core.linear import LinearSystem
from ..errors import DataError
from ..shapes import Float

RIDGE = 1e-5
"""Penalty of a coefficient in units of the mean square of its input."""
SMALLEST = 1e-9
"""Added to second moments, relative to their mean: inputs may repeat each other."""


def subspace(
    records: Sequence[tuple[Float[Tensor, "T m"], Float[Tensor, "T p"]]],
    order: int,
    *,
    past: int = 12,
    horizons: Sequence[int] = (1, 2, 3, 4, 6, 8, 12, 16, 24),
    stride: int = 1,
    dt: float = 1.0,
    measurement_share: float = 1e-4,
) -> LinearSystem:
    """A linear system of ``order`` states for records of measurement and control; its first states are measured.

    Args:
        records: pairs ``y, u``; ``u[t]`` acts on the way from ``y[t - 1]`` to ``y[t]``. A constant among the controls
            takes the place of an offset.
        order: number of states, at least that of the channels.
        past: steps of the past that the state is made of.
        horizons: steps ahead whose prediction counts, each in units of the spread of what it predicts.
        stride: steps between the rows of the regressions; 1 takes all.
        dt: seconds of a step.
        measurement_share: the part of the variance of one step that is noise of the measurement; ``Q`` has the rest.

    Returns:
        The system, discrete.

    Raises:
        DataError: the order is below the number of channels, or all records are too short.

    >>> y = torch.randn(2000, 1, generator=torch.Generator().manual_seed(0)).double()
    >>> for t in range(1, 2000):
    ...     y[t] += 0.9 * y[t - 1]
    >>> system = subspace([(y, torch.zeros(2000, 0).double())], order=1)
    >>> abs(float(system.F) - 0.9) < 0.03
    True
    """
    m = records[0][0].shape[-1]
    if order < m:
        raise DataError(f"order = {order}, but each of the {m} channels is a state of its own")
    parts = [_rows(y.double(), u.double(), past, horizons, stride) for y, u in records if len(y) > past + max(horizons)]
    if not parts:
        raise DataError(f"no record has more than {past + max(horizons)} samples")
    before, between, after = (torch.cat(values) for values in zip(*parts, strict=True))
    inputs = torch.cat((before, between), -1)
    moments = inputs.mT @ inputs
    scale = moments.diagonal().clamp_min(torch.finfo(moments.dtype).tiny)
    coefficients = torch.linalg.solve(moments + torch.diag(RIDGE * scale + SMALLEST * scale.mean()), inputs.mT @ after)
    # what is predicted counts in units of what one cannot predict by holding the last value
    spread = (after - before[:, :m].repeat(1, len(horizons))).square().mean(0).sqrt().clamp_min(1e-12)
    wanted = coefficients[: before.shape[1]] / spread
    cov = before.mT @ before / len(before)
    cov = cov + SMALLEST * cov.diagonal().mean() * torch.eye(len(cov)).to(cov)
    measured = torch.zeros(len(cov), m).to(cov)
    measured[:m] = torch.eye(m).to(cov)
    # directions of the past that are uncorrelated with the present measurement
    wanted = wanted - measured @ torch.linalg.solve(cov[:m, :m], cov[:m] @ wanted)
    root, _ = safe_cholesky(cov)  # positive definite by the line above
    directions = torch.linalg.svd(root.mT @ wanted, full_matrices=False)[0][:, : order - m]
    to_state = torch.cat((measured, torch.linalg.solve_triangular(root.mT, directions, upper=True)), -1)
    return _regression(records, to_state, past, stride, dt, measurement_share)


def _rows(y: Tensor, u: Tensor, past: int, horizons: Sequence[int], stride: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of the past (newest first), of the control of the next steps, and of the outputs ahead."""
    longest = max(horizons)
    at = torch.arange(past - 1, len(y) - longest, stride)
    between = u[at.unsqueeze(-1) + torch.arange(1, longest + 1)].flatten(1)
    after = torch.cat([y[at + ahead] for ahead in horizons], -1)
    return _past(y, u, at, past), between, after


def _past(y: Tensor, u: Tensor, at: Tensor, past: int) -> Tensor:
    steps = at.unsqueeze(-1) - torch.arange(past)
    return torch.cat((y[steps].flatten(1), u[steps].flatten(1)), -1)


def _regression(
    records: Sequence[tuple[Tensor, Tensor]], to_state: Tensor, past: int, stride: int, dt: float, share: float
) -> LinearSystem:
    """``F`` and ``B`` from states one step apart, ``Q`` from what is left."""
    order, m, rows, targets = to_state.shape[1], records[0][0].shape[-1], [], []
    for y, u in records:
        if len(y) <= past:
            continue
        at = torch.arange(past - 1, len(y) - 1, max(1, stride // 2))
        here, there = (_past(y.double(), u.double(), place, past) @ to_state for place in (at, at + 1))
        rows.append(torch.cat((here, u[at + 1].double()), -1))
        targets.append(there)
    x, target = torch.cat(rows), torch.cat(targets)
    moments = x.mT @ x
    jitter = SMALLEST * moments.diagonal().mean() * torch.eye(len(moments)).to(moments)
    weights = torch.linalg.solve(moments + jitter, x.mT @ target)
    left = target - x @ weights
    Q = left.mT @ left / len(left)
    R = share * Q[:m, :m].diagonal().diag()
    return LinearSystem.of(
        F=weights[:order].mT.contiguous(),
        B=weights[order:].mT.contiguous(),
        H=torch.eye(m, order).to(Q),
        Q=Q,
        R=R,
        dt=dt,
    )
