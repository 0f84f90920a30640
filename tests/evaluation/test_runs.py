"""Run folders: strict reading, and means and spreads against the statistics module."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fwnkf.errors import CheckpointError, ConfigError, DataError, FwnkfError
from fwnkf.evaluation import runs
from fwnkf.plain import number, plain

from .run_folders import EXPERIMENT, description, make_run, row


def test_a_run_is_read_as_it_was_written(tmp_path):
    rows = [row("tiny-3", mse=0.25), row("ekf", nees=math.nan)]
    folder = make_run(tmp_path / "a", rows, seed=3)
    found = runs.read_run(folder)
    for name, value in description(3).items():
        if name != "format":
            assert getattr(found, name) == value, name
    assert found.rows[0] == rows[0]
    assert math.isnan(found.rows[1]["nees"])
    assert found.model_folder("last") == folder / "last"
    assert runs.read_run(make_run(tmp_path / "b", status="running")).rows == ()


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"format": 2}, "format 2, this version reads 1"),
        ({"format": True}, "format True"),
        ({"seed": "0"}, "seed = '0'"),
        ({"seed": True}, "seed = True"),
        ({"seed": -1}, "seed = -1 is no amount"),
        ({"status": "great"}, "status = 'great'"),
        ({"experiment": [1]}, "experiment = "),
        ({"commit": 7}, "commit = 7"),
        ({"cpu_seconds": "fast"}, "cpu_seconds = 'fast'"),
        ({"cpu_seconds": math.nan}, "cpu_seconds = nan is no amount"),
        ({"cpu_seconds": math.inf}, "cpu_seconds = inf is no amount"),
        ({"steps": 10**400}, "steps = 1000"),
        ({"data_digest": None}, "data_digest = None"),
        ({"test_digest": 3}, "test_digest = 3"),
    ],
)
def test_a_description_that_is_off_says_where(tmp_path, changed: dict[str, Any], complaint: str):
    (tmp_path / "run.json").write_text(json.dumps({**description(), **changed}))
    with pytest.raises(CheckpointError) as error:
        runs.read_run(tmp_path)
    assert complaint in str(error.value)
    assert "run.json" in str(error.value)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("name", [name for name in description() if name != "format"])
def test_every_field_is_needed(tmp_path, name: str):
    folder = tmp_path
    text = {key: value for key, value in description().items() if key != name}
    (folder / "run.json").write_text(json.dumps(text))
    with pytest.raises(CheckpointError, match=f"{name} is missing"):
        runs.read_run(folder)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{}", "list of at most"),
        ("[3]", "row 0: wanted names"),
        ('[{"mse": 1}]', "row 0: wanted names"),
        ('[{"method": "a", "mse": {"deep": 1}}]', "row 0: 'mse'"),
        ('[{"method": "a", "mse": [[1]]}]', "row 0: 'mse'"),
        ('[{"method": "a", "data": 3}]', "row 0: data = 3"),
        ('[{"method": "a", "mse": 1' + "0" * 50 + "}]", "row 0: 'mse'"),
        ('[{"method": "a", "mse": 1' + "0" * 5000 + "}]", "not JSON"),
        ('[{"method": "a"', "not JSON"),
        ("[" * 200_000, "not JSON"),
        ('[{"method": "a"}' + ',{"method": "a"}' * 10_000 + "]", "10,000 rows"),
        (" " * (runs.ROWS_LIMIT + 1), "larger than"),
        ("\udcff", "not JSON"),
    ],
)
def test_rows_that_are_off_say_where(tmp_path, text: str, complaint: str):
    folder = make_run(tmp_path / "a")
    (folder / "rows.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError) as error:
        runs.read_run(folder)
    assert complaint in str(error.value)
    assert "rows.json" in str(error.value)
    assert len(str(error.value)) < 500


def test_a_folder_without_a_run_and_a_huge_description_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist"):
        runs.read_run(tmp_path)
    (tmp_path / "run.json").write_text(" " * (runs.RUN_LIMIT + 1))
    with pytest.raises(DataError, match="larger than"):
        runs.read_run(tmp_path)


def test_damaged_bytes_never_escape_as_anything_else(tmp_path, rng):
    """Whatever a file holds, it is read or refused by name."""
    folder = make_run(tmp_path / "a", [row("tiny"), row("ekf")])
    whole = {name: (folder / name).read_bytes() for name in ("run.json", "rows.json")}
    refused = 0
    for _ in range(400):
        for name, data in whole.items():
            damaged = np.frombuffer(data, np.uint8).copy()
            damaged[rng.integers(0, len(damaged))] = rng.choice(np.frombuffer(b'0-9.e"{[ x\xff', np.uint8))
            (folder / name).write_bytes(damaged.tobytes()[: rng.integers(1, 20 * len(damaged))])
        try:
            runs.compare([folder])
        except FwnkfError:
            refused += 1
    assert 40 < refused < 360


@pytest.mark.parametrize("depth", [100, 900, 100_000])
def test_deep_experiments_are_compared_or_refused(tmp_path, depth: int):
    folder = make_run(tmp_path / "a", [row("tiny")])
    text = json.dumps(description()).replace('"name": "fwnkf"', '"name": ' + "[" * depth + "]" * depth)
    (folder / "run.json").write_text(text)
    if depth < 1000:
        assert len(runs.compare([folder])) == 1
    else:
        with pytest.raises(DataError, match=r"run\.json is not JSON"):
            runs.compare([folder])


# ---- side by side ---------------------------------------------------------------------------------------------------


def three_seeds(tmp_path: Path) -> tuple[list[Path], list[float]]:
    errors = [0.31, 0.28, 0.47]
    ladder = [row("hold", mse=9.0), row("ekf", mse=0.6)]
    return [
        make_run(tmp_path / f"r{seed}", [row(f"tiny-{seed}", seed, mse=mse, nees=mse + 1), *ladder], seed=seed)
        for seed, mse in enumerate(errors)
    ], errors


def test_seeds_of_one_experiment_are_one_row(tmp_path):
    folders, errors = three_seeds(tmp_path)
    rows = runs.compare(folders)
    assert [one["method"] for one in rows] == ["tiny-0, tiny-1, tiny-2", "hold", "ekf"]
    mine = rows[0]
    assert mine["mse"] == pytest.approx(statistics.mean(errors), rel=1e-14)
    assert mine["mse_std"] == pytest.approx(statistics.stdev(errors), rel=1e-14)
    assert mine["mse_std"] == pytest.approx(np.std(errors, ddof=1), rel=1e-12)
    assert mine["nees"] == pytest.approx(statistics.mean(errors) + 1)
    assert mine["nees_std"] == pytest.approx(statistics.stdev(errors))
    assert (mine["cpu_seconds"], mine["cpu_seconds_std"]) == (11.0, 1.0)
    assert (mine["seeds"], mine["runs"], mine["records"]) == ([0, 1, 2], 3, 6)
    assert mine["command"] == "fwnkf train tiny --seed 0"
    assert mine["commands"][2] == "fwnkf train tiny --seed 2"
    assert "note" not in mine
    assert "seed" not in mine
    assert rows[2]["mse"] == 0.6


def test_another_option_is_another_row_and_another_scenario_another_table(tmp_path):
    folders, _ = three_seeds(tmp_path)
    wider = {**EXPERIMENT, "filter": {"name": "fwnkf", "options": {"encoder": {"units": 8}}}}
    folders.append(make_run(tmp_path / "wide", [row("wide", 0, mse=0.2), row("hold", mse=9.0)], experiment=wider))
    drift = {**EXPERIMENT, "data": {**EXPERIMENT["data"], "scenario": "tone"}}
    other = [row("tone", 0, scenario="tone"), row("hold", mse=8.0, scenario="tone")]
    folders.insert(1, make_run(tmp_path / "tone", other, experiment=drift, data_digest="other"))
    rows = runs.compare(folders)
    shown = [(one["method"], one["scenario"], one["runs"]) for one in rows]
    assert shown == [
        ("tiny-0, tiny-1, tiny-2", "drift", 3),
        ("wide", "drift", 1),
        ("hold", "drift", None),
        ("ekf", "drift", None),
        ("tone", "tone", 1),
        ("hold", "tone", None),
    ]
    assert rows[1]["mse_std"] is None
    assert not any("note" in one for one in rows)  # the digest differs, but so does the table


def test_other_test_records_are_never_silent(tmp_path):
    folders, _ = three_seeds(tmp_path)
    folders.append(make_run(tmp_path / "r9", [row("tiny-9", 9, mse=0.1)], seed=9, data_digest="feedbeef" * 8))
    rows = runs.compare(folders)
    assert all("not judged on the same test records" in one["note"] for one in rows)
    assert "abc123, feedbeeffeed" in rows[0]["note"]
    assert rows[1]["note"].endswith("abc123")


def test_other_training_records_are_no_matter(tmp_path):
    """Strict sets of two seeds differ in what was trained on, and share what they are judged on."""
    for seed in (0, 1):
        make_run(tmp_path / str(seed), [row("tiny", seed)], seed=seed, data_digest=f"all {seed}", test_digest="same")
    (mine,) = runs.compare([tmp_path / "0", tmp_path / "1"])
    assert mine["digests"] == ["same"]
    assert "note" not in mine


def test_what_spoils_a_spread_is_noted(tmp_path):
    make_run(tmp_path / "a", [row("tiny", 0)], seed=0)
    make_run(tmp_path / "b", [row("tiny", 0)], seed=0)
    make_run(tmp_path / "c", [row("tiny", 1, records=7)], seed=1, status="stopped")
    (mine,) = runs.compare([tmp_path / "a", tmp_path / "b", tmp_path / "c", tmp_path / "." / "a"])
    assert mine["runs"] == 3  # the folder that was named twice counts once
    for words in ("seed 0 more than once", "records differ: 6, 6, 7", "seed 1: stopped"):
        assert words in mine["note"]


def test_failures_are_not_averaged_away(tmp_path):
    make_run(tmp_path / "a", [row("tiny", 0, mse="inf", nees=None, nis=1.0)], seed=0)
    make_run(tmp_path / "b", [row("tiny", 1, mse=1.0, nees=1.0)], seed=1)
    make_run(tmp_path / "c", [row("tiny", 2, mse=-math.inf, nees=1.0)], seed=2)
    (mine,) = runs.compare([tmp_path / "a", tmp_path / "b"])
    assert mine["mse"] == math.inf
    assert mine["mse_std"] is None
    assert (mine["nees"], mine["nis"]) == (None, None)
    (mine,) = runs.compare([tmp_path / "a", tmp_path / "c"])
    assert math.isnan(mine["mse"])


def test_a_run_without_rows_says_what_to_do(tmp_path):
    with pytest.raises(DataError, match=r"status: running.*fwnkf evaluate"):
        runs.compare([make_run(tmp_path / "a", status="running")])
    with pytest.raises(ConfigError, match="at least one"):
        runs.compare([])


def test_plain_values_survive_strict_json():
    value = {"a": [1.5, math.inf, -math.inf], "b": math.nan, "c": (True, None, "word"), 3: 1}
    text = json.dumps(plain(value), allow_nan=False)
    assert json.loads(text) == {"a": [1.5, "inf", "-inf"], "b": None, "c": [True, None, "word"], "3": 1}
    assert [number(item) for item in json.loads(text)["a"]] == value["a"]
