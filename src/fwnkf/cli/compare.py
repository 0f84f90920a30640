"""``fwnkf compare``: training runs in one table, with the spread over seeds and the baselines."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .output import add_html, add_json, add_store, cell, check_readable, command_line, print_text, say_table, store

COLUMNS = {
    "method": "method",
    "data": "data",
    "protocol": "protocol",
    "scenario": "scenario",
    "seeds": "seeds",
    "mse": "mse ± std",
    "mse_from_10": "from step 10",
    "nees": "nees",
    "coverage95": "coverage95",
    "cpu_seconds": "cpu s",
}
SPREAD = ("mse", "mse_from_10", "nees", "coverage95")


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "compare",
        help="compare training runs, averaged over seeds, with the baselines",
        description="Runs whose experiments differ only in seed and name form one row: mean ± sample standard "
        "deviation. Runs that were not evaluated on the same test records are marked.",
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders written by `fwnkf train`")
    add_store(parser)
    add_html(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Read the runs, group them by experiment and print the table."""
    for path in options.runs:
        check_readable(path, "; a run is a folder that `fwnkf train` has written")
    from ..evaluation.runs import compare

    rows = compare(options.runs)
    store(options.store, rows)
    if options.html is not None:
        from ..report.run_pages import comparison_page

        comparison_page(rows, command_line(options)).save(options.html)
    if options.json:
        say_table(options, rows, COLUMNS)
        return 0
    shown = [{**row, **{name: with_spread(row, name) for name in SPREAD}} for row in rows]
    columns = {name: text for name, text in COLUMNS.items() if any(row.get(name) is not None for row in shown)}
    say_table(options, shown, columns)
    for row in rows:
        for command in row.get("commands", ())[:1]:  # below the table, where it can be copied
            more = " (and other seeds)" if row["runs"] > 1 else ""
            print_text(f"reproduce {row['method']}: {command}{more}")
    for note in dict.fromkeys(row["note"] for row in rows if row.get("note")):
        print_text(f"note on {', '.join(row['method'] for row in rows if row.get('note') == note)}: {note}")
    return 0


def with_spread(row: Mapping[str, Any], name: str) -> Any:
    """``0.12 ± 0.01``, or the number alone if there is no spread.

    >>> with_spread({"mse": 0.123456, "mse_std": 0.01234}, "mse"), with_spread({"mse": 0.5}, "mse")
    ('0.12346 ± 0.012', 0.5)
    """
    spread = row.get(f"{name}_std")
    return row.get(name) if spread is None else f"{cell(row[name])} ± {spread:.2g}"
