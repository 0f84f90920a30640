"""`fwnkf navigate` on a table and on a real log."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest

from fwnkf.cli import main
from fwnkf.logs import open_log
from fwnkf.navigation.simulated import Flight
from fwnkf.systems import earth

HEXA = Path(os.environ.get("FWNKF_DATA", ".data")) / "logs" / "ulog" / "3dr_hexa_flight1.ulg"
FIELDS = ["--field", "latitude=lat", "--field", "longitude=lon", "--field", "height=alt_cm*0.01"]

pytestmark = pytest.mark.unchecked("thousands of steps, whose shapes other tests check")


def write_flight(
    path: Path, flight: Flight | None = None, *, named: bool = False, without: tuple[str, ...] = ()
) -> Path:
    """A simulated flight as a table with empty cells where nothing was measured; heights of fixes in centimetres."""
    made = (flight or Flight()).recording(np.random.default_rng(3))
    readings = {tuple(f"{kind}_{axis}" for kind in ("gyro", "accel") for axis in "xyz"): made.imu}
    fixes = made.sensors["gnss_position"]
    places = earth.geodetic(fixes.values, made.origin) * (1.0 if named else np.array([1.0, 1.0, 100.0]))
    names = ("latitude", "longitude", "height") if named else ("lat", "lon", "alt_cm")
    readings[names] = type(fixes)(fixes.time, places)
    readings[("velocity_north", "velocity_east", "velocity_down")] = made.sensors["gnss_velocity"]
    readings[("barometer",)] = made.sensors["barometer"]
    readings[("mag_x", "mag_y", "mag_z")] = made.sensors["magnetometer"]
    rows: dict[float, dict[str, str]] = {}
    for columns, item in readings.items():
        for time, values in zip(item.time.tolist(), item.values.tolist(), strict=True):
            cells = zip(columns, map(repr, values), strict=True)
            rows.setdefault(round(time, 4), {}).update({name: cell for name, cell in cells if name not in without})
    header = ["time", *(name for columns in readings for name in columns if name not in without)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, header)
        writer.writeheader()
        writer.writerows({"time": f"{time:.4f}", **rows[time]} for time in sorted(rows))
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    return write_flight(tmp_path_factory.mktemp("flights") / "drone.csv")


@pytest.mark.process
def test_a_table_with_named_columns_gives_the_whole_review(table, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    page, track = tmp_path / "page.html", tmp_path / "track.csv"
    drawn = ["--plots", str(tmp_path / "plots")]
    assert main(["navigate", str(table), *FIELDS, "--json", "-o", str(page), "--save", str(track), *drawn]) == 0
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {"plan.png", "height.png", "attitude.png"}
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["delay"] == pytest.approx(Flight().gnss_delay, abs=0.02)
    assert {row["name"] for row in found["sensors"]} == {"gnss_position", "gnss_velocity", "barometer", "magnetometer"}
    assert "delay of GNSS" in err
    assert "<svg" in page.read_text(encoding="utf-8")
    written = open_log(track).read(next(iter(open_log(track).topics)))
    # where the flight was: the factor of --field was used
    assert written.columns["height"][0] == pytest.approx(450.0, abs=3.0)
    assert written.columns["latitude"] == pytest.approx(47.0, abs=1e-3)
    assert {"position_x_std", "velocity_z_std", "orientation_w", "orientation_rz_std", "longitude_std"} <= set(
        written.columns
    )


def test_columns_with_the_names_of_the_guide_need_no_options(tmp_path, capsys):
    path = write_flight(tmp_path / "named.csv", named=True)
    assert main(["navigate", str(path), "--no-fit", "--from", "4", "--to", "12"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("named.csv (")
    assert "gnss_velocity" in out
    assert "--all" in out


def test_all_prints_noises_states_and_windows(table, capsys):
    assert main(["navigate", str(table), *FIELDS, "--no-fit", "--from", "4", "--to", "12", "--all"]) == 0
    out = capsys.readouterr().out
    for word in ("gyro_density", "gyro bias x", "magnetic field down", "Hidden fixes:"):
        assert word in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "page.pdf"], "a report ends in .html or .json"),
        (["--save", "track.kml"], "a trajectory ends in .csv, .parquet, .mcap, .tum"),
        (["--from", "9", "--to", "3"], "nothing is left"),
        (["--field", "latitude=nothing"], "no column 'nothing'"),
    ],
)
def test_usage_errors(table, words, message, capsys):
    assert main(["navigate", str(table), *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--from", "nan"], ["--to", "inf"], ["--from", "start"]])
def test_seconds_are_numbers(table, words, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["navigate", str(table), *words])
    assert f"argument {words[0]}: invalid" in capsys.readouterr().err


def test_the_log_is_not_overwritten(table, capsys):
    assert main(["navigate", str(table), *FIELDS, "--save", str(table)]) == 2
    assert "is the log itself" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "drone.csv: no GNSS position. A navigation filter needs one"),
        ([*FIELDS, "--imu", "imu_7"], "no IMU 'imu_7'; there are: imu"),
        ([*FIELDS, "--from", "10", "--to", "20"], "a fit needs 20 s; run without it: --no-fit"),
        ([*FIELDS, "--from", "1000"], "0.0 s"),
    ],
)
def test_errors_say_what_is_missing(table, words, message, capsys):
    assert main(["navigate", str(table), *words]) == 1
    assert message in capsys.readouterr().err


def test_a_table_without_an_imu_is_an_error(tmp_path, capsys):
    short = Flight(seconds=6.0)
    path = write_flight(tmp_path / "gnss.csv", short, without=("gyro_x",))
    assert main(["navigate", str(path), *FIELDS]) == 1
    assert "gnss.csv: no IMU" in capsys.readouterr().err


@pytest.mark.skipif(not HEXA.is_file(), reason="the public logs are not here: set FWNKF_DATA")
def test_a_px4_log_is_compared_with_its_autopilot(tmp_path, capsys):
    pytest.importorskip("mcap")
    assert main(["navigate", str(HEXA), "--no-fit", "--save", str(tmp_path / "track.mcap")]) == 0
    out = capsys.readouterr().out
    assert "NIS in the log" in out
    assert "Difference to the autopilot's estimate:" in out
    assert {"/fwnkf/state", "/fwnkf/pose"} <= set(open_log(tmp_path / "track.mcap").topics)
