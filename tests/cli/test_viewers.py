"""--rerun and --mcap of run, navigate and diagnose."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fwnkf.cli import main

from ..report.viewers.test_files import check_layouts, read, scalars
from .test_navigate import FIELDS
from .test_navigate import write_flight as write_sensors
from .test_run import CHANNELS, save_imu_filter, write_log

pytest.importorskip("rerun")
pytest.importorskip("mcap")
pytestmark = pytest.mark.unchecked("thousands of steps, whose shapes other tests check")

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> dict[str, Path]:
    """A recording and an MCAP file of each command, by its name and its end."""
    folder = tmp_path_factory.mktemp("shown")
    write_log(folder / "imu.mcap")
    save_imu_filter(folder / "filter")
    write_sensors(folder / "drone.csv")
    assert main(["data", "example", str(folder / "shaken.csv"), "--seconds", "10"]) == 0
    words = {
        "run": [str(folder / "imu.mcap"), "--filter", str(folder / "filter")],
        "navigate": [str(folder / "drone.csv"), *FIELDS, "--no-fit"],
        "diagnose": [str(folder / "shaken.csv")],
    }
    found = {}
    for command, given in words.items():
        files = {f"{command}.{end}": folder / "shown" / f"{command}.{end}" for end in ("rrd", "mcap")}
        found |= files
        shown = ["--rerun", str(files[f"{command}.rrd"]), "--mcap", str(files[f"{command}.mcap"])]
        assert main([command, *given, *shown, "--json", "-q"]) == 0
    return found


@pytest.mark.parametrize("command", ["run", "navigate", "diagnose"])
def test_the_layouts_of_the_documentation_open_the_files_of_a_command(places, command):
    made = places[f"{command}.mcap"]
    foxglove, plotjuggler = DOCS / "foxglove" / f"{command}.json", DOCS / "plotjuggler" / f"{command}.xml"
    check_layouts(made, foxglove, plotjuggler)
    # and nothing of a file is missing in them: they are what the command writes beside it
    for kept, end in ((foxglove, ".foxglove.json"), (plotjuggler, ".plotjuggler.xml")):
        fresh = made.with_name(made.stem + end)
        assert kept.read_text(encoding="utf-8") == fresh.read_text(encoding="utf-8"), f"copy {fresh} to {kept}"


def test_a_run_shows_estimates_measurements_and_innovations(places, tmp_path):
    values = write_log(tmp_path / "again.mcap")
    rows = read(places["run.mcap"])
    measured = np.array(
        [[message[name]["value"] for name in CHANNELS[3:]] for _, _, message in rows["/fwnkf/measured/accel"]]
    )
    assert np.array_equal(measured, values[:, 3:])
    innovation = np.array(
        [[message[name]["value"] for name in CHANNELS[3:]] for _, _, message in rows["/fwnkf/innovation/accel"]]
    )
    # an interval of the measurement is around what was expected: the measurement without its innovation
    ends = np.array(
        [[(m[name]["low"] + m[name]["high"]) / 2 for name in CHANNELS[3:]] for _, _, m in rows["/fwnkf/measured/accel"]]
    )
    assert np.allclose(ends, measured - innovation)
    state = scalars(places["run.rrd"], "/state/gyro/gyro_x")
    shown = [message["gyro_x"] for _, _, message in rows["/fwnkf/state/gyro"]]
    assert state == [[item["value"], item["low"], item["high"]] for item in shown]


def test_navigation_shows_where_the_vehicle_was(places):
    rows = read(places["navigate.mcap"])
    poses = rows["/fwnkf/pose"]
    height = np.array([message["pose"]["position"]["z"] for _, _, message in poses])
    stamps = [stamp for _, stamp, _ in poses]
    down = {stamp: message["down"]["value"] for _, stamp, message in rows["/fwnkf/state/position"]}
    assert np.array_equal(height, [-down[stamp] for stamp in stamps])
    sensors = {topic for topic in rows if topic.startswith("/fwnkf/innovation/")}
    assert {topic.split("/")[-1] for topic in sensors} == {
        "gnss_position",
        "gnss_velocity",
        "barometer",
        "magnetometer",
    }


def test_a_diagnosis_shows_findings_and_spectrograms(places):
    rows = read(places["diagnose.mcap"])
    assert any(message["level"] >= 3 for _, _, message in rows["/fwnkf/remarks"])
    assert any(topic.startswith("/fwnkf/spectrogram/") for topic in rows)
    assert "/fwnkf/innovation/gyro" in rows


def test_a_run_needs_something_to_write(tmp_path, capsys):
    write_log(tmp_path / "imu.mcap")
    save_imu_filter(tmp_path / "filter")
    words = ["run", str(tmp_path / "imu.mcap"), "--filter", str(tmp_path / "filter")]
    assert main(words) == 2
    assert "-o OUT" in capsys.readouterr().err
    assert main([*words, "--mcap", str(tmp_path / "shown.mcap"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["output"] is None


@pytest.mark.parametrize("command", ["run", "navigate", "diagnose"])
def test_files_that_would_be_overwritten_are_refused(tmp_path, capsys, command):
    log = tmp_path / "imu.mcap"
    write_log(log)
    before = log.read_bytes()
    save_imu_filter(tmp_path / "filter")
    more = ["--filter", str(tmp_path / "filter")] if command == "run" else []
    assert main([command, str(log), *more, "--mcap", str(log)]) == 2
    assert "overwritten" in capsys.readouterr().err
    assert log.read_bytes() == before
    assert main([command, str(log), *more, "--mcap", str(tmp_path / "shown.bag")]) == 2


def test_a_recording_that_is_no_recording_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["diagnose", "--rerun", str(tmp_path / "log.csv")])
    assert stopped.value.code == 2
    assert "put --rerun at the end" in capsys.readouterr().err


def test_a_diagnosis_without_viewers_imports_none(tmp_path):
    assert main(["data", "example", str(tmp_path / "shaken.csv"), "--seconds", "5"]) == 0
    code = (
        "import sys; from fwnkf.cli import main; main(['diagnose', sys.argv[1]]); "
        "assert not {'rerun', 'mcap.writer', 'pyarrow'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "shaken.csv")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ.copy())
