"""From rows to ratios: the error of each estimator over that of the oracle, and which one a user should take."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tasks.when.cells import ORACLE, Cell, cells
from tasks.when.problem import Disturbance
from tasks.when.store import Row

ASSUMED, BEST_R, LOW_PASS, NOTCH = "as assumed", "best R", "low-pass", "notch"
PHI, PHI_TWO, SPECTRAL, SPECTRAL_ALONE = "Φ", "Φ of two", "Φ, spectral loss", "Φ, spectral loss alone"
FITTED, TRAINED, FIR, NOTCH_TOLD = "states fitted", "states trained", "FIR", "notch told"
CLOSE = 1.05
"""Ratio of errors within which two estimators count as equal."""
COST = (BEST_R, LOW_PASS, NOTCH, FITTED, PHI, PHI_TWO, FIR)
"""From the cheapest: one number; a filter in front; states fitted to measurements; what needs the truth to train."""
TOLD_COST = (BEST_R, LOW_PASS, NOTCH, FITTED, NOTCH_TOLD, ORACLE, PHI, PHI_TWO, FIR)
"""The same where a sensor tells the frequency."""
NEEDS_TRUTH = (PHI, PHI_TWO, SPECTRAL, SPECTRAL_ALONE, TRAINED, FIR)
TITLES = {
    ASSUMED: "white noise as assumed",
    BEST_R: "best R",
    LOW_PASS: "low-pass before it",
    NOTCH: "notch before it",
    PHI: "Φ, one biquad",
    PHI_TWO: "Φ, two biquads",
    SPECTRAL: "Φ, spectral loss λ = 0.1",
    SPECTRAL_ALONE: "Φ, spectral loss alone",
    FITTED: "noise states, fitted",
    TRAINED: "two noise states, trained",
    FIR: "FIR, 400 taps",
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
    """The cells with right ``Q`` and ``R``."""
    return {cell.disturbance: ratios for cell, ratios in found.items() if cell.q == cell.r == 1 and BEST_R in ratios}


def choice(ratios: Ratios, order: Sequence[str] = COST) -> str:
    """The first in order of cost whose error is within 5 % of the least among them."""
    present = [name for name in order if name in ratios]
    least = min(ratios[name].ratio for name in present)
    return next(name for name in present if ratios[name].ratio <= CLOSE * least)


def ahead(found: Mapping[Disturbance, Ratios], name: str, others: Sequence[str]) -> list[Disturbance]:
    """Cells in which an estimator is more than 5 % better than each of the others."""
    return [
        one
        for one, ratios in found.items()
        if name in ratios and all(ratios[name].ratio * CLOSE < ratios[each].ratio for each in others if each in ratios)
    ]


def median(values: Sequence[float]) -> float:
    """The median of what is known."""
    known = [value for value in values if not math.isnan(value)]
    return statistics.median(known) if known else math.nan
