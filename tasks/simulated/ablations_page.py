"""The page of the ablations: tables, and below each table the effect of every part, in sentences from the figures.

Differences are paired by seed: their mean is compared with their standard error. A difference within two standard
errors is called not significant.
"""

from __future__ import annotations

import math
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fwnkf.evaluation.rows import Row
from fwnkf.extras import need
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

BOUND = 2.0
"""A difference of at least this many standard errors is called significant."""
NOMINAL = 0.95


@dataclass(frozen=True)
class Part:
    """A part of the method: two rows that differ in it alone."""

    name: str
    with_it: str
    without: str


PARTS = (
    Part("Training as a whole", PAPER, "untrained"),
    Part("Training through the filter, after regression", PAPER, "pretrained"),
    Part("Φ", PAPER, "no Φ"),
    Part("The GRU", PAPER, "no GRU"),
    Part("Noise states instead of Φ", NOISE_STATES, PAPER),
    Part("Training noise states that were started from the spectrum", NOISE_STATES, "noise states, untrained"),
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
    """A metric with a part minus the metric without it, paired by seed."""

    mean: float
    error: float | None
    """Standard error over seeds; None for a single one."""
    seeds: int

    @property
    def verdict(self) -> str:
        """Of a metric that should be low: ``better``, ``worse``, or why neither."""
        if math.isnan(self.mean):
            return "both failed"
        if math.isinf(self.mean):
            return "worse" if self.mean > 0 else "better"
        if self.mean == 0:
            return "not significant"
        if self.error is None:
            return "single seed"
        if abs(self.mean) < BOUND * self.error:
            return "not significant"
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
    """Probability that a true difference of zero exceeds ``bound`` standard errors (Student's t).

    >>> round(by_chance(3), 3), round(by_chance(1000), 3)
    (0.184, 0.046)
    """
    return float(2 * need("scipy.stats", extra="data").t.sf(bound, seeds - 1))


# ---- sentences ------------------------------------------------------------------------------------------------------


def sentences(rows: Sequence[Row]) -> list[str]:
    """The effect of each part in one study: a line each, and a summary."""
    known = {row["method"]: row for row in rows}
    lines, verdicts = [], []
    for part in PARTS:
        if part.with_it not in known or part.without not in known:
            continue
        effect = difference(known[part.with_it], known[part.without])
        if effect is None:
            continue
        verdicts.append((f"{part.name}{_share(effect, known[part.without]['mse'])}", effect.verdict))
        lines.append(f"- {_sentence(part, known[part.with_it], known[part.without], effect)}")
    return [*lines, "", *_summary(verdicts), "", *_error_bars(known)]


def _sentence(part: Part, with_it: Row, without: Row, effect: Difference) -> str:
    text = (
        f"**{part.name}** ({part.with_it} against {part.without}): MSE {_spread(with_it, 'mse')} with, "
        f"{_spread(without, 'mse')} without; {_effect(effect, without['mse'])}."
    )
    late = difference(with_it, without, "mse_from_10")
    if late is not None:
        text += f" From step 10 on: {_effect(late, without['mse_from_10'])}."
    covered = [row["coverage95"] for row in (with_it, without)]
    if None not in covered:
        text += f" Coverage {covered[0]:.3f} with, {covered[1]:.3f} without."
    return text


def _effect(effect: Difference, base: float) -> str:
    verdict = effect.verdict
    if not math.isfinite(effect.mean):
        return {
            "both failed": "both failed",
            "worse": "the filter with it failed",
            "better": "the filter without it failed",
        }[verdict]
    if effect.mean == 0:
        return "no difference"
    error = "" if effect.error is None else f" ± {effect.error:.2g}"
    words = {
        "not significant": "within the spread over seeds: not significant",
        "single seed": "single seed, no test",
        "better": "significantly better",
        "worse": "significantly worse",
    }[verdict]
    return f"difference {effect.mean:+.2g}{error}{_share(effect, base)}, {words}"


def _share(effect: Difference, base: float) -> str:
    """The difference relative to the metric without the part; a significant one may still be small."""
    if not math.isfinite(effect.mean) or not 0 < base < math.inf or effect.mean == 0:
        return ""
    return f" ({abs(effect.mean) / base:.1%} {'less' if effect.mean < 0 else 'more'})"


def _summary(verdicts: Sequence[tuple[str, str]]) -> list[str]:
    heads = {
        "better": "Significantly better by MSE",
        "worse": "Significantly worse",
        "not significant": "Not significant",
        "single seed": "Not tested, a single seed",
        "both failed": "Failed with and without",
    }
    parts = []
    for verdict, head in heads.items():
        names = [name for name, other in verdicts if other == verdict]
        if names:
            parts.append(f"{head}: {'; '.join(names)}.")
    return [f"**Summary.** {' '.join(parts)}"] if parts else []


def _error_bars(known: dict[str, Row]) -> list[str]:
    """Which of the trained filters has the coverage nearest to nominal."""
    trained = [
        row
        for row in known.values()
        if row["kind"] == "trained" and "same_as" not in row and row["coverage95"] is not None
    ]
    if not trained or PAPER not in known or known[PAPER]["coverage95"] is None:
        return []
    best = min(trained, key=lambda row: abs(row["coverage95"] - NOMINAL))
    return [
        f"Of the trained filters, {best['method']} has the coverage nearest to {NOMINAL:.0%} "
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
        f"Written by `python -m tasks ablations{_flags(rows, quick)} --markdown docs/results/ablations.md`; "
        f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}. {sum(counts)} "
        f"trainings, {minutes:.0f} min of one processor.",
        "",
    ]
    if quick:
        lines += [
            "**Quick version: a few steps on a few records, to check that it runs. Its figures mean nothing.**",
            "",
        ]
    lines += [
        f"The effect of each part of the FW-NKF, over {seeds}. Within a study everything but the part in question is "
        "equal; the loss is Algorithm 1's (squared error and λ_Φ times the spectral term) unless a row says otherwise. "
        "The trainings are short, meant to compare parts with each other and not to reach the lowest error. The filter "
        "scored is the one with the least validation error of the run, the one before the first step included; `chosen "
        "at step` says which it was. Figures are means ± standard deviations over seeds on the test records; where the "
        "initial state is given exactly, the first step has no finite NEES.",
        "",
        "Differences are paired by seed and given as mean ± standard error. One below "
        f"{BOUND:g} standard errors is called not significant."
        + (
            f" With {least} seeds this is a weak test: {by_chance(least):.0%} of the differences between equal "
            "methods would pass it by chance, so a single significant difference is a hint and not a proof."
            if least > 1
            else " A single seed has no spread, so no difference is tested."
        ),
        "",
    ]
    for study in STUDIES:
        mine = [row for row in rows if row["task"] == study.task]
        if mine:
            lines += [f"## {study.title}", "", f"{mine[0]['settings']}.", "", *_table(mine), "", *sentences(mine), ""]
    return "\n".join(lines).rstrip() + "\n"


