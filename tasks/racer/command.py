"""``python -m tasks racer``: variants, sizes, other splits, saturation and long gaps; the page and the pictures."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

from tasks import results

PARTS = ("curve", "saturated", "variants", "sizes", "shifted")


def add_commands(commands: Any) -> None:
    """Add the command to the runner's parser, which gives it ``--models`` and ``--json``."""
    command = commands.add_parser(
        "racer",
        help="the racing quadrotor: ablations, sizes, other splits, saturation, long gaps; page and pictures",
        description="Filters that were trained before are kept in .results/racer and not trained again.",
    )
    command.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; none: page and pictures")
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

    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        raise ConfigError(f"no part is called {', '.join(unknown)}; there are: {', '.join(PARTS)}")
    folder = options.models / "racer"
    kept, model = results.read(folder), load(folder)
    details = dict(kept.details)
    for name in options.parts:
        details[name] = measured(name, model, details.get(name, {}))
        results.write(folder, dataclasses.replace(kept, details=details))
    kept = results.read(folder)
    draw(options.images, model, study.linear_of_training(), kept)
    options.page.write_text(page(kept), encoding="utf-8")
    print(options.page, file=sys.stderr)
    return 0


def measured(name: str, model: Any, known: dict[str, Any]) -> dict[str, Any]:
    """The rows of one part."""
    from tasks.racer import study
    from tasks.racer.filter import VARIANTS
    from tasks.racer.task import Racer

    if name in ("curve", "saturated"):
        models = {"ours": model, "linear_kf": study.linear_of_training()}
        return (study.curve if name == "curve" else study.saturated)(models, study.test_flights())
    if name == "shifted":
        return study.shifted(_say)
    wanted = VARIANTS if name == "variants" else [unit for unit in study.units() if unit not in VARIANTS]
    data = Racer().load()
    for unit in wanted:
        if unit not in known:
            known[unit] = study.variant(unit, data, _say)
            _say(f"racer, {unit}: {known[unit]}")
    return known


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
