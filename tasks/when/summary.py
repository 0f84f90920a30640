"""From rows to ratios: the error of each estimator over that of the oracle, and which one a user should take."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tasks.when.cells import ORACLE, Cell, cells
from tasks.when.problem import Disturbance
from tasks.when.store import Row

RAW = "raw"
ASSUMED, BEST_R, LOW_PASS, NOTCH = "as assumed", "best R", "low-pass", "notch"
PHI, PHI_TWO, SPECTRAL, SPECTRAL_ALONE = "Φ", "Φ of two", "Φ, spectral loss", "Φ, spectral loss alone"
FITTED, TRAINED, FIR, NOTCH_TOLD = "states fitted", "states trained", "FIR", "notch told"
CLOSE = 1.05
"""Ratio of errors within which two estimators count as equal."""
COST = (BEST_R, LOW_PASS, NOTCH, FITTED, PHI, PHI_TWO, FIR)
"""From the cheapest: one number; a filter in front; states fitted to measurements; what needs the truth to train."""
TOLD_COST = (BEST_R, LOW_PASS, NOTCH, FITTED, NOTCH_TOLD, ORACLE, PHI, PHI_TWO, FIR)
"""The same where a sensor tells the frequency."""
NO_TRUTH = (BEST_R, LOW_PASS, NOTCH, FITTED)
"""What can be had without truth, whatever it is tuned with here."""
NEEDS_TRUTH = (PHI, PHI_TWO, SPECTRAL, SPECTRAL_ALONE, TRAINED, FIR)
TITLES = {
    RAW: "measurement itself",
    ASSUMED: "white noise as assumed",
    BEST_R: "best R",
    LOW_PASS: "low-pass before it",
    NOTCH: "notch before it",
    PHI: "Φ, one biquad",
    PHI_TWO: "Φ, two biquads",
    SPECTRAL: "Φ, spectral loss λ = 0.1",
    SPECTRAL_ALONE: "Φ, spectral loss alone",
    FITTED: "noise states, fitted",
    TRAINED: "noise states, trained",
    FIR: "FIR filter",
    NOTCH_TOLD: "notch told the frequency",
    ORACLE: "noise states, told",
}


class Figure(NamedTuple):
    """One estimator in one cell: mean over seeds of its error over the oracle's, their range, and its NEES."""

    ratio: float
    low: float
    high: float
    nees: float


Ratios = Mapping[str, Figure]


def linear(rows: Sequence[Row]) -> dict[Cell, Ratios]:
    """All cells of the linear map that are measured, by disturbance and assumed noises."""
    by_cell: dict[Cell, dict[str, list[Row]]] = {}
    for row in rows:
        if row["part"] == "linear":
            one = Disturbance(row["kind"], row["hz"], row["width"], row["std"])
            by_cell.setdefault(Cell(one, row["q"], row["r"]), {}).setdefault(row["estimator"], []).append(row)
    found: dict[Cell, Ratios] = {}
    for cell in cells():  # in the order of the map, whatever the order of the rows
        right = by_cell.get(Cell(cell.disturbance), {})
        oracle = right.get(ORACLE) or right.get("Q, R assumed; states told")
        if oracle and cell in by_cell:
            found[cell] = {name: figure(mine, oracle[0]["rmse"]) for name, mine in by_cell[cell].items()}
    return found


def figure(rows: Sequence[Row], oracle: float) -> Figure:
    """The ratios of one estimator over its seeds."""
    ratios = [row["rmse"] / oracle for row in rows]
    return Figure(statistics.fmean(ratios), min(ratios), max(ratios), statistics.fmean(row["nees"] for row in rows))


def right(found: Mapping[Cell, Ratios]) -> dict[Disturbance, Ratios]:
    """The cells with right ``Q`` and ``R`` that are measured to the end, which are the fits."""
    return {cell.disturbance: ratios for cell, ratios in found.items() if cell.q == cell.r == 1 and FITTED in ratios}


def choice(ratios: Ratios, order: Sequence[str] = COST) -> str:
    """The first in order of cost whose error is within 5 % of the least among them."""
    present = [name for name in order if name in ratios]
    least = min(ratios[name].ratio for name in present)
    return next(name for name in present if ratios[name].ratio <= CLOSE * least)


def rivals(kind: str = "", q: float = 1.0) -> tuple[str, ...]:
    """What can be had from the truth that ``Φ`` is trained on.

    Noise states trained on it too: where the disturbance is oscillators and all else is right, a search over their
    numbers would begin with those that are told, so that these stand for it; otherwise such a search was made.
    """
    told = kind in ("tone", "band", "drift", "pink") and q == 1
    return (*NO_TRUTH, FIR, ORACLE if told else TRAINED)


def wins(ratios: Ratios, name: str, others: Sequence[str]) -> bool:
    """Whether an estimator is more than 5 % better than each of the others."""
    rivals = [ratios[each].ratio for each in others if each in ratios]
    return name in ratios and bool(rivals) and ratios[name].ratio * CLOSE < min(rivals)


def pendulum(rows: Sequence[Row]) -> dict[Cell, Ratios]:
    """The cells of the pendulum; ratios are those of equal seeds."""
    mine = [row for row in rows if row["part"] == "pendulum"]
    oracle = {_draw(row): row["rmse"] for row in mine if row["estimator"] == ORACLE and row["q"] == 1}
    found: dict[Cell, dict[str, list[Row]]] = {}
    for row in mine:
        if _draw(row) in oracle:
            cell = Cell(Disturbance(row["kind"], row["hz"], row["width"], row["std"]), row["q"])
            over = row | {"rmse": row["rmse"] / oracle[_draw(row)]}
            found.setdefault(cell, {}).setdefault(row["estimator"], []).append(over)
    return {cell: {name: figure(each, 1.0) for name, each in by_name.items()} for cell, by_name in found.items()}


def _draw(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("kind", "hz", "width", "std", "seed"))


def recordings(rows: Sequence[Row]) -> dict[str, dict[str, Ratios]]:
    """RMSE over that of the best R, by data and axis."""
    found: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        if row["part"] == "recordings":
            found.setdefault(row["data"], {}).setdefault(row["axis"], []).append(row | {"nees": math.nan})
    ratios: dict[str, dict[str, Ratios]] = {}
    for data, axes in found.items():
        for axis, mine in axes.items():
            reference = [row["rmse"] for row in mine if row["estimator"] == BEST_R]
            if reference:
                ratios.setdefault(data, {})[axis] = {row["estimator"]: figure([row], reference[0]) for row in mine}
    return ratios


def median(values: Sequence[float]) -> float:
    """The median of what is known."""
    known = [value for value in values if not math.isnan(value)]
    return statistics.median(known) if known else math.nan