def _flags(rows: Sequence[Row], quick: bool) -> str:
    """The arguments of the command, as far as they differ from the defaults."""
    tasks = dict.fromkeys(row["task"] for row in rows)
    seeds = sorted({seed for row in rows for seed in row["seeds"]})
    words = list(tasks) if len(tasks) < len(STUDIES) else []
    words += [f"--seeds {','.join(map(str, seeds))}"] if seeds != list(SEEDS) else []
    return "".join(f" {word}" for word in [*words, *(["--quick"] if quick else [])])


def _table(rows: Sequence[Row]) -> list[str]:
    heads = ["method", "description", *COLUMNS.values(), "chosen at step", "seeds"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in rows:
        name = row["method"] if row["kind"] == "reference" else f"**{row['method']}**"
        description = f"the same run as {row['same_as']}" if "same_as" in row else row["description"]
        if row["failed"]:
            description += f"; failed with {len(row['failed'])} of {len(row['seeds'])} seeds: {row['failed'][0]}"
        steps = ", ".join("" if step is None else str(step) for step in row["best_steps"]).strip(", ")
        cells = [
            name,
            description,
            *(_spread(row, figure) for figure in COLUMNS),
            steps,
            ", ".join(map(str, row["seeds"])),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _spread(row: Row, figure: str) -> str:
    value, spread = row[figure], row[f"{figure}_std"]
    if value is None or spread is None:
        return _number(value)
    return f"{_number(value)} ± {spread if spread > 1e-9 * abs(value) else 0:.2g}"  # not the rounding of the mean


def _number(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.4g}"
