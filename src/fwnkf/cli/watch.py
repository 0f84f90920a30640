"""``fwnkf watch``: a filter on samples as they arrive, in the terminal and in viewers."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, DataError
from ..plain import printable
from .columns import add_columns, chosen, open_chosen
from .output import (
    UsageError,
    add_json,
    check_readable,
    is_quiet,
    print_error,
    print_json_line,
    print_status,
    print_text,
)
from .viewers import add_viewers, check_viewers, open_viewers, say_where, wants_viewer

if TYPE_CHECKING:
    from ..data.live import Columns, LineReader, Rows
    from ..filters.base import Filter
    from ..runtime.estimate import Estimate

SUFFIXES = (".parquet", ".csv", ".tum", ".mcap")
TEXT = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson")
"""Files of lines, which are read on where they end; others are opened again."""
EPOCH = 9e8
"""Seconds: later times are dates, of which a file has the first as its start."""
REPORTED = 3
"""Rows that cannot be used of which is said why, at once; the others are counted."""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "watch",
        help="follow live samples with a filter, in the terminal and in viewers",
        description="Runs a filter on samples as they arrive: lines of standard input (JSON objects, or CSV below a "
        "header), a file that grows (a table or a log), or a stream of a Redis server. Ctrl-C ends it, finishes the "
        "files, and says where they are.",
    )
    parser.add_argument("source", metavar="SOURCE", help="- for standard input, a file, or redis://HOST:PORT/DB")
    parser.add_argument("--filter", type=Path, required=True, metavar="F", help="folder of a saved filter")
    parser.add_argument("-o", "--output", type=Path, metavar="OUT", help=f"write the estimates: {', '.join(SUFFIXES)}")
    parser.add_argument("--stream", default="samples", metavar="KEY", help="key of the Redis stream (default: samples)")
    parser.add_argument(
        "--new", action="store_true", help="only what arrives from now on, not what the file or stream already has"
    )
    parser.add_argument(
        "--idle", type=_positive, metavar="S", help="end after so many seconds without a sample (default: never)"
    )
    parser.add_argument(
        "--every", type=_positive, default=1.0, metavar="S", help="seconds between lines, where there is no terminal"
    )
    parser.add_argument(
        "--gate", type=float, metavar="P", help="reject measurements that a correct one passes with this probability"
    )
    parser.add_argument(
        "--history", type=float, default=0.0, metavar="S", help="put measurements that are late by up to S in place"
    )
    add_viewers(parser, "estimates with intervals, measurements, innovations, and the pose where the state has one")
    add_columns(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError(text)
    return value


def run(options: argparse.Namespace) -> int:
    """Follow the source until it ends, is idle, or Ctrl-C is pressed."""
    path = None if options.source == "-" or "://" in options.source else Path(options.source)
    if path is not None:
        check_readable(path, "; to wait for a file, make it first: touch FILE")
    elif options.source != "-" and not options.source.startswith(("redis://", "rediss://", "unix://")):
        raise UsageError(f"{options.source}: wanted -, a file, or redis://HOST:PORT/DB")
    if not options.filter.is_dir():
        raise UsageError(f"--filter {options.filter} is not a folder")
    if options.output is not None and options.output.suffix.lower() not in SUFFIXES:
        raise UsageError(f"-o {options.output}: the suffix must be one of {', '.join(SUFFIXES)}")
    if path is not None and options.output is not None and options.output.resolve() == path.resolve():
        raise UsageError(f"-o {options.output} is the source itself and would be overwritten; name another file")
    check_viewers(options, path, options.output)
    choice = chosen(options, options.filter)
    from .. import Stream, load
    from ..scale.settings import names_of

    model = load(options.filter)
    try:
        channels, controls = names_of(model, choice.channels, choice.controls, "column")
        stream = Stream(model, gate=options.gate, history=options.history)
    except ConfigError as error:
        raise UsageError(str(error)) from error
    from ..data.live import Columns, LineReader

    reader = LineReader()
    rows = _rows(options, path, choice, [*channels, *controls], reader)
    is_log = path is not None and path.suffix.lower() not in TEXT
    columns = Columns(channels, controls, () if is_log else choice.fields, None if is_log else choice.time)
    watch = _Watch(options, model)
    print_status("fwnkf: waiting for samples; Ctrl-C ends")
    with interruptible(), watch:
        watch.follow(stream, rows, columns, reader)
    return watch.finish()


def _rows(options: argparse.Namespace, path: Path | None, choice: Any, names: list[str], reader: LineReader) -> Rows:
    """The rows of the source."""
    from ..data import live

    if options.source == "-":
        return live.line_rows(live.read_lines(sys.stdin.buffer), reader)
    if path is None:
        return live.redis_rows(options.source, options.stream, start="$" if options.new else "0")
    if path.suffix.lower() in TEXT:
        return live.line_rows(live.follow_file(path, new=options.new), reader)
    if options.new:
        raise UsageError(f"--new: {path} is a log, which is read from its start")
    from ..data.log_blocks import SampleBlocks

    return live.log_rows(path, lambda: iter(SampleBlocks(open_chosen(path, choice), names)), names)


@contextmanager
def interruptible() -> Iterator[None]:
    """Ends at Ctrl-C, or where the process is asked to end, without an error: it is how one stops watching."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)


