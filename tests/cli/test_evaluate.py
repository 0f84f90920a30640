"""`fwnkf evaluate` and `fwnkf compare` on prepared run folders, against the functions of the library."""

from __future__ import annotations

import json
import math
import statistics

import pytest
import torch

import fwnkf
from fwnkf import cli
from fwnkf.data import protocols
from fwnkf.evaluation.evaluate import evaluate, inputs_for

from ..evaluation.run_folders import EXPERIMENT, make_run, row


@pytest.fixture(scope="module")
def protocol() -> protocols.Protocol:
    return protocols.simulated("lorenz", "strict", scenario="drift", train=4, val=2, test=6)


@pytest.fixture
def run_folder(tmp_path, protocol):
    pytest.importorskip("lightning")
    pytest.importorskip("yaml")
    system = protocol.split.test.system
    single = protocols.simulated("lorenz", "strict", scenario="drift", train=4, val=2, test=6, dtype=torch.float32)
    folder = make_run(
        tmp_path / "run", experiment=EXPERIMENT, test_digest=protocols.digest(single.split.test)
    )  # the experiment's data are float32
    fwnkf.save(fwnkf.FWNKF(system), folder / "best")
    fwnkf.save(fwnkf.build("ukf", system=system), folder / "last")
    return folder


def run_json(capsys, *words: str) -> list[dict]:
    assert cli.main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("which", ["best", "last"])
def test_a_run_is_scored_on_its_own_data(run_folder, protocol, capsys, which: str):
    (scores,) = run_json(capsys, "evaluate", str(run_folder), "--which", which)
    expected = evaluate(fwnkf.load(run_folder / which), protocol, "tiny", scenario="drift")
    assert (scores["method"], scores["scenario"], scores["records"]) == ("tiny", "drift", 6)
    for name in ("mse", "nees", "nis", "coverage95"):
        assert scores[name] == pytest.approx(expected[name], rel=1e-4), name  # the experiment's data are float32


def test_smoothed_estimates_are_a_row_of_their_own(run_folder, protocol, capsys):
    filtered, smoothed = run_json(capsys, "evaluate", str(run_folder), "--smooth")
    model = fwnkf.load(run_folder / "best")
    records = protocol.split.test
    track = model.run(**inputs_for(model, records), smoothing=True)
    error = fwnkf.smooth(model, track).mean - records.truth.to(model.dtype)
    assert smoothed["method"] == "tiny, smoothed"
    assert smoothed["mse"] == pytest.approx(float(error.square().mean()), rel=1e-4)
    assert smoothed["mse"] < filtered["mse"]
    assert smoothed["nis"] == filtered["nis"]


def test_a_run_is_not_scored_on_data_that_have_changed(run_folder, capsys):
    record = json.loads((run_folder / "run.json").read_text())
    (run_folder / "run.json").write_text(json.dumps({**record, "test_digest": "0" * 64}))
    assert cli.main(["evaluate", str(run_folder)]) == 1
    assert "the data have changed since this run was trained" in capsys.readouterr().err


def test_baselines_are_added_and_rows_are_stored(run_folder, tmp_path, capsys):
    path = tmp_path / "rows.json"
    rows = run_json(capsys, "evaluate", str(run_folder), "--references", "--store", str(path))
    assert [score["method"] for score in rows][:4] == ["tiny", "hold", "open_loop", "ekf"]
    assert json.loads(path.read_text()) == rows
    assert rows[0]["mse"] == pytest.approx(rows[3]["mse"], rel=1e-4)  # untrained, it is the EKF
    assert cli.main(["evaluate", str(run_folder)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("lorenz, strict, 6 records, seed 0")
    assert "tiny" in text


def test_other_data_can_be_selected(run_folder, capsys, monkeypatch):
    small = protocols.simulated("lorenz", "strict", scenario="tone", train=1, val=1, test=5)
    loaded = {}
    monkeypatch.setattr(protocols, "load", lambda *words, **options: loaded.update(options, words=words) or small)
    (scores,) = run_json(capsys, "evaluate", str(run_folder), "--data", "lorenz", "--scenario", "tone")
    assert loaded == {"words": ("lorenz", "strict"), "seed": 0, "scenario": "tone"}
    assert (scores["records"], scores["scenario"]) == (5, "tone")
    (saved,) = run_json(capsys, "evaluate", str(run_folder / "best"), "--data", "lorenz", "--scenario", "tone")
    assert saved["method"] == "best"
    assert saved["mse"] == scores["mse"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["{run}/nowhere"], 2, "is not a folder"),
        (["{run}", "--protocol", "paper"], 2, "--protocol needs --data"),
        (["{run}/best"], 2, "select records with --data"),
        (["{run}/best", "--data", "lorenz", "--which", "last"], 2, "--which applies to run folders only"),
        (["{run}/..", "--data", "lorenz"], 1, "config.json does not exist"),
    ],
)
def test_errors_have_a_message_and_an_exit_code(run_folder, capsys, words: list[str], code: int, message: str):
    assert cli.main(["evaluate", *(word.format(run=run_folder) for word in words)]) == code
    assert message in capsys.readouterr().err


