"""What all commands print alike: JSON for machines, tables for people."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import FwnkfError

Rows = Sequence[Mapping[str, Any]]


class UsageError(FwnkfError):
    """The words of a call do not go together, which only the command itself can see: exit code 2."""


def add_json(parser: argparse.ArgumentParser) -> None:
    """The flag every command has."""
    parser.add_argument("--json", action="store_true", help="machine-readable output instead of text")


def add_store(parser: argparse.ArgumentParser) -> None:
    """The flag of commands that make rows."""
    parser.add_argument("--store", type=Path, metavar="FILE", help="write the rows to this JSON file too")


def to_json(value: Any) -> str:
    """Strict JSON: NaN is null, infinity a word."""
    from ..evaluation.plain import plain

    return json.dumps(plain(value), indent=2, allow_nan=False)


def store(path: Path | None, rows: Rows) -> None:
    """Write rows where ``--store`` wants them."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(to_json(rows) + "\n", encoding="utf-8")


def say(options: argparse.Namespace, machine: Any, human: str) -> None:
    """One answer, in the form that was asked for."""
    print(to_json(machine) if options.json else human)


def say_table(options: argparse.Namespace, rows: Rows, columns: Mapping[str, str], title: str = "") -> None:
    """Rows as JSON or as a table; ``columns`` gives the heading of each name that is shown."""
    if options.json:
        print(to_json(rows))
        return
    if sys.stdout.isatty() and _print_rich(rows, columns, title):
        return
    print("\n".join(([title] if title else []) + table(rows, columns)))


def table(rows: Rows, columns: Mapping[str, str]) -> list[str]:
    """Lines of plain text: words to the left, numbers to the right, the last column as long as it likes.

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
    """One value in a table: five digits say enough, nothing is an empty cell."""
    if value is None or value != value:
        return ""
    if isinstance(value, float):
        return f"{value:.5g}"
    return ", ".join(cell(item) for item in value) if isinstance(value, list | tuple) else printable(str(value))


def printable(text: str) -> str:
    """Words from somebody else's file, without the characters that would move a terminal's cursor or colour it.

    >>> printable("a\x1b[31mb")
    'a?[31mb'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _numeric(rows: Rows, name: str) -> bool:
    return all(row.get(name) is None or isinstance(row[name], int | float) for row in rows)


def _print_rich(rows: Rows, columns: Mapping[str, str], title: str) -> bool:
    """On a terminal that is wide enough, with rich installed: a table with lines. Whether it could."""
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ModuleNotFoundError:
        return False
    console = Console()
    if max(map(len, table(rows, columns))) + len(columns) + 3 > console.width:
        return False  # cells folded into a few letters are worse than long lines
    made = Table(title=title or None, title_justify="left")
    for name, heading in columns.items():
        made.add_column(heading, justify="right" if _numeric(rows, name) else "left")
    for row in rows:
        made.add_row(*(Text(cell(row.get(name))) for name in columns))  # Text: what is in a cell is no markup
    console.print(made)
    return True
