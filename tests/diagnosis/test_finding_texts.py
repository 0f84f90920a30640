"""What a finding says: its confidence in words, and the threshold that it exceeds."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fwnkf.cli import main
from fwnkf.diagnosis.finding import HIGH, MEDIUM, Finding


def write_log(path, *, amplitude, noise):
    """Ten seconds of a gyro with a line at 43 Hz in its x axis."""
    time, generator = np.arange(2000) / 200, np.random.default_rng(0)
    gyro = noise * generator.standard_normal((2000, 3))
    gyro[:, 0] += amplitude * np.sin(2 * np.pi * 43 * time)
    header = "t [s],gyro_x [rad/s],gyro_y [rad/s],gyro_z [rad/s]"
    np.savetxt(path, np.column_stack((time, gyro)), delimiter=",", header=header, comments="")


@pytest.mark.parametrize(
    ("amplitude", "noise", "exceeded", "not_exceeded"),
    [
        (0.01, 0.002, "of the other noise (warning above 1)", "(warning above 0.02 rad/s)"),
        (0.05, 0.1, "(warning above 0.02 rad/s)", "(warning above 1)"),
    ],
)
def test_a_warning_shows_the_threshold_that_it_exceeds(tmp_path, capsys, amplitude, noise, exceeded, not_exceeded):
    write_log(tmp_path / "log.csv", amplitude=amplitude, noise=noise)
    assert main(["diagnose", str(tmp_path / "log.csv"), "--json"]) == 0
    finding = next(row for row in json.loads(capsys.readouterr().out)["findings"] if row["cause"] == "vibration")
    assert finding["severity"] == "warning"
    assert exceeded in finding["evidence"]
    assert not_exceeded not in finding["evidence"]


def test_people_see_a_confidence_and_json_the_score(tmp_path, capsys):
    write_log(tmp_path / "log.csv", amplitude=0.05, noise=0.1)
    assert main(["diagnose", str(tmp_path / "log.csv"), "--json"]) == 0
    finding = next(row for row in json.loads(capsys.readouterr().out)["findings"] if row["cause"] == "vibration")
    ratio = finding["figures"]["ratio"]
    assert finding["score"] == pytest.approx(1 - 1 / ratio, abs=0.006)  # as the guide says
    assert finding["confidence"] == ("high" if ratio >= 10 else "medium")
    assert main(["diagnose", str(tmp_path / "log.csv")]) == 0
    printed = capsys.readouterr().out
    assert f"(vibration, {finding['confidence']} confidence)" in printed
    assert "% sure" not in printed


@pytest.mark.parametrize(("score", "word"), [(HIGH, "high"), (HIGH - 0.01, "medium"), (MEDIUM, "medium"), (0.5, "low")])
def test_scores_have_a_confidence(score, word):
    assert Finding("gaps", "warning", score, "", "", "").confidence == word
