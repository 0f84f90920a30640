"""`fwnkf evaluate` and `fwnkf compare`: folders made by hand, figures against those of the library."""

from __future__ import annotations

import json
import math
import statistics

import pytest
import torch

import fwnkf
from fwnkf import cli
from fwnkf.data import protocols
from fwnkf.evaluation.evaluate import evaluate

from ..bench.run_folders import EXPERIMENT, make_run, row


@pytest.fixture(scope="module")
def made() -> protocols.Protocol:
    return protocols.simulated("lorenz", "strict", scenario="drift", train=4, val=2, test=6)


@pytest.fixture
def run_folder(tmp_path, made):
    pytest.importorskip("lightning")
    pytest.importorskip("yaml")
    system = made.split.test.system
    single = protocols.simulated("lorenz", "strict", scenario="drift", train=4, val=2, test=6, dtype=torch.float32)
    folder = make_run(
        tmp_path / "run", experiment=EXPERIMENT, test_digest=protocols.digest(single.split.test)
    )  # the experiment's data are float32
    fwnkf.save(fwnkf.build("fwnkf", system=system, hidden=0, shaping="none"), folder / "best")
    fwnkf.save(fwnkf.build("ukf", system=system), folder / "last")
    return folder


def told(capsys, *words: str) -> list[dict]:
    assert cli.main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("which", ["best", "last"])
def test_a_run_is_scored_on_its_own_data(run_folder, made, capsys, which: str):
    (found,) = told(capsys, "evaluate", str(run_folder), "--which", which)
    expected = evaluate(fwnkf.load(run_folder / which), made, "tiny", scenario="drift")
    assert (found["method"], found["scenario"], found["records"]) == ("tiny", "drift", 6)
    for name in ("mse", "nees", "nis", "coverage95"):
        assert found[name] == pytest.approx(expected[name], rel=1e-4), name  # the experiment's data are float32


def test_a_run_is_not_scored_on_data_that_have_changed(run_folder, capsys):
    record = json.loads((run_folder / "run.json").read_text())
    (run_folder / "run.json").write_text(json.dumps({**record, "test_digest": "0" * 64}))
    assert cli.main(["evaluate", str(run_folder)]) == 1
    assert "the data have changed since this run was trained" in capsys.readouterr().err


def test_references_stand_below_and_rows_are_stored(run_folder, tmp_path, capsys):
    place = tmp_path / "rows.json"
    rows = told(capsys, "evaluate", str(run_folder), "--references", "--store", str(place))
    assert [one["method"] for one in rows][:4] == ["tiny", "hold", "open_loop", "ekf"]
    assert json.loads(place.read_text()) == rows
    assert rows[0]["mse"] == pytest.approx(rows[3]["mse"], rel=1e-4)  # untrained, it is the EKF
    assert cli.main(["evaluate", str(run_folder)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("lorenz, strict, 6 records, seed 0")
    assert "tiny" in text


def test_other_data_on_request(run_folder, capsys, monkeypatch):
    small = protocols.simulated("lorenz", "strict", scenario="tone", train=1, val=1, test=5)
    asked = {}
    monkeypatch.setattr(protocols, "load", lambda *words, **options: asked.update(options, words=words) or small)
    (found,) = told(capsys, "evaluate", str(run_folder), "--data", "lorenz", "--scenario", "tone")
    assert asked == {"words": ("lorenz", "strict"), "seed": 0, "scenario": "tone"}
    assert (found["records"], found["scenario"]) == (5, "tone")
    (bare,) = told(capsys, "evaluate", str(run_folder / "best"), "--data", "lorenz", "--scenario", "tone")
    assert bare["method"] == "best"
    assert bare["mse"] == found["mse"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["{run}/nowhere"], 2, "is no folder"),
        (["{run}", "--protocol", "paper"], 2, "--protocol without --data"),
        (["{run}/best"], 2, "give --data"),
        (["{run}/best", "--data", "lorenz", "--which", "last"], 2, "--which is for run folders"),
        (["{run}", "--data", "lorenz", "--horizon", "5"], 2, "--horizon is for EuRoC"),
        (["{run}", "--data", "euroc", "--scenario", "drift"], 2, "--scenario is for simulated"),
        (["{run}/..", "--data", "lorenz"], 1, "config.json does not exist"),
    ],
)
def test_what_is_wrong_is_told_with_its_code(run_folder, capsys, words: list[str], code: int, said: str):
    assert cli.main(["evaluate", *(word.format(run=run_folder) for word in words)]) == code
    assert said in capsys.readouterr().err


def test_a_damaged_experiment_is_a_readable_failure(run_folder, capsys):
    text = json.loads((run_folder / "run.json").read_text())
    text["experiment"]["data"]["scenario"] = "loud"
    (run_folder / "run.json").write_text(json.dumps(text))
    assert cli.main(["evaluate", str(run_folder)]) == 1
    assert "scenario = 'loud'" in capsys.readouterr().err


def test_a_filter_that_fails_is_exit_code_1(run_folder, made, capsys):
    eye = math.nan * torch.eye(3)
    fwnkf.save(fwnkf.build("kf", F=eye, H=eye[:2], Q=eye, R=eye[:2, :2]), run_folder / "last")
    assert cli.main(["evaluate", str(run_folder), "--which", "last", "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (found["failures"], found["flagged_steps"]) == (6, 6 * made.split.test.y.shape[1])
    assert (found["mse"], found["nis"]) == ("inf", "inf")


# ---- compare --------------------------------------------------------------------------------------------------------


def test_compare_prints_mean_and_spread(tmp_path, capsys):
    errors = [0.5, 0.25, 0.75]
    folders = [
        make_run(tmp_path / f"{seed}", [row("tiny", seed, mse=mse), row("ekf", mse=2.0, nees=None)], seed=seed)
        for seed, mse in enumerate(errors)
    ]
    place = tmp_path / "out.json"
    rows = told(capsys, "compare", *map(str, folders), "--store", str(place))
    assert rows[0]["mse"] == statistics.mean(errors)
    assert rows[0]["mse_std"] == statistics.stdev(errors)
    assert json.loads(place.read_text()) == rows
    assert cli.main(["compare", *map(str, folders)]) == 0
    head, mine, ekf, again = capsys.readouterr().out.splitlines()
    for word in ("method", "data", "protocol", "scenario", "seeds", "mse ± std", "from step 10", "coverage95", "cpu s"):
        assert word in head
    assert again == "tiny again: fwnkf train tiny --seed 0 (and other seeds)"
    for word in ("tiny", "lorenz", "strict", "drift", "0, 1, 2", "0.5 ± 0.25", "11"):
        assert word in mine
    assert ekf.split() == ["ekf", "lorenz", "strict", "drift", "2", "0.5", "0.94"]


def test_compare_prints_no_escapes_of_others(tmp_path, capsys):
    make_run(tmp_path / "a", [row("ti\x1b[2Jny", 0)], command="fwnkf\x1b]0;x\x07 train\r\n", data_digest="\x1b[31m")
    make_run(tmp_path / "b", [row("other", 1)], seed=1, command="\x9b")
    assert cli.main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert all(line.isprintable() for line in capsys.readouterr().out.split("\n"))


def test_compare_marks_other_test_records(tmp_path, capsys):
    make_run(tmp_path / "a", [row("tiny", 0)], seed=0)
    make_run(tmp_path / "b", [row("tiny", 1)], seed=1, data_digest="f" * 64)
    assert cli.main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert "not judged on the same test records" in capsys.readouterr().out
