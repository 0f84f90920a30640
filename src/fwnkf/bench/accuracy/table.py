"""Every row of the accuracy table, whichever module makes it, and the page it is written to."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ...errors import ConfigError
from ..rows import Row

GROUPS = {
    "simulated": (
        "lorenz-algorithm3",
        "lorenz",
        "lorenz-strict",
        "lorenz-tone",
        "lorenz-high-band",
        "lorenz-drift",
        "lorenz-pink",
        "pendulum",
    ),
    "euroc": ("euroc", "euroc-strict"),
    "dido": ("dido", "dido-attitude"),
    "broad": ("broad", "broad-magnetometer"),
    "uipdb": ("uipdb",),
}
"""Modules of this package, and the tasks (folders of ``models/``) each of them makes."""
HEAD = "| task | row | method | metric | value | mean of seeds | target | records |\n|---|---|---|---|---|---|---|---|"


def modules(tasks: Sequence[str]) -> list[tuple[ModuleType, dict[str, Any]]]:
    """The modules that make these tasks (all if none is named), and what to tell them."""
    known = {task: group for group, made in GROUPS.items() for task in (group, *made)}
    strange = [task for task in tasks if task not in known]
    if strange:
        raise ConfigError(f"no task is called {', '.join(strange)}; there are: {', '.join(sorted(known))}")
    found = []
    for group, made in GROUPS.items():
        wanted = [task for task in made if not tasks or task in tasks or group in tasks]
        if not wanted:
            continue
        module = importlib.import_module(f".{group}", __package__)
        takes = "tasks" in inspect.signature(module.measure).parameters
        found.append((module, {"tasks": wanted} if takes else {}))
    return found


def need_models(models: Path) -> None:
    """Say where trained filters come from if they are not here: an installed package has none."""
    if not models.is_dir():
        raise ConfigError(
            f"{models}: there is no such folder. Trained filters come with the source of this package (a checkout or "
            "the sdist), not with the wheel: run this where their folder `models` lies, or name it with --models"
        )


def measure(models: Path, tasks: Sequence[str] = (), *, quick: bool = False) -> Iterator[Row]:
    """Rows of the shipped filters and of their references."""
    need_models(models)
    for module, told in modules(tasks):
        yield from module.measure(models, quick=quick, **told)


def train(models: Path, tasks: Sequence[str], seeds: Sequence[int], say: Callable[[str], None]) -> None:
    """From scratch; runs for hours on all tasks."""
    for module, told in modules(tasks):
        module.train(models, seeds=tuple(seeds), say=say, **told)


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a page; figures as the command that made them found them."""
    lines = [
        "# Accuracy",
        "",
        "Written by `fwnkf bench accuracy --markdown docs/results/accuracy.md`: the shipped filters (`models/`) and "
        "their references, on the test records of each protocol. `value` was measured for this page with the shipped "
        "weights, `mean of seeds` when the filters were trained; where a method is called *as shipped*, that row is "
        "the one measured and the other the mean of seeds. Each task's card tells its data, seeds, spread and limits.",
        "",
        HEAD,
    ]
    for row in rows:
        ours = row["method"].startswith("fwnkf")
        mean, spread = row.get("mean", row.get("seed_mean")), row.get("spread")
        seeds = "" if mean is None else f"{mean:.4g}" + ("" if spread is None else f" ± {spread:.2g}")
        target = _aim(row["target"], row.get("reached")) if ours and row.get("target") is not None else ""
        method = f"**{row['method']}**" if ours else row["method"]
        cells = (
            row["task"],
            row.get("row", ""),
            method,
            row["metric"],
            f"{row['value']:.4g}",
            seeds,
            target,
            _count(row.get("records", "")),
        )
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join([*lines, ""])


def _aim(target: float | Sequence[float], reached: bool | None) -> str:
    """A bound or the two ends of a band, and whether it was met where that is judged."""
    text = " to ".join(f"{end:g}" for end in target) if isinstance(target, Sequence) else f"{target:.4g}"
    return text if reached is None else f"{text} ({'reached' if reached else 'not reached'})"


def _count(records: Any) -> str:
    """How many records; several numbers are told apart by what they are of."""
    return ", ".join(f"{n} of {key} s" for key, n in records.items()) if isinstance(records, dict) else str(records)
