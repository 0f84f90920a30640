"""``fwnkf diagnose``: what is wrong with an estimate, from the log."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..plain import printable
from .columns import add_columns, chosen, open_chosen
from .output import (
    UsageError,
    add_json,
    add_plots,
    check_readable,
    command_line,
    print_error,
    print_text,
    say,
    split_names,
    table,
    to_json,
    wrapped,
)
from .settings import format_of_file, save_text, settings_format, settings_lines
from .viewers import add_viewers, check_viewers, open_viewers, say_where, wants_viewer

if TYPE_CHECKING:
    from ..diagnosis.evidence import Evidence
    from ..diagnosis.finding import Finding
    from ..diagnosis.result import Diagnosis
    from ..filters.base import Filter
    from ..settings import FileFormat

WORDS = {"failure": "FAILURE", "warning": "WARNING", "info": "NOTE"}


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "diagnose",
        help="find problems of sensors and filters in a log, and say what to do",
        description="Reads a log (PX4, ArduPilot, Betaflight, MCAP, ROS bag, CSV, Parquet), runs a filter on its IMU "
        "data and reports problems: vibration, rotor imbalance, resonances, clipping, gaps, wrong axes and clocks.",
    )
    parser.add_argument("log", type=Path, metavar="LOG", help="file, or folder of a ROS 2 bag")
    parser.add_argument("--filter", type=Path, metavar="FOLDER", help="saved filter whose innovations to examine")
    parser.add_argument(
        "--truth", metavar="PLACE", help="topic of the log, or file, with the true pose to compare estimates with"
    )
    parser.add_argument("--fix", action="store_true", help="fit noise states to the log and compare before and after")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="where --fix saves its filter (default: LOG.fixed)")
    parser.add_argument(
        "--params", type=Path, metavar="FILE",
        help="write suggested settings, as .params (QGroundControl), .param (Mission Planner), .txt (Betaflight CLI), "
        "or the noise of the IMU as .yaml (Kalibr)",
    )  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the report, .html or .json")
    add_plots(parser, "the spectra and the consistency of the innovations")
    parser.add_argument(
        "--fail-on", metavar="WHAT", help="exit with 1 on: warning, failure, or causes separated by commas"
    )
    parser.add_argument("--all", action="store_true", help="print all findings, not the first three problems alone")
    parser.add_argument(
        "--threshold", action="append", default=[], metavar="NAME=VALUE", help="change a threshold; may be repeated"
    )
    add_viewers(parser, "signals and innovations with intervals, spectrograms, findings, and the pose in the log")
    add_columns(parser, controls=False)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Diagnose, print the verdict, write the report; 1 if a finding is one of ``--fail-on``, or a fix does not hold."""
    check_readable(options.log)
    from ..diagnosis.diagnose import complete, examine, outline
    from ..diagnosis.rules import judge
    from ..diagnosis.thresholds import THRESHOLDS

    wanted = _fail_on(options.fail_on)
    if options.output is not None and options.output.suffix not in (".html", ".json"):
        raise UsageError(f"{options.output}: a report ends in .html or .json")
    if options.params is not None and options.params.suffix:
        format_of_file(options.params)
    check_viewers(options, options.log, options.output)
    path = options.log.resolve() if options.log.name in ("", "..") else options.log  # a bag may be the folder one is in
    try:
        thresholds = THRESHOLDS.parsed(options.threshold)
    except ConfigError as error:
        raise UsageError(str(error)) from error
    choice = chosen(options, options.filter)
    log = open_chosen(path, choice, only=True)
    form = None if options.params is None else settings_format(options.params, log)
    evidence = examine(
        log,
        filter=None if options.filter is None else _loaded(options.filter),
        truth=options.truth,
        thresholds=thresholds,
    )
    findings, command = judge(evidence), command_line(options)
    if not options.json:  # before anything is fitted or drawn
        print_text("\n".join(text(outline(evidence, findings, command=command), every=options.all)))
    result = None
    if options.json or options.fix or options.output is not None or options.plots is not None or wants_viewer(options):
        folder = options.save or path.with_name(path.name + ".fixed")
        result = complete(evidence, findings, fix=options.fix, folder=folder if options.fix else None, command=command)
        if result.fix is not None and result.fix.folder is not None:  # another command finds the columns again
            replace(choice, channels=()).save(result.fix.folder)
        if options.json or options.fix:
            say(options, result.as_dict(arrays=False), "\n".join(fix_text(result)))
        if options.output is not None:
            _write(options.output, result)
        if options.plots is not None:
            from ..report.diagnosis_page import pictures_of
            from ..report.plots import save_all

            save_all(options.plots, pictures_of(result))
        if wants_viewer(options):
            from ..report.viewers.from_diagnosis import diagnosis_items

            with open_viewers(options, result.name, log.start_ns) as scene:
                scene.add(diagnosis_items(evidence, result))
            say_where(scene)
    if form is not None:
        _write_settings(options, form, evidence, findings, result)
    return _checked(options, wanted, findings, result)


