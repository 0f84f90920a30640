"""What both EuRoC tasks write beside their models: figures of every seed, and a card made from them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fwnkf.evaluation.rows import Row

COMMAND = "fwnkf bench accuracy --task euroc"
FIGURES = "figures.json"
Figures = dict[str, Any]


def summary(seeds: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Mean and standard deviation over seeds of everything they measured."""
    names = [name for name in seeds[0] if name != "seed"]
    columns = {name: [one[name] for one in seeds] for name in names}
    return {
        "mean": {name: statistics.fmean(column) for name, column in columns.items()},
        "std": {name: statistics.stdev(column) if len(column) > 1 else 0.0 for name, column in columns.items()},
    }


def write(folder: Path, figures: Figures, title: str, text: str, limits: str) -> None:
    """``figures.json`` and the model card."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FIGURES).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(card(figures, title, text, limits), encoding="utf-8")


def read(folder: Path) -> Figures:
    found: Figures = json.loads((folder / FIGURES).read_text(encoding="utf-8"))
    return found


def card(figures: Figures, title: str, text: str, limits: str) -> str:
    """The model card: every figure comes from ``figures``."""
    mean, std, references = figures["mean"], figures["std"], figures["references"]
    methods = list(references)
    names = [name for name in mean if name != "cpu_seconds"]
    lines = [f"# {title}", "", text, "", f"Seeds: {', '.join(str(one['seed']) for one in figures['seeds'])}. "]
    lines[-1] += f"Records in the test set: {figures['records']}. "
    lines[-1] += f"CPU-seconds in all, training and evaluation: {figures['cpu_seconds']:.0f}."
    lines += [
        "",
        f"| figure | fwnkf, mean ± std of seeds | target | against the best reference | {' | '.join(methods)} |",
    ]
    lines.append("|---" * (4 + len(methods)) + "|")
    for name in names:
        others = [references[method].get(name) for method in methods]
        cells = [name, f"{mean[name]:.4g} ± {std[name]:.2g}", _goal(figures["targets"].get(name), mean[name])]
        cells.append(_against(name, mean[name], others))
        cells += ["" if value is None else f"{value:.4g}" for value in others]
        lines.append(f"| {' | '.join(cells)} |")
    for name, flights in figures.get("flights", {}).items():
        columns = list(next(iter(flights.values())))
        lines += [
            "",
            f"First seed, {name}:",
            "",
            f"| flight | {' | '.join(columns)} |",
            "|---" * (1 + len(columns)) + "|",
        ]
        lines += [f"| {flight} | {' | '.join(f'{v:.3g}' for v in one.values())} |" for flight, one in flights.items()]
    lines += ["", "## Limits", "", limits, "", "## Again", "", "```sh", f"{COMMAND}            # evaluate"]
    lines += [f"{COMMAND} --train    # train all seeds from scratch", "```", ""]
    return "\n".join(lines)


def _against(name: str, value: float, others: Sequence[float | None]) -> str:
    """How much smaller an error is than that of the best reference."""
    known = [other for other in others if other is not None]
    return f"{value / min(known) - 1:+.0%}" if known and name.startswith(("mse", "rmse", "end")) else ""


def _goal(goal: Any, value: float) -> str:
    if goal is None:
        return ""
    wanted = f"{goal[0]:g} to {goal[1]:g}" if isinstance(goal, (list, tuple)) else f"≤ {goal:.4g}"
    return f"{wanted}: {'reached' if reached(value, goal) else 'missed'}"


def reached(value: float, goal: Any) -> bool | None:
    """Whether a figure meets its target: a limit from above, or an interval."""
    if goal is None:
        return None
    return bool(goal[0] <= value <= goal[1]) if isinstance(goal, (list, tuple)) else bool(value <= goal)


def rows(
    task: str, protocol: str, method: str, values: Mapping[str, float], targets: Mapping[str, Any], records: Any,
    *, spread: Mapping[str, float] | None = None, seeds: int = 1, cpu_seconds: float = 0.0,
) -> list[Row]:  # fmt: skip
    """One row for each figure; references have neither spread nor a verdict."""
    found = []
    for name, value in values.items():
        goal = targets.get(name)
        found.append(
            {
                "task": task, "row": f"EuRoC {protocol}", "method": method, "protocol": protocol, "metric": name,
                "value": value, "spread": None if spread is None else spread.get(name), "seeds": seeds, "target": goal,
                "reached": reached(value, goal) if spread is not None else None, "cpu_seconds": round(cpu_seconds, 1),
                "records": records, "command": COMMAND,
            }
        )  # fmt: skip
    return found
