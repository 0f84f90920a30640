"""One rule for the budget of every trained filter: a small grid, then training until validation no longer improves.

1. Every combination of a learning rate and a batch size is trained for a few steps, on as many seeds as fit into the
   size of the final group. The combination with the least validation error, as geometric mean over seeds, is chosen.
2. All seeds and weights are trained with it until their validation error no longer improves
   (:class:`tasks.paper.stacked.Plateau`). One more member, the first seed with the first weight, has twice the
   patience and twice the steps: what a larger budget would change.

Both are groups of as many members and the same sizes (smaller batches are repeated), so that their steps are compiled
once. The first writes what it
found to the folder of the group and is not repeated.
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
from tasks.paper.stacked import Member, Plateau, Prepared, fit_together

if TYPE_CHECKING:
    from fwnkf.training.config import Experiment

Say = Callable[[str], None]
TRIALS = "trials.json"


@dataclass(frozen=True)
class Search:
    """The grid and the rule, as the section ``search`` of a file of recipes has them.

    >>> Search.read({"rates": [1e-3], "batches": [16], "trial": 50, "rule": {"patience": 4}}).rule.patience
    4
    """

    rates: tuple[float, ...]
    batches: tuple[int, ...]
    trial: int
    """Optimiser steps of each combination of the grid."""
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
        rule, average = Plateau(**values.get("rule", {})), int(values.get("average", 0))
        rates, batches = (tuple(values[name]) for name in ("rates", "batches"))
        return cls(tuple(map(float, rates)), tuple(map(int, batches)), int(values["trial"]), rule, average,
                   bool(values.get("compiled", True)))  # fmt: skip


@dataclass(frozen=True)
class Found:
    """What a search gives."""

    members: list[Member]
    """One for each experiment."""
    doubled: Member
    """The first experiment with twice the budget."""
    batch: int
    trials: list[dict[str, Any]]
    """Rate, batch and validation error of every combination of the grid, and its CPU seconds."""


def search(experiments: Sequence[Experiment], plan: Search, folder: Path, say: Say = lambda text: None) -> Found:
    """Train a group of experiments, which differ in seed and weights of the loss, by the rule."""
    size = len(experiments) + 1
    trials = _read(folder / TRIALS)
    prepared: Prepared = {}
    if trials is None:
        trials = [row for batch in plan.batches for row in _trial(experiments, plan, batch, size, prepared, say)]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TRIALS).write_text(json.dumps(trials, indent=1), encoding="utf-8")
    best = min(trials, key=lambda row: row["val_mse"])
    say(f"{experiments[0].name}: rate {best['rate']:g} and batches of {best['batch']} of {len(trials)} combinations")
    largest = experiments[0].trainer.steps
    group = [_with(experiment, batch_size=best["batch"], steps=2 * largest) for experiment in experiments]
    rules = [dataclasses.replace(plan.rule, steps=largest)] * len(group)
    twice = dataclasses.replace(plan.rule, patience=2 * plan.rule.patience, steps=2 * largest)
    members = fit_together(
        [*group, group[0]], rates=[best["rate"]] * size, rules=[*rules, twice], compiled=plan.compiled,
        average=plan.average, rows=math.lcm(*plan.batches), prepared=prepared, say=say,
    )  # fmt: skip
    return Found(members[:-1], members[-1], best["batch"], trials)


def _trial(
    experiments: Sequence[Experiment], plan: Search, batch: int, size: int, prepared: Prepared, say: Say
) -> list[dict[str, Any]]:
    """The validation errors of all rates with batches of one size."""
    first = experiments[0]
    seeds = list(dict.fromkeys(experiment.seed for experiment in experiments))
    used = seeds[: max(1, size // len(plan.rates))]
    pairs = [(seed, rate) for seed in used for rate in plan.rates]
    own = [(dataclasses.replace(first, seed=seed), rate) for seed, rate in pairs]
    own += [own[-1]] * (size - len(own))  # to the size of the final group, whose compiled steps serve here too
    members = fit_together(
        [_with(one, batch_size=batch, steps=plan.trial, validate_every=min(first.trainer.validate_every, plan.trial))
         for one, _ in own],
        rates=[rate for _, rate in own], compiled=plan.compiled, average=plan.average,
        rows=math.lcm(*plan.batches), prepared=prepared, say=say,
    )  # fmt: skip
    rows = []
    for rate in plan.rates:
        # an error that is not finite has no logarithm that could win
        errors = [m.history[-1]["val_mse"] if m.failed_at is None else math.inf
                  for m, (_, own_rate) in zip(members, pairs, strict=False) if own_rate == rate]  # fmt: skip
        mean = math.exp(sum(map(math.log, errors)) / len(errors)) if all(e < math.inf for e in errors) else math.inf
        seconds = sum(member.training_seconds for member in members) / len(plan.rates)
        rows.append({"rate": rate, "batch": batch, "val_mse": mean, "cpu_seconds": round(seconds, 1)})
    return rows


def _with(experiment: Experiment, **trainer: Any) -> Experiment:
    return dataclasses.replace(experiment, trainer=dataclasses.replace(experiment.trainer, **trainer))


def _read(path: Path) -> list[dict[str, Any]] | None:
    if not path.is_file():
        return None
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return rows
