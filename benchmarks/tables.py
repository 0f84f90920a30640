"""Results as Markdown, with the command that produced them, so that no figure in the documentation is typed by hand."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch


def shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def write(path: Path, title: str, note: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Write a page with one table; its columns are those of all rows, in order of appearance."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [
        f"# {title}",
        "",
        f"Written by `python {' '.join(sys.argv)}`; torch {torch.__version__}, Python {platform.python_version()}, "
        f"{platform.machine()}, {torch.get_num_threads()} thread(s).",
        "",
        note,
        "",
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
        *("| " + " | ".join(shown(row.get(name)) for name in columns) + " |" for row in rows),
        "",
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines), encoding="utf-8")
    print(f"written: {path}")


def stored(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines; none if it is not there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def store(path: Path, row: Mapping[str, object]) -> None:
    """Append a row to a file of JSON lines, so that a run that is stopped can be continued, and print it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row), flush=True)
