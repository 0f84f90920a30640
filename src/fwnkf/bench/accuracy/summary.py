"""One line for each shipped filter, from the figures beside it: the table of the README. Nothing is measured here."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import CheckpointError, DataError
from . import dido, euroc, simulated, uipdb
from .euroc_card import reached
from .table import GROUPS, need_models

BEGIN, END = "<!-- accuracy:begin -->", "<!-- accuracy:end -->"
COMMAND = "fwnkf bench accuracy --readme README.md"
HEAD = "| task | figure | published FW-NKF | best reference | ours | target | reached |\n|---|---|---|---|---|---|---|"
PUBLISHED = {
    "lorenz-algorithm3": "0.2755 ± 0.0679",
    "lorenz": "0.2755 ± 0.0679",
    "pendulum": "0.2777 ± 0.0320 ¹",
    "euroc": "0.0352 ± 0.0035",
}
"""As the README of the paper's public code has them (3 seeds), for the tasks that are the same."""
WITH_EQUATIONS = {
    "lorenz-algorithm3": ("EKF, equations given", 0.000211),
    "lorenz": ("EKF, equations given", 0.000211),
    "lorenz-strict": ("EKF, equations given", 0.5283),
    "pendulum": ("EKF, equations given", 0.04332),
}
"""What the ladder measured on the simulated tasks whose filters are not told the equations (docs/results)."""
STRICT = "rmse_p_5s"
"""Of the many figures of EuRoC strict the one that is shown; the verdict counts them all."""


@dataclass(frozen=True)
class Line:
    """A row of the summary, before it is put into words."""

    task: str
    what: str
    reference: str
    values: tuple[float, ...]
    """Of each seed."""
    target: float
    above: bool = False
    """Whether more is better."""
    others: tuple[bool, ...] = ()
    """Verdicts on what else was wanted of the task, by the mean of the seeds."""

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    def holds(self, value: float) -> bool:
        return value >= self.target if self.above else value <= self.target

    def verdict(self) -> str:
        """Yes only if every seed reaches it, and all else that was wanted; a miss stands out."""
        if not self.holds(self.mean) or not all(self.others):
            all_wanted = (self.holds(self.mean), *self.others)
            return "**no**" + (f", {sum(all_wanted)} of {len(all_wanted)} targets" if self.others else "")
        held = sum(self.holds(value) for value in self.values)
        return "yes" if held == len(self.values) else f"in the mean, {held} of {len(self.values)} seeds"

    def markdown(self, card: str) -> str:
        wanted = ("≥ " if self.above else "≤ ") + f"{self.target:.3g}"
        ours = f"**{plus_minus(self.mean, self.values)}**"
        published = PUBLISHED.get(self.task, "–")
        cells = (f"[`{self.task}`]({card})", self.what, published, self.reference, ours, wanted, self.verdict())
        return "| " + " | ".join(cells) + " |"


def plus_minus(mean: float, values: tuple[float, ...]) -> str:
    """Mean and sample standard deviation, to two digits of the latter.

    >>> plus_minus(0.53025, (0.5295, 0.53025, 0.531))
    '0.53025 ± 0.00075'
    """
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    if spread == 0:
        return f"{mean:.4g}"
    digits = max(0, 1 - math.floor(math.log10(spread)))
    return f"{mean:.{digits}f} ± {spread:.{digits}f}"


def _best(values: dict[str, float]) -> str:
    name = min(values, key=values.__getitem__)
    return f"{name} {values[name]:.3g}"


def _simulated(task: str, kept: dict[str, Any]) -> Line:
    recipe = next(recipe for recipe in simulated.RECIPES if recipe.task == task)
    values = tuple(run["value"] for run in kept["runs"])
    if recipe.way:
        return Line(
            task, f"{recipe.row}; {recipe.metric}", "white EKF 0, told the noise 1", values, recipe.target, True
        )
    name, value = WITH_EQUATIONS[task]
    return Line(task, f"{recipe.row}; MSE", f"{name} {value:.3g}", values, recipe.target)


def _euroc(task: str, kept: dict[str, Any]) -> Line:
    best = _best({name: found["mse"] for name, found in kept["references"].items()})
    values = tuple(one["mse"] for one in kept["seeds"])
    return Line(task, "EuRoC paper, 1 s windows; MSE", best, values, euroc.TARGETS["mse"])


def _euroc_strict(task: str, kept: dict[str, Any]) -> Line:
    best = _best({name: found[STRICT] for name, found in kept["references"].items()})
    values, goals = tuple(one[STRICT] for one in kept["seeds"]), kept["targets"]
    others = tuple(bool(reached(kept["mean"][name], goal)) for name, goal in goals.items() if name != STRICT)
    what = "EuRoC strict, unknown flights, 5 s windows; position RMSE (m)"
    return Line(task, what, best, values, goals[STRICT], others=others)


