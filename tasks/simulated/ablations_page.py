"""The page of the ablations: tables, and under each what every part is worth, in sentences made from the figures.

A difference is judged seed by seed: its mean against its standard error over seeds. What lies within two of them is
called not measurable.
"""

from __future__ import annotations

import math
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tasks.simulated.ablations import (
    LIKELIHOODS,
    NOISE_STATES,
    PAPER,
    POSTERIOR,
    SEEDS,
    STUDIES,
    WEIGHTS,
    spectral_name,
)

from fwnkf.evaluation.rows import Row

BOUND = 2.0
"""Standard errors from which on a difference is called measurable."""
NOMINAL = 0.95


@dataclass(frozen=True)
class Part:
    """Something whose worth is asked: two methods that differ in it alone."""

    name: str
    with_it: str
    without: str


PARTS = (
    Part("Training as a whole", PAPER, "untrained"),
    Part("Training through the filter, after regression", PAPER, "pretrained"),
    Part("Φ", PAPER, "no Φ"),
    Part("The GRU", PAPER, "no GRU"),
    Part("Noise states instead of Φ", NOISE_STATES, PAPER),
    Part("Training noise states that start from the spectrum", NOISE_STATES, "noise states, untrained"),
    Part("Likelihoods in the loss of noise states", LIKELIHOODS, NOISE_STATES),
    *(
        Part(f"Spectral loss, {spectral_name(weight)}", spectral_name(weight), spectral_name(0.0))
        for weight in WEIGHTS
        if weight
    ),
    Part(f"Spectral loss ({spectral_name(0.1)}) on the posterior instead of the prior", POSTERIOR, spectral_name(0.1)),
)


@dataclass(frozen=True)
class Difference:
    """One figure with a part less without it, paired by seed."""

    mean: float
    error: float | None
    """Standard error over seeds; None for a single one."""
    seeds: int

    @property
    def verdict(self) -> str:
        """Of a figure that should be low: ``better``, ``worse``, or why nothing can be said."""
        if math.isnan(self.mean):
            return "both failed"
        if math.isinf(self.mean):
            return "worse" if self.mean > 0 else "better"
        if self.mean == 0:
            return "not measurable"
        if self.error is None:
            return "not judged"
        if abs(self.mean) < BOUND * self.error:
            return "not measurable"
        return "better" if self.mean < 0 else "worse"


def difference(with_it: Row, without: Row, figure: str = "mse") -> Difference | None:
    """Over the seeds both have; None if there is none."""
    values = [dict(zip(row["seeds"], row[f"{figure}_by_seed"], strict=True)) for row in (with_it, without)]
    both = [seed for seed in values[0] if values[0][seed] is not None and values[1].get(seed) is not None]
    if not both:
        return None
    apart = [values[0][seed] - values[1][seed] for seed in both]
    if not all(map(math.isfinite, apart)):
        return Difference(sum(apart), None, len(both))
    error = statistics.stdev(apart) / math.sqrt(len(both)) if len(both) > 1 else None
    return Difference(statistics.fmean(apart), error, len(both))


def by_chance(seeds: int, bound: float = BOUND) -> float:
    """How often a difference of nothing comes out beyond ``bound`` of its own standard errors (Student's t).

    >>> round(by_chance(3), 3), round(by_chance(1000), 3)
    (0.184, 0.046)
    """
    freedom = seeds - 1
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(freedom * math.pi)

    def density(t: float) -> float:
        return math.exp(log_scale - (freedom + 1) / 2 * math.log1p(t * t / freedom))

    pieces, total = 200, 0.0
    for k in range(pieces + 1):  # Simpson's rule from 0 to the bound
        total += density(bound * k / pieces) * (1 if k in (0, pieces) else 4 if k % 2 else 2)
    return 1 - 2 * total * bound / pieces / 3


# ---- sentences ------------------------------------------------------------------------------------------------------


