"""``python -m tasks racer``: variants, sizes, other splits, saturation and long gaps; the page and the pictures."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fwnkf.cli.output import print_status
from tasks import results
from tasks.interface import parse_seeds


def add_commands(commands: Any) -> None:
    """Add the command to the runner's parser, which gives it ``--models`` and ``--json``."""
    command = commands.add_parser(
        "racer",
        help="the racing quadrotor: ablations, sizes, other splits, saturation, long gaps; page and pictures",
        description="Filters that were trained before are kept in .results/racer and not trained again. Rows that "
        "were measured before are kept in results.json until the filter is trained anew.",
    )
    command.add_argument(
        "parts", nargs="*", metavar="PART", help="of the study (see its page); none: page and pictures"
    )
    command.add_argument("--seeds", default="0", help="of what is trained; those not trained yet take minutes each")
    command.add_argument("--page", type=Path, default=Path("docs/results/racer.md"))
    command.add_argument("--images", type=Path, default=Path("docs/images"))
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure the parts asked for, keep them beside the filter, and write page and pictures of all there is."""
    from fwnkf import load
    from fwnkf.errors import ConfigError
    from tasks.racer import study
    from tasks.racer.drawings import draw
    from tasks.racer.page import page

    unknown = sorted(set(options.parts) - set(study.PARTS))
    if unknown:
        raise ConfigError(f"no part is called {', '.join(unknown)}; there are: {', '.join(study.PARTS)}")
    folder = options.models / "racer"
    kept, model = results.read(folder), load(folder)
    for name in options.parts:
        rows = kept.details.setdefault(name, {})
        for row, seed, measure in study.jobs(name, parse_seeds(options.seeds), model, print_status):
            if str(seed) in rows.setdefault(row, {}):
                continue
            rows[row][str(seed)] = measure()
            print_status(f"racer, {row}, seed {seed}: {rows[row][str(seed)]['']}")
            results.write(folder, kept)
    draw(options.images, model, study.linear_of_training(), kept)
    options.page.write_text(page(kept), encoding="utf-8")
    print_status(str(options.page))
    return 0
