"""``fwnkf run``: a filter over a log of any length, with the estimates written to a file."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..plain import printable
from ..remaining import Remaining
from .columns import add_columns, chosen, open_chosen
from .output import UsageError, add_json, check_readable, print_error, print_progress, say
from .viewers import add_viewers, check_viewers, open_viewers, say_where, wants_viewer

if TYPE_CHECKING:
    from ..filters.base import Filter
    from ..logs import Log
    from ..logs.choice import Choice
    from ..runtime.recordings import Summary

SUFFIXES = (".parquet", ".csv", ".tum", ".mcap")
INTERVAL = 1.0
"""Seconds between lines of progress."""

ENGINES = ("auto", "loop", "scan", "native")  # fwnkf.filters.engines.Engine, without the import of PyTorch


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "run",
        help="run a filter over a log and write the estimates",
        description="The channels of the filter are found in the log by their names (gyro_x, accel_x, position_x, …), "
        "those of a filter that `fwnkf fit` or `diagnose --fix` wrote by the columns it was fitted to. Memory does not "
        "grow with the length of the log. Ctrl-C leaves the estimates up to there.",
    )
    parser.add_argument(
        "log",
        type=Path,
        metavar="LOG",
        help="MCAP, ROS bag, ULog, DataFlash, blackbox, CSV, Parquet; or a folder of CSV or Parquet files",
    )
    parser.add_argument("--filter", type=Path, required=True, metavar="F", help="folder of a saved filter")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="OUT",
        help=f"file: {', '.join(SUFFIXES)}; for a folder of files a folder, in which each gets a .csv; needed unless "
        "the estimates are shown by --rerun or --mcap",
    )
    parser.add_argument("--smooth", action="store_true", help="use all measurements of the log for every estimate")
    parser.add_argument("--lag", type=int, metavar="K", help="with --smooth: only measurements up to K steps later")
    parser.add_argument(
        "--stamps",
        action="store_true",
        help="take the time steps from the time stamps instead of the rate of the filter",
    )
    parser.add_argument(
        "--covariance", action="store_true", help=".parquet, .csv: write covariances as well as standard deviations"
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="what runs the filter: compiled code (native), PyTorch over all steps at once (scan) or step by step "
        "(loop); by default the fastest that serves",
    )
    add_viewers(parser, "estimates with intervals, measurements, innovations, and the pose where the state has one")
    add_columns(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the filter; the exit code is 1 if a step failed, or if many samples were lost."""
    check_readable(options.log)
    if not options.filter.is_dir():
        raise UsageError(f"--filter {options.filter} is not a folder")
    tables = _tables(options.log)
    if options.output is None and not wants_viewer(options):
        raise UsageError("name what to write: -o OUT for the estimates, or --rerun or --mcap FILE to look at them")
    if tables and wants_viewer(options):
        raise UsageError(f"{options.log} is a folder of {len(tables)} tables; --rerun and --mcap show one of them")
    check_viewers(options, options.log, options.output)
    if options.output is not None:
        _check_output(options, len(tables))
    if options.lag is not None and (not options.smooth or options.lag < 0):
        raise UsageError("--lag needs --smooth and a number of steps of at least zero")
    logs: list[tuple[Path, Path | None]] = [(path, options.output / f"{path.stem}.csv") for path in tables]
    logs = logs or [(options.log, options.output)]
    # whether a log can be opened is known before PyTorch is imported, which takes most of the time of a short run
    choice = chosen(options, options.filter)
    opened = [(open_chosen(path, choice), output) for path, output in logs]
    from .. import load

    model = load(options.filter)
    results = [_run_one(options, model, choice, log, output) for log, output in opened]
    machines = [machine for machine, _ in results]
    say(options, machines if tables else machines[0], "\n".join(line for _, lines in results for line in lines))
    lost = [sentence for machine in machines for sentence in machine["lost"]]
    for sentence in lost:
        print_error(printable(sentence))
    return 1 if lost or any(machine["flagged_steps"] for machine in machines) else 0


def _check_output(options: argparse.Namespace, tables: int) -> None:
    """Raise UsageError for an output that does not fit the log."""
    output = options.output
    if not tables and output.suffix.lower() not in SUFFIXES:
        raise UsageError(f"-o {output}: the suffix must be one of {', '.join(SUFFIXES)}")
    if tables and output.suffix:
        raise UsageError(f"-o {output}: {options.log} is a folder of {tables} tables; name a folder too")
    if output.exists() and options.log.resolve() in (output.resolve(), output.resolve().parent):
        raise UsageError(f"-o {output} is the log itself or a part of it and would be overwritten; name another file")


def _tables(path: Path) -> list[Path]:
    """The CSV and Parquet files of a folder, unless it is a ROS 2 bag."""
    if not path.is_dir() or any(next(path.glob(name), None) for name in ("metadata.yaml", "*.db3", "*.mcap")):
        return []
    from ..logs.table import find_tables

    return find_tables(path)


