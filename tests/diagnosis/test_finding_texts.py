"""What a finding says: its confidence in words, and the threshold that it exceeds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fwnkf.cli import main
from fwnkf.diagnosis.finding import CAUSES, GUIDES, HIGH, MEDIUM, WHEN, Finding
from fwnkf.diagnosis.rules.advice import notch


def write_log(path, *, amplitude, noise):
    """Ten seconds of a gyro with a line at 43 Hz in its x axis."""
    time, generator = np.arange(2000) / 200, np.random.default_rng(0)
    gyro = noise * generator.standard_normal((2000, 3))
    gyro[:, 0] += amplitude * np.sin(2 * np.pi * 43 * time)
    header = "t [s],gyro_x [rad/s],gyro_y [rad/s],gyro_z [rad/s]"
    np.savetxt(path, np.column_stack((time, gyro)), delimiter=",", header=header, comments="")


@pytest.mark.parametrize(("amplitude", "severity"), [(0.01, "info"), (0.05, "warning")])
def test_a_line_is_judged_by_its_amplitude_and_says_so(tmp_path, capsys, amplitude, severity):
    """However far it is above the noise: a quiet sensor is no reason for a warning."""
    write_log(tmp_path / "log.csv", amplitude=amplitude, noise=0.002)
    assert main(["diagnose", str(tmp_path / "log.csv"), "--json"]) == 0
    finding = next(row for row in json.loads(capsys.readouterr().out)["findings"] if row["cause"] == "vibration")
    assert finding["severity"] == severity
    assert finding["evidence"].count("warning above") == 1
    assert "(warning above 0.02 rad/s)" in finding["evidence"]


def test_a_finding_about_noise_names_the_page_that_compares_what_helps(tmp_path, capsys):
    write_log(tmp_path / "log.csv", amplitude=0.05, noise=0.002)
    assert main(["diagnose", str(tmp_path / "log.csv"), "-o", str(tmp_path / "report.html")]) == 0
    assert capsys.readouterr().out.count(WHEN) == 1
    assert f"see {WHEN} of fwnkf" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert main(["diagnose", str(tmp_path / "log.csv"), "--json"]) == 0
    guides = {row["cause"]: row["guide"] for row in json.loads(capsys.readouterr().out)["findings"]}
    assert guides["vibration"] == WHEN
    assert all(guide == GUIDES.get(cause, "") for cause, guide in guides.items())


def test_pages_that_findings_name_are_there():
    assert set(GUIDES) <= set(CAUSES)
    assert all((Path(__file__).parents[2] / guide).is_file() for guide in GUIDES.values())
    assert Finding("gaps", "warning", 0.95, "", "", "").guide == ""


def test_people_see_a_confidence_and_json_the_score(tmp_path, capsys):
    write_log(tmp_path / "log.csv", amplitude=0.05, noise=0.1)
    assert main(["diagnose", str(tmp_path / "log.csv"), "--json"]) == 0
    finding = next(row for row in json.loads(capsys.readouterr().out)["findings"] if row["cause"] == "vibration")
    assert finding["confidence"] == ("high" if finding["score"] >= HIGH else "medium")
    assert main(["diagnose", str(tmp_path / "log.csv")]) == 0
    printed = capsys.readouterr().out
    assert f"(vibration, {finding['confidence']} confidence)" in printed
    assert "% sure" not in printed


@pytest.mark.parametrize(
    ("kind", "follows", "names"),
    [
        ("ULog", False, ("IMU_GYRO_NF0_FRQ = 60",)),
        ("ULog", True, ("IMU_GYRO_DNF_EN",)),
        ("DataFlash", False, ("INS_HNTCH_FREQ = 60", "INS_HNTCH_MODE = 0")),
        ("DataFlash", True, ("INS_HNTCH_MODE = 3",)),
        ("Betaflight blackbox", False, ("gyro_notch1_hz = 60",)),
        ("Betaflight blackbox", True, ("dshot_bidir",)),
        ("CSV", True, ("follows the rotor speed",)),
    ],
)
def test_advice_is_in_the_words_of_the_vehicle(kind, follows, names):
    text = notch(kind, 60.0, 12.0, follows)
    assert all(name in text for name in names)


@pytest.mark.parametrize(("score", "word"), [(HIGH, "high"), (HIGH - 0.01, "medium"), (MEDIUM, "medium"), (0.5, "low")])
def test_scores_have_a_confidence(score, word):
    assert Finding("gaps", "warning", score, "", "", "").confidence == word
