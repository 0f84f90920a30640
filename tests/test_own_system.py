"""The page on systems of one's own: its files and commands run as written, each in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fwnkf

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "howto" / "own_system.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(python|yaml|sh)\n(.*?)```", TEXT, re.S)
FILES = {re.match(r"# (\S+)\n", body)[1]: body for language, body in BLOCKS if language != "sh"}
SYSTEMS = ("robot.py", "attitude.py", "tanks.py")
LINES = 15


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_takes_at_most_fifteen_lines(name):
    lines = [line for line in FILES[name].splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) <= LINES


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """A folder with the files, and what each command printed, in the order of the page."""
    pytest.importorskip("lightning")
    folder = tmp_path_factory.mktemp("own")
    for name, body in FILES.items():
        (folder / name).write_text(body, encoding="utf-8")
    command = folder / "bin" / "fwnkf"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fwnkf.cli "$@"\n', encoding="utf-8")
    (command.parent / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    for path in command.parent.iterdir():
        path.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(fwnkf.__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
    }
    environment.pop("FWNKF_CHECK_SHAPES", None)
    results = {}
    for line in [line for language, body in BLOCKS if language == "sh" for line in body.splitlines()]:
        done = subprocess.run(
            ["sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        results[line] = done.stdout
    return folder, environment, results


def figure(text: str, method: str, column: str) -> float:
    """A figure of a method in a printed table."""
    lines = [line.split() for line in text.splitlines()]
    header = next(words for words in lines if words and words[0] == "method")
    row = next(words for words in lines if words and words[0] == method)
    return float(row[header.index(column)])


@pytest.mark.process
def test_the_robot_is_estimated_trained_evaluated_and_inspected(printed):
    _, _, results = printed
    errors = [float(number) for number in re.findall(r"position error ([\d.]+)", results["python use_robot.py"])]
    assert len(errors) == 2
    assert max(errors) < 0.2  # ranges are measured to 0.2 m
    trained = results["fwnkf train robot.yaml --no-plots"]
    again = results["fwnkf evaluate runs/robot-0 --import robot --references"]
    assert figure(trained, "robot", "mse") == pytest.approx(figure(again, "robot", "mse"), rel=1e-4)
    assert figure(again, "ekf", "mse") < figure(again, "hold", "mse")
    assert "oscillators" in results["fwnkf inspect runs/robot-0 --import robot"]
    other = results["fwnkf evaluate robot-ekf --data robot.yaml --import robot"]
    assert figure(other, "robot-ekf", "mse") == pytest.approx(figure(again, "ekf", "mse"), rel=1e-3)
    assert "landmarks" in results["fwnkf list options robot --import robot"]


@pytest.mark.process
def test_the_attitude_is_consistent_on_its_tables(printed):
    """Measured with the noise that it states, the filter has a NIS of one."""
    _, _, results = printed
    row = results["fwnkf evaluate runs/attitude-0 --import attitude"]
    assert 0.8 < figure(row, "attitude", "nis") < 1.2
    assert results["fwnkf inspect runs/attitude-0 --import attitude"]


@pytest.mark.process
def test_the_tanks_learn_their_outlet(printed):
    folder, environment, results = printed
    outlet = float(results["python learned.py"].split()[1])
    assert abs(outlet - 0.07) < 0.5 * (0.07 - 0.05)  # from 0.05 in the data sheet to 0.07 in the plant
    fitted = next(line for line in results if line.startswith("fwnkf fit"))
    value = float(re.search(r"^outlet +\S+ +(\S+)", results[fitted], re.M)[1])
    assert abs(value - 0.07) < 0.001
    record = json.loads((folder / "runs" / "tanks-0" / "run.json").read_text())
    assert "import" not in record["experiment"]
    done = subprocess.run(
        ["fwnkf", "evaluate", "runs/tanks-0"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "--import MODULE" in done.stderr
    assert "Traceback" not in done.stderr
