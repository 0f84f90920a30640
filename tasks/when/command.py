"""``python -m tasks when``: where frequency weighting helps, and the page and pictures of it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fwnkf.cli.output import UsageError, print_status

STORE = Path("docs/results/when.jsonl")
PAGE = Path("docs/concepts/when.md")
IMAGES = Path("docs/images")
PARTS = ("linear", "pendulum", "recordings")


def add_commands(commands: Any) -> None:
    """Add the command to the runner's parser, which gives it ``--models`` and ``--json``."""
    command = commands.add_parser(
        "when",
        help="where Φ, noise states, notches and the spectral loss help; writes docs/concepts/when.md",
        description="Measures the rows that the store does not have, draws the pictures and writes the page. Can be "
        "stopped and called again. All of it takes some 40 CPU minutes.",
    )
    command.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all if not given")
    command.add_argument("--page-only", action="store_true", help="draw and write what the store has")
    command.add_argument("--store", type=Path, default=STORE, metavar="FILE", help=f"rows of results ({STORE})")
    command.add_argument("--page", type=Path, default=PAGE, metavar="FILE", help=f"where the page goes ({PAGE})")
    command.add_argument("--images", type=Path, default=IMAGES, metavar="FOLDER", help=f"of the pictures ({IMAGES})")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure what is missing; draw and write after each part."""
    from tasks.when import cells, drawings, nonlinear, recordings, store
    from tasks.when.page import page

    jobs = {"linear": cells.jobs, "pendulum": nonlinear.jobs, "recordings": recordings.jobs}
    unknown = sorted(set(options.parts) - set(jobs))
    if unknown:
        raise UsageError(f"there is no part {', '.join(unknown)}; there are: {', '.join(jobs)}")
    for name in () if options.page_only else options.parts or jobs:
        store.measure(jobs[name](), options.store, print_status)
    rows = store.read(options.store)
    drawings.draw(options.images, rows)
    options.page.write_text(page(rows), encoding="utf-8")
    print(options.page)
    return 0
