"""One filter on the test records of a protocol: its estimates, and a row like those of the baselines."""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..data.protocols import Protocol, Records
from ..errors import ConfigError
from ..filters.base import Filter
from ..filters.smoothing import smooth
from ..filters.steps import dt_for
from ..metrics.consistency import mahalanobis_squared
from ..runtime.recordings import Steps, run_steps
from ..shapes import Bool, Float
from ..types import Gaussian
from .rows import Row, row

__all__ = ["Estimate", "estimate", "evaluate"]

SEED = 20260601
"""Filters that sample draw from here, so that the same filter gives the same row."""


class Estimate(NamedTuple):
    """What a method says about records.

    >>> Estimate(torch.zeros(1, 5, 2)).cov is None
    True
    """

    mean: Float[Tensor, "N T n"]
    """Estimated states."""
    cov: Float[Tensor, "N T d d"] | None = None
    """Their covariances; None if the method states none."""
    nis: float = math.nan
    """Normalised innovation squared for each channel that was measured; NaN without innovations of the sensor."""
    nis_by_channel: tuple[float, ...] = ()
    """Mean of ``r_i² / S_ii`` of each channel."""
    flagged_steps: int = 0
    """Steps whose status is not zero."""


@torch.no_grad()
def estimate(model: Filter, records: Records, *, batch: int = 1024, smoothed: bool = False) -> Estimate:
    """Run a filter over records, ``batch`` of them at a time; leaves the filter in the mode it was in.

    Works in the filter's dtype and on its device; what it returns is on the CPU. With ``smoothed``, means and
    covariances use all measurements of a record (:func:`fwnkf.smooth`); NIS is that of the filter.

    Args:
        model: the filter.
        records: the records.
        batch: records that are filtered together.
        smoothed: whether each step uses the measurements after it too.

    Returns:
        Estimates, and how consistent the innovations are.

    Raises:
        ConfigError: the filter has another state than the records.

    >>> from ..data import protocols
    >>> from ..filters.factory import build
    >>> test = protocols.simulated("lorenz", "strict", train=1, val=1, test=4).split.test
    >>> estimate(build("ekf", system=test.system), test).mean.shape
    torch.Size([4, 100, 3])
    """
    if batch < 1:
        raise ConfigError(f"batch = {batch}: at least one record at a time")
    if (model.layout.size, model.layout.tangent_size) != (records.layout.size, records.layout.tangent_size):
        raise ConfigError(
            f"filter {model.name!r} estimates {model.layout.size} numbers, the states of {records.name!r} have "
            f"{records.layout.size}; is this the data it was trained on?"
        )
    has_innovations = model.observes and not model.latent_innovations
    means, covs, squares, flagged = [], [], 0.0, 0
    by_channel = counts = torch.zeros(records.y.shape[-1], dtype=torch.float64)
    generator = torch.Generator(model.device).manual_seed(SEED)
    training = model.training
    model.eval()
    try:
        some = torch.arange(len(records)).split(batch)
        parts = (_steps(model, records.take(numbers), generator) for numbers in some)
        for numbers, track in zip(some, run_steps(model, parts, smoothing=smoothed), strict=True):
            piece = records.take(numbers)
            belief = smooth(model, track) if smoothed else track
            means.append(belief.mean.cpu())
            covs.append(belief.cov.cpu())
            flagged += int((track.status != 0).sum())
            if has_innovations:
                present = (piece.mask & piece.y.isfinite()).to(track.innovation.device)
                squares += float(masked_square(track.innovation, track.innovation_cov, present).sum())
                ratio = track.innovation.double().square() / track.innovation_cov.double().diagonal(dim1=-2, dim2=-1)
                by_channel = by_channel + torch.where(present, ratio, 0.0).sum((0, 1)).cpu()
                counts = counts + present.sum((0, 1)).cpu()
    finally:
        model.train(training)
    mean, cov = torch.cat(means), torch.cat(covs)
    if not int(counts.sum()):
        return Estimate(mean, cov, flagged_steps=flagged)
    channels = tuple((by_channel / counts).tolist())
    return Estimate(mean, cov, squares / int(counts.sum()), channels, flagged)


