"""How large the errors of a fitted filter are on recordings it was not fitted to, against what it states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.trajectory import Trajectory
from ..errors import DataError
from ..metrics.consistency import nis, variance_ratio
from ..shapes import Float

Run = Callable[[Float[Tensor, "N T m"]], Trajectory | Any]
"""``filter.run``, or a function whose result has the same mean, covariance and innovations."""
Fit = Callable[[Float[Tensor, "N T m"], Float[Tensor, "N T d"]], Run]


class Levels(NamedTuple):
    """By recording, each from a filter fitted to the others; one everywhere for a filter that is consistent.

    >>> Levels(torch.ones(3), torch.ones(3, 2), torch.zeros(3, 2)).nis.mean()
    tensor(1.)
    """

    nis: Float[Tensor, " N"]
    """For all covariances of the model: multiply ``Q`` and ``R`` by the mean."""
    variance_ratio: Float[Tensor, "N d"]
    """For the reported variances of single coordinates: give the mean to ``filter.calibrate_covariance``."""
    squared_error: Float[Tensor, "N d"]
    """Mean squared error of each coordinate."""


@torch.no_grad()
def levels_left_out(fit: Fit, y: Float[Tensor, "N T m"], truth: Float[Tensor, "N T d"], *, skip: int = 0) -> Levels:
    """Leave each recording out in turn, fit to the others, and compare errors and innovations with their covariances.

    A filter states what its fit left over; on a new recording the error is larger.

    Args:
        fit: gets measurements and truth and gives a function from measurements to a trajectory: ``filter.run``.
        y: measurements.
        truth: the first ``d`` coordinates of a Euclidean state.
        skip: samples at the start that do not count, in which a filter forgets its start.

    Returns:
        NIS, variance ratios and squared errors by recording.

    Raises:
        DataError: there are fewer than two recordings.

    >>> import fwnkf
    >>> def fit(y, truth):
    ...     eye = torch.eye(1, dtype=torch.float64)
    ...     return fwnkf.build("kf", F=eye, H=eye, Q=0.01 * eye, R=eye).run
    >>> y = torch.randn(3, 50, 1, dtype=torch.float64)
    >>> levels_left_out(fit, y, torch.zeros_like(y)).variance_ratio.shape
    torch.Size([3, 1])
    """
    if len(y) < 2:
        raise DataError("levels are measured on recordings left out; there must be at least two")
    others = [torch.arange(len(y)) != out for out in range(len(y))]
    with torch.enable_grad():
        runs = [fit(y[rest], truth[rest]) for rest in others]
    return levels_of(runs, y, truth, skip=skip)


@torch.no_grad()
def levels_of(
    runs: Sequence[Run], y: Float[Tensor, "N T m"], truth: Float[Tensor, "N T d"], *, skip: int = 0
) -> Levels:
    """As :func:`levels_left_out`, of filters that were fitted before.

    Args:
        runs: for each recording that of a filter fitted to the others.
        y, truth, skip: as there.

    Returns:
        NIS, variance ratios and squared errors by recording.

    >>> import fwnkf
    >>> eye = torch.eye(1, dtype=torch.float64)
    >>> kf = fwnkf.build("kf", F=eye, H=eye, Q=0.01 * eye, R=eye)
    >>> y = torch.randn(3, 50, 1, dtype=torch.float64)
    >>> levels_of([kf.run] * 3, y, torch.zeros_like(y)).nis.shape
    torch.Size([3])
    """
    d = truth.shape[-1]
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    for run, own, known in zip(runs, y.split(1), truth.split(1), strict=True):
        track = run(own)
        error = (track.mean[..., :d] - known)[:, skip:]
        parts.append(
            (
                nis(track.innovation[:, skip:], track.innovation_cov[:, skip:]).mean(),
                variance_ratio(error, track.cov[:, skip:, :d, :d]),
                error.square().mean((0, 1)),
            )
        )
    return Levels(*(torch.stack(values) for values in zip(*parts, strict=True)))
