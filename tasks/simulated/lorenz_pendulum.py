"""Lorenz and pendulum: what the shipped experiments reach, beside the reference ladder on the same records.

Every recipe is an experiment that ships with the package; ``train`` runs it for every seed, ``measure`` scores what was
kept. Seeds draw training records, weights and (protocol ``paper``) the split anew.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fwnkf.checkpoint import load, save
from fwnkf.data.protocols import Protocol, Split
from fwnkf.errors import CheckpointError
from fwnkf.evaluation.baselines import ladder, oracle_filter
from fwnkf.evaluation.evaluate import evaluate
from fwnkf.evaluation.rows import Row
from fwnkf.extras import need
from fwnkf.filters.base import Filter, build
from fwnkf.filters.fwnkf import FrequencyWeightedNeuralKalmanFilter
from fwnkf.filters.hypotheses import with_fallback

QUICK = 100
"""Test records of the small version."""
KEPT_WITH_FALLBACK = (
    " It is kept as `fwnkf_hypotheses` with `fallback`: that the disturbance is absent, and that all noise is white, "
    "are held possible too (`fwnkf bench harm` measures what that is worth)."
)
FIGURES = ("mse", "mse_paper", "mse_from_10", "nees", "nis", "coverage95")


@dataclass(frozen=True)
class Recipe:
    """A row of the table: a shipped experiment, and the figure it should reach.

    ``way`` rows are scored by how far they come from the white EKF to the one that is told the noise. Their filters are
    kept with the hypotheses of ``fallback``, so that they do little harm where the noise is another.
    """

    task: str
    experiment: str
    row: str
    target: float
    scenario: str = "white"
    overrides: tuple[str, ...] = ()
    way: bool = False
    limits: str = ""

    @property
    def metric(self) -> str:
        return "share of the way to the oracle" if self.way else "mse"

    def reached(self, value: float) -> bool:
        return value >= self.target if self.way else value <= self.target


def _coloured(scenario: str, options: str, limits: str = "", name: str = "fwnkf") -> Recipe:
    return Recipe(
        f"lorenz-{scenario.replace('_', '-')}",
        "lorenz-coloured",
        f"Lorenz strict with equations, noise learned from data: {scenario}",
        0.85,
        scenario,
        (f"data.scenario={scenario}", f"filter.name={name}", *(f"filter.options.{one}" for one in options.split())),
        way=True,
        limits=limits,
    )


RECIPES = (
    Recipe("lorenz-algorithm3", "lorenz-algorithm3", "Lorenz paper, no equations, Algorithm 3 as written", 0.025),
    Recipe("lorenz", "lorenz-paper", "Lorenz paper, no equations, best of ours", 0.010),
    Recipe("lorenz-strict", "lorenz", "Lorenz strict, no equations", 0.535),
    _coloured(
        "tone",
        "sections=1 hypotheses=8",
        "The oracle is told the frequency of each record's tone, which is drawn anew for every record; this filter has "
        "to find it, and weighs eight hypotheses.",
        "fwnkf_hypotheses",
    ),
    _coloured("high_band", "sections=3"),
    _coloured("drift", "sections=1"),
    _coloured(
        "pink",
        "sections=3",
        "Its NEES is above one on average because of a few records in a hundred.",
    ),
    Recipe("pendulum", "pendulum-paper", "Pendulum paper, shortest arc, no equations", 0.060),
)
TASKS = tuple(recipe.task for recipe in RECIPES)


def measure(models: Path, *, quick: bool = False, tasks: Sequence[str] = TASKS) -> Iterator[Row]:
    """The shipped filters and the ladder, on the test records of the first seed."""
    for recipe in RECIPES:
        if recipe.task not in tasks:
            continue
        folder = models / recipe.task
        figures = read_figures(folder)
        made = _data(recipe, figures["runs"][0]["seed"])
        if quick:
            made = small(made)
        found = evaluate(load(folder), made, "fwnkf", scenario=recipe.scenario)
        rungs = [] if quick else list(ladder(made, scenario=recipe.scenario))
        for rung in rungs:
            yield _row(recipe, rung["method"], rung["mse"], None, rung, records=rung["records"])
        value = _way(found["mse"], rungs) if recipe.way and rungs else found["mse"]
        yield {
            **_row(recipe, "fwnkf", value, figures["std"], found, records=found["records"]),
            "mean": figures["mean"],
            "seeds": [run["seed"] for run in figures["runs"]],
            "target": recipe.target,
            "reached": recipe.reached(figures["mean"]),
            "cpu_seconds": figures["cpu_seconds"],
            "quick_mse": figures["quick_mse"],
        }


def _row(recipe: Recipe, method: str, value: float, spread: float | None, figures: Row, records: int) -> Row:
    return {
        "task": recipe.task,
        "row": recipe.row,
        "method": method,
        "protocol": figures["protocol"],
        "metric": recipe.metric if method == "fwnkf" else "mse",
        "value": value,
        "spread": spread,
        "records": records,
        **{name: figures.get(name) for name in FIGURES},
        "command": f"fwnkf bench accuracy --task {recipe.task}",
    }


def train(
    models: Path,
    *,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    say: Callable[[str], None] = print,
    tasks: Sequence[str] = TASKS,
    runs: Path = Path("runs/accuracy"),
) -> None:
    """Train every recipe for every seed (runs that are done are not repeated), and keep the first seed's filter."""
    need("lightning", extra="train")
    from fwnkf.training.experiments import read_experiment
    from fwnkf.training.fit import fit, read_record

    for recipe in RECIPES:
        if recipe.task not in tasks:
            continue
        done = []
        for seed in seeds:
            folder = runs / f"{recipe.task}-{seed}"
            experiment = read_experiment(recipe.experiment, [*recipe.overrides, f"seed={seed}"])
            started = (folder / "run.json").is_file()
            if not (started and read_record(folder)["status"] == "done"):
                command = f"fwnkf bench accuracy --train --task {recipe.task}"
                fit(experiment, folder, resume=started, command=command, say=say)
            done.append(_score(recipe, folder, seed))
            say(f"{recipe.task}, seed {seed}: {recipe.metric} {done[-1]['value']:.4g}")
            _keep(recipe, models / recipe.task, runs / f"{recipe.task}-{seeds[0]}", done)


