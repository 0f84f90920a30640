"""One row of a table: everything a reader needs to judge one figure."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import Tensor

from ..data.protocols import Protocol, Records
from ..metrics.accuracy import residual, summarize
from ..shapes import Bool, Float

Row = dict[str, Any]


def row(
    protocol: Protocol, records: Records, method: str, mean: Tensor, cov: Tensor | None, begin: float, **extra: Any
) -> Row:
    """Everything a reader needs to judge one figure. Steps whose truth is not known do not count."""
    return {
        "method": method,
        "data": protocol.data,
        "protocol": protocol.name,
        "seed": protocol.seed,
        "records": len(records),
        **extra,
        **by_part(records, mean),
        **summarize(
            records.layout, (mean, cov), records.truth, difference=protocol.difference, valid=known_steps(records)
        ),
        "seconds": round(time.perf_counter() - begin, 2),
    }


def known_steps(records: Records) -> Bool[Tensor, "N T"] | None:
    """The steps at which the whole true state is known; None if that is all of them."""
    known = records.truth.isfinite().all(-1)
    return None if bool(known.all()) else known


def record_errors(records: Records, mean: Tensor) -> Float[Tensor, " N"]:
    """Squared error of each record with a known state: the mean over coordinates and known steps; infinite if lost."""
    squares = residual(records.layout, mean.double(), records.truth.double()).square().mean(-1)
    known = records.truth.isfinite().all(-1)
    counts = known.sum(1)
    means = torch.where(known, squares, 0.0).sum(1) / counts.clamp_min(1)
    return means[counts > 0].nan_to_num(math.inf, posinf=math.inf)


def by_part(records: Records, mean: Tensor) -> dict[str, float]:
    """Root mean squared length of the error of each named part of the state: metres, metres a second, radians."""
    known = known_steps(records)
    mean, truth = (mean, records.truth) if known is None else (mean[known], records.truth[known])
    error = residual(records.layout, mean, truth)
    errors, at = {}, 0
    for part in records.layout.parts:
        piece = error[..., at : at + part.tangent_size]
        errors[f"rmse_{part.name}"] = float(piece.square().sum(-1).mean().sqrt())
        at += part.tangent_size
    return errors
