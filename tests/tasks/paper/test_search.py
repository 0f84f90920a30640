"""The rule by which every filter of the tables gets its learning rate, batch and length of training."""

from __future__ import annotations

import contextlib
import dataclasses
import json

import pytest
import torch

from fwnkf.errors import ConfigError
from tasks.paper import search as module
from tasks.paper.search import TRIALS, Search, _with, search
from tasks.paper.stacked import Plateau
from tests.tasks.paper.test_stacked import LEARNED, experiment

RULE = Plateau(patience=1, falls=0, warmup=1)
PLAN = Search(rates=(1e-6, 1e-2), batches=(4, 8), trial=4, seeds=2, rule=RULE, compiled=False)


@pytest.fixture(scope="module")
def experiments():
    return [experiment("fwnkf", seed, weight, **LEARNED) for weight in (0.0, 0.1) for seed in (1, 2)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("searched")


@pytest.fixture(scope="module")
def found(experiments, folder):
    return search(experiments, PLAN, folder)


def test_the_best_combination_of_the_grid_trains_all_members(experiments, found):
    assert [(row["rate"], row["batch"]) for row in found.trials] == [(1e-6, 4), (1e-2, 4), (1e-6, 8), (1e-2, 8)]
    best = min(found.trials, key=lambda row: row["val_mse"])
    # a rate of a millionth moves nothing in four steps
    assert best["rate"] == 1e-2
    assert {member.rate for member in [*found.members, *found.doubled.values()]} == {1e-2}
    assert found.batch == best["batch"]
    assert [(m.experiment.seed, dict(m.experiment.loss[1])["weight"]) for m in found.members] == [
        (1, 0.0), (2, 0.0), (1, 0.1), (2, 0.1)
    ]  # fmt: skip
    assert all(member.steps <= experiments[0].trainer.steps for member in found.members)
    assert list(found.doubled) == [0, 2]  # the first seed with each weight
    for member in found.doubled.values():
        assert experiments[0].trainer.steps < member.experiment.trainer.steps


def test_the_first_members_with_twice_the_patience_go_on_where_they_ended(found):
    assert found.patience == PLAN.rule.patience
    for number, twice in found.doubled.items():
        one = found.members[number]
        assert twice.experiment.seed == one.experiment.seed == 1
        assert twice.steps > one.steps
        assert twice.history[: len(one.history)] == one.history
        assert twice.best <= one.best


@pytest.mark.parametrize(("change", "times"), [(-9.0, 4), (1.0, 1)])
def test_all_go_on_while_twice_the_budget_lowers_the_error(experiments, tmp_path, found, change, times):
    """They end as with more patience and steps from the start."""
    plan = dataclasses.replace(PLAN, doublings=2, change=change)
    found = search(experiments, plan, tmp_path / "rule", known=found.trials)
    assert found.patience == times * RULE.patience
    longer = [_with(one, steps=times * one.trainer.steps) for one in experiments]
    known = dataclasses.replace(plan, rule=dataclasses.replace(RULE, patience=found.patience))
    wanted = search(longer, known, tmp_path / "longer", known=found.trials, patience=found.patience)
    for one, other in zip(found.members, wanted.members, strict=True):
        assert (one.steps, one.best_step, one.converged) == (other.steps, other.best_step, other.converged)
        errors = [[entry["val_mse"] for entry in member.history] for member in (one, other)]
        assert errors[0] == pytest.approx(errors[1], rel=1e-9)
        for key, value in one.model.state_dict().items():
            torch.testing.assert_close(value, other.model.state_dict()[key], rtol=1e-7, atol=1e-10)
    for number, twice in found.doubled.items():
        first = found.members[number]
        assert twice.experiment.trainer.steps == 2 * times * experiments[0].trainer.steps
        assert twice.history[: len(first.history)] == first.history
        assert twice.steps > first.steps


def test_a_search_that_was_stopped_anywhere_finds_the_same(experiments, tmp_path, found):
    plan = dataclasses.replace(PLAN, doublings=1, change=-9.0)
    group = [_with(one, save_seconds=0.0) for one in experiments[:2]]
    said: list[str] = []
    whole = search(group, plan, tmp_path / "whole", said.append, known=found.trials)
    lines = [number for number, text in enumerate(said) if ": pass " in text]
    assert len(lines) > 5

    class Stop:
        """Stops after so many status lines."""

        def __init__(self, lines: int) -> None:
            self.left = lines

        def __call__(self, text: str) -> None:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt

    for number in lines[::2]:  # each goes on where the one before was stopped
        with contextlib.suppress(KeyboardInterrupt):
            search(group, plan, tmp_path / "stopped", Stop(number), known=found.trials)
    again = search(group, plan, tmp_path / "stopped", known=found.trials)
    for one, other in zip([*again.members, again.doubled[0]], [*whole.members, whole.doubled[0]], strict=True):
        assert (one.history, one.steps, one.best_step) == (other.history, other.steps, other.best_step)
        assert all(torch.equal(value, other.model.state_dict()[key]) for key, value in one.model.state_dict().items())


def test_doublings_need_a_rate_that_does_not_fall():
    with pytest.raises(ConfigError, match=r"search\.rule\.falls = 0"):
        Search.read({"rates": [1e-3], "batches": [4], "trial": 1, "doublings": 1})


def test_trials_are_not_repeated(experiments, folder, found, monkeypatch):
    stored = json.loads((folder / TRIALS).read_text())
    assert stored == found.trials

    def again(*arguments):
        raise AssertionError("trained the grid twice")

    monkeypatch.setattr(module, "_trial", again)
    second = search(experiments, PLAN, folder)
    assert [member.history for member in second.members] == [member.history for member in found.members]


def test_seeds_that_are_added_take_what_the_group_was_trained_with(experiments, tmp_path, found, monkeypatch):
    monkeypatch.setattr(module, "_trial", None)
    added = search(experiments[2:], PLAN, tmp_path, known=found.trials, patience=found.patience)
    assert added.doubled == {}
    assert added.trials == found.trials
    for one, other in zip(added.members, found.members[2:], strict=True):
        errors = [[entry["val_mse"] for entry in member.history] for member in (one, other)]
        assert errors[0] == pytest.approx(errors[1], rel=1e-9)


def test_a_section_with_unknown_fields_is_refused():
    with pytest.raises(ConfigError, match="missing: trial, not known: speed"):
        Search.read({"rates": [1e-3], "batches": [4], "speed": 9})
