"""The command line: parses, calls, prints. Nothing heavy is imported before a command runs.

Exit codes: 0 done, 1 the work failed or a check does not hold, 2 the call's words are off.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence as Many
from pathlib import Path
from typing import Any

from .errors import FwnkfError


def parser() -> argparse.ArgumentParser:
    """Every command with its options."""
    top = argparse.ArgumentParser(prog="fwnkf", description="Frequency-weighted neural Kalman filters.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    data = commands.add_parser("data", help="recordings: what there is, where it comes from, is it whole")
    actions = data.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="the known sets and how much of each is here")
    for action, text in (
        ("info", "description, licence, citation and source of a set"),
        ("fetch", "download a set, resuming where an earlier download stopped"),
        ("verify", "compare the files here with their checksums"),
    ):
        one = actions.add_parser(action, help=text)
        one.add_argument("name", help="euroc, broad, dido or uipdb")
        if action != "info":
            one.add_argument("--folder", type=Path, help="instead of $FWNKF_DATA/NAME")
    for one in actions.choices.values():
        one.add_argument("--json", action="store_true", help="machine-readable output")

    bench = commands.add_parser("bench", help="benchmarks")
    tables = bench.add_subparsers(dest="action", required=True, metavar="TABLE")
    ladder = tables.add_parser("references", help="the ladder of methods that need no training")
    ladder.add_argument("--data", required=True, choices=("lorenz", "pendulum", "euroc", "broad"))
    ladder.add_argument("--protocol", default="strict", choices=("paper", "strict"), help="default: strict")
    ladder.add_argument(
        "--scenario",
        default="white",
        choices=("white", "tone", "high_band", "drift", "pink"),
        help="simulated data only",
    )
    ladder.add_argument("--horizon", type=float, help="seconds, EuRoC strict only: 1, 5, 10")
    ladder.add_argument("--particles", type=int, default=0, help="add a particle filter of this size (simulated data)")
    ladder.add_argument("--seed", type=int, default=0)
    ladder.add_argument("--store", type=Path, help="write the rows to this JSON file too")
    ladder.add_argument("--json", action="store_true", help="print a list of rows instead of a table")
    return top


def main(arguments: Many[str] | None = None) -> int:
    """Run one command; errors of the package become one message and exit code 1."""
    options = parser().parse_args(arguments)
    try:
        if options.command == "data":
            return _data(options)
        return _references(options)
    except FwnkfError as error:
        print(f"fwnkf: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fwnkf: stopped; a download goes on from here when it is started again", file=sys.stderr)
        return 1


def _say(options: argparse.Namespace, machine: Any, human: str) -> None:
    print(json.dumps(machine, indent=2) if options.json else human)


def _data(options: argparse.Namespace) -> int:
    from .data import catalogue

    if options.action == "list":
        rows = []
        for name in catalogue.list_sets():
            known, place = catalogue.info(name), catalogue.folder_of(name)
            count = len(known.find(place)) if place.is_dir() else 0
            rows.append({"name": name, "title": known.title, "sequences_here": count, "licence": known.licence})
        lines = [f"{row['name']:8} {row['sequences_here']:3} here  {row['title']} ({row['licence']})" for row in rows]
        _say(options, rows, "\n".join([*lines, f"folder: {catalogue.data_folder()}"]))
        return 0
    known = catalogue.info(options.name)
    if options.action == "info":
        facts = {
            part: getattr(known, part)
            for part in ("name", "title", "description", "licence", "citation", "homepage", "manual")
        }
        _say(options, facts, "\n".join(f"{part}: {text}" for part, text in facts.items()))
        return 0
    if options.action == "fetch":
        paths = catalogue.fetch(options.name, options.folder, progress=None if options.json else _show_progress)
        _say(options, [str(path) for path in paths], f"\n{len(paths)} file(s) in {paths[0].parent if paths else '.'}")
        return 0
    reports = catalogue.verify(options.name, options.folder)
    lines = [f"{report.status:10} {report.path}" for report in reports]
    _say(options, [report._asdict() for report in reports], "\n".join(lines))
    return int(any(report.status in ("differs", "missing") for report in reports))


def _show_progress(path: str, have: int, total: int | None) -> None:
    share = f"{100 * have / total:5.1f} %" if total else f"{have / 1e6:8.1f} MB"
    print(f"\r{share} {path}", end="", file=sys.stderr, flush=True)


def _references(options: argparse.Namespace) -> int:
    from .bench.references import references

    chosen: dict[str, Any] = {"seed": options.seed}
    if options.data == "euroc":
        chosen |= {} if options.horizon is None else {"horizon": options.horizon}
    elif options.data != "broad":
        chosen |= {"scenario": options.scenario, "particles": options.particles}
    labels, numbers = ["method"], ["mse", "mse_from_10", "rmse", "mae", "nees", "coverage95", "failures", "seconds"]
    if options.data == "euroc":
        numbers = ["mse", "rmse_p", "rmse_v", "rmse_q", "nees", "coverage95", "failures", "seconds"]
    if options.data == "broad":
        labels, numbers = ["method", "trial"], ["inclination_deg", "heading_deg", "orientation_deg", "samples"]
    rows: list[dict[str, Any]] = []
    for row in references(options.data, options.protocol, **chosen):
        if not options.json:
            if not rows:
                print(f"{options.data}, {options.protocol}, {row.get('records', 'all')} records, seed {options.seed}")
                print("".join(f"{name:20}" for name in labels) + "".join(f"{name:>16}" for name in numbers))
            words = "".join(f"{str(row[name])[:19]:20}" for name in labels)
            print(words + "".join(_cell(row.get(name)) for name in numbers), flush=True)
        rows.append(row)
        if options.store:
            options.store.parent.mkdir(parents=True, exist_ok=True)
            options.store.write_text(json.dumps(rows, indent=2) + "\n")
    if options.json:
        print(json.dumps(rows, indent=2))
    return int(any(row.get("failures", 0) for row in rows))


def _cell(value: float | None) -> str:
    return f"{'':>16}" if value is None else f"{value:16.5g}"


if __name__ == "__main__":
    sys.exit(main())
