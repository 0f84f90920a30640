"""One rule for the budget of every trained filter: a small grid, then training until a larger budget changes little.

1. Every combination of a learning rate and a batch size is trained for a few steps, on as many records with small
   batches as with large ones. The combination with the least validation error, as geometric mean over seeds, is chosen.
2. All seeds and weights are trained with it until their validation error no longer improves
   (:class:`tasks.paper.stacked.Plateau`). A rate can be sound for the few steps of the grid and too high for many:
   where loss or gradient are not finite, a filter goes on from its best parameters with a fifth of its rate.
3. The first seed goes on, with each weight, with twice the patience and twice the largest number of steps. Where that
   lowers its validation error by more than `change`, the other seeds go on too, and the first one with twice as much
   again. Filters that learn at other speeds are so trained as long as each needs. A training that goes on is the one
   that it would have been with more patience from the start.

The first two have the same slots, so that their steps are compiled once for each batch size. The grid writes what it
found to the folder of the group and is not repeated; nor is it where other seeds of the group were trained before. The
trainings save their states there, and go on where they were stopped.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fwnkf.errors import ConfigError
from tasks.paper.stacked import Cache, Member, Plateau, fit_together

if TYPE_CHECKING:
    from fwnkf.training.config import Experiment

Say = Callable[[str], None]
TRIALS = "trials.json"
SLOTS = (1, 4, 6, 10, 15)
"""Filters that are trained at a time: five rates with two seeds, or five seeds with one or three weights. With 16
records each, ten of a small filter take a quarter longer than six, because much of a step is the calls of its kernels;
those of a large one take as much longer as they are more. The last ones go on by themselves, and so does the one with
twice the budget: where a large filter learns slowly, that is thousands of steps."""
RESTARTS = 3
"""How often. Trainings whose losses are all finite do not depend on it, nor does what the grid finds."""
STATES = "states"
"""The folder, in that of a group, of the states of its trainings."""
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
    doublings: int = 0
    """How often patience and steps are doubled at the most. Not with a rule whose rate falls, for then a training that
    goes on is another one than with more patience from the start."""
    change: float = 0.05
    """They are where twice as much lowers the validation error of the first seed by more than this part of it."""
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
        rule = Plateau(**values.get("rule", {}))
        if rule.falls and values.get("doublings", 0):
            raise ConfigError("search.doublings needs a rule whose rate does not fall: give search.rule.falls = 0")
        return cls(**{
            **values,
            "rates": tuple(map(float, values["rates"])),
            "batches": tuple(map(int, values["batches"])),
            "rule": rule,
        })  # fmt: skip


@dataclass(frozen=True)
class Found:
    """What a search gives."""

    members: list[Member]
    """One for each experiment."""
    doubled: dict[int, Member]
    """With twice the budget, by number: the first experiment of each loss."""
    patience: int
    """The patience with which the members were trained, after all doublings."""
    batch: int
    trials: list[dict[str, Any]]
    """Rate, batch and validation error of every combination of the grid, and its CPU seconds."""


def search(
    experiments: Sequence[Experiment],
    plan: Search,
    folder: Path,
    say: Say = lambda text: None,
    known: Sequence[Mapping[str, Any]] = (),
    patience: int | None = None,
) -> Found:
    """Train a group of experiments, which differ in seed and weights of the loss, by the rule.

    Args:
        experiments: what to train.
        plan: the grid and the rule.
        folder: where trials and the states of the trainings are kept.
        say: called with status lines.
        known: the trials of an earlier search for the same filter, which is not repeated.
        patience: that of an earlier search, for members that join those that it trained: it is not doubled, nor are
            any trained with twice as much.

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
    group = [_with(experiment, batch_size=best["batch"]) for experiment in experiments]
    rule = dataclasses.replace(plan.rule, restarts=RESTARTS)

    def train(
        stage: str, some: Sequence[Experiment], times: Sequence[int], ended: Sequence[Member] | None = None
    ) -> list[Member]:
        """Train some experiments, each with so many times the patience and steps, from where they ended."""
        return _fit(
            [_with(one, steps=many * one.trainer.steps) for one, many in zip(some, times, strict=True)],
            [best["rate"]] * len(some),
            [dataclasses.replace(rule, patience=many * rule.patience) for many in times],
            plan, cache, say, folder / STATES / f"{stage}.safetensors", ended,
        )  # fmt: skip

    times = 1 if patience is None else patience // rule.patience
    members = train(f"all-{times}", group, [times] * len(group))
    if patience is not None:
        return Found(members, {}, patience, best["batch"], trials)
    losses = [experiment.loss for experiment in group]
    firsts = [number for number, loss in enumerate(losses) if loss not in losses[:number]]
    usual = {number: members[number].kept() for number in firsts}
    train("first-2", [group[n] for n in firsts], [2] * len(firsts), [members[n] for n in firsts])
    while times < 2**plan.doublings and (lower := _change(usual, members)) > plan.change:
        times *= 2
        say(f"{experiments[0].name}: {times} times the budget lowers the error by {lower:.0%}: all go on")
        usual = {number: members[number].kept() for number in firsts}
        train(f"all-{times}", group, [2 * times if n in firsts else times for n in range(len(group))], members)
    doubled = {number: members[number] for number in firsts}
    members = [usual.get(number, member) for number, member in enumerate(members)]
    return Found(members, doubled, times * rule.patience, best["batch"], trials)


def _change(usual: Mapping[int, Member], members: Sequence[Member]) -> float:
    """The part by which validation errors are lower than they were, as geometric mean."""
    return 1 - math.exp(fmean(math.log(members[number].best / member.best) for number, member in usual.items()))


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
    say: Say, state: Path | None = None, ended: Sequence[Member] | None = None,
) -> list[Member]:  # fmt: skip
    return fit_together(
        experiments, rates=rates, rules=rules, compiled=plan.compiled, average=plan.average,
        slots=SLOTS, cache=cache, state=state, ended=ended, say=say,
    )  # fmt: skip


def _with(experiment: Experiment, **trainer: Any) -> Experiment:
    return dataclasses.replace(experiment, trainer=dataclasses.replace(experiment.trainer, **trainer))


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return rows
