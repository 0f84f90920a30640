"""Shipped filters of simulated tasks against their own figures, and the table's words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fwnkf
from fwnkf.cli import main
from fwnkf.errors import CheckpointError, ConfigError
from fwnkf.evaluation.evaluate import evaluate
from fwnkf.training.config import read_experiment
from tasks import table
from tasks.simulated import lorenz_pendulum as simulated

pytest.importorskip("lightning")
MODELS = Path(__file__).parents[2] / "models"
SHIPPED = [recipe for recipe in simulated.RECIPES if (MODELS / recipe.task / "figures.json").is_file()]


@pytest.mark.parametrize("recipe", SHIPPED, ids=lambda recipe: recipe.task)
def test_a_shipped_filter_is_as_good_as_its_card_says(recipe):
    figures = simulated.read_figures(MODELS / recipe.task)
    made = simulated.small(simulated._data(recipe, figures["runs"][0]["seed"]))
    found = evaluate(fwnkf.load(MODELS / recipe.task), made, "fwnkf")
    assert found["mse"] == pytest.approx(figures["quick_mse"], rel=0.01)
    assert (MODELS / recipe.task / "README.md").read_text(encoding="utf-8") == simulated.card(recipe, figures)
    assert sum(path.stat().st_size for path in (MODELS / recipe.task).iterdir()) < 1_000_000


@pytest.mark.parametrize("recipe", SHIPPED, ids=lambda recipe: recipe.task)
def test_means_are_those_of_the_seeds(recipe):
    figures = simulated.read_figures(MODELS / recipe.task)
    values = [run["value"] for run in figures["runs"]]
    assert figures["mean"] == pytest.approx(sum(values) / len(values))
    assert len({run["seed"] for run in figures["runs"]}) == len(values)


def test_every_recipe_is_an_experiment_that_parses():
    for recipe in simulated.RECIPES:
        assert read_experiment(recipe.experiment, recipe.overrides).data.scenario == recipe.scenario
    assert table.GROUPS["simulated"] == simulated.TASKS


def test_the_way_to_the_oracle_is_counted_from_the_white_filter():
    assert simulated._between(0.5, {"ekf": 0.5, "noise_state_ekf": 0.3}) == 0
    assert simulated._between(0.35, {"ekf": 0.5, "noise_state_ekf": 0.3}) == pytest.approx(0.75)
    assert simulated.RECIPES[3].reached(0.9)
    assert not simulated.RECIPES[0].reached(0.9)


def test_a_task_that_is_not_there_is_named(tmp_path, capsys):
    with pytest.raises(ConfigError, match=r"no task is called lorentz; there are: .*lorenz-strict"):
        table.modules(["lorentz"])
    with pytest.raises(CheckpointError, match=r"figures\.json cannot be read"):
        list(simulated.measure(tmp_path, tasks=["lorenz"]))
    assert main(["bench", "accuracy", "--seeds", "a"]) == 2
    assert "whole numbers with commas" in capsys.readouterr().err


def test_a_small_task_is_trained_scored_kept_and_not_trained_again(tmp_path, monkeypatch):
    """Two seeds of a tiny recipe, through the same code as the shipped ones."""
    words = (
        "trainer.steps=2",
        "trainer.validate_every=2",
        "trainer.compile=false",
        "trainer.pretrain=0",
        "data.train=8",
    )
    tiny = simulated.Recipe("tiny", "lorenz", "tiny", 1e9, overrides=(*words, "data.val=2", "data.test=4"))
    monkeypatch.setattr(simulated, "RECIPES", (tiny,))
    said: list[str] = []
    options = {"seeds": (0, 1), "say": said.append, "tasks": ("tiny",), "runs": tmp_path / "runs"}
    simulated.train(tmp_path / "models", **options)
    figures = json.loads((tmp_path / "models" / "tiny" / "figures.json").read_text())
    assert [run["seed"] for run in figures["runs"]] == [0, 1]
    kept = (tmp_path / "models" / "tiny" / "model.safetensors").read_bytes()
    assert kept == (tmp_path / "runs" / "tiny-0" / "best" / "model.safetensors").read_bytes()
    count = len(said)
    simulated.train(tmp_path / "models", **options)
    assert len(said) == count + 2  # the seeds' figures alone: nothing was trained
    *rungs, ours = simulated.measure(tmp_path / "models", tasks=["tiny"])
    assert {row["method"] for row in rungs} >= {"hold", "ekf", "ukf"}
    assert ours["value"] == pytest.approx(figures["runs"][0]["value"])
    assert ours["reached"]
    page = table.markdown([*rungs, ours])
    assert f"| tiny | tiny | **fwnkf** | mse | {ours['value']:.4g} |" in page


def test_a_target_can_be_a_band():
    row = {"task": "t", "row": "r", "method": "fwnkf", "metric": "nis", "value": 1.2, "target": [0.9, 1.1]}
    assert "| **fwnkf** | nis | 1.2 |  | 0.9 to 1.1 (not reached) |" in table.markdown([{**row, "reached": False}])
    assert "| nis | 1.2 |  | 0.9 to 1.1 |" in table.markdown([row])  # of one seed, and judged by the mean
    assert "| hold | nis | 1.2 |  |  |" in table.markdown([{**row, "method": "hold"}])  # a reference has no target
    assert "| 6 of 1 s, 2 of 5 s |" in table.markdown([{**row, "records": {"1": 6, "5": 2}}])