def evaluate(
    model: Filter, protocol: Protocol, method: str, *, batch: int = 1024, smoothed: bool = False, **extra: Any
) -> Row:
    """Run a filter over ``protocol.split.test`` and score it as :func:`fwnkf.evaluation.rows.row` scores everything.

    Besides, ``nis`` is the normalised innovation squared for each channel that was measured (one for a consistent
    filter; NaN for a filter whose innovations are not those of the sensor) and ``flagged_steps`` counts the steps whose
    status is not zero.

    Args:
        model: the filter.
        protocol: the records, and how they are scored.
        method: what the row is called.
        batch: records that are filtered together.
        smoothed: whether each step uses the measurements after it too.
        **extra: further entries of the row, such as ``scenario``.

    Returns:
        One row of a table.

    >>> from ..data import protocols
    >>> from ..filters.factory import build
    >>> protocol = protocols.simulated("lorenz", "strict", train=1, val=1, test=4)
    >>> line = evaluate(build("ekf", system=protocol.split.test.system), protocol, "ekf", scenario="white")
    >>> line["records"], line["scenario"], line["flagged_steps"]
    (4, 'white', 0)
    """
    begin = time.perf_counter()
    estimated = estimate(model, protocol.split.test, batch=batch, smoothed=smoothed)
    return scored(protocol, method, estimated, begin, **extra)


def scored(protocol: Protocol, method: str, estimated: Estimate, begin: float, **extra: Any) -> Row:
    """The row of an estimate of ``protocol.split.test`` that was begun at ``begin`` (``time.perf_counter()``)."""
    consistency = {"nis": estimated.nis, "flagged_steps": estimated.flagged_steps}
    return {**row(protocol, protocol.split.test, method, estimated.mean, estimated.cov, begin, **extra), **consistency}


def masked_square(
    innovation: Float[Tensor, "*B m"], cov: Float[Tensor, "*B m m"], present: Bool[Tensor, "*B m"]
) -> Float[Tensor, "*B"]:
    """``rᵀ S⁻¹ r`` of the channels that are present alone, in float64; infinite where ``r`` or ``S`` is not finite.

    Zero rows and columns with a one on the diagonal stand for an absent channel: the inverse of what is left is that of
    the channels present. Divided by their number it is one on average for a consistent filter.
    """
    weight = present.double()
    S = torch.where(present.unsqueeze(-1) & present.unsqueeze(-2), cov.double(), torch.diag_embed(1 - weight))
    r = torch.where(present, innovation.double(), 0.0)
    lost = ~(r.isfinite().all(-1) & S.isfinite().all(-1).all(-1))
    # replaced before the factorisation: what LAPACK returns for NaN is not specified
    eye = torch.eye(S.shape[-1], dtype=S.dtype, device=S.device)
    square = mahalanobis_squared(torch.where(lost.unsqueeze(-1), 0.0, r), torch.where(lost[..., None, None], eye, S))
    return square.masked_fill(lost | square.isnan(), torch.inf)


def _steps(model: Filter, records: Records, generator: torch.Generator) -> Steps:
    given = inputs_for(model, records)
    start = {"prior": given.pop("prior"), "generator": generator}
    return Steps(**given, start=start)


def inputs_for(model: Filter, records: Records) -> dict[str, Any]:
    """What ``model.run`` takes of some records, in the filter's dtype and on its device.

    A filter without a time step, or whose linear system is discrete, gets no ``dt``
    (:func:`fwnkf.runtime.recordings.dt_for`); one without control no ``u``.
    """
    like = torch.zeros((), dtype=model.dtype, device=model.device)
    given = records.inputs()
    given["dt"] = dt_for(model, given["dt"])
    if not model.control_dim:
        given["u"] = None
    start: Gaussian = given.pop("prior")
    moved = {
        name: value if value is None else value.to(like.device) if name == "mask" else value.to(like)
        for name, value in given.items()
    }
    return {**moved, "prior": Gaussian(*(part.to(like) for part in start))}
