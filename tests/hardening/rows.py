"""Results of long hardening runs, and the page made of them: ``python -m tests.hardening.rows PAGE ROWS…``.

A harness appends one JSON object to its file of rows for every block of cases that it finished, so that a run that was
stopped keeps what it did. The page sums the blocks of each target.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

HARNESSES = {
    "properties": (
        "Drawn estimation problems",
        "A linear system, prior, noises, masks, outliers and a precision are drawn over many orders of magnitude, and "
        "every step is compared with the same step in extended precision; what seems wrong is computed again with 100 "
        "digits. A failure is a step without a status whose standard deviation is wrong by more than 5 percent, or its "
        "mean by more than half a standard deviation. *Flagged* runs have a status that says so, and are wrong or not "
        "to that tolerance. *Inherited*: every step is right, and errors of earlier ones have added up. "
        "`square_root` is compared over whole runs. `discretize` is process noise over steps of 1e-6 to 1e6 seconds.",
    ),
    "fuzz": (
        "Hostile inputs",
        "Mutated and generated inputs of every parser. A failure is an exception other than a named error of the "
        "package, or a case that takes more time or memory than its limit.",
    ),
    "faults": (
        "Injected faults",
        "Batch runs and streams that are killed, meet a full disk, torn writes, clock jumps, duplicates, shuffled "
        "messages or a second owner. A failure is a result whose bytes differ from those of an undisturbed run without "
        "an error that says so.",
    ),
}


@dataclass(frozen=True)
class Row:
    """One finished block of cases."""

    harness: str
    """A key of :data:`HARNESSES`."""
    target: str
    """What was tried: a filter and form, a parser, a fault."""
    command: str
    """The command that repeats the block, as typed."""
    seed: int
    cases: int
    failures: int
    seconds: float
    """Processor time of the block."""
    longest_s: float = 0.0
    """The longest single case, seconds."""
    memory_mb: float = 0.0
    """The largest growth of the process by one case."""
    outcomes: dict[str, int] = field(default_factory=dict)
    """How many cases ended how, for example ``{"read": 90, "named error": 10}``."""


def append(path: Path, row: Row) -> None:
    """Add a row to a file of rows, complete or not at all."""
    assert row.harness in HARNESSES, row.harness
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(row)) + "\n")


def read(paths: Iterable[Path]) -> list[Row]:
    """All rows of some files."""
    return [Row(**json.loads(line)) for path in paths for line in path.read_text(encoding="utf-8").splitlines() if line]


def page(rows: list[Row]) -> str:
    """The page of results, in Markdown."""
    cases, failures = sum(row.cases for row in rows), sum(row.failures for row in rows)
    lines = [
        "# Hardening",
        "",
        f"{cases:,} cases in {len(rows):,} runs by hand, {failures:,} failures. Small versions of all harnesses run in "
        "CI (`tests/hardening`); what a failure is stands above each table. These are the runs after faults that "
        "earlier runs found were mended: rows of a target with such faults were replaced. The bounds behind the status "
        "were set on other seeds of the drawn problems, and the tolerance was widened from 2 to 5 percent meanwhile.",
        "",
    ]
    for harness, (title, text) in HARNESSES.items():
        mine = [row for row in rows if row.harness == harness]
        if not mine:
            continue
        total = f"{sum(row.cases for row in mine):,} cases, failures: {sum(row.failures for row in mine):,}."
        lines += [f"## {title}", "", f"{text} {total}", ""]
        lines += ["| target | cases | failures | outcomes | seeds | longest (s) | memory (MB) | processor (min) |"]
        lines += ["|---|---|---|---|---|---|---|---|"]
        for target in dict.fromkeys(row.target for row in mine):
            lines.append(_line(target, [row for row in mine if row.target == target]))
        commands = dict.fromkeys(re.sub(r"--seed \d+", "--seed SEED", row.command) for row in mine)
        lines += ["", "Commands:", "", "```", *commands, "```", ""]
    return "\n".join(lines)


def _line(target: str, rows: list[Row]) -> str:
    outcomes: Counter[str] = Counter()
    for row in rows:
        outcomes.update(row.outcomes)
    seeds = sorted({row.seed for row in rows})
    named = ", ".join(map(str, seeds)) if len(seeds) <= 6 else f"{seeds[0]} to {seeds[-1]} ({len(seeds)})"
    cells = (
        target,
        f"{sum(row.cases for row in rows):,}",
        f"{sum(row.failures for row in rows):,}",
        ", ".join(f"{name} {count:,}" for name, count in sorted(outcomes.items())),
        named,
        f"{max(row.longest_s for row in rows):.2f}",
        f"{max(row.memory_mb for row in rows):.1f}",
        f"{sum(row.seconds for row in rows) / 60:.1f}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(read(map(Path, sys.argv[2:]))), encoding="utf-8")
