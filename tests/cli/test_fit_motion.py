"""``fwnkf fit --motion polynomial``: equations of motion from tables of states, or of measurements alone."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fwnkf
from fwnkf.cli.main import main

RATE = 50.0
STIFFNESS, DAMPING = 9.0, 0.4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory):
    """Six files of a damped oscillator that is shaken, its position measured with a standard deviation of 0.05."""
    place = tmp_path_factory.mktemp("tables")
    generator = np.random.default_rng(0)
    for number in range(6):
        x, v, rows = *generator.standard_normal(2), ["t,x,v,gauge"]
        for step in range(400 - 10 * number):
            rows.append(f"{step / RATE:.3f},{x:.6f},{v:.6f},{x + 0.05 * generator.standard_normal():.6f}")
            push = 0.1 * generator.standard_normal()
            x, v = x + v / RATE, v - (STIFFNESS * x + DAMPING * v) / RATE + push
        (place / f"log{number}.csv").write_text("\n".join(rows) + "\n")
    return place


def coefficients(equation: str) -> dict[str, float]:
    """Of ``v' = -9 x - 0.4 v`` by term."""
    words = equation.split(" = ")[1].replace("- ", "+ -").replace("+ -", "+-").split("+")
    return {" ".join(item.split()[1:]): float(item.split()[0]) for item in words if item.strip()}


def test_states_give_the_equations_of_an_oscillator(folder, tmp_path, capsys):
    out = tmp_path / "fitted"
    command = ["fit", str(folder), "--motion", "polynomial", "--state", "x,v", "--observe", "gauge", "--time", "t"]
    assert main([*command, "--threshold", "auto", "-o", str(out)]) == 0
    assert "left-out error of one step" in capsys.readouterr().out
    report = json.loads((out / "report.json").read_text())
    (chosen,) = (item for item in report["candidates"] if item["chosen"])
    assert chosen["degree"] == 1
    rate = coefficients(report["equations"][1])
    assert rate["x0"] == pytest.approx(-STIFFNESS, rel=0.05)
    model = fwnkf.load(out)
    assert float(model.system.measurement_covariance()) == pytest.approx(0.05**2, rel=0.1)
    assert float(model.system.process_noise(None)[1, 1]) == pytest.approx(0.1**2, rel=0.1)
    assert main(["run", str(folder / "log5.csv"), "--filter", str(out), "-o", str(tmp_path / "estimates.csv")]) == 0


def test_measurements_alone_give_them_too(folder, tmp_path, capsys):
    out = tmp_path / "fitted"
    command = ["fit", str(folder), "--motion", "polynomial", "--observe", "gauge", "--time", "t", "--degree", "1"]
    assert main([*command, "-o", str(out)]) == 0
    report = json.loads((out / "report.json").read_text())
    rate = coefficients(report["equations"][1])
    assert rate["position"] == pytest.approx(-STIFFNESS, rel=0.2)
    assert report["held_out"]["nis"] == pytest.approx(1, abs=0.1)
    assert fwnkf.load(out).system.motion.layout.describe()[0] == ("position", "euclidean", 1)


def test_an_experiment_names_the_motion(folder, tmp_path):
    experiment = tmp_path / "own.yaml"
    experiment.write_text(
        f"""
name: own
data: {{name: tables, folder: {folder}, state: [x, v], observe: [gauge], time: t, window: 100}}
system:
  name: composed
  motion: {{name: polynomial, config: {{state_dim: 2, degree: 1, learn: [W, Q], dt: {1 / RATE}}}}}
  sensors: {{measured: {{name: regressed, config: {{state_dim: 2}}}}}}
"""
    )
    out = tmp_path / "fitted"
    options = ["--learn", "Q,motion.free", "--oscillators", "0", "-o", str(out)]
    assert main(["fit", str(experiment), *options]) == 0
    report = json.loads((out / "report.json").read_text())
    assert report["fitted"]["log_likelihood"] > report["before"]["log_likelihood"]
    assert fwnkf.load(out).system.motion.coefficients().any()


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--motion", "polynomial"], "--motion needs --observe"),
        (["--motion", "polynomial", "--observe", "gauge", "--degree", "many"], "expected numbers with commas, or auto"),
        (["--motion", "polynomial", "--observe", "gauge", "--threshold", "0.1"], "--threshold needs --state"),
        (["--motion", "polynomial", "--observe", "gauge", "--system", "linear"], "--system: not with --motion"),
        (["--system", "linear", "--observe", "gauge", "--degree", "2"], "need --motion"),
    ],
)
def test_faults_are_named(folder, tmp_path, capsys, extra, message):
    assert main(["fit", str(folder), "--time", "t", "-o", str(tmp_path / "out"), *extra]) in (1, 2)
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