def test_an_invalid_experiment_is_reported(run_folder, capsys):
    text = json.loads((run_folder / "run.json").read_text())
    text["experiment"]["data"]["scenario"] = "loud"
    (run_folder / "run.json").write_text(json.dumps(text))
    assert cli.main(["evaluate", str(run_folder)]) == 1
    assert "scenario = 'loud'" in capsys.readouterr().err


def test_a_failed_filter_gives_exit_code_1(run_folder, protocol, capsys):
    eye = math.nan * torch.eye(3)
    fwnkf.save(fwnkf.build("kf", F=eye, H=eye[:2], Q=eye, R=eye[:2, :2]), run_folder / "last")
    assert cli.main(["evaluate", str(run_folder), "--which", "last", "--json"]) == 1
    (scores,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (scores["failures"], scores["flagged_steps"]) == (6, 6 * protocol.split.test.y.shape[1])
    assert (scores["mse"], scores["nis"]) == ("inf", "inf")


# ---- compare --------------------------------------------------------------------------------------------------------


def test_compare_prints_mean_and_spread(tmp_path, capsys):
    errors = [0.5, 0.25, 0.75]
    folders = [
        make_run(tmp_path / f"{seed}", [row("tiny", seed, mse=mse), row("ekf", mse=2.0, nees=None)], seed=seed)
        for seed, mse in enumerate(errors)
    ]
    path = tmp_path / "out.json"
    rows = run_json(capsys, "compare", *map(str, folders), "--store", str(path))
    assert rows[0]["mse"] == statistics.mean(errors)
    assert rows[0]["mse_std"] == statistics.stdev(errors)
    assert json.loads(path.read_text()) == rows
    assert cli.main(["compare", *map(str, folders)]) == 0
    head, tiny, ekf, reproduce = capsys.readouterr().out.splitlines()
    for word in ("method", "data", "protocol", "scenario", "seeds", "mse ± std", "from step 10", "coverage95", "cpu s"):
        assert word in head
    assert reproduce == "reproduce tiny: fwnkf train tiny --seed 0 (and other seeds)"
    for word in ("tiny", "lorenz", "strict", "drift", "0, 1, 2", "0.5 ± 0.25", "11"):
        assert word in tiny
    assert ekf.split() == ["ekf", "lorenz", "strict", "drift", "2", "0.5", "0.94"]


def test_compare_removes_control_characters(tmp_path, capsys):
    make_run(tmp_path / "a", [row("ti\x1b[2Jny", 0)], command="fwnkf\x1b]0;x\x07 train\r\n", data_digest="\x1b[31m")
    make_run(tmp_path / "b", [row("other", 1)], seed=1, command="\x9b")
    assert cli.main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert all(line.isprintable() for line in capsys.readouterr().out.split("\n"))


def test_compare_marks_different_test_records(tmp_path, capsys):
    make_run(tmp_path / "a", [row("tiny", 0)], seed=0)
    make_run(tmp_path / "b", [row("tiny", 1)], seed=1, data_digest="f" * 64)
    assert cli.main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert "not judged on the same test records" in capsys.readouterr().out
