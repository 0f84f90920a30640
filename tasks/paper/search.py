"""One rule for the budget of every trained filter: a small grid, then training until validation no longer improves.

1. Every combination of a learning rate and a batch size is trained for a few steps, on as many records with small
   batches as with large ones. The combination with the least validation error, as geometric mean over seeds, is chosen.
2. All seeds and weights are trained with it until their validation error no longer improves
   (:class:`tasks.paper.stacked.Plateau`). One more member, the first seed with the first weight, has twice the
   patience and twice the steps: what a larger budget would change. A rate can be sound for the few steps of the grid
   and too high for many: where loss or gradient are not finite, a filter goes on from its best parameters with a fifth
   of its rate.

Both have the same slots, so that their steps are compiled once for each batch size. The first writes what it found to
the folder of the group and is not repeated; nor is it where other seeds of the group were trained before. The second
saves its state there, and goes on where it was stopped.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fwnkf.errors import ConfigError
from fwnkf.training.checkpointing import STATE_FILE
from tasks.paper.stacked import Cache, Member, Plateau, fit_together

if TYPE_CHECKING:
    from fwnkf.training.config import Experiment

Say = Callable[[str], None]
TRIALS = "trials.json"
SLOTS = (1, 4, 6, 10)
"""Filters that are trained at a time: five rates with two seeds, or nine runs and one with twice the budget; or five
seeds and one with twice the budget. With 16 records each, ten of a small filter take a quarter longer than six, because
much of a step is the calls of its kernels; those of a large one take as much longer as they are more. The last four go
on by themselves, and so does the very last, the one with twice the budget: where a large filter learns slowly, that is
thousands of steps."""
RESTARTS = 3
"""How often. Trainings whose losses are all finite do not depend on it, nor does what the grid finds."""
REGRESSIONS = "regressions"
"""The folder, beside those of the groups, of regressed systems."""


@dataclass(frozen=True)
class Search:
    """The grid and the rule, as the section ``search`` of a file of recipes has them.

    >>> Search.read({"rates": [1e-3], "batches": [16], "trial": 50, "rule": {"patience": 4}}).rule.patience
    4
    """

    rates: tuple[float, ...]
    batches: tuple[int, ...]
    trial: int
    """Optimiser steps of each combination of the grid with the largest batch, in proportion more with smaller ones."""
    seeds: int = 1
    """Seeds of each combination."""
    rule: Plateau = dataclasses.field(default_factory=Plateau)
    average: int = 0
    """Steps over which the parameters are averaged for validation and as result; 0: those of the last step."""
    compiled: bool = True

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Search:
        known = {field.name for field in dataclasses.fields(cls)}
        missing = {"rates", "batches", "trial"} - set(values)
        if missing or set(values) - known:
            raise ConfigError(
                f"search has the fields {', '.join(sorted(known))}; missing: {', '.join(sorted(missing)) or 'none'}, "
                f"not known: {', '.join(sorted(set(values) - known)) or 'none'}"
            )
        return cls(**{
            **values,
            "rates": tuple(map(float, values["rates"])),
            "batches": tuple(map(int, values["batches"])),
            "rule": Plateau(**values.get("rule", {})),
        })  # fmt: skip


@dataclass(frozen=True)
class Found:
    """What a search gives."""

    members: list[Member]
    """One for each experiment."""
    doubled: Member | None
    """The first experiment with twice the budget, if that was wanted."""
    batch: int
    trials: list[dict[str, Any]]
    """Rate, batch and validation error of every combination of the grid, and its CPU seconds."""


def search(
    experiments: Sequence[Experiment],
    plan: Search,
    folder: Path,
    say: Say = lambda text: None,
    known: Sequence[Mapping[str, Any]] = (),
    *,
    doubled: bool = True,
) -> Found:
    """Train a group of experiments, which differ in seed and weights of the loss, by the rule.

    Args:
        experiments: what to train.
        plan: the grid and the rule.
        folder: where trials and the state of the training are kept.
        say: called with status lines.
        known: the trials of an earlier search for the same filter, which is not repeated.
        doubled: train the first experiment with twice the budget too.

    Returns:
        The trained filters.
    """
    cache = Cache(regressions=folder.parent / REGRESSIONS)
    trials = [dict(row) for row in known] or _read(folder / TRIALS)
    for batch in plan.batches:
        if not any(row["batch"] == batch for row in trials):
            trials += _trial(experiments, plan, batch, cache, say)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / TRIALS).write_text(json.dumps(trials, indent=1), encoding="utf-8")
    best = min(trials, key=lambda row: row["val_mse"])
    say(f"{experiments[0].name}: rate {best['rate']:g} and batches of {best['batch']} of {len(trials)} combinations")
    largest = experiments[0].trainer.steps
    group = [_with(experiment, batch_size=best["batch"]) for experiment in experiments]
    rule = dataclasses.replace(plan.rule, restarts=RESTARTS)
    rules = [rule] * len(group)
    if doubled:
        group.append(_with(group[0], steps=2 * largest))
        rules.append(dataclasses.replace(rule, patience=2 * rule.patience))
    members = _fit(group, [best["rate"]] * len(group), rules, plan, cache, say, folder / STATE_FILE)
    twice = members.pop() if doubled else None
    return Found(members, twice, best["batch"], trials)


def _trial(experiments: Sequence[Experiment], plan: Search, batch: int, cache: Cache, say: Say) -> list[dict[str, Any]]:
    """The validation errors of all rates with batches of one size, with the weights of the first experiment."""
    first = experiments[0]
    seeds = list(dict.fromkeys(experiment.seed for experiment in experiments))[: plan.seeds]
    steps = plan.trial * max(plan.batches) // batch
    one = _with(first, batch_size=batch, steps=steps, validate_every=min(first.trainer.validate_every, steps))
    pairs = [(rate, dataclasses.replace(one, seed=seed)) for rate in plan.rates for seed in seeds]
    rules = [dataclasses.replace(plan.rule, patience=steps)] * len(pairs)
    rates, own = zip(*pairs, strict=True)
    members = _fit(own, rates, rules, plan, cache, say)
    rows = []
    for number, rate in enumerate(plan.rates):
        of_rate = members[number * len(seeds) : (number + 1) * len(seeds)]
        # an error that is not finite has no logarithm that could win
        errors = [math.inf if member.failed_at is not None else member.history[-1]["val_mse"] for member in of_rate]
        mean = math.exp(sum(map(math.log, errors)) / len(errors)) if all(e < math.inf for e in errors) else math.inf
        seconds = sum(member.training_seconds for member in of_rate)
        rows.append({"rate": rate, "batch": batch, "val_mse": mean, "cpu_seconds": round(seconds, 1)})
    return rows


def _fit(
    experiments: Sequence[Experiment], rates: Sequence[float], rules: Sequence[Plateau], plan: Search, cache: Cache,
    say: Say, state: Path | None = None,
) -> list[Member]:  # fmt: skip
    return fit_together(
        experiments, rates=rates, rules=rules, compiled=plan.compiled, average=plan.average,
        slots=SLOTS, cache=cache, state=state, say=say,
    )  # fmt: skip


def _with(experiment: Experiment, **trainer: Any) -> Experiment:
    return dataclasses.replace(experiment, trainer=dataclasses.replace(experiment.trainer, **trainer))


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return rows
