"""`fwnkf list` shows the contents of the registries and configs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from fwnkf import cli
from fwnkf.registry import FILTERS, PARTS, SYSTEMS


def run_json(capsys, *words: str):
    assert cli.main(["list", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("kind", "registry"), [("filters", FILTERS), ("parts", PARTS), ("systems", SYSTEMS)])
def test_every_registered_name_is_listed_with_its_first_line(capsys, kind: str, registry):
    rows = {row["name"]: row["description"] for row in run_json(capsys, kind)}
    assert set(rows) >= {name for name in registry if registry[name].__module__.startswith("fwnkf.")}
    for name, line in rows.items():
        assert line.split()[0] in registry[name].__doc__.splitlines()[0].replace("`", "")
        assert "`" not in line


def test_levels_hypotheses_and_rotors_are_parts_of_one_filter(capsys):
    filters, parts = ({row["name"] for row in run_json(capsys, kind)} for kind in ("filters", "parts"))
    assert not {"fwnkf_adaptive", "fwnkf_hypotheses", "order_tracking"} & filters
    assert {"level", "hypotheses", "orders", "lines", "modes", "drift", "gru", "mlp", "locally_linear", "phi"} <= parts


def test_losses_and_experiments_are_listed(capsys):
    pytest.importorskip("yaml")
    losses = {row["name"]: row["description"] for row in run_json(capsys, "losses")}
    assert {"state", "spectral"} <= set(losses)
    assert all(losses.values())
    experiments = run_json(capsys, "experiments")
    assert not [row for row in experiments if row["description"].endswith((",", " the", " and", " FW-NKF"))]
    assert experiments
    assert all(row["description"] and not row["description"].startswith("#") for row in experiments)


def test_data_lists_simulated_recorded_and_own(capsys):
    assert {"lorenz", "pendulum", "euroc", "broad", "tables"} <= {row["name"] for row in run_json(capsys, "data")}


def test_shipped_filters_are_listed_with_their_figure(capsys):
    """As the results of each state it, and in one line each."""
    rows = {row["name"]: row for row in run_json(capsys, "models")}
    models = Path(__file__).parents[2] / "models"
    assert set(rows) == {path.parent.name for path in models.glob("*/config.json")}
    for name, row in rows.items():
        assert row["filter"] == json.loads((models / name / "config.json").read_text())["filter"]
        kept = json.loads((models / name / "results.json").read_text())
        mean = sum(seed["metrics"][kept["metric"]] for seed in kept["seeds"]) / len(kept["seeds"])
        assert float(row["figure"].split()[0]) == pytest.approx(mean, rel=0.05)
    assert cli.main(["list", "models"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(rows) + 1


@pytest.mark.parametrize("name", ["kf", "fwnkf", "rkn", "bayesian_kalmannet", "lines", "hypotheses"])
def test_options_are_the_fields_of_the_config(capsys, name: str):
    rows = {row["option"]: row for row in run_json(capsys, "options", name)}
    fields = {
        field.name: field for field in dataclasses.fields(PARTS[name] if name in list(PARTS) else FILTERS[name].Config)
    }
    assert list(rows) == list(fields)
    for key, field in fields.items():
        default = field.default if field.default is not dataclasses.MISSING else None
        assert rows[key]["required"] == (field.default is dataclasses.MISSING)
        assert rows[key]["default"] == (list(default) if isinstance(default, tuple) else default)
        if rows[key]["choices"]:
            assert default in rows[key]["choices"]


def test_options_as_text(capsys):
    assert cli.main(["list", "options", "fwnkf"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "part gru" in lines["encoder"]
    assert "parts drift, lines, modes, orders" in lines["noise"]
    assert "linear, second_order" in lines["moments"]
    assert lines["jump"].endswith("min 0")
    assert cli.main(["list", "options", "gru"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "previous, current" in lines["reads"]
    assert lines["units"].endswith("min 1")
    assert cli.main(["list", "options", "kf"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "required" in lines["state_dim"]


def test_everything_at_once(capsys):
    rows = run_json(capsys)
    assert list(rows) == ["filters", "parts", "systems", "losses", "experiments", "data", "logs", "models", "airframes"]
    assert cli.main(["list"]) == 0
    text = capsys.readouterr().out
    assert all(entry["name"] in text for kind in rows.values() for entry in kind)


def test_unknown_names_are_errors(capsys):
    assert cli.main(["list", "options", "rknn"]) == 1
    assert "rkn" in capsys.readouterr().err
    for words in (["options"], ["filters", "kf"]):
        assert cli.main(["list", *words]) == 2
    with pytest.raises(SystemExit) as usage:
        cli.main(["list", "everything"])
    assert usage.value.code == 2
