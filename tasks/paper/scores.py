"""Scores of an estimate by the definitions of the paper's tables, and errors of records for paired differences.

The paper's formulas sum over the components of the state; its tables follow its public code (``trainer.py``,
``evaluate``): means over all numbers of all records, angles compared as stored numbers, NRMSE relative to the standard
deviation of all numbers together, and hence R² = 1 - NRMSE². ``mse_arc`` compares angles along the shortest arc, which
is what filters are trained for.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import torch

from fwnkf.data.protocols import Records
from fwnkf.evaluation.evaluate import Estimate
from fwnkf.evaluation.rows import known_steps
from fwnkf.metrics.accuracy import residual, summarize
from tasks.bootstrap import Interval, paired_ratio
from tasks.euroc.trajectory import ate
from tasks.paper.store import Row

COLUMNS = ("mae", "mse", "rmse", "nrmse", "r2")
"""The columns of the paper's tables."""
BLOCKS = 100
"""Largest number of errors in a row: means over blocks of records, if there are more of them."""


def scores(records: Records, estimated: Estimate, first: int = 0) -> dict[str, float]:
    """The figures of one method. NEES and coverage leave out steps before ``first``."""
    both, known = (estimated.mean, estimated.cov), known_steps(records)
    table = summarize(records.layout, both, records.truth, difference="raw", valid=known)
    counted = torch.ones(records.truth.shape[:-1], dtype=torch.bool) if known is None else known.clone()
    arc = summarize(records.layout, both, records.truth, valid=known)
    counted[:, :first] = False
    later = summarize(records.layout, both, records.truth, valid=counted)
    figures = {
        "mae": table["mae"],
        "mse": table["mse"],
        "rmse": table["rmse"],
        "nrmse": table["nrmse_std"],
        "r2": 1 - table["nrmse_std"] ** 2,
        "mse_arc": arc["mse"],
        "mse_from_10": arc["mse_from_10"],
        "nees": later["nees"],
        "coverage95": later["coverage95"],
        "nis": estimated.nis,
        "failures": table["failures"],
        **_trajectory(records, estimated),
    }
    return {name: float(f"{value:.7g}") for name, value in figures.items()}


def _trajectory(records: Records, estimated: Estimate) -> dict[str, float]:
    """The paper's trajectory errors: mean distance from the true position, and the largest one of a record.

    Both are means over records; empty if the state does not begin with a position in space.
    """
    first = records.layout.parts[0]
    if (first.kind, first.size) != ("euclidean", 3):
        return {}
    errors = ate(estimated.mean[..., :3].double(), records.truth[..., :3].double())
    return {"ate": float(errors.mean.mean()), "ate_max": float(errors.maximum.mean())}


def block_errors(records: Records, estimated: Estimate) -> list[float]:
    """Mean squared errors along the shortest arc, of records or of blocks of consecutive records."""
    error = residual(records.layout, estimated.mean.double(), records.truth.double()).square().mean(-1)
    known = known_steps(records)
    by_record = error.mean(-1) if known is None else torch.where(known, error, 0.0).sum(-1) / known.sum(-1).clamp_min(1)
    size = -(-len(records) // BLOCKS)
    return [float(f"{float(block.mean()):.4g}") for block in by_record.split(size)]


def paired(ours: Sequence[Row], theirs: Sequence[Row]) -> Interval | None:
    """Our error relative to another method's, pooled over seeds, with an interval over test records and seeds.

    It is the 95 % bootstrap interval over blocks of test records, extended to the ratio of every single seed: training
    with another seed must not change the verdict.

    Rows are paired by seed and only where both were scored on the same records; None if there is no such pair. Seeds
    with the same test records do not make these more: errors of a block are summed over them.
    """
    a: dict[str, float] = defaultdict(float)
    b: dict[str, float] = defaultdict(float)
    for row, match in _pairs(ours, theirs):
        for number, (x, y) in enumerate(zip(row["errors"], match["errors"], strict=True)):
            a[f"{row['test_digest']}/{number}"] += x
            b[f"{row['test_digest']}/{number}"] += y
    # an estimate that is not finite has an infinite error, of which no mean can be drawn
    diverged = [not all(map(math.isfinite, errors.values())) for errors in (a, b)]
    if not a or all(diverged):
        return None
    if any(diverged):
        return Interval(*(math.inf if diverged[0] else 0.0,) * 3)
    ratio, seeds = paired_ratio(a, b), by_seed(ours, theirs)
    return Interval(ratio.value, min(ratio.low, *seeds), max(ratio.high, *seeds))


def by_seed(ours: Sequence[Row], theirs: Sequence[Row]) -> list[float]:
    """Our error relative to another method's for each seed with which both were scored on the same records."""
    return [sum(row["errors"]) / sum(match["errors"]) for row, match in _pairs(ours, theirs)]


def _pairs(ours: Sequence[Row], theirs: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Rows of one seed that were scored on the same records."""
    other = {(row["seed"], row["test_digest"]): row for row in theirs}
    return [(row, other[key]) for row in ours if (key := (row["seed"], row["test_digest"])) in other]
