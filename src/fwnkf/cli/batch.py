"""``fwnkf batch``: a filter over the logs of a fleet."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..extras import need
from ..plain import printable
from ..remaining import Remaining
from .columns import add_columns, chosen
from .output import UsageError, add_html, add_json, check_readable, print_status, say

if TYPE_CHECKING:
    from ..scale.batch import BatchResult, Progress

INTERVAL = 2.0
"""Seconds between lines of progress."""
SHOWN = 10
"""Reasons that are printed; the manifest has all of them."""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "batch",
        help="run a filter over the logs of a fleet (extra: scale)",
        description="Filters all files below --input that --output does not have yet: Parquet files with many devices, "
        "or logs of any format. A device continues from its last state, with the same bits as if all samples had come "
        "in one run. Inputs that cannot be filtered are skipped and listed with the reason. Large inputs run on Ray, "
        "without usage statistics (RAY_USAGE_STATS_ENABLED=1 turns them on).",
    )
    parser.add_argument("--input", required=True, metavar="URI", help="folder, file or s3:// URI of the samples")
    parser.add_argument("--output", required=True, metavar="URI", help="folder or s3:// URI of the results")
    parser.add_argument("--filter", type=Path, required=True, metavar="FOLDER", help="folder of a saved filter")
    parser.add_argument("--device", default="device", metavar="COLUMN", help="column of the device (%(default)s)")
    parser.add_argument(
        "--stamps",
        action="store_true",
        help="take the time steps from the time stamps instead of the rate of the filter",
    )
    parser.add_argument(
        "--step", type=float, metavar="S", help="time step in seconds, for a filter whose system has no time step"
    )
    parser.add_argument(
        "--batch-size", type=int, metavar="N", help="devices per batch (default: chosen by their number)"
    )
    parser.add_argument(
        "--engine",
        choices=("auto", "loop", "ray"),
        default="auto",
        help="a loop in this process, or Ray (default: chosen by the number of rows)",
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="Ray worker processes (default: cores of this machine)"
    )
    parser.add_argument("--address", metavar="ADDRESS", help="of a Ray cluster; implies --engine ray")
    parser.add_argument("--resume", action="store_true", help="continue a run that was interrupted")
    add_html(parser)
    add_columns(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Filter; the exit code is 1 if an input was skipped in this run."""
    if not options.filter.is_dir():
        raise UsageError(f"--filter {options.filter} is not a folder")
    for name in ("workers", "batch_size"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name.replace('_', '-')} {value}: expected an integer of at least 1")
    if "://" not in options.input:
        check_readable(options.input)
    from ..scale.batch import batch

    if options.html is not None:
        need("matplotlib", extra="plot")  # known before the work, not after it
    choice = chosen(options, options.filter)
    modules = tuple(str(Path(name).resolve()) if name.endswith(".py") else name for name in options.modules)
    result = batch(
        options.input,
        options.output,
        options.filter,
        channels=choice.channels,
        controls=choice.controls,
        device=options.device,
        time_column=choice.time or "time",
        stamps=options.stamps,
        step=options.step,
        batch_size=options.batch_size,
        engine=options.engine,
        workers=options.workers,
        address=options.address,
        resume=options.resume,
        topics=choice.topics,
        fields=choice.fields,
        modules=modules,
        progress=_progress(time.monotonic()),
    )
    if options.html is not None:
        _page(options, result)
    state = result.progress
    machine = {
        "input": options.input, "output": options.output, "engine": state.engine, "parts": state.parts_done,
        "sessions": state.sessions, "rows": state.rows, "set_aside": result.faults, "seconds": state.seconds,
        "rows_per_second": state.rows / max(state.seconds, 1e-9), "work_seconds": state.work,
        "task_seconds": state.task_seconds, "notes": list(result.notes),
    }  # fmt: skip
    say(options, machine, "\n".join(_report(options, result)))
    return 1 if state.set_aside else 0


def _progress(began: float) -> Callable[[Progress], None]:
    last, remaining = began, Remaining(None)

    def report(state: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < INTERVAL and state.parts_done < state.parts:
            return
        last = now
        remaining.total = state.parts
        print_status(
            f"{state.parts_done:,} of {state.parts:,} files, {state.rows:,} rows "
            f"({state.rows / max(now - began, 1e-9):,.0f} a second), {state.set_aside:,} skipped"
            f"{remaining.added(state.parts_done)}"
        )

    return report


def _page(options: argparse.Namespace, result: BatchResult) -> None:
    from ..report.fleet_page import fleet_page
    from ..scale.fleet import read_fleet

    state = result.progress
    facts = {
        "Files": f"{len(result.manifest['parts']):,}",
        "Skipped inputs": f"{len(result.faults):,}",
        "Rows in this run": f"{state.rows:,}",
        "Filter": options.filter.resolve().name,
    }
    fleet = read_fleet(options.output)
    fleet_page(f"Fleet: {options.input}", fleet._asdict(), result.faults, facts).save(options.html)


def _report(options: argparse.Namespace, result: BatchResult) -> list[str]:
    state = result.progress
    speed = state.rows / max(state.seconds, 1e-9)
    lines = [
        f"{options.output}: {state.rows:,} estimates of {state.sessions:,} sessions from {state.parts_done:,} files",
        f"{state.seconds:.1f} s, {speed:,.0f} samples a second ({state.engine})",
    ]
    faults = result.faults
    if faults:
        lines.append(f"{len(faults):,} inputs were skipped; all are listed in _manifest.json:")
        lines += [printable(f"  {item['input']} {item['device']}: {item['reason']}") for item in faults[:SHOWN]]
    if options.html is not None:
        lines.append(f"fleet page: {options.html}")
    return lines + [f"note: {printable(note)}" for note in result.notes]