class _Watch:
    """Counts, shows and keeps the estimates of a stream."""

    def __init__(self, options: argparse.Namespace, model: Filter) -> None:
        from ..logs.results import component_names

        self.options, self.model = options, model
        parts = model.layout.describe()
        self.names, self.tangent = component_names(parts), component_names(parts, tangent=True)
        self.samples = self.unused = 0
        self.worst: dict[str, int] = {}
        self.begin: float | None = None
        self.last: float | None = None
        self.pending: list[tuple[Any, Estimate]] = []
        self.newest: Estimate | None = None
        self.file: Any = None
        self.scene: Any = None
        self.table = _live_table(options)
        self.shown = self.kept = time.monotonic()

    def __enter__(self) -> _Watch:
        if self.table is not None:
            self.table.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self.flush()
            if self.newest is not None:
                self.show(self.newest)
        finally:
            if self.table is not None:
                self.table.__exit__(None, None, None)
            if self.file is not None:
                self.file.close({"source": _source(self.options), "complete": "yes"})
            if self.scene is not None:
                self.scene.close()

    def follow(self, stream: Any, rows: Rows, columns: Columns, reader: LineReader) -> None:
        """Take rows until there are no more."""
        heard = time.monotonic()
        for row in rows:
            now = time.monotonic()
            if row is None:
                if self.options.idle is not None and now - heard > self.options.idle:
                    return
            else:
                heard = now
                try:
                    if isinstance(row, DataError):
                        raise row
                    sample = columns.sample(row, reader.units)
                    self.take(sample, stream.step(sample.y, t=sample.time, u=sample.u))
                except DataError as error:
                    self.refuse(error)
            self.tick(now)

    def take(self, sample: Any, estimate: Estimate) -> None:
        """An estimate after a sample."""
        self.begin = sample.time if self.begin is None else self.begin
        self.samples += 1
        health = estimate.health
        self.worst[health] = self.worst.get(health, 0) + 1
        self.newest = estimate
        if self.last is None or estimate.time > self.last:  # not after a late measurement, whose time has been written
            self.last = estimate.time
            self.pending.append((sample, estimate))

    def refuse(self, error: DataError) -> None:
        """A row that cannot be used."""
        self.unused += 1
        if self.unused <= REPORTED:
            print_error(f"fwnkf: {printable(str(error))}")

    def tick(self, now: float) -> None:
        """Write and show, a few times a second."""
        if now - self.kept > 0.25 or len(self.pending) >= 1000:
            self.kept = now
            self.flush()
        every = 0.25 if self.table is not None else self.options.every
        if self.newest is not None and now - self.shown > every:
            self.shown = now
            self.show(self.newest)

    # ---- where it goes --------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write the estimates since the last time."""
        if not self.pending or self.begin is None:
            return
        import numpy as np

        base = self.begin if self.begin > EPOCH else 0.0
        self._open(round(base * 1e9))
        rows, self.pending = self.pending, []
        times = np.array([estimate.time for _, estimate in rows]) - base
        mean, cov, innovation, std = (
            np.stack([getattr(estimate, name) for _, estimate in rows]).astype(float)
            for name in ("mean", "cov", "innovation", "innovation_std")
        )
        if self.file is not None:
            self.file.write(times, mean, cov)
        if self.scene is not None:
            self.scene.add(self.items.estimates(times, mean, cov))
            measured = np.stack([sample.y for sample, _ in rows]).astype(float)
            if measured.shape == innovation.shape:
                known = np.isfinite(measured)
                used = (np.where(known, item, np.nan) for item in (measured, innovation, std))
                self.scene.add(self.items.innovations(times, *used))
            self.scene.refresh()

    def _open(self, start_ns: int) -> None:
        """Open files and viewers with the first sample, whose time they begin with."""
        if self.options.output is not None and self.file is None:
            from ..logs.results import result_file

            self.options.output.parent.mkdir(parents=True, exist_ok=True)
            self.file = result_file(self.options.output, self.model.layout.describe(), start_ns)
        if wants_viewer(self.options) and self.scene is None:
            from ..report.viewers.from_run import RunScene

            self.scene, self.items = open_viewers(self.options, _source(self.options), start_ns), RunScene(self.model)

    def show(self, estimate: Estimate) -> None:
        """The newest estimate, as a table that is drawn over, a line, or JSON."""
        if self.table is not None:
            self.table.update(_table(self, estimate), refresh=True)
        elif self.options.json:
            print_json_line(self.machine(estimate))
        elif not is_quiet():
            print_text(self.line(estimate))

    def machine(self, estimate: Estimate) -> dict[str, Any]:
        """For programs."""
        return {
            "time": estimate.time, "samples": self.samples, "unused": self.unused, "health": estimate.health,
            "reason": estimate.reason, "nis": estimate.nis,
            "mean": dict(zip(self.names, estimate.mean.tolist(), strict=True)),
            "std": dict(zip(self.tangent, estimate.std.tolist(), strict=True)),
        }  # fmt: skip

    def line(self, estimate: Estimate) -> str:
        """For people without a terminal."""
        pairs = [f"{name} {value:.5g}{_spread(self, estimate, name)}" for name, value in
                 zip(self.names[:6], estimate.mean.tolist(), strict=False)]  # fmt: skip
        why = f" ({estimate.reason})" if estimate.reason else ""
        return f"{estimate.time:.3f} s, {self.samples:,} samples, {estimate.health}{why}: {', '.join(pairs)}"

    def finish(self) -> int:
        """Say what was done and where it is; 1 if no sample could be used."""
        words = [
            f"{self.samples:,} samples",
            *(f"{count:,} {name}" for name, count in self.worst.items() if name != "ok"),
        ]
        if self.unused:
            words.append(f"{self.unused:,} rows not used")
        print_status(f"fwnkf: watched {', '.join(words)}")
        if self.file is not None:
            print_status(f"fwnkf: wrote {self.options.output}")
        if self.scene is not None:
            say_where(self.scene)
        if self.samples and self.file is None and self.scene is None:
            print_status("fwnkf: nothing was kept; -o FILE, --rerun or --mcap FILE keep the estimates")
        if not self.samples:
            print_error("fwnkf: no sample arrived that the filter could use")
        return 0 if self.samples else 1


