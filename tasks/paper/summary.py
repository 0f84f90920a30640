"""Means and spreads over seeds of the rows of the store."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.paper.store import RUNTIME, Row

NOT_RUN = "not run"
STOPPED = "†"
"""Marks figures with a run whose training ended early, because its loss was no longer finite."""


@dataclass(frozen=True)
class Entry:
    """The runs of one method under one protocol: those that ended, and why others did not."""

    rows: tuple[Row, ...]
    reasons: tuple[str, ...] = ()

    def values(self, metric: str) -> list[float]:
        values = [row["metrics"].get(metric) for row in self.rows]
        return [float(value) for value in values if value is not None]

    def mean(self, metric: str) -> float:
        """NaN without a run."""
        values = self.values(metric)
        return statistics.fmean(values) if values else math.nan

    def spread(self, metric: str) -> float:
        """Standard deviation over seeds; NaN with fewer than two runs or an infinite figure."""
        values = self.values(metric)
        return statistics.stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else math.nan

    def text(self, metric: str) -> str:
        """Mean ± spread over seeds, or why there is none."""
        if not self.rows:
            return "failed" if self.reasons else NOT_RUN
        mean, spread = self.mean(metric), self.spread(metric)
        if not math.isfinite(mean):
            return "diverged" if math.isinf(mean) else ""
        mark = STOPPED if any(row.get("failed_at") is not None for row in self.rows) else ""
        return (f"{short(mean)} ± {short(spread, 2)}" if math.isfinite(spread) else short(mean)) + mark

    def seconds(self) -> float:
        """CPU seconds of preparing and training one run, on average."""
        clocks = [row["cpu_seconds"] for row in self.rows if "training" in row.get("cpu_seconds", {})]
        values = [clock["preparation"] + clock["training"] for clock in clocks]
        return statistics.fmean(values) if values else math.nan


class Results:
    """Rows of the store by data, protocol, method and weight; those of the runtime table are left out."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = [row for row in rows if row["kind"] != RUNTIME]

    def entry(self, data: str, protocol: str, recipe: str, weight: float | None = None) -> Entry:
        """The runs of a recipe with a weight, or those of a reference."""
        where = (data, protocol, recipe, weight)
        names = ("data", "protocol", "recipe", "weight")
        here = [row for row in self.rows if tuple(row.get(name) for name in names) == where]
        done = tuple(row for row in here if row["status"] == "done")
        return Entry(done, tuple(dict.fromkeys(row["reason"] for row in here if row["status"] == "failed")))

    def references(self, data: str, protocol: str) -> list[str]:
        """The references that were measured."""
        here = (row for row in self.rows if (row["data"], row["protocol"]) == (data, protocol))
        return list(dict.fromkeys(row["recipe"] for row in here if row["kind"] == "reference" and "metrics" in row))

    def best(
        self, data: str, protocol: str, recipe: str, weights: Sequence[float], metric: str
    ) -> tuple[float, Entry] | None:
        """The weight with the least mean of a metric, and its runs; None if there is no run."""
        entries = [(weight, self.entry(data, protocol, recipe, weight)) for weight in weights]
        finished = [(weight, entry) for weight, entry in entries if entry.rows]
        return min(finished, key=lambda pair: pair[1].mean(metric)) if finished else None


def short(value: float, digits: int = 3) -> str:
    """A figure with few digits.

    >>> short(0.012345), short(123.45), short(0.5)
    ('0.0123', '123', '0.5')
    """
    text = f"{value:.{digits}g}"
    return f"{float(text):g}" if "e" not in f"{float(text):g}" else f"{float(text):.{digits - 1}e}"


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table."""
    return [_line(header), "|---" * len(header) + "|", *(_line(line) for line in lines), ""]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def budget(values: Mapping[str, Any], data: str) -> str:
    """The budget of a data set in words."""
    section = values["budget"][data]
    records, trainer = section["data"], section["trainer"]
    regression = ""
    if trainer["pretrain"]:
        regression = f"{trainer['pretrain']} steps of regression of what a filter has to learn of the dynamics, then "
    return (
        f"Budget: {records['train']} training, {records['val']} validation and {records['test']} test records; "
        f"{regression}{trainer['steps']} optimiser steps through the filter on batches of {trainer['batch_size']}; the "
        "weights with the least validation error are scored"
    )
