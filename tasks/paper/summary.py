"""Means and spreads over seeds of the rows of the store."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.paper.matrix import Cell, Matrix
from tasks.paper.store import RUNTIME, Row

NOT_RUN = "not run"
STOPPED = "†"
"""Marks figures with a run whose training ended early, because its loss was no longer finite."""


EARLIER = "‡"
"""Marks figures of an earlier budget, which was too small for some filters."""


NEGLIGIBLE = 0.01
"""A difference by less than this part is none: the spread over seeds can be smaller where they share test records."""


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
        mark += EARLIER if any(row.get("earlier") for row in self.rows) else ""
        return (f"{short(mean)} ± {short(spread, 2)}" if math.isfinite(spread) else short(mean)) + mark

    def budget(self) -> str:
        """Rate and batch that were chosen, patience, steps of the best filters, and how many runs converged."""
        chosen = [row for row in self.rows if "converged" in row]
        if not chosen:
            return ""
        steps = statistics.fmean(row["best_step"] for row in chosen)
        converged = sum(bool(row["converged"]) for row in chosen)
        returned = sum(bool(row.get("restarts")) for row in chosen)
        also = f", {returned} returned" if returned else ""
        said = ", ".join(f"{chosen[0][name]:g}" for name in ("rate", "batch", "patience"))
        return f"{said}, {steps:.0f}; {converged} of {len(chosen)}{also}"

    def seconds(self) -> float:
        """CPU seconds of preparing and training one run, on average."""
        clocks = [row["cpu_seconds"] for row in self.rows if "training" in row.get("cpu_seconds", {})]
        values = [clock["preparation"] + clock["training"] for clock in clocks]
        return statistics.fmean(values) if values else math.nan


class Results:
    """Rows of the store by data, protocol, method and weight; those of the runtime table are left out."""

    def __init__(self, rows: Iterable[Row], matrix: Matrix | None = None) -> None:
        """``matrix`` has the rule of the budget as it is now: runs that were trained by another one are marked."""

        def earlier(row: Row) -> bool:
            if matrix is None or row["kind"] != "trained":
                return False
            return bool(row.get("config", {}).get("search") != matrix.values.get("search"))

        self.rows = [{**row, "earlier": earlier(row)} for row in rows if row["kind"] != RUNTIME]

    def entry(self, data: str, protocol: str, recipe: str, weight: float | None = None) -> Entry:
        """The runs of a recipe with a weight, or those of a reference."""
        where = (data, protocol, recipe, weight)
        names = ("data", "protocol", "recipe", "weight")
        here = [row for row in self.rows if tuple(row.get(name) for name in names) == where]
        done = tuple(row for row in here if row["status"] == "done")
        return Entry(done, tuple(dict.fromkeys(row["reason"] for row in here if row["status"] == "failed")))

    def doubled(self, data: str, protocol: str, recipe: str, weight: float | None = None) -> Row | None:
        """The run of a recipe, with a weight or the first, that went on with twice the budget; None if none did."""
        where = (data, protocol, recipe)
        found = (row for row in self.rows if (row["data"], row["protocol"], row["recipe"]) == where)
        return next((row for row in found if "doubled" in row and weight in (None, row["weight"])), None)

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


def budget(matrix: Matrix, data: str) -> str:
    """The budget of a data set in words."""
    values = matrix.values
    section = values["budget"][data]
    records, trainer = section["data"], section["trainer"]
    regression = ""
    if trainer["pretrain"]:
        refine = f" and at most {trainer['refine']} quasi-Newton iterations" if trainer.get("refine") else ""
        regression = (
            f"{trainer['pretrain']} steps{refine} of regression of what a filter has to learn of the dynamics, then "
        )
    own = section.get("strict", {}).get("train")
    train = f"{records['train']:,}" + (f" ({own:,} under protocol `strict`)" if own else "")
    longest = max(
        matrix.config(Cell(data, table["protocol"], recipe, 0.0, 0))["trainer"]["steps"]
        for table in values["tables"]
        if table["data"] == data
        for recipe in table["recipes"]
    )
    more = f" ({longest} for filters that learn slowly, named in the recipes)" if longest > trainer["steps"] else ""
    training = f"{trainer['steps']} optimiser steps through the filter{more}"
    if "search" not in values:
        training += f" on batches of {trainer['batch_size']}"
    else:
        training = f"at most {training}, by the rule above"
    return (
        f"Budget: {train} training, {records['val']} validation and {records['test']:,} test records; "
        f"{regression}{training}; the weights with the least validation error are scored"
    )


def rule(values: Mapping[str, Any]) -> str:
    """The rule by which every filter gets its learning rate, batch and length of training, in words."""
    found = values.get("search")
    if found is None:
        return ""
    own = found.get("rule", {})
    fall = (
        f"the rate is then multiplied by {own.get('factor', 0.2):g} from the best parameters on, and at the next such "
        "plateau the training has converged"
    )
    averaged = (
        f"Validated and scored are parameters averaged over about {found['average']} steps, whose error varies less "
        "with the batches than that of the last step. "
        if found.get("average")
        else ""
    )
    rates = ", ".join(f"{float(rate):g}" for rate in found["rates"])
    times = "once" if found.get("doublings") == 1 else f"{found.get('doublings')} times"
    doubled = (
        "Then the first seed of each weight goes on with twice the patience and twice the largest number of steps. "
        f"Where that lowers its validation error by more than {100 * found.get('change', 0.05):g} %, all go on with "
        f"twice as much, at most {times}. "
        if found.get("doublings")
        else ""
    )
    return (
        f"One rule gives every filter its budget. Learning rates {rates} with batches of "
        f"{' and '.join(map(str, found['batches']))} are tried for {found['trial']} steps of the largest batch, or as "
        f"many records, with {found.get('seeds', 1)} seeds, and the pair with the least validation error is taken. All "
        "seeds and weights are trained until the validation error has not fallen by "
        f"{100 * own.get('gain', 0.005):g} % over {own.get('patience', 4)} evaluations"
        f"{f'; {fall}' if own.get('falls', 1) else ', which counts as converged'}. {doubled}{averaged}"
        "Where a loss is not finite, a run returns to its best parameters and goes on with "
        f"{own.get('factor', 0.2):g} times its rate. The column “budget” has rate, batch, patience, mean step of the "
        "best parameters, how many runs converged before the largest number of steps, and how many returned."
    )