def sentences(rows: Sequence[Row]) -> list[str]:
    """What each part is worth on one task: a line each, and the sum of them."""
    known = {row["method"]: row for row in rows}
    lines, judged = [], []
    for part in PARTS:
        if part.with_it not in known or part.without not in known:
            continue
        found = difference(known[part.with_it], known[part.without])
        if found is None:
            continue
        judged.append((f"{part.name}{_share(found, known[part.without]['mse'])}", found.verdict))
        lines.append(f"- {_sentence(part, known[part.with_it], known[part.without], found)}")
    return [*lines, "", *_sum(judged), "", *_error_bars(known)]


def _sentence(part: Part, with_it: Row, without: Row, found: Difference) -> str:
    text = (
        f"**{part.name}** ({part.with_it} against {part.without}): MSE {_spread(with_it, 'mse')} with, "
        f"{_spread(without, 'mse')} without; {_judged(found, without['mse'])}."
    )
    late = difference(with_it, without, "mse_from_10")
    if late is not None:
        text += f" From step 10 on: {_judged(late, without['mse_from_10'])}."
    covered = [row["coverage95"] for row in (with_it, without)]
    if None not in covered:
        text += f" Coverage {covered[0]:.3f} with, {covered[1]:.3f} without."
    return text


def _judged(found: Difference, base: float) -> str:
    verdict = found.verdict
    if not math.isfinite(found.mean):
        return {"both failed": "both failed", "worse": "it made the filter fail", "better": "without it, it failed"}[
            verdict
        ]
    if found.mean == 0:
        return "no difference at all, worth nothing here"
    error = "" if found.error is None else f" ± {found.error:.2g}"
    told = {
        "not measurable": "within the spread over seeds: worth nothing measurable here",
        "not judged": "one seed, not judged",
        "better": "measurably better",
        "worse": "measurably worse",
    }[verdict]
    return f"difference {found.mean:+.2g}{error}{_share(found, base)}, {told}"


def _share(found: Difference, base: float) -> str:
    """The difference as a share of what there is without the part; a measurable one may still be small."""
    if not math.isfinite(found.mean) or not 0 < base < math.inf or found.mean == 0:
        return ""
    return f" ({abs(found.mean) / base:.1%} {'less' if found.mean < 0 else 'more'})"


def _sum(judged: Sequence[tuple[str, str]]) -> list[str]:
    heads = {
        "better": "Measurably better by MSE",
        "worse": "Measurably worse",
        "not measurable": "Not measurable",
        "not judged": "Not judged, for want of seeds",
        "both failed": "Failed with and without",
    }
    parts = []
    for verdict, head in heads.items():
        names = [name for name, one in judged if one == verdict]
        if names:
            parts.append(f"{head}: {'; '.join(names)}.")
    return [f"**In short.** {' '.join(parts)}"] if parts else []


def _error_bars(known: dict[str, Row]) -> list[str]:
    """Whose error bars hold best, of those that were trained."""
    told = [
        row
        for row in known.values()
        if row["kind"] == "trained" and "same_as" not in row and row["coverage95"] is not None
    ]
    if not told or PAPER not in known or known[PAPER]["coverage95"] is None:
        return []
    best = min(told, key=lambda row: abs(row["coverage95"] - NOMINAL))
    return [
        f"Of the trained filters, {best['method']} comes nearest to covering {NOMINAL:.0%} of the true states "
        f"({best['coverage95']:.1%}, NEES from step 10 on {_number(best['nees_from_10'])}); the paper's form covers "
        f"{known[PAPER]['coverage95']:.1%} (NEES {_number(known[PAPER]['nees_from_10'])})."
    ]


# ---- the page -------------------------------------------------------------------------------------------------------

COLUMNS = {
    "mse": "MSE",
    "mse_from_10": "MSE from step 10",
    "nees": "NEES",
    "nees_from_10": "NEES from step 10",
    "coverage95": "coverage 95 %",
    "cpu_seconds": "CPU s",
}


