"""``fwnkf bench``: baselines on simulated records, and speed."""

from __future__ import annotations

import argparse
from typing import Any

from .output import add_json, add_store, cell, print_json, print_text, store

FIGURES = ("mse", "mse_from_10", "rmse", "mae", "nees", "coverage95", "failures", "seconds")
SIMULATED = ("lorenz", "pendulum")


def add(commands: Any) -> None:
    """Add the command to the parser."""
    bench = commands.add_parser("bench", help="benchmarks on simulated records, and speed")
    tables = bench.add_subparsers(dest="action", required=True, metavar="TABLE")
    references = tables.add_parser("references", help="baselines that need no training, and the oracle")
    add_data_flags(references, required=True)
    references.add_argument("--particles", type=int, default=0, help="add a particle filter with this many particles")
    references.add_argument("--seed", type=int, default=0, help="seed of the data (default: 0)")
    add_store(references)
    add_json(references)
    references.set_defaults(run=run, protocol="strict", scenario="white")
    speed = tables.add_parser("speed", help="speed of a filter of the size used in the paper, relative to an nn.GRU")
    speed.add_argument(
        "--rounds", type=int, default=30, help="interleaved rounds; the median is reported (default: 30)"
    )
    add_json(speed)
    speed.set_defaults(run=run_speed)


def add_data_flags(parser: argparse.ArgumentParser, required: bool = False, files: bool = False) -> None:
    """Add the options that select simulated records or, with ``files``, those of an experiment file."""
    if files:
        described = f"{' or '.join(SIMULATED)}, an experiment file whose data section is used, or a folder of tables"
        parser.add_argument("--data", metavar="DATA", help=described)
    else:
        parser.add_argument("--data", required=required, choices=SIMULATED, help="the simulated system")
    parser.add_argument("--protocol", choices=("paper", "strict"), help="evaluation protocol (default: strict)")
    parser.add_argument(
        "--scenario", choices=("white", "tone", "high_band", "drift", "pink"), help="measurement noise (default: white)"
    )


def run(options: argparse.Namespace) -> int:
    """Print each row as soon as it is computed; the exit code is 1 if a method failed on a record."""
    from ..data import protocols
    from ..evaluation.baselines import baselines

    protocol = protocols.load(options.data, options.protocol, scenario=options.scenario, seed=options.seed)
    rows: list[dict[str, Any]] = []
    for row in baselines(protocol, scenario=options.scenario, particles=options.particles):
        if not options.json:
            if not rows:
                print_text(f"{options.data}, {options.protocol}, {row['records']} records, seed {options.seed}")
                print_text(f"{'method':20}" + "".join(f"{name:>16}" for name in FIGURES))
            print_text(f"{row['method'][:19]:20}" + "".join(f"{cell(row.get(name)):>16}" for name in FIGURES))
        rows.append(row)
        store(options.store, rows)
    if options.json:
        print_json(rows)
    return int(any(row.get("failures", 0) for row in rows))


def run_speed(options: argparse.Namespace) -> int:
    """Print the ratio of each case and the largest that is wanted; the exit code is 1 if one is larger."""
    from ..evaluation.speed import speed_rows

    rows = []
    for row in speed_rows(options.rounds):
        rows.append(row)
        if not options.json:
            print_text(f"{row.case:60} {row.ratio:8.3f}  (at most {row.limit})")
    if options.json:
        print_json([row._asdict() for row in rows])
    return int(any(row.ratio > row.limit for row in rows))
