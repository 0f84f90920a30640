"""The simulated tasks: figures of the shipped filters, baselines, and a small task trained from scratch."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("lightning")


import fwnkf
from fwnkf.errors import ConfigError
from fwnkf.evaluation import baselines
from tasks import cards, results
from tasks.__main__ import main
from tasks.simulated import TASKS
from tasks.simulated.lorenz_pendulum import PROTOCOLS, ColouredNoise, UnknownDynamics
from tasks.simulated.scoring import gap_interval, record_errors

MODELS = Path(__file__).parents[3] / "models"
TINY = (
    *("trainer.steps=2", "trainer.validate_every=2", "trainer.compile=false", "trainer.pretrain=0"),
    *("trainer.batch_size=4", "data.train=40", "data.val=4", "data.test=6"),
)
WORDS = {"protocol": "strict", "about": "About.", "limits": "Limits."}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_shipped_filter_is_as_good_as_its_card_says(task):
    kept = results.read(MODELS / task.name)
    model = fwnkf.load(MODELS / task.name)
    measured = task.evaluate(model, task.load(quick=True)).metrics
    assert measured == pytest.approx(kept.quick, rel=0.01)
    assert task.learned(model) == kept.learned
    assert (MODELS / task.name / "README.md").read_text(encoding="utf-8") == cards.card(task, kept)
    assert kept.protocol == PROTOCOLS[task.settings(0).data.protocol]
    assert sum(path.stat().st_size for path in (MODELS / task.name).iterdir()) < 200_000


def test_filters_hold_no_part_that_does_nothing():
    for task in TASKS:
        model = fwnkf.load(MODELS / task.name)
        # the factors of Q and R are one, where records left out do not support others
        parts = [parameter for name, parameter in model.named_parameters() if name != "head_bias"]
        assert all(bool(parameter.any()) for parameter in parts), task.name
        if isinstance(task, ColouredNoise):
            assert model.config.hypotheses.fallback
            assert model.config.residual is None
            assert "network" not in task.learned(model)


def test_numbers_learned_are_all_there_is_but_for_what_is_given():
    """Every tensor of a filter is counted once; diagonals count as such, and a given observation matrix does not."""
    for task in TASKS:
        weights = fwnkf.load(MODELS / task.name).state_dict()
        sizes = {name: tensor.numel() for name, tensor in weights.items()}
        for name in ("system.Q.value", "system.R.value"):
            if name in weights:
                assert not bool((weights[name] - weights[name].diagonal().diag()).any())
                sizes[name] = len(weights[name])
        if "system.observation.network.out.weight" not in weights:
            sizes.pop("system.observation.H", None)
        assert sum(task.learned(fwnkf.load(MODELS / task.name)).values()) == sum(sizes.values())


def tiny(kind, name: str = "tiny", overrides: tuple[str, ...] = ()):
    experiment = "lorenz" if kind is UnknownDynamics else "lorenz-coloured"
    return kind(name, "Tiny", experiment, 0.5, overrides=(*TINY, *overrides), **WORDS)


def without_baselines(task, model, data, scores) -> SimpleNamespace:
    """Instead of ``collect``, which takes most of the time."""
    return SimpleNamespace(seeds=scores, details={})


@pytest.fixture
def quick_references(monkeypatch):
    """One round of the grid over the noise of a baseline: which figure it has does not matter here."""
    monkeypatch.setattr(baselines, "fitted_noise", partial(baselines.fitted_noise, rounds=1))


@pytest.mark.usefixtures("quick_references", "short_records")
def test_a_small_task_is_trained_scored_and_not_trained_again(tmp_path, monkeypatch):
    """Two seeds through the same code as the shipped ones."""
    task = tiny(UnknownDynamics)
    lines: list[str] = []
    options = {"seeds": (0, 1), "say": lines.append, "runs": tmp_path / "runs"}
    first = task.train(tmp_path / "tiny", **options)
    assert [seed.seed for seed in first.seeds] == [0, 1]
    assert first.seeds[0].metrics["mse"] == pytest.approx(
        task.evaluate(fwnkf.load(tmp_path / "tiny"), task.load()).metrics["mse"]
    )
    assert first.seeds[0].metrics["mse"] != first.seeds[1].metrics["mse"]
    assert {"quadratic_regression_ekf", "polynomial_regression_ekf", "ekf_with_equations"} <= set(first.baselines)
    assert not any(name.endswith("with_equations") for name in task.report_baselines(first))
    results.write(tmp_path / "tiny", first)
    page = cards.card(task, results.read(tmp_path / "tiny"))
    assert f"{first.baselines['quadratic_regression_ekf'].metrics['mse']:.4g}" in page
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("run.json")}
    monkeypatch.setattr(UnknownDynamics, "collect", without_baselines)
    again = task.train(tmp_path / "tiny", **options)
    assert [seed.metrics for seed in again.seeds] == [seed.metrics for seed in first.seeds]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("run.json")} == stamps
    with pytest.raises(ConfigError, match="run of another experiment"):
        tiny(UnknownDynamics, overrides=("optimizer.learning_rate=0.5",)).train(tmp_path / "tiny", **options)


@pytest.mark.usefixtures("quick_references")
def test_coloured_noise_is_scored_between_the_white_ekf_and_the_oracle(tmp_path):
    task = tiny(ColouredNoise, overrides=("data.test=40", "filter.options.noise.count=1"))
    kept = task.train(tmp_path / "tiny", seeds=(0,), say=lambda text: None, runs=tmp_path / "runs")
    errors = {name: score.metrics["mse"] for name, score in kept.baselines.items()}
    assert kept.baselines["ekf"].metrics["gap_closed"] == 0
    assert kept.baselines["oracle"].metrics["gap_closed"] == 1
    value = (errors["ekf"] - kept.seeds[0].metrics["mse"]) / (errors["ekf"] - errors["oracle"])
    assert kept.seeds[0].metrics["gap_closed"] == pytest.approx(value)
    assert kept.details["gap_interval"][0] == pytest.approx(value)
    assert errors["oracle"] < errors["ekf"] < errors["hold"]
    # the same model of the noise, with what the curvature does to the covariance
    second, first = (kept.baselines[name].metrics for name in ("oracle_second_order", "oracle"))
    assert second["mse"] == pytest.approx(first["mse"], rel=0.02)
    assert abs(second["nees"] - 1) < abs(first["nees"] - 1)
    assert {"oracle", "oracle_second_order"}.isdisjoint(task.report_baselines(kept))
    assert "untrained" in task.report_baselines(kept)
    assert fwnkf.load(tmp_path / "tiny").config.hypotheses.fallback


def test_the_interval_of_the_gap_is_over_records():
    rng = np.random.default_rng(1)
    ekf, oracle = ({str(i): value for i, value in enumerate(rng.uniform(low, low + 1, 400))} for low in (2.0, 1.0))
    halfway = {name: (ekf[name] + oracle[name]) / 2 for name in ekf}
    assert gap_interval(halfway, ekf, oracle, draws=200) == pytest.approx((0.5, 0.5, 0.5))
    shaken = {name: value + rng.normal(0, 0.5) for name, value in halfway.items()}
    value, low, high = gap_interval(shaken, ekf, oracle, draws=2000)
    assert low < value < high
    assert high - low == pytest.approx(2 * 1.96 * 0.5 / 20, rel=0.15)  # the noise over the root of 400 records


def test_record_errors_average_to_the_error():
    task = TASKS[-1]
    data = task.load(quick=True)
    from fwnkf.evaluation.evaluate import estimate

    estimated = estimate(fwnkf.load(MODELS / task.name), data.split.test)
    errors = record_errors(data, estimated)
    assert len(errors) == 100
    assert np.mean(list(errors.values())) == pytest.approx(results.read(MODELS / task.name).quick["mse"], rel=1e-6)


def test_the_runner_prints_the_figures_of_a_filter_and_its_baselines(capsys):
    code = main(["run", "lorenz", "--quick", "--models", str(MODELS), "--json"])
    rows = json.loads(capsys.readouterr().out)
    figures = {(row["method"], row["metric"]): row["value"] for row in rows}
    assert code == 0
    assert figures["ours", "mse"] == pytest.approx(results.read(MODELS / "lorenz").quick["mse"], rel=0.01)
    # no noise acts on these records and their start is known: the EKF with the equations trusts measurements too much
    assert figures["ours", "mse"] < figures["ekf_with_equations", "mse"] < figures["quadratic_regression_ekf", "mse"]
