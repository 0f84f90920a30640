"""Noise by airframe: entries from logs, checked when they are read."""

from __future__ import annotations

import importlib.util
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fwnkf
from fwnkf import airframes, cli
from fwnkf.airframes.entry import FILE_LIMIT, FOLDER
from fwnkf.errors import DataError, UnknownNameError

DATA = Path(os.environ.get("FWNKF_DATA", ".data")) / "logs"
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "airframes.py"
ENTRIES = sorted(FOLDER.glob("*.json"))


def write_log(path: Path, rate: float = 400.0, seconds: float = 60.0) -> np.ndarray:
    """White noise of a gyro with a line at 73 Hz of amplitude 0.2 in x, and of an accelerometer without one."""
    rng = np.random.default_rng(0)
    time = np.arange(int(rate * seconds)) / rate
    values = 0.05 * rng.normal(size=(len(time), 6))
    values[:, 0] += 0.2 * np.sin(2 * np.pi * 73 * time)
    names = [f"gyro_{axis} [rad/s]" for axis in "xyz"] + [f"accel_{axis} [m/s^2]" for axis in "xyz"]
    header = ",".join(["t [s]", *names])
    np.savetxt(path, np.column_stack((time, values)), delimiter=",", header=header, comments="", fmt="%.9g")
    return values


def measure(tmp_path: Path) -> airframes.Airframe:
    words = ["airframe", str(tmp_path / "flight.csv"), "-o", str(tmp_path / "test-frame.json"), "--frame", "test bench"]
    assert cli.main([*words, "--licence", "CC0-1.0"]) == 0
    return airframes.read(tmp_path / "test-frame.json")


def test_the_bands_hold_the_variance_and_the_lines_what_was_simulated(tmp_path: Path):
    values = write_log(tmp_path / "flight.csv")
    entry = measure(tmp_path)
    assert (entry.name, entry.frame, entry.props, entry.licence) == ("test-frame", "test bench", "unknown", "CC0-1.0")
    gyro, accel = entry.spectra
    assert (gyro.sensor, gyro.unit, accel.sensor, accel.unit) == ("gyro", "rad/s", "accel", "m/s²")
    for spectrum, columns in ((gyro, values[:, :3]), (accel, values[:, 3:])):
        assert spectrum.rate_hz == pytest.approx(400.0)
        covered = (spectrum.edges_hz[-1] - spectrum.edges_hz[0]) / 200.0
        assert covered > 0.99
        for number, axis in enumerate("xyz"):
            variance = float(np.dot(spectrum.density[axis], np.diff(spectrum.edges_hz)))
            assert variance == pytest.approx(columns[:, number].var(), rel=0.02), (spectrum.sensor, axis)
    (line,) = entry.lines("gyro_x")
    assert line.hz == pytest.approx(73.0, abs=0.05)
    assert line.amplitude == pytest.approx(0.2, rel=0.05)
    assert entry.lines("gyro_y") == entry.lines("accel_x") == ()
    assert (tmp_path / "test-frame.json").stat().st_size < 8000


def test_a_log_without_inertial_sensors_is_an_error(tmp_path: Path, capsys):
    rows = np.column_stack((np.arange(400) / 100, np.random.default_rng(0).normal(size=400)))
    np.savetxt(tmp_path / "load.csv", rows, delimiter=",", header="t [s],load", comments="")
    assert cli.main(["airframe", str(tmp_path / "load.csv"), "-o", str(tmp_path / "a.json"), "--licence", "MIT"]) == 1
    assert "needs a gyroscope or an accelerometer" in capsys.readouterr().err
    assert not (tmp_path / "a.json").exists()


# ---- what is read ---------------------------------------------------------------------------------------------------