def _dido(task: str, kept: dict[str, Any]) -> Line:
    values = tuple(one["ratio"] for one in kept["seeds"])
    what = "DIDO, clean force and rate of a vibrating IMU; RMSE over the best reference's, mean of six axes"
    nis = reached(kept["mean"]["nis"], dido.NIS_BAND)
    best = "tuned low-pass, notches, white KF 1"
    return Line(task, what, best, values, dido.DENOISE_TARGET, others=(bool(nis),))


def _dido_attitude(task: str, kept: dict[str, Any]) -> Line:
    rungs = {name: found["inclination_deg"] for name, found in kept["references"].items()}
    values = tuple(one["inclination_deg"] for one in kept["seeds"])
    what = "DIDO, the vertical without magnetometer; inclination RMSE (degrees)"
    return Line(task, what, _best(rungs), values, dido.ATTITUDE_TARGET * min(rungs.values()))


def _broad(task: str, kept: dict[str, Any]) -> Line:
    """The set's authors' own filter is the one to beat; those with magnetometer (9d) are scored by another figure."""
    sensors, what = {
        "broad": ("6d", "without magnetometer; inclination RMSE (degrees)"),
        "broad-magnetometer": ("9d", "with magnetometer; orientation RMSE (degrees)"),
    }[task]
    rungs = {name: found["mean"] for name, found in kept["rungs"].items() if f"_{sensors}" in name}
    values = tuple(one["mean"] for one in kept["seeds"].values())
    return Line(task, f"BROAD, disturbed trials {what}", _best(rungs), values, rungs[f"vqf_{sensors}"])


def _uipdb(task: str, kept: dict[str, Any]) -> Line:
    best = [min(rungs[name] for name in uipdb.KALMAN) for rungs in kept["rungs"].values()]
    ratios = {
        name: statistics.fmean(rungs[name] / kf for rungs, kf in zip(kept["rungs"].values(), best, strict=True))
        for name in next(iter(kept["rungs"].values()))
    }
    values = tuple(one["both"] for one in kept["seeds"].values())
    what = "UIP-DB (part), hidden ranges; RMSE over the better fitted KF's, mean of two maskings"
    return Line(task, what, _best(ratios), values, uipdb.GOAL)


READERS: dict[str, Callable[[str, dict[str, Any]], Line]] = {
    **dict.fromkeys(GROUPS["simulated"], _simulated),
    "euroc": _euroc,
    "euroc-strict": _euroc_strict,
    "dido": _dido,
    "dido-attitude": _dido_attitude,
    "broad": _broad,
    "broad-magnetometer": _broad,
    "uipdb": _uipdb,
}
"""How the figures of each task are read; every module keeps what it needs."""


def lines(models: Path) -> list[Line]:
    """A line for every task whose figures are there, in the order of the table."""
    need_models(models)
    found = []
    for task, reader in READERS.items():
        path = models / task / "figures.json"
        if not path.is_file():
            continue
        try:
            found.append(reader(task, json.loads(path.read_text(encoding="utf-8"))))
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{path} is not of the form this version writes ({error!r})") from error
    return found


def summary(models: Path, beside: Path) -> str:
    """The table with what its numbers are; cards are linked as seen from the folder ``beside``."""
    rows = lines(models)
    cards = {row.task: os.path.relpath(models / row.task / "README.md", beside).replace(os.sep, "/") for row in rows}
    seeds = " or ".join(str(count) for count in sorted({len(row.values) for row in rows}))
    return "\n".join(
        [
            f"*Written by `{COMMAND}` from the figures kept in `models/` when the filters were trained.*",
            "",
            HEAD,
            *(row.markdown(cards[row.task]) for row in rows),
            "",
            f"*Ours* is mean ± standard deviation over {seeds} seeds on test records; lower is better unless the "
            "target says ≥. *Published* is what the "
            "[paper's public code](https://github.com/eth-siplab/Frequency-weighted-neural-Kalman-filters) states for "
            "the same task, where there is one (¹ angles by raw difference, ours by the shortest arc). *Best "
            "reference*: of the methods without a network, on the test records of seed 0 where seeds draw them. The "
            "EKF of Lorenz and pendulum knows the equations that ours has to learn; with the start given too, as in "
            "Lorenz paper, running them without any measurement scores 6e-8. *Reached* is judged by the mean. Each "
            "card has all figures of its task, what limits them, and the command.",
        ]
    )


def insert(readme: Path, models: Path) -> str:
    """Put the table between the marks of a page; the table comes back."""
    text = readme.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise DataError(f"{readme}: the table goes between the lines {BEGIN} and {END}, which must be there once each")
    head, rest = text.split(BEGIN)
    made = summary(models, readme.parent)
    readme.write_text(f"{head}{BEGIN}\n\n{made}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")
    return made