def _run_one(
    options: argparse.Namespace, model: Filter, choice: Choice, log: Log, output: Path | None
) -> tuple[dict[str, Any], list[str]]:
    """One log to one file and to viewers; what was done, for programs and for people."""
    from ..data.log_blocks import SampleBlocks
    from ..runtime.recordings import Summary, run_long

    names = signal_names(model, log, choice.channels, choice.controls)
    blocks = SampleBlocks(log, names)
    results = _Results(options, model, log, output)
    summary, began = Summary(), time.monotonic()
    facts = {"log": log.path.name, "filter": options.filter.resolve().name, "estimates": _estimates(options)}
    interrupted = True
    try:
        run_long(
            model,
            blocks,
            results.write,
            smoothing=options.smooth,
            lag=options.lag,
            stamps=options.stamps,
            summary=summary,
            progress=_progress(blocks.count, began),
            engine=options.engine,
            observe=results.observe,
        )
        interrupted = False
    finally:
        place = f"no: it ends at {summary.last:.3f} s, where the run stopped" if interrupted else "yes"
        results.close(facts | {"complete": place})
        if interrupted:
            for path in results.places:
                print_error(f"{path} is not complete: {summary.samples:,} samples, up to {summary.last:.3f} s")
    notes = [*blocks.notes, *summary.notes]
    seconds = time.monotonic() - began
    machine = {
        **facts, "output": None if output is None else str(output), "samples": summary.samples,
        "missing": summary.missing, "flagged_steps": summary.flagged, "imprecise_steps": summary.imprecise,
        "restarts": summary.restarts, "rate_hz": summary.rate, "nis": summary.nis, "seconds": seconds,
        "engine": summary.engine, "notes": notes, "lost": blocks.many_lost,
    }  # fmt: skip
    return machine, _report(options, output, summary, seconds, notes)


class _Results:
    """Where the estimates of a log go: a file, viewers, or both."""

    def __init__(self, options: argparse.Namespace, model: Filter, log: Log, output: Path | None) -> None:
        from ..logs.results import result_file

        self.file, self.scene = None, None
        if output is not None:
            output.parent.mkdir(parents=True, exist_ok=True)
            self.file = result_file(output, model.layout.describe(), log.start_ns, covariance=options.covariance)
        if wants_viewer(options):
            from ..report.viewers.from_run import RunScene

            self.scene, self.shown = open_viewers(options, log.path.name, log.start_ns), RunScene(model)
        self.observe = None if self.scene is None else self._observe
        named = (output, options.rerun, options.mcap)
        self.places = [path for path in named if path is not None and path.name]

    def write(self, time: Any, mean: Any, cov: Any) -> None:
        if self.file is not None:
            self.file.write(time, mean, cov)
        if self.scene is not None:
            self.scene.add(self.shown.estimates(time, mean, cov))

    def _observe(self, time: Any, measured: Any, innovation: Any, std: Any) -> None:
        assert self.scene is not None
        self.scene.add(self.shown.innovations(time, measured, innovation, std))

    def close(self, facts: dict[str, str]) -> None:
        if self.file is not None:
            self.file.close(facts)
        if self.scene is not None:
            self.scene.close()
            say_where(self.scene)


def signal_names(model: Filter, log: Log, channels: Sequence[str], controls: Sequence[str]) -> list[str]:
    """Names of the signals for the channels and the controls of a filter, from those of the command line."""
    from ..scale.settings import names_of

    try:
        wanted, inputs = names_of(model, channels, controls, "signal")
    except ConfigError as error:
        raise UsageError(str(error)) from error
    signals = {name for source in log.sources() for name in source.columns}
    if not channels and not signals & set(wanted):
        raise UsageError(
            f"the channels of the filter are called {', '.join(wanted)}, and no signal of the log is; name the "
            f"signals for them: --channels {','.join(sorted(signals)[: len(wanted)]) or 'gyro_x,…'}"
        )
    return [*wanted, *inputs]


def _estimates(options: argparse.Namespace) -> str:
    if not options.smooth:
        return "filtered"
    return "smoothed with all measurements" if options.lag is None else f"smoothed with a lag of {options.lag} steps"


def _progress(total: int | None, began: float) -> Callable[[Summary], None]:
    """Prints the rate and the time left on standard error, if it is a terminal."""
    last, remaining = began, Remaining(total)

    def report(summary: Summary) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < INTERVAL or not sys.stderr.isatty():
            return
        last = now
        rate = summary.samples / (now - began)
        share = f" of {total:,}{remaining.added(summary.samples)}" if total else ""
        print_progress(f"{summary.samples:,} samples{share} ({rate:,.0f} a second) ")

    return report


def _report(
    options: argparse.Namespace, output: Path | None, summary: Summary, seconds: float, notes: list[str]
) -> list[str]:
    speed = summary.samples / max(seconds, 1e-9)
    place = options.log.name if output is None else output
    lines = [
        f"{place}: {summary.samples:,} estimates, {_estimates(options)}, at {summary.rate:.5g} Hz",
        f"{seconds:.1f} s, {speed:,.0f} samples a second, {speed / max(summary.rate, 1e-9):,.1f} times real time "
        f"(engine: {summary.engine})",
    ]
    if summary.nis == summary.nis:
        lines.append(f"NIS {summary.nis:.3f} (1 for a consistent filter)")
    if summary.missing:
        lines.append(f"{summary.missing:,} samples are missing; the filter predicts over them")
    if summary.flagged:
        lines.append(
            f"{summary.flagged:,} steps are flagged: a measurement was not finite, or an innovation covariance not "
            "positive definite"
        )
    if summary.imprecise:
        lines.append(
            f"warning: in {summary.imprecise:,} steps rounding may have changed the estimate by more than a percent; "
            "use a filter with solve='square_root', or in float64"
        )
    return lines + [f"note: {printable(note)}" for note in notes]
