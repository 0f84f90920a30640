"""Output shared by all commands: JSON, text and tables.

Commands print with the functions here and not with ``print``: names in logs, tables and configurations come from
others, and a terminal would obey the control sequences in them.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DataError, FwnkfError
from ..plain import plain, printable, printable_lines

if TYPE_CHECKING:
    from ..evaluation.runs import Run

Rows = Sequence[Mapping[str, Any]]
WIDTH = 100
"""Characters of a line of text."""


class UsageError(FwnkfError):
    """Arguments that argparse accepts but the command does not: exit code 2."""


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json`` and ``--quiet``, which every command has."""
    parser.add_argument("--json", action="store_true", help="machine-readable output instead of text")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, only results, warnings and errors")


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add ``--store``, for commands that produce rows."""
    parser.add_argument("--store", type=Path, metavar="FILE", help="also write the rows to this JSON file")


def add_html(parser: argparse.ArgumentParser) -> None:
    """Add ``--html``, for commands whose result is also written as a page."""
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write a report: one HTML file with figures")


def add_plots(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--plots``, for commands that draw their result."""
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help=f"draw {what}, as PNG files")


def add_folder(parser: argparse.ArgumentParser) -> None:
    """Add the folder of a run or of a saved filter, and ``--which``; see :func:`read_folder`."""
    parser.add_argument("folder", type=Path, metavar="RUN_OR_MODEL", help="folder of a run or of a saved filter")
    parser.add_argument("--which", choices=("best", "last"), help="which filter of a run (default: best)")


def read_folder(options: argparse.Namespace) -> tuple[Path, Run | None]:
    """The folder of the filter, and the run it belongs to. Raises UsageError where there is none."""
    if not options.folder.is_dir():
        raise UsageError(f"{options.folder} is not a folder")
    from ..evaluation.runs import is_run, read_run

    if is_run(options.folder):
        run = read_run(options.folder)
        return run.model_folder(options.which or "best"), run
    if options.which:
        raise UsageError(f"--which applies to run folders only; {options.folder} has no run.json")
    return options.folder, None


def check_readable(path: str | Path, instead: str = "") -> None:
    """Raise DataError if there is no such file or folder, before anything is imported that would read it."""
    try:
        Path(path).stat()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}{instead}") from error


def command_line(options: argparse.Namespace) -> str:
    """The command as it was typed, for reports."""
    return shlex.join(["fwnkf", *options.words])


def to_json(value: Any) -> str:
    """Strict JSON: NaN becomes null, infinity a string."""
    return json.dumps(plain(value), indent=2, allow_nan=False)


def store(path: Path | None, rows: Rows) -> None:
    """Write rows to the file of ``--store``, if given."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(to_json(rows) + "\n", encoding="utf-8")


def say(options: argparse.Namespace, machine: Any, human: str) -> None:
    """Print a result as JSON or as text."""
    if options.json:
        print_json(machine)
    else:
        print_text(human)


def print_json(value: Any) -> None:
    """Print strict JSON, in which control characters are escaped already."""
    print(to_json(value))


def print_json_line(value: Any) -> None:
    """Print strict JSON in one line, at once, for programs that read a result after the other."""
    print(json.dumps(plain(value), allow_nan=False), flush=True)


def print_text(text: str) -> None:
    """Print lines of text."""
    print(printable_lines(text), flush=True)


_quiet = False


def be_quiet(quiet: bool) -> None:
    """Whether progress is left out from now on, in this process: ``--quiet``."""
    global _quiet
    _quiet = quiet


def is_quiet() -> bool:
    """Whether progress is left out."""
    return _quiet


def print_error(text: str) -> None:
    """Lines about the failure of a command, and what else must be read, on standard error."""
    print(printable_lines(text), file=sys.stderr, flush=True)


def print_status(text: str) -> None:
    """Lines about the progress of a command, on standard error; none with ``--quiet``."""
    if not _quiet:
        print_error(text)


def print_progress(text: str) -> None:
    """A line on standard error that the next one overwrites; none with ``--quiet``."""
    if _quiet:
        return
    print(f"\r{printable(text)}", end="", file=sys.stderr, flush=True)


def split_names(text: str | None) -> tuple[str, ...]:
    """The names in a comma-separated argument."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def say_table(options: argparse.Namespace, rows: Rows, columns: Mapping[str, str], title: str = "") -> None:
    """Print rows as JSON or as a table; ``columns`` maps names to headings."""
    if options.json:
        print_json(rows)
        return
    if sys.stdout.isatty() and _print_rich(rows, columns, title):
        return
    print_text("\n".join(([title] if title else []) + table(rows, columns)))


def table(rows: Rows, columns: Mapping[str, str]) -> list[str]:
    """Lines of a plain-text table: text is left-aligned, numbers are right-aligned.

    >>> table([{"name": "kf", "mse": 0.25}, {"name": "hold", "mse": None}], {"name": "method", "mse": "MSE"})
    ['method   MSE', 'kf      0.25', 'hold']
    """
    cells = [[cell(row.get(name)) for name in columns] for row in rows]
    right = [_numeric(rows, name) for name in columns]
    widths = [max(map(len, column)) for column in zip(columns.values(), *cells, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in [list(columns.values()), *cells]
    ]


def cell(value: Any) -> str:
    """Text of one value: numbers with five digits, None and NaN as an empty cell."""
    if value is None or value != value:
        return ""
    if isinstance(value, float):
        return f"{value:.5g}"
    return ", ".join(cell(item) for item in value) if isinstance(value, list | tuple) else printable(str(value))


def _numeric(rows: Rows, name: str) -> bool:
    return all(row.get(name) is None or isinstance(row[name], int | float) for row in rows)


def _print_rich(rows: Rows, columns: Mapping[str, str], title: str) -> bool:
    """Print a rich table if rich is installed and the terminal is wide enough; returns whether it was printed."""
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ModuleNotFoundError:
        return False
    console = Console()
    if max(map(len, table(rows, columns))) + len(columns) + 3 > console.width:
        return False  # wrapped cells would be harder to read than long lines
    rich_table = Table(title=Text(printable(title)) if title else None, title_justify="left")
    for name, heading in columns.items():
        rich_table.add_column(heading, justify="right" if _numeric(rows, name) else "left")
    for row in rows:
        # Text, so that cells are not read as markup
        rich_table.add_row(*(Text(cell(row.get(name))) for name in columns))
    console.print(rich_table)
    return True


def wrapped(words: str, indent: str) -> list[str]:
    """A sentence in lines, the first of which is indented less."""
    return textwrap.wrap(printable(words), WIDTH, initial_indent=indent, subsequent_indent=indent + "  ")