def _source(options: argparse.Namespace) -> str:
    """The source without what must not be written, such as the password of a URL."""
    if options.source == "-":
        return "standard input"
    return options.stream if "://" in options.source else Path(options.source).name


def _spread(watch: _Watch, estimate: Estimate, name: str) -> str:
    """The half width of a 95 % interval, for a name that has one."""
    return f" ± {1.96 * estimate.std[watch.tangent.index(name)]:.2g}" if name in watch.tangent else ""


def _live_table(options: argparse.Namespace) -> Any:
    """What is drawn over on a terminal; None where there is none, or rich is not installed."""
    if options.json or is_quiet() or not sys.stdout.isatty():
        return None
    try:
        from rich.live import Live
    except ModuleNotFoundError:
        return None
    return Live(auto_refresh=False)


def _table(watch: _Watch, estimate: Estimate) -> Any:
    """The newest estimate and innovations side by side."""
    from rich.table import Table
    from rich.text import Text

    colour = {"ok": "green", "degraded": "yellow", "diverged": "red"}[estimate.health]
    head = Text.assemble(
        f"{_source(watch.options)}   {estimate.time:.3f} s   {watch.samples:,} samples   ",
        (estimate.health, f"bold {colour}"), f"   NIS {estimate.nis:.2f}",
        f"   {watch.unused:,} rows not used" if watch.unused else "",
    )  # fmt: skip
    table = Table(
        title=head, caption=Text(printable(estimate.reason)) if estimate.reason else None, title_justify="left"
    )
    for name in ("state", "estimate", "95 %"):
        table.add_column(name, justify="left" if name == "state" else "right")
    for name, value in zip(watch.names, estimate.mean.tolist(), strict=True):
        table.add_row(Text(printable(name)), f"{value:.5g}", _spread(watch, estimate, name).strip())
    return table