def markdown(rows: Sequence[Row], *, quick: bool = False) -> str:
    """All tables and sentences, from the rows alone."""
    trained = [row for row in rows if row["kind"] == "trained" and "same_as" not in row]
    counts = [len(row["seeds"]) for row in trained]
    least, most = min(counts, default=0), max(counts, default=0)
    minutes = sum(sum(filter(None, row["cpu_seconds_by_seed"])) for row in trained) / 60
    seeds = f"{most} seed{'s' if most > 1 else ''}" if least == most else f"{least} to {most} seeds"
    lines = [
        "# Ablations",
        "",
        f"Written by `fwnkf bench ablations{_flags(rows, quick)} --markdown docs/results/ablations.md`; "
        f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}. {sum(counts)} "
        f"trainings, {minutes:.0f} min of one processor.",
        "",
    ]
    if quick:
        lines += [
            "**The quick version: a few steps on a few records, to see that it runs. Its figures say nothing.**",
            "",
        ]
    lines += [
        f"What the parts of the FW-NKF are worth, over {seeds}. Within a task everything but the part in question is "
        "equal; the loss is Algorithm 1's (squared error and λ_Φ times the spectral term) unless a row says otherwise. "
        "The trainings are short, made to compare parts with each other and not to reach the lowest error. Of each run "
        "the filter with the least error on validation records counts, the one before the first step included; `chosen "
        "at step` says which it was. Figures are means ± standard deviations over seeds on the test records; where the "
        "initial state is given exactly, the first step has no finite NEES.",
        "",
        "Differences are paired by seed and given as mean ± standard error. One below "
        f"{BOUND:g} standard errors is called not measurable."
        + (
            f" With {least} seeds that bar is low: between equals, {by_chance(least):.0%} of the differences would "
            "pass it by chance, so a single measurable difference is a hint and not a proof."
            if least > 1
            else " A single seed has no spread, and nothing is judged."
        ),
        "",
    ]
    for study in STUDIES:
        mine = [row for row in rows if row["task"] == study.task]
        if mine:
            lines += [f"## {study.said}", "", f"{mine[0]['settings']}.", "", *_table(mine), "", *sentences(mine), ""]
    return "\n".join(lines).rstrip() + "\n"


def _flags(rows: Sequence[Row], quick: bool) -> str:
    """What the command was told, as far as it differs from nothing."""
    tasks = dict.fromkeys(row["task"] for row in rows)
    seeds = sorted({seed for row in rows for seed in row["seeds"]})
    words = [f"--task {task}" for task in tasks] if len(tasks) < len(STUDIES) else []
    words += [f"--seeds {','.join(map(str, seeds))}"] if seeds != list(SEEDS) else []
    return "".join(f" {word}" for word in [*words, *(["--quick"] if quick else [])])


def _table(rows: Sequence[Row]) -> list[str]:
    heads = ["method", "what", *COLUMNS.values(), "chosen at step", "seeds"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in rows:
        name = row["method"] if row["kind"] == "reference" else f"**{row['method']}**"
        said = f"the same run as {row['same_as']}" if "same_as" in row else row["said"]
        if row["failed"]:
            said += f"; failed with {len(row['failed'])} of {len(row['seeds'])} seeds: {row['failed'][0]}"
        steps = ", ".join("" if step is None else str(step) for step in row["best_steps"]).strip(", ")
        cells = [name, said, *(_spread(row, figure) for figure in COLUMNS), steps, ", ".join(map(str, row["seeds"]))]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _spread(row: Row, figure: str) -> str:
    value, spread = row[figure], row[f"{figure}_std"]
    if value is None or spread is None:
        return _number(value)
    return f"{_number(value)} ± {spread if spread > 1e-9 * abs(value) else 0:.2g}"  # rounding is no spread


def _number(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.4g}"
