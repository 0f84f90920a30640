"""The page on systems of one's own: its files and commands run as written, each in a process of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .shell import shell, succeed

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
    lines = [line for language, body in BLOCKS if language == "sh" for line in body.splitlines()]
    return folder, {line: succeed(line, folder) for line in lines}


def figure(text: str, method: str, column: str) -> float:
    """A figure of a method in a printed table."""
    lines = [line.split() for line in text.splitlines()]
    header = next(words for words in lines if words and words[0] == "method")
    row = next(words for words in lines if words and words[0] == method)
    return float(row[header.index(column)])


@pytest.mark.process
def test_the_robot_is_estimated_trained_evaluated_and_inspected(printed):
    _, results = printed
    errors = [float(number) for number in re.findall(r"position error ([\d.]+)", results["python use_robot.py"])]
    assert len(errors) == 2
    assert max(errors) < 0.2  # ranges are measured to 0.2 m
    trained = results["fwnkf train robot.yaml --import robot --no-plots"]
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
    _, results = printed
    row = results["fwnkf evaluate runs/attitude-0 --import attitude"]
    assert 0.8 < figure(row, "attitude", "nis") < 1.2
    assert results["fwnkf inspect runs/attitude-0 --import attitude"]


@pytest.mark.process
def test_the_tanks_learn_their_outlet(printed):
    folder, results = printed
    outlet = float(results["python learned.py"].split()[1])
    assert abs(outlet - 0.07) < 0.5 * (0.07 - 0.05)  # from 0.05 in the data sheet to 0.07 in the plant
    fitted = next(line for line in results if line.startswith("fwnkf fit"))
    value = float(re.search(r"^outlet +\S+ +(\S+)", results[fitted], re.M)[1])
    assert abs(value - 0.07) < 0.001
    done = shell("fwnkf evaluate runs/tanks-0", folder)
    assert done.code == 1
    assert "--import MODULE" in done.err
    assert "Traceback" not in done.err


@pytest.mark.process
def test_a_vehicle_is_put_together_from_a_motion_and_sensors(printed):
    _, results = printed
    parts, channels, shape = results["python vehicle.py"].splitlines()
    assert parts == "['position', 'velocity', 'baro_offset', 'radar_drift']"
    assert channels == "{'gps': slice(0, 3, None), 'baro': slice(3, 4, None), 'radar': slice(4, 5, None)}"
    assert shape == "torch.Size([1, 50, 8])"
