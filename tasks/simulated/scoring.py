"""Metrics of an estimate of simulated records, and intervals over the records."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch

from fwnkf.data.protocols import Protocol
from fwnkf.evaluation.evaluate import Estimate
from fwnkf.evaluation.rows import record_errors as squared_errors
from fwnkf.metrics.accuracy import residual, summarize
from fwnkf.metrics.consistency import coverage, variance_ratio
from tasks.bootstrap import Interval, paired_ratio
from tasks.results import Score

COORDINATES = {"lorenz": ("x", "y", "z"), "pendulum": ("θ", "ω")}
Table = dict[str, dict[str, float]]


def score(protocol: Protocol, estimated: Estimate, cpu_seconds: float = 0.0) -> Score:
    """The metrics of one method on the test records; metrics it does not have are left out.

    ``mse_se`` is the standard error of ``mse`` over records. NEES leaves out the first step of protocol ``paper``,
    where the state is given exactly.
    """
    records = protocol.split.test
    both = (estimated.mean, estimated.cov)
    summary = summarize(records.layout, both, records.truth)
    counted = torch.ones(records.truth.shape[:-1], dtype=torch.bool)
    counted[:, : first_step(protocol)] = False
    errors = list(record_errors(protocol, estimated).values())
    metrics = {
        "mse": float(summary["mse"]),
        "mse_se": float(np.std(errors, ddof=1) / math.sqrt(len(errors))) if len(errors) > 1 else math.nan,
        "mse_paper": float(summary["mse_paper"]),
        "mse_from_10": float(summary["mse_from_10"]),
        "nees": float(summarize(records.layout, both, records.truth, valid=counted)["nees"]),
        "nis": estimated.nis,
        "coverage95": float(summary["coverage95"]),
    }
    return Score({name: value for name, value in metrics.items() if not math.isnan(value)}, cpu_seconds=cpu_seconds)


def first_step(protocol: Protocol) -> int:
    """The first step at which a covariance can be judged."""
    return 1 if protocol.name == "paper" else 0


def record_errors(protocol: Protocol, estimated: Estimate) -> dict[str, float]:
    """The mean squared error of each record, by its number."""
    errors = squared_errors(protocol.split.test, estimated.mean)
    return {str(number): value for number, value in enumerate(errors.tolist())}


def gap_closed(mse: float, ekf: float, oracle: float) -> float:
    """How much of the gap between the EKF that assumes white noise and the oracle is closed: 0 for the one, 1 for the
    other.

    >>> gap_closed(0.35, ekf=0.5, oracle=0.3)
    0.75
    """
    return (ekf - mse) / (ekf - oracle)


def gap_interval(
    ours: Mapping[str, float], ekf: Mapping[str, float], oracle: Mapping[str, float], draws: int = 10_000
) -> Interval:
    """The gap closed with a 95 % bootstrap interval over records, the same records for all three."""
    a, b, c = (np.array([errors[name] for name in ours]) for errors in (ours, ekf, oracle))
    drawn = np.random.default_rng(0).integers(len(a), size=(draws, len(a)))
    values = gap_closed(a[drawn].mean(1), b[drawn].mean(1), c[drawn].mean(1))
    low, high = np.quantile(values, (0.025, 0.975))
    return Interval(gap_closed(float(a.mean()), float(b.mean()), float(c.mean())), float(low), float(high))


def interval_table(protocol: Protocol, ours: Estimate, baselines: Mapping[str, Estimate]) -> Table:
    """Our mean squared error relative to each baseline's on the same records, with 95 % bootstrap intervals."""
    errors = record_errors(protocol, ours)
    rows = {}
    for name, estimated in baselines.items():
        interval = paired_ratio(errors, record_errors(protocol, estimated))
        rows[name] = {"ours / baseline": interval.value, "from": interval.low, "to": interval.high}
    return rows


def calibration_table(protocol: Protocol, methods: Mapping[str, Estimate]) -> Table:
    """Squared error over stated variance and coverage of 95 % intervals by coordinate, NIS by channel."""
    records = protocol.split.test
    begin = first_step(protocol)
    rows: Table = {}
    for name, estimated in methods.items():
        if estimated.cov is None:
            continue
        error = residual(records.layout, estimated.mean.double(), records.truth.double())[:, begin:]
        cov = estimated.cov.double()[:, begin:]
        ratios, covered = variance_ratio(error, cov), coverage(error, cov).by_dimension
        rows[name] = {}
        for number, coordinate in enumerate(COORDINATES[protocol.data]):
            rows[name][f"{coordinate}: error² / variance"] = float(ratios[number])
            rows[name][f"{coordinate}: coverage"] = float(covered[number])
        for number, value in enumerate(estimated.nis_by_channel, 1):
            rows[name][f"NIS, channel {number}"] = value
    return rows
