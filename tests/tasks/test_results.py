"""The schema of results and everything written from it, on a small task of the tests' own."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.errors import CheckpointError, DataError
from fwnkf.hub.index import INDEX
from tasks import __main__ as runner
from tasks import cards, results
from tasks.bootstrap import paired_ratio
from tasks.interface import Task, all_tasks, chosen, data_sets, parameters
from tasks.results import Results, Score, SeedScore, plus_minus, reached

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "models"


class Toy(Task):
    """A constant estimated by a filter; the baseline is its first measurement."""

    name, title, protocol, metric, label = "toy", "A toy", "strict", "rmse", "Toy; RMSE (m)"
    recording = "flight"

    def load(self, *, quick: bool = False) -> Any:
        return None

    def baselines(self, data, results):
        yield "hold", Score({"rmse": 2.0}, {"a": 2.0, "b": 2.0, "c": 2.0})

    def evaluate(self, model, data):
        return Score({"rmse": 1.0, "nees": math.nan})

    def compare(self, score, baselines):
        return {"ratio": score.metrics["rmse"] / baselines["hold"].metrics["rmse"]}

    def train(self, folder, *, seeds=(0, 1), say=print):
        return kept()

    def learned(self, model):
        return {}

    def about(self, results):
        return "About the toy."

    def limits(self, results):
        return "It is a toy."


def kept(**changes: Any) -> Results:
    values: dict[str, Any] = {
        "task": "toy", "protocol": "strict", "metric": "rmse", "records": 3, "learned": {"GRU": 1200, "constants": 2},
        "seeds": (
            SeedScore({"rmse": 1.0, "nees": math.nan}, {"a": 1.0, "b": 1.0, "c": 1.0}, 2.0, 0),
            SeedScore({"rmse": 1.2, "nees": math.inf}, {"a": 1.0, "b": 1.2, "c": 1.4}, 3.0, 1),
        ),
        "baselines": {"hold": Score({"rmse": 2.0}, {"a": 2.0, "b": 2.0, "c": 2.0})},
        "targets": {"rmse": 1.15, "nees": (0.9, 1.1)},
        "quick": {"rmse": 0.9},
        "details": {"tables": {"By axis": {"x": {"rmse": 1.0}, "y": {"rmse": 2.0}}}},
    }  # fmt: skip
    return Results(**{**values, **changes})


def test_results_survive_the_file(tmp_path):
    results.write(tmp_path, kept())
    json.loads((tmp_path / results.FILE).read_text(), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    again = results.read(tmp_path)
    assert again.seeds[1].metrics["nees"] == math.inf
    assert math.isnan(again.seeds[0].metrics["nees"])
    assert again.targets == kept().targets
    assert (again.baselines, again.quick, again.details, again.learned) == (
        kept().baselines, kept().quick, kept().details, kept().learned
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format 2"),
        ({"seeds": [{"seed": 0}]}, "does not have the form"),
        ({"targets": 3}, "does not have the form"),
        ("not JSON", "cannot be read"),
    ],
)
def test_other_files_are_refused(tmp_path, change, message):
    path = results.write(tmp_path, kept())
    path.write_text(change if isinstance(change, str) else json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(CheckpointError, match=message):
        results.read(tmp_path)


def test_mean_and_spread_are_those_of_numpy():
    values = [1.0, 1.2]
    assert kept().mean("rmse") == pytest.approx(np.mean(values))
    assert kept().std("rmse") == pytest.approx(np.std(values, ddof=1))
    assert not math.isfinite(kept().mean("nees"))
    assert plus_minus(1.1, 0.14142) == "1.10 ± 0.14"


def test_targets_are_limits_or_bands():
    assert reached(0.9, (0.9, 1.1))
    assert not reached(math.nan, (0.9, 1.1))
    assert not reached(math.nan, 1.0)
    assert reached(1.0, 0.9, "higher")


def test_the_bootstrap_covers_a_known_ratio():
    """Of intervals at 90 % from 40 recordings each, about nine in ten hold the ratio of the expectations."""
    rng = np.random.default_rng(0)
    inside = 0
    for trial in range(200):
        theirs = rng.gamma(4.0, 1.0, 40)
        ours = 0.8 * theirs * rng.lognormal(-0.02, 0.2, 40)
        names = [str(i) for i in range(40)]
        interval = paired_ratio(
            dict(zip(names, ours, strict=True)), dict(zip(names, theirs, strict=True)), level=0.9, draws=400, seed=trial
        )
        inside += interval.low <= 0.8 <= interval.high
    assert 165 <= inside <= 195


def test_a_card_holds_every_figure_and_says_what_was_learned():
    text = cards.card(Toy(), kept())
    for part in (
        "# A toy", "About the toy.", "It is a toy.", "GRU 1,200, constants 2", "1.10 ± 0.14", "| hold | 2 |",
        "1 of 2 targets reached", "| flight | ours | hold |", "0.55 [", "By axis:", "python -m tasks run toy",
        "## Reproduce",
    ):  # fmt: skip
        assert part in text, part


def test_the_table_names_the_best_baseline_and_links_the_card():
    row = cards.accuracy_table([Toy()], {"toy": kept()}, ROOT / "models", ROOT / "docs").splitlines()[-1]
    assert "(../models/toy/README.md)" in row
    assert "hold 2 |" in row
    assert "**1.10 ± 0.14**" in row


def test_a_page_without_marks_is_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing")
    with pytest.raises(DataError, match="once each"):
        cards.insert(page, "table")
    page.write_text(f"before\n{cards.BEGIN}\nold\n{cards.END}\nafter")
    cards.insert(page, "new")
    assert page.read_text() == f"before\n{cards.BEGIN}\n\nnew\n\n{cards.END}\nafter"


class Plain(Toy):
    """A task that says how one filter is fitted, and leaves seeds and figures to the interface; it has no target."""

    train = Task.train

    def load(self, *, quick=False):
        return torch.arange(6.0).view(2, 3, 1)[: 1 if quick else 2]

    def fit(self, seed, say):
        return fwnkf.KF(F=torch.eye(1), H=torch.eye(1), Q=torch.eye(1), R=(1.0 + seed) * torch.eye(1))

    def evaluate(self, model, data):
        errors = model.run(data).innovation.squeeze(-1)
        return results.rmse({"a": errors[0], "b": errors[-1]})


def test_a_task_that_fits_one_filter_is_trained_for_every_seed(tmp_path):
    task = Plain()
    trained = task.train(tmp_path, seeds=(3, 1), say=lambda _: None)
    assert fwnkf.load(tmp_path).system.measurement_covariance().item() == pytest.approx(4.0)
    for seed in trained.seeds:
        innovation = task.fit(seed.seed, print).run(task.load()).innovation.numpy()
        assert seed.metrics["rmse"] == pytest.approx(np.sqrt(np.mean(innovation**2)))
        assert seed.metrics["ratio"] == seed.metrics["rmse"] / 2
        assert seed.by_recording["b"] == pytest.approx(np.sqrt(np.mean(innovation[1] ** 2)))
    assert trained.quick["rmse"] == pytest.approx(trained.seeds[0].by_recording["a"])
    assert trained.records == 2
    assert "target" not in cards.card(task, trained)


def test_rows_of_a_run(tmp_path, monkeypatch):
    """Baselines first, then ours with mean, spread and verdict; what needs the baselines is added."""
    results.write(tmp_path / "toy", kept())
    fwnkf.save(fwnkf.build("kf", state_dim=1, observation_dim=1), tmp_path / "toy")
    rows = runner.measure(Toy(), tmp_path)
    assert [(row["method"], row["metric"]) for row in rows] == [
        ("hold", "rmse"), ("ours", "rmse"), ("ours", "nees"), ("ours", "ratio")
    ]  # fmt: skip
    assert rows[1]["reached"] is True
    assert rows[1]["mean"] == pytest.approx(1.1)
    assert rows[2]["reached"] is False
    assert rows[3]["value"] == 0.5


def test_parameters_are_counted_by_kind():
    model = fwnkf.build("kf", state_dim=2, observation_dim=1, learn=("Q",))
    assert parameters(model, {"system.Q": "constants"}) == {"constants": 2 + 1}
    assert parameters(model, {}) == {}


# ---- what is shipped ------------------------------------------------------------------------------------------------


def test_tasks_are_chosen_by_their_name_or_their_data_set():
    known = all_tasks()
    assert {path.parent.name for path in MODELS.glob("*/config.json")} == set(known)
    for name, package in data_sets().items():
        assert [task.name for task in chosen([name])] == [task.name for task in package.TASKS]
    with pytest.raises(fwnkf.errors.ConfigError, match="no task is called nothing"):
        chosen(["nothing"])


@pytest.mark.parametrize("name", sorted(path.parent.name for path in MODELS.glob("*/config.json")))
def test_cards_are_what_the_command_writes(name):
    task, folder = all_tasks()[name], MODELS / name
    shipped = results.read(folder)
    assert shipped.metric == task.metric
    assert shipped.learned == task.learned(fwnkf.load(folder)), "the filter has changed: python -m tasks train"
    assert cards.card(task, shipped) == (folder / "README.md").read_text(encoding="utf-8"), "python -m tasks card"


def test_the_index_holds_what_the_command_writes():
    assert cards.index(list(all_tasks().values()), MODELS) == INDEX.read_text(encoding="utf-8"), "python -m tasks card"


def test_a_card_has_the_metadata_of_a_hub():
    """As huggingface_hub reads it, whose parser of cards is not ours."""
    repocard = pytest.importorskip("huggingface_hub.repocard")
    data = repocard.ModelCard(cards.card(Toy(), kept())).data
    assert (data.library_name, data.license, data.pipeline_tag, data.datasets) == ("fwnkf", "mit", None, None)
    (result,) = data.eval_results
    assert (result.metric_type, result.metric_name) == (Toy.metric, Toy.label)
    assert result.metric_value == pytest.approx(kept().mean(Toy.metric))
    recorded = repocard.ModelCard((MODELS / "broad" / "README.md").read_text(encoding="utf-8")).data
    assert recorded.datasets == ["broad"]
    assert recorded.model_name == "broad"


def test_the_page_holds_what_the_command_writes():
    known = all_tasks()
    shipped = {name: results.read(MODELS / name) for name in known}
    page = ROOT / "docs" / "results" / "accuracy.md"
    table = cards.accuracy_table(list(known.values()), shipped, MODELS, page.parent)
    assert table in page.read_text(encoding="utf-8"), f"{page.name} has changed: python -m tasks accuracy"
