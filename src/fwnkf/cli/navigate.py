"""``fwnkf navigate``: position, velocity and attitude from the sensors in a log, beside the autopilot's estimate."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .columns import add_columns, chosen, open_chosen
from .output import (
    UsageError,
    add_json,
    add_plots,
    check_readable,
    command_line,
    print_error,
    print_status,
    print_text,
    say,
    table,
    to_json,
)
from .settings import save_text, settings_format, settings_lines
from .viewers import add_viewers, check_viewers, open_viewers, say_where, wants_viewer

if TYPE_CHECKING:
    from ..logs.log import Log
    from ..navigation.review import NavigationReview
    from ..settings import FileFormat

TRACKS = (".csv", ".parquet", ".mcap", ".tum")
"""What fwnkf.logs.results writes."""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "navigate",
        help="position, velocity and attitude from a log, beside the autopilot's estimate",
        description="Runs an inertial navigation filter on the IMU, GNSS, barometer, magnetometer and airspeed of a "
        "log (PX4, ArduPilot, or a table with --field). Noises and the delay of GNSS are fitted on the first half; the "
        "figures are of the rest, beside those of the same filter with the autopilot's default noises.",
    )
    parser.add_argument("log", type=Path, metavar="LOG", help="file, or folder of a ROS 2 bag")
    parser.add_argument("--imu", metavar="NAME", help="signal of the IMU, of several (default: the first)")
    parser.add_argument(
        "--fit",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="fit noises and delay on the first half, at most 120 s of it; without, the autopilot's defaults",
    )
    parser.add_argument("--from", dest="begin", type=_seconds, metavar="S", help="use the log from this second on")
    parser.add_argument("--to", dest="end", type=_seconds, metavar="S", help="use it up to this second")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the report, .html or .json")
    parser.add_argument(
        "--save", type=Path, metavar="TRACK", help=f"write the smoothed trajectory: {', '.join(TRACKS)}"
    )
    parser.add_argument(
        "--params",
        type=Path,
        metavar="FILE",
        help="write suggested settings of the estimator, as .params (QGroundControl) or .param (Mission Planner)",
    )
    add_plots(parser, "track, height and attitude")
    parser.add_argument("--all", action="store_true", help="print noises, biases and hidden windows as well")
    add_viewers(parser, "tracks with ellipsoids, attitude, states with intervals, and innovations")
    add_columns(parser, channels=False, controls=False)
    add_json(parser)
    parser.set_defaults(run=run)


def _seconds(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def run(options: argparse.Namespace) -> int:
    """Review the log, print the summary, write the page and the trajectory."""
    check_readable(options.log)
    if options.output is not None and options.output.suffix not in (".html", ".json"):
        raise UsageError(f"{options.output}: a report ends in .html or .json")
    if options.save is not None and options.save.suffix.lower() not in TRACKS:
        raise UsageError(f"--save {options.save}: a trajectory ends in {', '.join(TRACKS)}")
    for path in (options.output, options.save):
        if path is not None and path.exists() and path.resolve() == options.log.resolve():
            raise UsageError(f"{path} is the log itself and would be overwritten; name another file")
    check_viewers(options, options.log, options.output, options.save)
    if options.begin is not None and options.end is not None and options.begin >= options.end:
        raise UsageError(f"--from {options.begin:g} --to {options.end:g}: nothing is left")
    path = options.log.resolve() if options.log.name in ("", "..") else options.log  # a bag may be the folder one is in
    log = open_chosen(path, chosen(options))
    form = None if options.params is None else settings_format(options.params, log)
    if form is not None and not form.firmware:
        raise UsageError(f"--params {options.params}: fwnkf diagnose writes {form.name}; wanted .params or .param")
    if form is not None and not options.fit:
        raise UsageError("--params needs the fit: leave --no-fit out")
    from ..navigation.review import review

    found = review(
        log,
        imu=options.imu,
        fit=options.fit,
        begin=options.begin,
        end=options.end,
        say=lambda line: print_status(f"fwnkf: {line}"),
        command=command_line(options),
    )
    say(options, found.as_dict(), "\n".join(text(found, every=options.all)))
    if form is not None:
        _write_settings(options, form, found, log)
    if options.save is not None:
        facts = {"log": log.path.name, "estimates": "smoothed", "complete": "yes"}
        found.smoothed.save(options.save, log.start_ns, facts)
        print_status(f"fwnkf: wrote {options.save}")
    if options.output is not None:
        _write(options.output, found)
        print_status(f"fwnkf: wrote {options.output}")
    if options.plots is not None:
        from ..report.navigation_page import pictures_of
        from ..report.plots import save_all

        for drawn in save_all(options.plots, pictures_of(found)):
            print_status(f"fwnkf: wrote {drawn}")
    if wants_viewer(options):
        from ..report.viewers.from_navigation import navigation_items

        with open_viewers(options, found.name, log.start_ns) as scene:
            scene.add(navigation_items(found))
        say_where(scene)
    return 0


def _write_settings(options: argparse.Namespace, form: FileFormat, found: NavigationReview, log: Log) -> None:
    """Write the file of ``--params``, and print what is in it; no file where there is nothing to change."""
    from ..navigation.suggested import suggested
    from ..settings import Vehicle, settings_text

    rows, notes = suggested(found, log)
    if not options.json:
        print_text("\n".join(settings_lines(rows, notes)))
    if not rows:
        print_error(f"fwnkf: {options.params} is not written: there is no setting to change")
        return
    system, component = Vehicle(log.facts.get("firmware"), log.parameters).mavlink_ids
    save_text(options.params, settings_text(rows, form, source=found.name, vehicle=system, component=component))
    print_status(f"fwnkf: wrote {options.params}")


def text(found: NavigationReview, *, every: bool = False) -> list[str]:
    """The review for a terminal: a line, then tables."""
    lines = [f"{found.name} ({found.format}, {found.begin:.1f} to {found.end:.1f} s): {found.summary}", ""]
    logged: dict[str, list[float]] = {}
    for row in found.innovations:
        if row.logged is not None:
            logged.setdefault(row.sensor, []).append(row.logged.mean)
    rows: list[dict[str, Any]] = [
        {
            "sensor": row.name,
            "readings": row.readings,
            "nis": _round(row.nis),
            "usual": _round(row.usual_nis),
            "logged": _round(sum(logged[row.name]) / len(logged[row.name])) if row.name in logged else None,
            "outliers": row.outliers,
        }
        for row in found.sensors
    ]
    titles = {"sensor": "sensor", "readings": "readings", "nis": "NIS", "usual": f"NIS, {found.autopilot} noises",
              "logged": "NIS in the log", "outliers": "outliers"}  # fmt: skip
    shown = {name: title for name, title in titles.items() if any(row[name] is not None for row in rows)}
    lines += [f"From {found.rest:.1f} s on (NIS is 1 for a consistent filter):", *_indented(table(rows, shown))]
    if found.differences:
        lines += ["", "Difference to the autopilot's estimate:"]
        lines += _indented(
            [f"{row.name}: {row.rms:.3g} {row.unit} RMS, at most {row.largest:.3g} {row.unit} at {row.when:.1f} s"
             for row in found.differences]
        )  # fmt: skip
    if found.errors:
        names = {"name": "error against the truth (RMS)", "nees": "NEES"}
        names |= {name: name for name in ("unit", "filtered", "smoothed", "autopilot")}
        lines += ["", *table([_rounded(row._asdict()) for row in found.errors], names)]
    return lines + (_details(found) if every else ["", "Noises, biases and hidden windows: --all, or -o report.html"])


def _details(found: NavigationReview) -> list[str]:
    noises = [_rounded(row._asdict()) for row in found.noises]
    states = [_rounded(row._asdict()) for row in found.states]
    lines = ["", "Noises:", *_indented(table(noises, {"name": "noise", "unit": "unit", "value": "value",
                                                      "usual": f"default of {found.autopilot}"}))]  # fmt: skip
    lines += ["", "At the end:", *_indented(table(states, {"name": "state", "unit": "unit", "value": "value",
                                                           "std": "std"}))]  # fmt: skip
    if found.held_out is not None:
        windows = [_rounded(row._asdict()) for row in found.held_out.windows]
        titles = {"begin": "from (s)", "end": "to (s)", "fixes": "fixes", "error": "error (m)",
                  "usual": f"with {found.autopilot} noises (m)"}  # fmt: skip
        lines += ["", "Hidden fixes:", *_indented(table(windows, titles))]
    return lines + [f"note: {note}" for note in found.notes]


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _round(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.3g}")


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _round(value) if isinstance(value, float) else value for name, value in row.items()}


def _write(path: Path, found: NavigationReview) -> None:
    if path.suffix == ".json":
        content = to_json(found.as_dict(arrays=True)) + "\n"
    else:
        from ..report.navigation_page import navigation_page

        content = navigation_page(found)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8", errors="replace")  # names of files are bytes
