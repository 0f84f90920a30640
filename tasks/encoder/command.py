"""``python -m tasks encoder``: what an encoder of the noise is worth on BROAD, EuRoC and UIP-DB."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fwnkf.cli.output import print_status

STORE = Path("docs/results/encoder.json")
PAGE = Path("docs/results/encoder.md")


def add_commands(commands: Any) -> None:
    """Add the command to the runner's parser, which gives it ``--models`` and ``--json``."""
    command = commands.add_parser(
        "encoder",
        help="constant against encoded noise on real recordings; writes docs/results/encoder.md",
        description="Measures the seeds that the store does not have. Can be stopped and called again.",
    )
    command.add_argument("sets", nargs="*", metavar="SET", help="of broad, euroc-strict, uipdb; all if not given")
    command.add_argument("--seeds", default="0,1,2", help="default: 0,1,2")
    command.add_argument("--store", type=Path, default=STORE, metavar="FILE", help=f"rows of results ({STORE})")
    command.add_argument("--page", type=Path, default=PAGE, metavar="FILE", help=f"where the page goes ({PAGE})")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure what is missing and write the page after each set."""
    from fwnkf.errors import ConfigError
    from tasks.encoder.cases import CASES
    from tasks.encoder.page import page
    from tasks.encoder.study import measure, read
    from tasks.interface import parse_seeds

    unknown = sorted(set(options.sets) - set(CASES))
    if unknown:
        raise ConfigError(f"no set is called {', '.join(unknown)}; there are: {', '.join(CASES)}")
    seeds = parse_seeds(options.seeds)

    for name in options.sets or CASES:
        measure(name, seeds, options.models, options.store, print_status)
        options.page.write_text(page(read(options.store)), encoding="utf-8")
    print(options.page)
    return 0
