"""One row of a table: everything a reader needs to judge one figure."""

from __future__ import annotations

import time
from typing import Any

from torch import Tensor

from ..data.protocols import Protocol, Records
from ..metrics.accuracy import residual, summarize
from ..shapes import Bool

Row = dict[str, Any]


def row(
    made: Protocol, task: Records, method: str, mean: Tensor, cov: Tensor | None, begin: float, **extra: Any
) -> Row:
    """Everything a reader needs to judge one figure. Steps whose truth is not known do not count."""
    return {
        "method": method,
        "data": made.data,
        "protocol": made.name,
        "seed": made.seed,
        "records": len(task),
        **extra,
        **by_part(task, mean),
        **summarize(task.layout, (mean, cov), task.truth, difference=made.difference, valid=known_steps(task)),
        "seconds": round(time.perf_counter() - begin, 2),
    }


def known_steps(task: Records) -> Bool[Tensor, "N T"] | None:
    """The steps at which the whole true state is known; None if that is all of them."""
    known = task.truth.isfinite().all(-1)
    return None if bool(known.all()) else known


def by_part(task: Records, mean: Tensor) -> dict[str, float]:
    """Root mean squared length of the error of each named part of the state: metres, metres a second, radians."""
    known = known_steps(task)
    mean, truth = (mean, task.truth) if known is None else (mean[known], task.truth[known])
    error = residual(task.layout, mean, truth)
    found, at = {}, 0
    for part in task.layout.parts:
        piece = error[..., at : at + part.tangent_size]
        found[f"rmse_{part.name}"] = float(piece.square().sum(-1).mean().sqrt())
        at += part.tangent_size
    return found
