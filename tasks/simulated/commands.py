"""``python -m tasks robustness``, ``changing_noise`` and ``ablations``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from fwnkf.cli.output import UsageError, add_store, print_status, say_table, store

ROBUSTNESS_COLUMNS = (
    *("task", "condition", "mse", "mse_ekf", "ratio", "nees", "nees_ekf", "coverage95", "coverage95_ekf"),
    *("error_ok", "coverage_ok", "nees_ok", "robust"),
)
CHANGING_COLUMNS = ("task", "condition", "method", "ratio", "ratio_std", "nees", "coverage95", "ok")
ABLATION_COLUMNS = ("task", "method", "mse", "mse_std", "mse_from_10", "nees_from_10", "coverage95", "seeds")


def add_commands(commands: Any) -> None:
    """Add the three commands to the runner's parser, which gives each ``--models`` and ``--json``."""
    command = commands.add_parser(
        "robustness",
        help="filters trained in one coloured noise, on records with another",
        description="Exits with 1 if a filter misses a criterion.",
    )
    command.add_argument("--records", type=int, default=1000, help="for each condition (1000)")
    command.add_argument("--markdown", type=Path, metavar="FILE", help="write the table as a page too")
    add_store(command)
    command.set_defaults(run=run_robustness)

    command = commands.add_parser(
        "changing_noise",
        help="filters that follow the level of noise, beside those that are told: half an hour",
    )
    command.add_argument(
        "--part", choices=("levels", "switches", "none"), help="one of the two alone, or the page alone"
    )
    command.add_argument("--keep", type=Path, nargs="+", default=[], help="rows of earlier runs (--store) for the page")
    command.add_argument("--records", type=int, default=60, help="for each seed and condition (60)")
    command.add_argument("--seeds", type=int, default=5, help="how many (5)")
    command.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables as a page too")
    command.add_argument("--figure", type=Path, metavar="FILE", help="draw error and coverage, as PNG")
    add_store(command)
    command.set_defaults(run=run_changing_noise)

    command = commands.add_parser("ablations", help="train the FW-NKF without one of its parts at a time: half an hour")
    command.add_argument("studies", nargs="*", metavar="STUDY", help="by name; all if not given")
    command.add_argument("--seeds", default="0,1,2", help="default: 0,1,2")
    command.add_argument("--quick", action="store_true", help="a few steps on a few records, to check that it runs")
    command.add_argument("--runs", type=Path, default=Path("runs/ablations"), help="folder of the training runs")
    command.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables as a page too")
    add_store(command)
    command.set_defaults(run=run_ablations)


def run_robustness(options: argparse.Namespace) -> int:
    """Measure and print; fails if a row misses a criterion."""
    from tasks.simulated.robustness import markdown, robustness

    if options.records < 1:
        raise UsageError(f"--records {options.records}: at least one record")
    rows = []
    for row in robustness(options.models, records=options.records):
        rows.append(row)
        print_status(
            f"{row['task']}, {row['condition']}: ratio {row['ratio']:.3f}, {'' if row['robust'] else 'not '}robust"
        )
        store(options.store, rows)
    _write(options.markdown, markdown(rows))
    say_table(options, rows, {name: name for name in ROBUSTNESS_COLUMNS})
    return int(not all(row["robust"] for row in rows))


def run_changing_noise(options: argparse.Namespace) -> int:
    """Measure and print; rows are stored as they come, page and drawing at the end."""
    from tasks.simulated.changing_noise import changing_noise
    from tasks.simulated.changing_noise_page import draw, markdown

    if min(options.records, options.seeds) < 1:
        raise UsageError(f"--records {options.records} --seeds {options.seeds}: at least one of each")
    rows = [row for path in options.keep for row in json.loads(path.read_text(encoding="utf-8"))]
    parts = {None: ("levels", "switches"), "none": ()}.get(options.part, (options.part,))
    for row in changing_noise(options.models, parts, seeds=options.seeds, records=options.records):
        rows.append(row)
        print_status(f"{row['task']}, {row['condition']}, {row['method']}: {row['ratio']:.3f}")
        store(options.store, rows)
    _write(options.markdown, markdown(rows, None if options.figure is None else f"../images/{options.figure.name}"))
    if options.figure is not None:
        draw(rows, options.figure)
    say_table(options, rows, {name: name for name in CHANGING_COLUMNS})
    return 0


def run_ablations(options: argparse.Namespace) -> int:
    """Train what is not done yet, and print all rows; the page is written again after every seed."""
    from tasks.interface import parse_seeds
    from tasks.simulated.ablations import chosen, measure
    from tasks.simulated.ablations_page import markdown

    seeds = parse_seeds(options.seeds)
    rows: list[dict[str, Any]] = []
    for rows in measure(chosen(options.studies), seeds=seeds, quick=options.quick, runs=options.runs, say=print_status):
        store(options.store, rows)
        _write(options.markdown, markdown(rows, quick=options.quick))
    say_table(options, rows, {name: name for name in ABLATION_COLUMNS})
    return 0


def _write(path: Path | None, text: str) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
