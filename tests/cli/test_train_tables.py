"""Training on tables from the command line: survey, training and error messages."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fwnkf.cli import main

pytest.importorskip("lightning")


@pytest.fixture
def folder(tmp_path):
    """Three short flights of a point that moves with nearly constant velocity, seen by a noisy GPS with gaps."""
    rng = np.random.default_rng(0)
    path = tmp_path / "my flights"
    path.mkdir()
    for number in range(3):
        velocity = np.cumsum(0.1 * rng.standard_normal((120, 2)), 0)
        position = np.cumsum(0.1 * velocity, 0)
        gps = position + 0.3 * rng.standard_normal((120, 2))
        gps[rng.random(120) < 0.1] = np.nan
        table = np.column_stack((np.arange(120) * 0.1, position, velocity, gps))
        head = "t [s],px [m],py [m],vx [m/s],vy [m/s],gps_x [m],gps_y [m]"
        np.savetxt(path / f"flight{number}.csv", table, delimiter=",", header=head, comments="")
    return path


def arguments(folder, run, *more: str) -> list[str]:
    small = [
        "trainer.steps=4",
        "trainer.validate_every=2",
        "trainer.compile=false",
        "filter.options.encoder.units=4",
        "data.window=30",
        "trainer.loggers=[]",
    ]
    sets = [word for item in small for word in ("--set", item)]
    columns = ["--state", "px,py,vx,vy", "--observe", "gps_x,gps_y", "--time", "t"]
    return ["train", "--data", str(folder), *columns, "--run", str(run), "--no-plots", *sets, *more]


def test_a_folder_of_tables_trains_without_code(folder, tmp_path, capsys):
    assert main([*arguments(folder, tmp_path / "run"), "--json"]) == 0
    out, err = capsys.readouterr()
    # the survey is printed before training starts
    report, trained = err.index("units: time in s (header)"), err.index("step 2/4")
    assert report < trained
    for text in ("10 Hz", "gps_x m", "vx m/s", "gps_x: ", "values are missing", "split by file"):
        assert text in err[:trained], text
    answer = json.loads(out)
    assert [row["method"] for row in answer["rows"]] == ["my_flights", "hold", "mean", "linear_kf"]
    assert answer["rows"][0]["failures"] == 0
    assert answer["record"]["status"] == "done"
    assert json.loads((tmp_path / "run" / "rows.json").read_text()) == answer["rows"]


def test_an_experiment_file_is_used_with_own_data(folder, tmp_path, capsys):
    own = tmp_path / "mine.yaml"
    own.write_text("name: mine\ndata: {name: lorenz}\nloss: [{kind: state, weight: 2.5}]\n")
    call = arguments(folder, tmp_path / "run")
    assert main([call[0], str(own), *call[1:], "--no-references"]) == 0
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["name"] == "mine"
    assert record["experiment"]["loss"] == [{"kind": "state", "weight": 2.5}]
    assert record["experiment"]["data"]["name"] == "tables"
    assert record["command"].startswith("fwnkf train ")


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (lambda w: [*w[:3], *w[5:]], 2, r"--data needs --state. Columns of flight0.csv: t"),
        (lambda w: [item.replace("gps_x,", "gps_z,") for item in w], 1, "gps_z"),
        (lambda w: [w[0], "lorenz", *w[1:]], 2, "--data cannot be combined with the shipped experiment 'lorenz'"),
        (lambda w: ["train", w[2]], 1, "To train on your own tables: fwnkf train --data"),
        (lambda w: ["train", "--state", "px"], 2, "--state needs --data"),
        (lambda w: ["train"], 2, "nothing to train"),
        (lambda w: [*w[:2], "/nowhere/at/all", *w[3:]], 1, "/nowhere/at/all"),
    ],
)
def test_usage_errors_have_a_message_and_an_exit_code(folder, tmp_path, capsys, change, code, message):
    assert main(change(arguments(folder, tmp_path / "run"))) == code
    errors = capsys.readouterr().err
    assert message in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "run").exists()


def test_states_with_angles_can_be_trained(tmp_path, capsys):
    rng = np.random.default_rng(1)
    angle = np.cumsum(0.1 + 0.02 * rng.standard_normal(300))
    wrapped = np.angle(np.exp(1j * angle))
    table = np.column_stack((np.arange(300), wrapped, np.cos(angle), np.sin(angle) + 0.05 * rng.standard_normal(300)))
    np.savetxt(tmp_path / "turn.csv", table, delimiter=",", header="t,phase,c,s", comments="")
    call = ["train", "--data", str(tmp_path / "turn.csv"), "--state", "phase", "--angles", "phase", "--observe", "c,s"]
    small = ["trainer.steps=2", "trainer.validate_every=2", "data.window=30", "filter.options.encoder.units=4"]
    sets = [*small, "trainer.compile=false", "trainer.loggers=[]"]
    more = [word for item in sets for word in ("--set", item)]
    assert main([*call, "--time", "t", "--run", str(tmp_path / "run"), "--no-plots", *more]) == 0


def write_toned_files(path, files: int, rows: int) -> None:
    """A point with random-walk acceleration at 100 Hz, whose position sensor sees a tone of 17 Hz and white noise."""
    rng = np.random.default_rng(0)
    path.mkdir()
    for number in range(files):
        acceleration = np.cumsum(0.02 * rng.standard_normal((rows, 2)), 0)
        velocity = np.cumsum(0.01 * acceleration, 0)
        position = np.cumsum(0.01 * velocity, 0)
        time = 0.01 * np.arange(rows)
        tone = 0.3 * np.sin(2 * np.pi * 17 * time[:, None] + rng.uniform(0, 2 * np.pi, 2))
        gps = position + tone + 0.05 * rng.standard_normal((rows, 2))
        table = np.column_stack((time, position, velocity, gps))
        head = "t [s],px [m],py [m],vx [m/s],vy [m/s],gps_x [m],gps_y [m]"
        np.savetxt(path / f"run{number}.csv", table, delimiter=",", header=head, comments="")


@pytest.mark.parametrize(
    ("files", "rows", "share", "sets"),
    [
        (
            3,
            1000,
            0.8,
            ["trainer.steps=2", "trainer.validate_every=2", "trainer.compile=false", "filter.options.encoder.units=4"],
        ),
        pytest.param(6, 4000, 0.5, [], marks=pytest.mark.slow),
    ],
)
def test_a_tone_in_own_files_is_found_and_removed_by_the_default(tmp_path, capsys, files, rows, share, sets):
    write_toned_files(tmp_path / "files", files, rows)
    changes = [word for item in ("trainer.loggers=[]", *sets) for word in ("--set", item)]
    columns = ["--state", "px,py,vx,vy", "--observe", "gps_x,gps_y", "--time", "t"]
    run = tmp_path / "run"
    command = ["train", "--data", str(tmp_path / "files"), *columns, "--run", str(run), "--no-plots", *changes]
    assert main([*command, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    rows_by_method = {row["method"]: row for row in result["rows"]}
    assert rows_by_method["files"]["mse_from_10"] < share * rows_by_method["linear_kf"]["mse_from_10"]
    assert main(["inspect", str(run), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    channels = facts["frequencies"]["channels"]
    assert [channel["channel"] for channel in channels] == ["gps_x", "gps_y"]
    for channel in channels:
        (tone,) = channel["oscillators"]
        assert tone["hz"] == pytest.approx(17, rel=0.01)
        assert tone["radius"] > 0.99
        assert tone["std"] == pytest.approx(0.3 / 2**0.5, rel=0.1)
        assert channel["white_std"] == pytest.approx(0.05, rel=0.1)


def test_a_training_that_does_not_help_says_so_and_its_columns_are_known(folder, tmp_path, capsys):
    """With steps that are much too large, none is better than the filter before training."""
    words = arguments(folder, tmp_path / "run", "--set", "optimizer.learning_rate=3", "--no-references")
    place = words.index("--time")
    words[place : place + 2] = []  # found by its name
    words[words.index("gps_x,gps_y")] = "east=gps_x*0.01,gps_y"
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "(step 0 of 4" in printed
    assert "training did not help: on the validation records the filter" in printed
    assert "what was tried, on the validation records" in printed
    words = ["--filter", str(tmp_path / "run" / "best"), "-o", str(tmp_path / "out.csv")]
    assert main(["run", str(folder / "flight0.csv"), *words]) == 0
    assert (tmp_path / "out.csv").read_text(encoding="utf-8").startswith("time,stamp_ns,px,py,vx,vy,px_std")
    assert main(["evaluate", str(tmp_path / "run" / "best"), "--data", str(folder), "--json"]) == 0
    out = capsys.readouterr().out
    (row,) = json.loads(out[out.index("[\n") :])
    assert row["records"] == 3
    assert row["mse"] > 0
