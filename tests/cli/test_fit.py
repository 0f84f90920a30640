"""``fwnkf fit`` on tables without true states."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fwnkf
from fwnkf.cli.main import main

RATE = 50.0
STEPS = 500


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory):
    """Six files of a random walk at 50 Hz, process density 4, white noise of standard deviation 0.5."""
    place = tmp_path_factory.mktemp("tables")
    generator = np.random.default_rng(0)
    for number in range(6):
        steps = STEPS - 20 * number
        walk = np.cumsum(generator.standard_normal(steps)) * np.sqrt(4 / RATE)
        y = walk + 0.5 * generator.standard_normal(steps)
        rows = [f"{t / RATE:.3f},{value:.6f}" for t, value in enumerate(y)]
        (place / f"log{number}.csv").write_text("\n".join(["t,height", *rows]) + "\n")
    return place


def test_fit_writes_a_filter_and_a_report(folder, tmp_path, capsys):
    out = tmp_path / "fitted"
    command = ["fit", str(folder), "--system", "linear", "--observe", "height", "--time", "t", "-o", str(out)]
    options = ["--set", "state_dim=1", "--set", "observation_dim=1", "--set", "continuous=true", "--oscillators", "0"]
    assert main([*command, *options]) == 0
    printed = capsys.readouterr()
    assert "every parameter is determined" in printed.out
    assert "log-likelihood" in printed.err
    report = json.loads((out / "report.json").read_text())
    values = {item["name"]: item for item in report["parameters"]}
    # four standard errors of a likelihood fit contain the values the files were made with
    for name, truth in (("Q[0,0]", 4.0), ("R[0,0]", 0.25)):
        assert abs(values[name]["value"] - truth) < 4 * values[name]["standard_error"] < truth
    assert report["held_out_files"] == ["log4.csv", "log5.csv"]
    assert 0.8 < report["held_out"]["nis"] < 1.2
    model = fwnkf.load(out)
    assert float(model.system.R().squeeze()) == pytest.approx(values["R[0,0]"]["value"], rel=1e-6)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--observe", "height,height2"], "height2"),
        (["--observe", "height", "--oscillators", "many"], "expected a number"),
        (["--observe", "height,t"], "is the time"),
        (["--observe", "height", "--set", "state_dim"], "NAME=VALUE"),
        (["--observe", "height", "--learn", "friction"], "there is no such parameter"),
        (["--observe", "height", "--state", "t"], "is the time"),
    ],
)
def test_faults_are_named(folder, tmp_path, capsys, extra, message):
    command = ["fit", str(folder), "--system", "constant_velocity", "--set", "dims=1", "--time", "t"]
    assert main([*command, "-o", str(tmp_path / "out"), *extra]) in (1, 2)
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_experiment_names_system_and_data(tmp_path, capsys):
    """The pendulum of the package: its training records fit, its test records held out."""
    experiment = tmp_path / "small.yaml"
    experiment.write_text("name: small\ndata: {name: pendulum, train: 6, val: 2, test: 3}\n")
    command = ["fit", str(experiment), "--oscillators", "0", "--learn", "R", "-o", str(tmp_path / "out"), "--json"]
    assert main(command) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["fitted"]["records"], report["held_out"]["records"]) == (6, 3)
    (variance,) = report["parameters"]
    # the records are made with this variance
    assert abs(variance["value"] - 0.01) < 4 * variance["standard_error"]
    assert main([*command, "--system", "pendulum"]) == 2


def test_sizes_of_system_and_columns_are_compared(folder, tmp_path, capsys):
    command = ["fit", str(folder), "--system", "constant_velocity", "--observe", "height", "--time", "t"]
    assert main([*command, "-o", str(tmp_path / "out")]) == 2
    assert "--observe names 1 column(s), but the system measures 2" in capsys.readouterr().err


def test_an_encoder_is_trained_after_the_fit(folder, tmp_path, capsys):
    out = tmp_path / "fitted"
    command = ["fit", str(folder), "--system", "linear", "--observe", "height", "--time", "t", "-o", str(out), "--json"]
    options = ["--set", "state_dim=1", "--set", "observation_dim=1", "--set", "continuous=true", "--oscillators", "0"]
    assert main([*command, *options, "--encoder", "2", "--encoder-steps", "10"]) == 0
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert report == json.loads((out / "report.json").read_text())
    encoder = report["encoder"]
    assert (encoder["hidden"], encoder["trained_records"], encoder["validation_records"]) == (2, 3, 1)
    assert encoder["before"]["log_likelihood"] == pytest.approx(report["held_out"]["log_likelihood"], abs=1e-9)
    assert fwnkf.load(out).name == ("fwnkf" if encoder["used"] else "ekf")
    assert main([*command, *options, "--encoder", "--held-out", "0"]) == 1
    assert "one held out" in capsys.readouterr().err
