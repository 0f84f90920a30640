"""The matrix of runs: equal means for every filter of a table, and faults of the file that are named."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("lightning")

from fwnkf.errors import ConfigError
from tasks.paper import matrix

FULL = matrix.read()
GROUPS = [group for group in FULL.groups() if group.cells]
NOTHING_KNOWN = {name for name in FULL.values["recipes"] if name.endswith(("_plain", "_public_code"))}
"""Recipes that learn the dynamics through the filter, which takes longer."""
SLOW = {("euroc", "fwnkf"), ("euroc_full", "fwnkf"), ("pendulum", "arkf")}
"""Filters that the budget of their table ended before they had converged."""
LONGER = 6000
SEVEN = {"fwnkf", "bayesian_kalmannet", "recursive_kalmannet", "kalmannet", "rkn", "kf", "arkf"}


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_every_recipe_is_an_experiment_with_the_budget_of_its_table(group):
    first, last = (FULL.experiment(group.cells[place]) for place in (0, -1))
    budget = FULL.values["budget"][group.data]
    longer = group.recipe in NOTHING_KNOWN or (group.data, group.recipe) in SLOW
    assert first.trainer.steps == (LONGER if longer else budget["trainer"]["steps"])
    sizes = budget["data"] | (budget.get("strict", {}) if group.protocol == "strict" else {})
    assert {name: getattr(first.data, name) for name in ("train", "val", "test")} == {
        name: sizes[name] for name in ("train", "val", "test")
    }
    # a recipe without the regression of the others must say why, or have its equations given
    if first.trainer.pretrain != budget["trainer"]["pretrain"]:
        assert "about" in FULL.values["recipes"][group.recipe] or first.filter.equations
    assert (first.seed, last.seed) == (0, group.seeds[-1])
    assert group.seeds == (0, 1, 2, 3, 4)
    assert [term["kind"] for term in first.loss] == [term["kind"] for term in last.loss]
    assert first.loss[:-1] == last.loss[:-1]
    assert first.loss[-1]["weight"] == group.cells[0].weight
    assert (first.filter, first.optimizer, first.trainer, first.data) == (
        last.filter, last.optimizer, last.trainer, last.data,
    )  # fmt: skip


def test_lorenz_and_pendulum_are_complete():
    cells = {cell.key for group in GROUPS for cell in group.cells}
    for data in ("lorenz", "pendulum"):
        for recipe in SEVEN:
            assert {
                f"{data}/paper/{recipe}/{weight}/{seed}" for weight in ("0", "0.01", "0.1") for seed in range(3)
            } <= cells
            assert {f"{data}/strict/{recipe}/0/{seed}" for seed in range(3)} <= cells


def test_what_a_recipe_has_on_one_data_set_is_used_there_alone():
    for recipe, values in FULL.values["recipes"].items():
        for data, own in values.get("on_data", {}).items():
            other = next(name for name in FULL.values["budget"] if name not in values["on_data"])
            here, elsewhere = (FULL.config(matrix.Cell(name, "paper", recipe, 0.0, 0)) for name in (data, other))
            for section, fields in own.items():
                assert {name: here[section][name] for name in fields} == fields
                assert here[section] != elsewhere[section]
    assert (
        FULL.experiment(matrix.Cell("euroc", "paper", "fwnkf", 0.0, 0)).filter.options["encoder"]["reads"] == "current"
    )


def test_groups_are_selected_by_data_recipe_and_pattern():
    assert {group.data for group in FULL.groups(["euroc"])} == {"euroc"}
    assert {group.recipe for group in FULL.groups(only=["kf"])} == {"kf"}
    assert [group.name for group in FULL.groups(only=["lorenz/strict/r*"])] == [
        "lorenz/strict/references", "lorenz/strict/recursive_kalmannet_equations", "lorenz/strict/recursive_kalmannet",
        "lorenz/strict/rkn",
    ]  # fmt: skip
    in_order = ["lorenz/strict/rkn", "lorenz/paper/rkn", "lorenz/*/rkn"]
    assert [group.name for group in FULL.groups(only=in_order)] == in_order[:2]
    with pytest.raises(ConfigError, match="no table has data mars"):
        FULL.groups(["mars"])
    with pytest.raises(ConfigError, match="--only nothing"):
        FULL.groups(only=["nothing"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1", "must be a mapping"),
        ("seeds: [0]", "budget is missing"),
        ("{seeds: [0], budget: {}, recipes: {}, tables: [], more: 1}", "more is not known"),
        (
            "{seeds: [0], budget: {}, recipes: {}, tables: [{data: a}]}",
            "tables.0: protocol, recipes, weights is missing",
        ),
        (
            "{seeds: [0], budget: {}, recipes: {}, tables: [{data: a, protocol: paper, recipes: [b], weights: [0]}]}",
            "no recipe 'b'",
        ),
        (
            "{seeds: [0], budget: {a: {}}, recipes: {b: {title: B, on: {a: {filter: {}}}}}, tables: []}",
            "recipes.b.True is not known",
        ),
        ("{seeds: [0], budget: {a: {steps: 1}}, recipes: {}, tables: []}", "budget.a.steps is not known"),
    ],
)
def test_faults_of_the_file_are_named(tmp_path, text, message):
    path = tmp_path / "recipes.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        matrix.read(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        matrix.read(Path("missing.yaml"))
