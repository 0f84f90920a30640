"""The command fwnkf diagnose: text, JSON, reports and exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from fwnkf.cli import main
from fwnkf.data.flights import flight
from fwnkf.diagnosis.result import Fix

from ..logs.writers import write_flight


@pytest.fixture(scope="module")
def shaken(tmp_path_factory):
    """Ten seconds of an IMU with a line at 60 Hz, as a table."""
    generator = np.random.default_rng(0)
    time = np.arange(2500) / 250
    values = generator.normal(size=(2500, 6)) * ([0.01] * 3 + [0.1] * 3)
    values[:, 0] += 0.2 * np.sin(2 * np.pi * 60 * time)
    values[:, 5] += 9.81
    path = tmp_path_factory.mktemp("logs") / "shaken.csv"
    names = ",".join(["time", *(f"gyro_{axis}" for axis in "xyz"), *(f"accel_{axis}" for axis in "xyz")])
    np.savetxt(path, np.column_stack((time, values)), delimiter=",", header=names, comments="", fmt="%.9f")
    return path


def test_the_verdict_names_the_line(shaken, capsys):
    assert main(["diagnose", str(shaken)]) == 0
    text = capsys.readouterr().out
    assert re.search(r"Vibration at a fixed frequency of (60|60\.\d+|59\.9\d*) Hz in gyro_x", text)
    assert "notch" in text


def test_the_first_line_sums_up_and_the_rest_is_asked_for(shaken, capsys):
    assert main(["diagnose", str(shaken)]) == 0
    short = capsys.readouterr().out
    assert re.match(r"shaken\.csv \(CSV, 10\.0 s\): 1 problem: vibration at 60(\.\d)? Hz\.\n", short)
    assert main(["diagnose", str(shaken), "--all"]) == 0
    long = capsys.readouterr().out
    assert long.startswith(short.splitlines()[0])
    assert "filter: " in long
    assert "filter: " not in short


def test_the_verdict_needs_no_torch(shaken):
    code = "import sys; from fwnkf.cli import main; main(['diagnose', sys.argv[1]]); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, str(shaken)], check=True, stdout=subprocess.DEVNULL)


def test_findings_fail_a_check(shaken, capsys, tmp_path):
    report = tmp_path / "report.html"
    assert main(["diagnose", str(shaken), "--fail-on", "vibration", "--json", "-o", str(report)]) == 1
    values = json.loads(capsys.readouterr().out)
    assert values["findings"][0]["cause"] == "vibration"
    assert values["findings"][0]["figures"]["frequency_hz"] == pytest.approx(60.0, rel=0.01)
    assert report.read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html>")


@pytest.mark.parametrize(
    "arguments",
    [["--fail-on", "nonsense"], ["--threshold", "nonsense=1"], ["--threshold", "line_ratio=x"], ["-o", "report.pdf"]],
)
def test_wrong_arguments_are_usage_errors(shaken, arguments, capsys):
    assert main(["diagnose", str(shaken), *arguments]) == 2
    assert "fwnkf: " in capsys.readouterr().err


def test_a_threshold_changes_the_verdict(shaken, capsys):
    assert main(["diagnose", str(shaken), "--threshold", "line_gain=1e9", "--fail-on", "vibration"]) == 0
    capsys.readouterr()


def test_plots_are_small_pictures(shaken, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert main(["diagnose", str(shaken), "--json", "--plots", str(tmp_path / "plots")]) == 0
    json.loads(capsys.readouterr().out)
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "plots").iterdir()}
    assert set(sizes) == {
        *("spectra_1_signal.png", "spectra_2_signal.png", "spectra_3_innovation.png", "spectra_4_innovation.png"),
        "consistency.png",
    }
    assert all(1_000 < size < 300_000 for size in sizes.values())


def test_a_missing_log_is_an_error(capsys, tmp_path):
    assert main(["diagnose", str(tmp_path / "none.ulg")]) == 1
    assert "none.ulg" in capsys.readouterr().err


def test_a_bag_may_be_the_folder_one_is_in(capsys, tmp_path, monkeypatch):
    path = write_flight(tmp_path, "ros2", flight(seed=0, seconds=10.0))
    monkeypatch.chdir(path)
    assert main(["diagnose", ".", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == path.name


def test_a_fix_that_does_not_hold_fails(shaken, capsys, monkeypatch):
    rows = [{"method": "white noise", "log_likelihood": 2.0}, {"method": "noise states", "log_likelihood": 1.0}]
    worse = Fix(tuple(rows), (), {}, None, ("not saved: …",), "noise states", "worse", -1.0, 0.1)
    monkeypatch.setattr("fwnkf.diagnosis.fix.fix", lambda *_, **__: worse)
    assert main(["diagnose", str(shaken), "--fix", "--json"]) == 1
    output = capsys.readouterr()
    found = json.loads(output.out)["fix"]
    assert (found["kept"], found["outcome"], found["gain"], found["folder"]) == ("noise states", "worse", -1.0, None)
    assert "no filter was saved" in output.err