def _finished(recipe: Recipe, run: Path) -> Filter:
    """The best filter of a run, in the form that is kept."""
    model = load(run / "best")
    if not recipe.way:
        return model
    assert isinstance(model, FrequencyWeightedNeuralKalmanFilter)
    return with_fallback(model)


def _score(recipe: Recipe, folder: Path, seed: int) -> dict[str, Any]:
    """One seed's figures on its test records."""
    from fwnkf.training.fit import read_record

    made = _data(recipe, seed)
    model = _finished(recipe, folder)
    found = evaluate(model, made, "fwnkf", scenario=recipe.scenario)
    rungs = {row["method"]: row["mse"] for row in _ends(made, recipe)} if recipe.way else {}
    value = _between(found["mse"], rungs) if recipe.way else found["mse"]
    record = read_record(folder)
    return {
        "seed": seed,
        "value": value,
        **{name: found[name] if math.isfinite(found[name]) else None for name in FIGURES},
        **{f"mse_{name}": mse for name, mse in rungs.items()},
        "quick_mse": evaluate(model, small(made), "fwnkf")["mse"],
        "cpu_seconds": record["cpu_seconds"],
        "parameters": record["parameters"],
        "commit": record["commit"],
    }


def _keep(recipe: Recipe, folder: Path, run: Path, done: list[dict[str, Any]]) -> None:
    """The first seed's filter, all seeds' figures, and a card that is written from them."""
    save(_finished(recipe, run), folder)
    values = [run["value"] for run in done]
    figures = {
        "task": recipe.task,
        "row": recipe.row,
        "metric": recipe.metric,
        "target": recipe.target,
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "cpu_seconds": statistics.fmean(run["cpu_seconds"] for run in done),
        "quick_mse": done[0]["quick_mse"],
        "runs": done,
    }
    (folder / "figures.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(card(recipe, figures), encoding="utf-8")


def card(recipe: Recipe, figures: dict[str, Any]) -> str:
    """The model card, from the figures alone."""
    runs = figures["runs"]
    spread = "" if figures["std"] is None else f" ± {figures['std']:.2g}"
    names = [name for name in ("value", *FIGURES, "cpu_seconds") if name in runs[0]]
    table = [
        "| seed | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
        *(
            f"| {run['seed']} | " + " | ".join("" if run[name] is None else f"{run[name]:.4g}" for name in names) + " |"
            for run in runs
        ),
    ]
    verdict = "reached" if recipe.reached(figures["mean"]) else "not reached"
    return "\n".join(
        [
            f"# {recipe.task}",
            "",
            f"{recipe.row}. An `fwnkf` filter of {runs[0]['parameters']:,} parameters, trained by the experiment "
            f"`{recipe.experiment}` on simulated records ({', '.join(recipe.overrides) or 'as shipped'})."
            + (KEPT_WITH_FALLBACK if recipe.way else ""),
            "",
            f"**{recipe.metric}: {figures['mean']:.4g}{spread}** (mean and standard deviation of {len(runs)} seeds; "
            f"target {recipe.target:g}, {verdict}). The weights here are those of seed {runs[0]['seed']}.",
            "",
            *table,
            "",
            "`value` is the metric above; NEES, NIS and coverage are of the test records, whose initial states are "
            "given exactly in protocol `paper` (at the first step there is then no NEES).",
            "",
            "Limits: made for this system, this rate and this noise; it knows nothing of others. " + recipe.limits,
            "",
            f"Again: `fwnkf bench accuracy --task {recipe.task}`, from scratch with `--train`. "
            "Load it with `fwnkf.load`.",
            "",
        ]
    )


def read_figures(folder: Path) -> dict[str, Any]:
    """What ``train`` wrote beside a filter."""
    try:
        found = json.loads((folder / "figures.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder}: figures.json cannot be read ({error}); train it: --train") from error
    if not isinstance(found, dict) or not isinstance(found.get("runs"), list) or not found["runs"]:
        raise CheckpointError(f"{folder / 'figures.json'} is not of the form this version writes")
    return found


def small(made: Protocol) -> Protocol:
    """The same protocol with its first few test records."""
    test = made.split.test
    return replace(made, split=Split(made.split.train, made.split.val, test.take(range(min(QUICK, len(test))))))


def _data(recipe: Recipe, seed: int) -> Protocol:
    from fwnkf.training.experiments import read_experiment
    from fwnkf.training.setup import load_data

    return load_data(read_experiment(recipe.experiment, [*recipe.overrides, f"seed={seed}"]))


def _ends(made: Protocol, recipe: Recipe) -> Iterator[Row]:
    """The two ends of the way: the EKF that takes the noise for white, and the one that is told what it is."""
    task = made.split.test
    assert task.system is not None
    yield evaluate(build("ekf", system=task.system), made, "ekf")
    yield evaluate(oracle_filter(task.system, recipe.scenario, task), made, "noise_state_ekf", batch=len(task))


def _way(value: float, rungs: list[Row]) -> float:
    return _between(value, {row["method"]: row["mse"] for row in rungs})


def _between(value: float, rungs: dict[str, float]) -> float:
    return (rungs["ekf"] - value) / (rungs["ekf"] - rungs["noise_state_ekf"])