def _checked(
    options: argparse.Namespace, wanted: set[str], findings: Sequence[Finding], result: Diagnosis | None
) -> int:
    """The exit code, with its reason."""
    failed = [finding for finding in findings if finding.severity in wanted or finding.cause in wanted]
    if failed:
        print_error(f"fwnkf: --fail-on {options.fail_on}: {', '.join(sorted({item.cause for item in failed}))}")
    worse = result is not None and result.fix is not None and result.fix.outcome == "worse"
    if worse:
        print_error(
            "fwnkf: --fix: no filter was saved, because the fitted one predicts the held-out part of the log worse"
        )
    return 1 if failed or worse else 0


def _loaded(folder: Path) -> Filter:
    from .. import load

    return load(folder)


def text(result: Diagnosis, *, every: bool = False) -> list[str]:
    """The verdict for a terminal: one line, then the first problems, or all findings."""
    lines = [
        *wrapped(f"{printable(result.name)} ({result.format}, {result.seconds:.1f} s): {result.verdict}", ""),
        "",
    ]
    shown = result.findings if every else result.first
    for finding in shown:
        lines += [*_finding(finding), ""]
    for guide in dict.fromkeys(finding.guide for finding in shown if finding.guide):
        lines += [f"Which filter helps against which disturbance: {guide}", ""]
    if every:
        lines += wrapped(f"filter: {result.filter}", "  ")
        lines += [line for note in result.notes for line in wrapped(f"note: {note}", "  ")]
    elif len(result.findings) > len(shown):
        problems = len(result.problems) - len([item for item in shown if item.severity != "info"])
        notes = len(result.findings) - len(shown) - problems
        more = [f"{count} more {name}{'' if count == 1 else 's'}"
                for count, name in ((problems, "problem"), (notes, "note")) if count]  # fmt: skip
        lines.append(f"{' and '.join(more)}: --all, or the report with -o report.html")
    return lines


def fix_text(result: Diagnosis) -> list[str]:
    """What a fix changes, for a terminal."""
    lines: list[str] = []
    if result.fix is not None:
        lines.append("Comparison on the held-out part of the log:")
        names = {name: name.replace("_", " ") for name in result.fix.rows[0]} if result.fix.rows else {}
        lines += [f"  {line}" for line in table(result.fix.rows, names)]
        lines += [line for note in result.fix.notes for line in wrapped(note, "  ")]
        if result.fix.folder is not None:
            lines.append(f"  saved: {result.fix.folder}")
    lines += [line for note in result.notes if note.startswith("--fix") for line in wrapped(f"note: {note}", "  ")]
    return lines


def _finding(finding: Finding) -> list[str]:
    head = f"{WORDS[finding.severity]} ({finding.cause}, {finding.confidence} confidence): {finding.what}"
    body = [*wrapped(finding.evidence, "    ")]
    return [*wrapped(head, ""), *body, *(wrapped("→ " + finding.action, "    ") if finding.action else [])]


def _write(path: Path, result: Diagnosis) -> None:
    if path.suffix == ".json":
        content = to_json(result.as_dict()) + "\n"
    else:
        from ..report.diagnosis_page import diagnosis_page

        content = diagnosis_page(result)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8", errors="replace")  # names of files are bytes


def _write_settings(
    options: argparse.Namespace,
    form: FileFormat,
    evidence: Evidence,
    findings: Sequence[Finding],
    result: Diagnosis | None,
) -> None:
    """Write the file of ``--params``, and print what is in it; no file where there is nothing to change."""
    from ..diagnosis.imu_noise import imu_noise
    from ..diagnosis.notch_settings import notch_settings
    from ..settings import Vehicle, kalibr, settings_text

    name = evidence.log.path.name
    if not form.firmware:
        save_text(options.params, kalibr(imu_noise(evidence), source=name))
        return
    rows, notes = notch_settings(evidence, findings) if result is None else (result.settings, result.settings_notes)
    if not options.json:
        print_text("\n".join(settings_lines(rows, notes)))
    if not rows:
        print_error(f"fwnkf: {options.params} is not written: there is no setting to change")
        return
    system, component = Vehicle(evidence.log.facts.get("firmware"), evidence.log.parameters).mavlink_ids
    save_text(options.params, settings_text(rows, form, source=name, vehicle=system, component=component))


def _fail_on(names: str | None) -> set[str]:
    from ..diagnosis.finding import CAUSES

    wanted = set(split_names(names))
    unknown = wanted - {"warning", "failure", *CAUSES}
    if unknown:
        raise UsageError(
            f"--fail-on {', '.join(sorted(unknown))}: wanted warning, failure, or causes: {', '.join(CAUSES)}"
        )
    return wanted | ({"failure"} if "warning" in wanted else set())
