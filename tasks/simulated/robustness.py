"""What a filter that learned one disturbance does where things are otherwise: never much worse than the classical one.

Filters that were trained in coloured noise meet records without it, with its frequency moved, with twice the noise, and
at another rate; the EKF that takes all noise for white meets the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fwnkf.checkpoint import load
from fwnkf.data.protocols import Protocol, Split, Records
from fwnkf.data.recording import Span
from fwnkf.data.simulated import Simulated, generate
from fwnkf.evaluation.evaluate import evaluate
from fwnkf.evaluation.rows import Row
from fwnkf.filters.base import build
from fwnkf.systems import noise
from fwnkf.systems.lorenz import LorenzConfig
from fwnkf.systems.noise import Scenario

SEED = 999_998
"""Of the records; no filter is trained or chosen on them."""
LIMIT = 1.1
"""Largest error over that of the classical filter."""
TASKS = {"lorenz-tone": "tone", "lorenz-high-band": "high_band", "lorenz-drift": "drift", "lorenz-pink": "pink"}
RATE = 1.2


def moved(scenario: Scenario) -> Scenario | None:
    """The scenario with its frequency a tenth higher; None where it has none to move."""
    part = scenario.parts[0]
    if isinstance(part, noise.Tone | noise.Band):
        high = min(1.1 * part.high, 1.0)
        return replace(scenario, parts=(replace(part, low=min(1.1 * part.low, high), high=high), *scenario.parts[1:]))
    if isinstance(part, noise.Drift):
        return replace(scenario, parts=(replace(part, pole=1 - 1.1 * (1 - part.pole)), *scenario.parts[1:]))
    return None


def conditions(name: str) -> dict[str, Callable[[int], Simulated] | None]:
    """Records of each condition, by what is said of it."""
    config = LorenzConfig()
    known = noise.scenario(name, config.variance)
    floor = noise.FLOOR * config.variance
    other = moved(known)

    def made(scenario: Scenario, **options: Any) -> Callable[[int], Simulated]:
        return lambda count: generate("lorenz", count, scenario=scenario, seed=SEED, **options)

    return {
        "as trained": made(known),
        "disturbance absent, floor alone": made(Scenario((noise.White(floor),))),
        "white noise of the same variance": made(noise.scenario("white", config.variance)),
        "frequency 10 % higher": None if other is None else made(other),
        "twice the variance": made(replace(known, variance=2 * config.variance)),
        f"steps {RATE:g} times as long": made(known, dt=RATE * config.dt),
    }


def harm(models: Path, *, records: int = 1000) -> Iterator[Row]:
    """One row for each filter and condition: its error, that of the white EKF, and their ratio."""
    for task, scenario in TASKS.items():
        if not (models / task / "config.json").is_file():
            continue
        model = load(models / task)
        for said, make in conditions(scenario).items():
            if make is None:
                continue
            made = _protocol(make(records), said)
            # the filter's own equations and step; the records say how long their steps are
            classical = build("ekf", system=told_equations(made.split.test))
            ours, theirs = evaluate(model, made, task), evaluate(classical, made, "ekf")
            ratio = ours["mse"] / theirs["mse"]
            yield {
                "task": task,
                "condition": said,
                "mse": ours["mse"],
                "mse_ekf": theirs["mse"],
                "ratio": ratio,
                "nees": ours["nees"],
                "coverage95": ours["coverage95"],
                "harmless": ratio <= LIMIT,
                "records": records,
                "command": "fwnkf bench harm",
            }


def told_equations(task: Records) -> Any:
    """The equations with the noise everybody was told of, whatever the records hold."""
    if task.system is None:
        raise ValueError("simulated records come with their system")
    return type(task.system)(LorenzConfig()).to(task.y)


def _protocol(made: Simulated, said: str) -> Protocol:
    steps = made.y.shape[1]
    task = Records(
        f"lorenz {said}",
        made.y,
        made.truth,
        made.mask,
        made.dt,
        made.u,
        made.start,
        made.system.layout,
        tuple(Span(f"lorenz, seed {SEED}", "", i * steps, (i + 1) * steps) for i in range(len(made))),
        made.system,
    )
    empty = task.take(torch.arange(0))
    return Protocol("strict", "lorenz", SEED, Split(empty, empty, task))


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a page; the sentence above the table is counted from them."""
    harmless = sum(bool(row["harmless"]) for row in rows)
    worst = max(rows, key=lambda row: float(row["ratio"]))
    lines = [
        "# Where things are otherwise",
        "",
        f"Written by `fwnkf bench harm --markdown docs/results/harm.md`, {rows[0]['records']} records a row, seed "
        f"{SEED}. Filters of `models/` that learned one disturbance, beside the EKF that knows the equations and takes "
        f"all noise for white of the nominal variance. In {harmless} of {len(rows)} rows their mean squared error is "
        f"at most {LIMIT:g} times the EKF's; the largest ratio is {worst['ratio']:.3f} ({worst['task']}, "
        f"{worst['condition']}).",
        "",
        "| task | condition | mse | mse of the EKF | ratio | NEES/n | coverage of 95 % | harmless |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        figures = " | ".join(f"{row[name]:.4g}" for name in ("mse", "mse_ekf", "ratio", "nees", "coverage95"))
        lines.append(f"| {row['task']} | {row['condition']} | {figures} | {'yes' if row['harmless'] else '**no**'} |")
    return "\n".join([*lines, ""])
