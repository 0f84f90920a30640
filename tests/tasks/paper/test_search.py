"""The rule by which every filter of the tables gets its learning rate, batch and length of training."""

from __future__ import annotations

import json

import pytest

from fwnkf.errors import ConfigError
from tasks.paper import search as module
from tasks.paper.search import TRIALS, Search, search
from tasks.paper.stacked import Plateau
from tests.tasks.paper.test_stacked import LEARNED, experiment

PLAN = Search(rates=(1e-6, 1e-2), batches=(4, 8), trial=4, seeds=2, rule=Plateau(patience=1, warmup=1), compiled=False)


@pytest.fixture(scope="module")
def experiments():
    return [experiment("fwnkf", seed, weight, **LEARNED) for weight in (0.0, 0.1) for seed in (1, 2)]


def test_the_best_combination_of_the_grid_trains_all_members(experiments, tmp_path):
    found = search(experiments, PLAN, tmp_path)
    assert [(row["rate"], row["batch"]) for row in found.trials] == [(1e-6, 4), (1e-2, 4), (1e-6, 8), (1e-2, 8)]
    best = min(found.trials, key=lambda row: row["val_mse"])
    # a rate of a millionth moves nothing in four steps
    assert best["rate"] == 1e-2
    assert {member.rate for member in [*found.members, found.doubled]} == {1e-2}
    assert found.batch == best["batch"]
    assert [(m.experiment.seed, dict(m.experiment.loss[1])["weight"]) for m in found.members] == [
        (1, 0.0), (2, 0.0), (1, 0.1), (2, 0.1)
    ]  # fmt: skip
    assert all(member.steps <= experiments[0].trainer.steps for member in found.members)
    assert experiments[0].trainer.steps < found.doubled.experiment.trainer.steps


def test_the_first_member_with_twice_the_patience_goes_on_where_it_ended(experiments, tmp_path):
    found = search(experiments, PLAN, tmp_path)
    one, twice = found.members[0], found.doubled
    assert twice.steps >= one.steps
    shared = min(len(one.history), len(twice.history), 1 + PLAN.rule.patience)
    assert one.history[:shared] == twice.history[:shared]


def test_trials_are_not_repeated(experiments, tmp_path, monkeypatch):
    first = search(experiments, PLAN, tmp_path)
    stored = json.loads((tmp_path / TRIALS).read_text())
    assert stored == first.trials

    def again(*arguments):
        raise AssertionError("trained the grid twice")

    monkeypatch.setattr(module, "_trial", again)
    second = search(experiments, PLAN, tmp_path)
    assert [member.history for member in second.members] == [member.history for member in first.members]


def test_seeds_that_are_added_take_what_the_group_was_trained_with(experiments, tmp_path, monkeypatch):
    whole = search(experiments, PLAN, tmp_path / "whole")
    monkeypatch.setattr(module, "_trial", None)
    added = search(experiments[2:], PLAN, tmp_path / "added", known=whole.trials, doubled=False)
    assert added.doubled is None
    assert added.trials == whole.trials
    for one, other in zip(added.members, whole.members[2:], strict=True):
        errors = [[entry["val_mse"] for entry in member.history] for member in (one, other)]
        assert errors[0] == pytest.approx(errors[1], rel=1e-9)


def test_a_section_with_unknown_fields_is_refused():
    with pytest.raises(ConfigError, match="missing: trial, not known: speed"):
        Search.read({"rates": [1e-3], "batches": [4], "speed": 9})
