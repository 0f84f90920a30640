"""``fwnkf bench``: benchmarks that need no training."""

from __future__ import annotations

import argparse
from typing import Any

from .output import add_json, add_store, cell, store, to_json

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