def changed(content: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    copy = json.loads(json.dumps(content))
    place = copy
    for key in path[:-1]:
        place = place[key]
    if value is KeyError:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return copy


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("format",), 2, "format is 2; 1 is read"),
        (("frame",), KeyError, "missing frame"),
        (("more",), 1, "unexpected more"),
        (("frame",), "", "frame is ''; a text"),
        (("mount",), "x" * 301, "mount is"),
        (("name",), "../evil", "name is '../evil'; small letters"),
        (("licence",), "unknown", "licence is 'unknown'"),
        (("frame",), "\ud800", "surrogate"),
        (("spectra",), [], "one for each sensor"),
        (("spectra", 0, "sensor"), "baro", "gyro in rad/s"),
        (("spectra", 0, "unit"), "deg/s", "gyro in rad/s"),
        (("spectra", 0, "sensor"), ["gyro"], "gyro in rad/s"),
        (("spectra", 0, "rate_hz"), -1, "rate_hz is -1; positive"),
        (("spectra", 0, "seconds"), True, "seconds is True; positive"),
        (("spectra", 0, "edges_hz", 1), 0.001, "rising to half"),
        (("spectra", 0, "density", "x", 0), math.nan, "positive numbers"),
        (("spectra", 0, "density", "x", 0), "1", "positive numbers"),
        (("spectra", 0, "density", "x"), [1.0], "values for"),
        (("spectra", 0, "density"), {"w": []}, "mapping from x, y and z"),
        (("spectra", 0, "lines"), [{}] * 65, "at most 64"),
        (("spectra", 0, "lines", 0, "axis"), "w", "an axis with a density"),
        (("spectra", 0, "lines", 0, "hz"), None, "positive numbers"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, path: tuple[Any, ...], value: Any, said: str):
    content = json.loads(ENTRIES[0].read_text(encoding="utf-8"))
    file = tmp_path / "entry.json"
    file.write_text(json.dumps(content))
    assert airframes.read(file) == airframes.read(ENTRIES[0])
    file.write_text(json.dumps(changed(content, path, value)))
    with pytest.raises(DataError, match=said) as caught:
        airframes.read(file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\x80\x04", b"[" * 50_000, b" " * (FILE_LIMIT + 1), b"null", b"1" * 9999])
def test_what_is_no_entry_is_refused(tmp_path: Path, content: bytes):
    (tmp_path / "entry.json").write_bytes(content)
    with pytest.raises(DataError, match=r"entry\.json"):
        airframes.read(tmp_path / "entry.json")
    with pytest.raises(DataError, match="cannot be read"):
        airframes.read(tmp_path / "none.json")


# ---- what is shipped ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ENTRIES, ids=lambda path: path.stem)
def test_an_entry_is_small_named_as_its_file_and_written_as_it_is_read(path: Path, tmp_path: Path):
    entry = airframes.read(path)
    assert entry.name == path.stem
    assert path.stat().st_size < 8000
    assert {one.sensor for one in entry.spectra} == {"gyro", "accel"}
    assert entry.save(tmp_path / path.name).read_bytes() == path.read_bytes()


def test_entries_are_listed_by_name(capsys):
    assert cli.main(["list", "airframes", "--json"]) == 0
    rows = {row["name"]: row["description"] for row in json.loads(capsys.readouterr().out)}
    assert sorted(rows) == airframes.list_airframes() == [path.stem for path in ENTRIES]
    for name, line in rows.items():
        assert airframes.shipped(name).frame in line
        assert airframes.shipped(name).licence in line
    with pytest.raises(UnknownNameError, match="no airframe is called 'none'; there are"):
        airframes.shipped("none")


@pytest.mark.skipif(not DATA.is_dir(), reason="the public logs are not here: set FWNKF_DATA")
def test_an_entry_is_what_the_script_writes(tmp_path: Path):
    """The shortest of the logs."""
    spec = importlib.util.spec_from_file_location("airframes_script", SCRIPT)
    assert spec is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert {entry.name for entry in script.ENTRIES} == set(airframes.list_airframes())
    entry = next(one for one in script.ENTRIES if one.log.endswith("LOG00037.BFL"))
    assert cli.main(script.command(entry, DATA, tmp_path)) == 0
    written, kept = airframes.read(tmp_path / f"{entry.name}.json"), airframes.shipped(entry.name)
    for one, other in zip(written.spectra, kept.spectra, strict=True):
        assert one.edges_hz == pytest.approx(other.edges_hz, rel=1e-3)
        for axis in "xyz":
            assert one.density[axis] == pytest.approx(other.density[axis], rel=1e-2)


def test_the_lines_of_an_entry_are_those_of_a_filter():
    """As the page shows."""
    lines = airframes.shipped("px4-octocopter-cube-orange").lines("gyro_x")
    assert lines
    part = fwnkf.Lines(
        hz=[line.hz for line in lines], bandwidth_hz=[line.width_hz for line in lines],
        std=[line.amplitude / math.sqrt(2) for line in lines],
    )  # fmt: skip
    assert list(part.hz) == [line.hz for line in lines]
