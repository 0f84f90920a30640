"""``fwnkf data``: list, describe, download and verify recorded data sets; write a simulated flight."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..remaining import Remaining
from .output import UsageError, add_json, print_error, print_progress, say


def add(commands: Any) -> None:
    """Add the command and its actions."""
    data = commands.add_parser("data", help="recorded data sets, and a simulated flight to try the commands with")
    actions = data.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="the data sets, and the number of local recordings")
    for action, text in (
        ("info", "description, licence, citation and source of a data set"),
        ("fetch", "download a data set, or resume its download"),
        ("verify", "compare the local files with their checksums"),
    ):
        one = actions.add_parser(action, help=text)
        one.add_argument("name", help="name of a data set, see fwnkf data list")
        if action != "info":
            one.add_argument("--folder", type=Path, help="default: $FWNKF_DATA/NAME")
    example = actions.add_parser("example", help="write a simulated flight whose fault is known, as CSV")
    example.add_argument("file", type=Path, help="file to write, such as flight.csv")
    example.add_argument("--cause", default="rotor_vibration", help="its fault, or none (default: %(default)s)")
    example.add_argument("--seconds", type=float, default=20.0, help="length of the flight (default: %(default)g)")
    example.add_argument("--seed", type=int, default=0, help="seed of vehicle, motion and fault (default: 0)")
    for one in actions.choices.values():
        add_json(one)
        one.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run an action; ``verify`` returns 1 if a file differs or is missing."""
    if options.action == "example":
        return _example(options)
    from ..data.sets import catalogue

    if options.action == "list":
        rows = []
        for name in catalogue.list_sets():
            data_set, folder = catalogue.info(name), catalogue.folder_of(name)
            count = len(data_set.find(folder)) if folder.is_dir() else 0
            rows.append({"name": name, "title": data_set.title, "recordings": count, "licence": data_set.licence})
        lines = [f"{row['name']:8} {row['recordings']:3} local  {row['title']} ({row['licence']})" for row in rows]
        say(options, rows, "\n".join([*lines, f"folder: {catalogue.data_folder()}"]))
        return 0
    if options.action == "info":
        data_set = catalogue.info(options.name)
        fields = ("name", "title", "description", "licence", "citation", "homepage", "manual")
        values = {field: getattr(data_set, field) for field in fields}
        say(options, values, "\n".join(f"{field}: {text}" for field, text in values.items()))
        return 0
    if options.action == "fetch":
        try:
            paths = catalogue.fetch(options.name, options.folder, progress=None if options.json else _progress())
        except KeyboardInterrupt:
            print_error("\nrun the command again to resume the download")
            raise
        say(options, [str(path) for path in paths], f"\n{len(paths)} file(s) in {paths[0].parent if paths else '.'}")
        return 0
    reports = catalogue.verify(options.name, options.folder)
    lines = [f"{report.status:10} {report.path}" for report in reports]
    say(options, [report._asdict() for report in reports], "\n".join(lines))
    return int(any(report.status in ("differs", "missing") for report in reports))


def _progress() -> Callable[[str, int, int | None], None]:
    """Prints the share of a file that has been received, and the time left of it."""
    files: dict[str, Remaining] = {}

    def report(path: str, received: int, total: int | None) -> None:
        # A download that goes on begins with what an earlier one has received.
        remaining = files.setdefault(path, Remaining(total, received))
        share = f"{100 * received / total:5.1f} %" if total else f"{received / 1e6:8.1f} MB"
        print_progress(f"{share} {path}{remaining.added(received)}   ")

    return report


def _example(options: argparse.Namespace) -> int:
    """Write a simulated flight and say what is wrong with it, which a diagnosis should find."""
    from ..data.flight_table import write_flight_csv
    from ..data.flights import FAULTS, flight

    if options.cause not in ("none", *FAULTS):
        raise UsageError(f"--cause {options.cause}: no such fault; there are none, {', '.join(FAULTS)}")
    if not 1 <= options.seconds <= 3600:
        raise UsageError(f"--seconds {options.seconds:g}: give between 1 and 3600")
    simulated = flight(None if options.cause == "none" else options.cause, seed=options.seed, seconds=options.seconds)
    write_flight_csv(simulated, options.file)
    causes = [{"cause": cause.name, **cause.figures} for cause in simulated.causes]
    facts = {"file": str(options.file), "samples": len(simulated.imu_time), "rate": simulated.rate, "causes": causes}
    said = "; ".join(", ".join(f"{key} {_short(value)}" for key, value in cause.items()) for cause in causes) or "none"
    human = f"{options.file}: {facts['samples']:,} samples at {simulated.rate:g} Hz; simulated fault: {said}"
    say(options, facts, human)
    return 0


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
