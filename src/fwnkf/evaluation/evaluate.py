"""One filter on the test records of a protocol: a row like those of the baselines, with NIS and status."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from ..data.protocols import Protocol, Records
from ..errors import ConfigError, NoObservationModelError
from ..filters.base import Filter
from ..metrics.consistency import mahalanobis_squared
from ..shapes import Bool, Float
from ..types import Gaussian
from .rows import Row, row

SEED = 20260601
"""Filters that sample draw from here, so that the same filter gives the same row."""


@torch.no_grad()
def evaluate(model: Filter, made: Protocol, method: str, *, batch: int = 1024, **extra: Any) -> Row:
    """Run a filter over ``made.split.test`` and score it as :func:`fwnkf.evaluation.rows.row` scores everything.

    Besides, ``nis`` is the normalised innovation squared for each channel that was measured (one for a consistent
    filter; NaN for a filter whose innovations are not those of the sensor) and ``flagged_steps`` counts the steps whose
    status is not zero. Works in the filter's dtype and on its device; leaves the filter in the mode it was in.

    Args:
        method: what the row is called.
        batch: records that are filtered together.
        extra: further entries of the row, such as ``scenario``.

    >>> from ..data import protocols
    >>> from ..filters.base import build
    >>> made = protocols.simulated("lorenz", "strict", train=1, val=1, test=4)
    >>> found = evaluate(build("ekf", system=made.split.test.system), made, "ekf", scenario="white")
    >>> found["records"], found["scenario"], found["flagged_steps"]
    (4, 'white', 0)
    """
    if batch < 1:
        raise ConfigError(f"batch = {batch}: at least one record at a time")
    task = made.split.test
    if (model.layout.size, model.layout.tangent_size) != (task.layout.size, task.layout.tangent_size):
        raise ConfigError(
            f"filter {model.name!r} estimates {model.layout.size} numbers, the states of {task.name!r} have "
            f"{task.layout.size}; is this the data it was trained on?"
        )
    begin = time.perf_counter()
    seen = _sees_the_sensor(model, task)
    means, covs, squares, channels, flagged = [], [], 0.0, 0, 0
    generator = torch.Generator(model._like().device).manual_seed(SEED)
    training = model.training
    model.eval()
    try:
        for rows in torch.arange(len(task)).split(batch):
            piece = task.take(rows)
            track = model.run(**inputs_for(model, piece), generator=generator)
            means.append(track.mean.cpu())
            covs.append(track.cov.cpu())
            flagged += int((track.status != 0).sum())
            if seen:
                present = (piece.mask & piece.y.isfinite()).to(track.innovation.device)
                squares += float(masked_square(track.innovation, track.innovation_cov, present).sum())
                channels += int(present.sum())
    finally:
        model.train(training)
    measured = {"nis": squares / channels if channels else float("nan"), "flagged_steps": flagged}
    return {**row(made, task, method, torch.cat(means), torch.cat(covs), begin, **extra), **measured}


def masked_square(
    innovation: Float[Tensor, "*B m"], cov: Float[Tensor, "*B m m"], present: Bool[Tensor, "*B m"]
) -> Float[Tensor, "*B"]:
    """``rᵀ S⁻¹ r`` of the channels that are present alone, in float64; infinite where it cannot be had.

    Zero rows and columns with a one on the diagonal stand for an absent channel: the inverse of what is left is that of
    the channels present. Divided by their number it is one on average for a consistent filter.
    """
    weight = present.double()
    S = torch.where(present.unsqueeze(-1) & present.unsqueeze(-2), cov.double(), torch.diag_embed(1 - weight))
    r = torch.where(present, innovation.double(), 0.0)
    lost = ~(r.isfinite().all(-1) & S.isfinite().all(-1).all(-1))
    # cleaned first: what LAPACK makes of NaN is its own affair
    eye = torch.eye(S.shape[-1], dtype=S.dtype, device=S.device)
    found = mahalanobis_squared(torch.where(lost.unsqueeze(-1), 0.0, r), torch.where(lost[..., None, None], eye, S))
    return found.masked_fill(lost | found.isnan(), torch.inf)


def inputs_for(model: Filter, task: Records) -> dict[str, Any]:
    """What ``model.run`` takes of a task, in the filter's dtype and on its device.

    A filter that counts in steps, or whose linear system is discrete, gets no ``dt``; one without control no ``u``.
    """
    like = model._like()
    given = task.inputs()
    if not model.takes_dt:
        given["dt"] = None
    if not model.control_dim:
        given["u"] = None
    start: Gaussian = given.pop("prior")
    moved = {
        name: value if value is None else value.to(like.device) if name == "mask" else value.to(like)
        for name, value in given.items()
    }
    return {**moved, "prior": Gaussian(*(part.to(like) for part in start))}


def _sees_the_sensor(model: Filter, task: Records) -> bool:
    """Whether the filter's innovations are those of the sensor; the RKN's are of its latent space."""
    try:
        model.observe(task.start.mean.to(model._like()))
    except NoObservationModelError:
        return False
    return True
