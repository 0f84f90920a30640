"""What a training command keeps beside a filter: every seed's figures, their mean and spread, and the card."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def keep(folder: Path, kept: dict[str, Any], keys: Iterable[str], card: Callable[[dict[str, Any]], str]) -> None:
    """Complete ``kept`` by mean and sample standard deviation over its seeds, and write ``figures.json`` and the card.

    Called after every seed, so that a search that is stopped leaves what it has found.
    """
    seeds = list(kept["seeds"].values())
    kept["mean"], kept["std"] = {}, {}
    for key in keys:
        values = [found[key] for found in seeds]
        kept["mean"][key] = statistics.fmean(values)
        kept["std"][key] = statistics.stdev(values) if len(values) > 1 else 0.0
    kept["cpu_seconds"] = round(sum(found["cpu_seconds"] for found in seeds), 1)
    (folder / "figures.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(card(kept), encoding="utf-8")
