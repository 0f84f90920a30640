"""``fwnkf bench``: the reference ladder, and what the shipped filters reach beside it."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .output import UsageError, add_json, add_store, cell, say_table, store, to_json

FIGURES = ("mse", "mse_from_10", "rmse", "mae", "nees", "coverage95", "failures", "seconds")
INERTIAL_FIGURES = ("mse", "rmse_p", "rmse_v", "rmse_q", "nees", "coverage95", "failures", "seconds")
ORIENTATION_FIGURES = ("inclination_deg", "heading_deg", "orientation_deg", "samples")


def add(commands: Any) -> None:
    """The command and its tables."""
    bench = commands.add_parser("bench", help="benchmarks")
    tables = bench.add_subparsers(dest="action", required=True, metavar="TABLE")
    ladder = tables.add_parser("references", help="the ladder of methods that need no training")
    add_data_flags(ladder, ("lorenz", "pendulum", "euroc", "broad"), required=True)
    ladder.add_argument("--particles", type=int, default=0, help="add a particle filter of this size (simulated data)")
    ladder.add_argument("--seed", type=int, default=0)
    add_store(ladder)
    add_json(ladder)
    ladder.set_defaults(run=run, protocol="strict", scenario="white")
    table = tables.add_parser("accuracy", help="the shipped filters and their references, or both from scratch")
    table.add_argument("--task", action="append", default=[], help="a folder of models/, or a group; all if not given")
    table.add_argument("--models", type=Path, default=Path("models"), help="where the trained filters lie (models)")
    table.add_argument("--train", action="store_true", help="train from scratch first: minutes for each seed")
    table.add_argument("--seeds", default="0,1,2,3,4", help="of --train (0,1,2,3,4)")
    table.add_argument("--quick", action="store_true", help="a small fixed part of the test records, no references")
    table.add_argument("--markdown", type=Path, metavar="FILE", help="write the table as a page too")
    table.add_argument("--readme", type=Path, metavar="FILE", help="measure nothing: put the cards' summary into FILE")
    add_store(table)
    add_json(table)
    table.set_defaults(run=accuracy)
    other = tables.add_parser("harm", help="filters that learned a disturbance, where it is absent, moved or stronger")
    other.add_argument("--models", type=Path, default=Path("models"), help="where the trained filters lie (models)")
    other.add_argument("--records", type=int, default=1000, help="test records of each condition (1000)")
    other.add_argument("--markdown", type=Path, metavar="FILE", help="write the table as a page too")
    add_store(other)
    add_json(other)
    other.set_defaults(run=harm)
    parts = tables.add_parser("ablations", help="what each part of the FW-NKF is worth: trained with it and without")
    parts.add_argument(
        "--task", action="append", default=[], help="one of the tables; may be repeated; all if not given"
    )
    parts.add_argument("--seeds", default="0,1,2", help="how often everything is trained (0,1,2)")
    parts.add_argument("--quick", action="store_true", help="a few steps on a few records, to see that it runs")
    parts.add_argument("--runs", type=Path, default=Path("runs/ablations"), help="where runs are kept (runs/ablations)")
    parts.add_argument("--markdown", type=Path, metavar="FILE", help="write tables and findings as a page too")
    add_store(parts)
    add_json(parts)
    parts.set_defaults(run=ablations)


def add_data_flags(parser: argparse.ArgumentParser, names: tuple[str, ...], required: bool = False) -> None:
    """Which records; the same words wherever a command asks for them."""
    parser.add_argument("--data", required=required, choices=names)
    parser.add_argument("--protocol", choices=("paper", "strict"), help="default: strict")
    parser.add_argument(
        "--scenario",
        choices=("white", "tone", "high_band", "drift", "pink"),
        help="the noise, simulated data only (default: white)",
    )
    parser.add_argument("--horizon", type=float, help="seconds, EuRoC strict only: 1, 5, 10")


def run(options: argparse.Namespace) -> int:
    """The rows as they come, for some take a while; fails if a method failed on a record."""
    from ..bench.references import references

    chosen: dict[str, Any] = {"seed": options.seed}
    if options.data == "euroc":
        chosen |= {} if options.horizon is None else {"horizon": options.horizon}
    elif options.data != "broad":
        chosen |= {"scenario": options.scenario, "particles": options.particles}
    labels: tuple[str, ...] = ("method",)
    numbers: tuple[str, ...] = FIGURES
    if options.data == "euroc":
        numbers = INERTIAL_FIGURES
    if options.data == "broad":
        labels, numbers = ("method", "trial"), ORIENTATION_FIGURES
    rows: list[dict[str, Any]] = []
    for row in references(options.data, options.protocol, **chosen):
        if not options.json:
            if not rows:
                print(f"{options.data}, {options.protocol}, {row.get('records', 'all')} records, seed {options.seed}")
                print("".join(f"{name:20}" for name in labels) + "".join(f"{name:>16}" for name in numbers))
            words = "".join(f"{str(row[name])[:19]:20}" for name in labels)
            print(words + "".join(f"{cell(row.get(name)):>16}" for name in numbers), flush=True)
        rows.append(row)
        store(options.store, rows)
    if options.json:
        print(to_json(rows))
    return int(any(row.get("failures", 0) for row in rows))


def accuracy(options: argparse.Namespace) -> int:
    """Rows of trained filters; fails if one does not reach its target."""
    if options.readme is not None:
        return readme(options)
    from ..bench.accuracy import table

    seeds = _seeds(options.seeds)
    if options.train:
        table.train(options.models, options.task, seeds, lambda text: print(text, file=sys.stderr, flush=True))
    rows = []
    for row in table.measure(options.models, options.task, quick=options.quick):
        print(f"{row['task']}, {row['method']}: {row['metric']} {row['value']:.4g}", file=sys.stderr, flush=True)
        rows.append(row)
        store(options.store, rows)
    if options.markdown is not None:
        options.markdown.parent.mkdir(parents=True, exist_ok=True)
        options.markdown.write_text(table.markdown(rows), encoding="utf-8")
    columns = ("task", "method", "metric", "value", "mean", "spread", "target", "reached", "records")
    say_table(options, rows, {name: name for name in columns})
    return int(any(row.get("reached") is False for row in rows))


def readme(options: argparse.Namespace) -> int:
    """What the cards say, as a table within a page."""
    if options.task or options.train or options.quick or options.markdown or options.store:
        raise UsageError("--readme writes what the cards say of all tasks: it goes with --models and --json alone")
    from ..bench.accuracy import summary

    made = summary.insert(options.readme, options.models)
    rows = [{**asdict(line), "mean": line.mean, "reached": line.verdict()} for line in summary.lines(options.models)]
    print(to_json(rows) if options.json else made)
    return 0


def harm(options: argparse.Namespace) -> int:
    """Rows of each filter and condition; fails if one is much worse than the classical filter."""
    from ..bench import harm as table
    from ..bench.accuracy.table import need_models

    need_models(options.models)
    rows = []
    for row in table.harm(options.models, records=options.records):
        print(f"{row['task']}, {row['condition']}: {row['ratio']:.3f} of the EKF's error", file=sys.stderr, flush=True)
        rows.append(row)
        store(options.store, rows)
    if options.markdown is not None and rows:
        options.markdown.parent.mkdir(parents=True, exist_ok=True)
        options.markdown.write_text(table.markdown(rows), encoding="utf-8")
    columns = ("task", "condition", "mse", "mse_ekf", "ratio", "nees", "coverage95", "harmless")
    say_table(options, rows, {name: name for name in columns})
    return int(any(not row["harmless"] for row in rows))


def ablations(options: argparse.Namespace) -> int:
    """Train variants and show what they reach; pages and files grow as seeds are done."""
    from ..bench import ablations as study
    from ..bench import ablations_page

    told = {"seeds": _seeds(options.seeds), "quick": options.quick, "runs": options.runs}
    rows: list[dict[str, Any]] = []
    studies = study.chosen(options.task)
    from ..training.fit import StoppedError  # after the check: Lightning takes seconds to import

    try:
        for rows in study.measure(studies, **told, say=lambda text: print(text, file=sys.stderr, flush=True)):
            store(options.store, rows)
            if options.markdown is not None:
                options.markdown.parent.mkdir(parents=True, exist_ok=True)
                options.markdown.write_text(ablations_page.markdown(rows, quick=options.quick), encoding="utf-8")
    except StoppedError:
        print("stopped; the state is saved, and the same command goes on from here", file=sys.stderr)
        return 130
    columns = ("task", "method", "mse", "mse_std", "mse_from_10", "nees_from_10", "coverage95", "cpu_seconds")
    say_table(options, rows, {name: name for name in columns})
    return int(any(row["failed"] for row in rows))


def _seeds(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(f"--seeds {text!r}: whole numbers with commas between them") from None
