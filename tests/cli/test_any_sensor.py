"""Sensors that are no IMU: columns under their own names are diagnosed, fixed, fitted, run and evaluated."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fwnkf
from fwnkf.cli import main


def write(path: Path, header: str, *columns: np.ndarray) -> Path:
    np.savetxt(path, np.column_stack(columns), delimiter=",", header=header, comments="", fmt="%.17g")
    return path


def tone(path: Path) -> Path:
    """A slow walk with noise of 0.1 and a tone at 40 Hz of ten times that."""
    generator, time = np.random.default_rng(0), np.arange(6000) / 200
    walk = 0.01 * np.cumsum(generator.normal(size=6000)) + 0.1 * generator.normal(size=6000)
    return write(path, "t,px", time, walk + np.sin(2 * np.pi * 40 * time))


def diagnosed(capsys: pytest.CaptureFixture[str], *words: object) -> dict:
    assert main(["diagnose", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_tone_in_a_column_is_found_and_fixed(tmp_path, capsys):
    path = tone(tmp_path / "radar.csv")
    found = diagnosed(capsys, path, "--fix", "--save", tmp_path / "fixed", "-o", tmp_path / "page.html")
    first = found["findings"][0]
    assert (first["cause"], first["severity"], first["channels"]) == ("vibration", "warning", ["px"])
    assert first["figures"]["frequency_hz"] == pytest.approx(40, abs=0.05)
    assert first["figures"]["amplitude"] == pytest.approx(1.0, rel=0.05)
    assert not any(finding["cause"] == "not_observable" for finding in found["findings"])
    assert (found["fix"]["outcome"], found["fix"]["kept"]) == ("better", "noise states")
    assert found["fix"]["gain"] > 1.0
    assert "px" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert main(["run", str(path), "--filter", str(tmp_path / "fixed"), "-o", str(tmp_path / "out.csv")]) == 0
    cleaned = np.genfromtxt(tmp_path / "out.csv", delimiter=",", names=True, comments="#")["px"][1000:]
    raw = np.genfromtxt(path, delimiter=",", names=True)["px"][1000:]
    beat = np.exp(-2j * np.pi * 40 * np.arange(len(raw)) / 200)
    assert abs((cleaned * beat).mean()) < 0.05 * abs((raw * beat).mean())


def test_a_load_cell_with_stamps_in_milliseconds(tmp_path, capsys):
    generator, steps = np.random.default_rng(1), np.arange(4000)
    load = 50 + 0.02 * generator.normal(size=4000) + 0.1 * np.sin(2 * np.pi * 17.3 * steps / 80)
    found = diagnosed(capsys, write(tmp_path / "cell.csv", "time_ms,load [N]", steps * 12.5, load), "--fix",
                      "--save", tmp_path / "fixed")  # fmt: skip
    assert found["seconds"] == pytest.approx(50, abs=0.1)
    assert found["findings"][0]["figures"]["frequency_hz"] == pytest.approx(17.3, abs=0.05)
    assert "N in load" in found["findings"][0]["evidence"]
    assert found["fix"]["outcome"] == "better"


def test_gaps_of_a_gnss_receiver_are_found(tmp_path, capsys):
    generator, time = np.random.default_rng(2), np.arange(3000) / 10 + 1.7e9
    track = [30 * np.sin(0.05 * (time - time[0])) + 0.3 * generator.normal(size=3000) for _ in range(2)]
    keep = (np.arange(3000) < 1000) | (np.arange(3000) > 1050)
    path = write(tmp_path / "gnss.csv", "time,gps_x,gps_y", *(item[keep] for item in (time, *track)))
    found = diagnosed(capsys, path, "--fix", "--save", tmp_path / "fixed", "--field", "gps_x=gps_x")
    assert [finding["cause"] for finding in found["findings"]] == ["gaps"]
    assert found["fix"]["outcome"] in ("unchanged", "better")
    assert [part.name for part in fwnkf.load(tmp_path / "fixed").observation_layout.parts] == ["gps_x"]


def test_only_the_columns_asked_for_are_examined(tmp_path, capsys):
    generator, time = np.random.default_rng(3), np.arange(2000) / 200
    imu = generator.normal(size=(2000, 3))
    path = write(tmp_path / "run.csv", "t,wx,wy,wz,force", time, *imu.T, np.sin(2 * np.pi * 31 * time) + imu[:, 0])
    found = diagnosed(capsys, path)
    assert any("not examined: force" in note for note in found["notes"])
    found = diagnosed(capsys, path, "--channels", "force")
    assert found["findings"][0]["channels"] == ["force"]
    found = diagnosed(capsys, path, "--field", "gyro_x=wx*0.0174533")
    assert "imu at 200 Hz" in found["filter"]
    found = diagnosed(capsys, path, "--channels", "gyro_x,load=force*2")
    assert {row["name"] for row in found["consistency"]} >= {"gyro_x", "load"}
    assert not any(row["name"] == "gyro_y" for row in found["consistency"])


def test_the_columns_of_a_fix_are_found_again(tmp_path, capsys):
    path = tone(tmp_path / "radar.csv")
    words = ["--fix", "--save", tmp_path / "fixed", "--channels", "height=px*100", "--time", "t"]
    assert diagnosed(capsys, path, *words)["fix"]["outcome"] == "better"
    assert main(["run", str(path), "--filter", str(tmp_path / "fixed"), "-o", str(tmp_path / "out.csv")]) == 0
    height = np.genfromtxt(tmp_path / "out.csv", delimiter=",", names=True, comments="#")["height"]
    raw = np.genfromtxt(path, delimiter=",", names=True)["px"]
    assert np.corrcoef(height, raw)[0, 1] > 0.2
    assert np.std(height[200:]) < 60 < np.std(100 * raw)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> Path:
    """A folder of logs and a filter that `fwnkf fit` wrote."""
    folder = tmp_path_factory.mktemp("logs")
    for number in range(5):
        generator, time = np.random.default_rng(number), np.arange(600) / 100
        height = np.cumsum(np.cumsum(generator.normal(size=600))) * 1e-3 + 0.1 * generator.normal(size=600)
        write(folder / f"f{number}.csv", "stamp,alt_cm", 1e3 * time, 100 * height)
    words = ["--system", "constant_velocity", "--set", "dims=1", "--observe", "height=alt_cm*0.01"]
    assert main(["fit", str(folder), *words, "--oscillators", "0", "-o", str(folder / "fitted")]) == 0
    return folder


def test_evaluate_takes_what_fit_wrote_and_the_folder_it_read(fitted, capsys):
    assert main(["evaluate", str(fitted / "fitted"), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    report = json.loads((fitted / "fitted" / "report.json").read_text(encoding="utf-8"))
    assert row["records"] == report["held_out"]["records"] == 1
    assert row["log_likelihood"] == pytest.approx(report["held_out"]["log_likelihood"], abs=0.01)
    assert row["nis"] == pytest.approx(report["held_out"]["nis"], abs=0.01)
    assert main(["evaluate", str(fitted / "fitted"), "--data", str(fitted), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["records"] == 5
    assert row["nis"] == pytest.approx(1, abs=0.1)


def test_run_takes_what_fit_wrote_and_the_folder_it_read(fitted, tmp_path, capsys):
    filter_folder = str(fitted / "fitted")
    assert main(["run", str(fitted / "f3.csv"), "--filter", filter_folder, "-o", str(tmp_path / "one.csv")]) == 0
    assert main(["run", str(fitted), "--filter", filter_folder, "-o", str(tmp_path / "all")]) == 0
    assert (tmp_path / "all" / "f3.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()
    assert len(list((tmp_path / "all").iterdir())) == 5
    assert main(["run", str(fitted), "--filter", filter_folder, "-o", str(tmp_path / "all.csv")]) == 2
    assert "is a folder of 5 tables; name a folder too" in capsys.readouterr().err


def test_csv_has_the_numbers_of_parquet(fitted, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    for name in ("out.csv", "out.parquet"):
        words = [str(fitted / "f1.csv"), "--filter", str(fitted / "fitted"), "--covariance", "-o", str(tmp_path / name)]
        assert main(["run", *words]) == 0
    table = parquet.read_table(tmp_path / "out.parquet")
    read = np.genfromtxt(tmp_path / "out.csv", delimiter=",", names=True, comments="#", deletechars="")
    assert list(read.dtype.names) == table.column_names
    for name in table.column_names:
        assert np.array_equal(read[name], table.column(name).to_numpy())


def test_an_encoder_is_coarse_and_not_clipped_where_it_stands(tmp_path, capsys):
    time = np.arange(6000) / 1000
    angle = np.clip(time - 0.3, 0, None) / 2 + 0.02 * np.sin(9 * time) * (time > 0.3)
    path = write(tmp_path / "encoder.csv", "timestamp_us,counts", 1e6 * time, np.floor(angle * 1024))
    found = diagnosed(capsys, path, "--fix", "--save", tmp_path / "fixed")
    (coarse,) = [finding for finding in found["findings"] if finding["cause"] == "quantisation"]
    assert coarse["figures"]["step"] == 1.0
    assert coarse["figures"]["std"] == pytest.approx(1 / np.sqrt(12))
    assert not any(finding["cause"] == "clipping" for finding in found["findings"])
    assert found["fix"]["outcome"] in ("better", "unchanged")
    assert main(["run", str(path), "--filter", str(tmp_path / "fixed"), "-o", str(tmp_path / "out.csv")]) == 0
    speed = np.genfromtxt(tmp_path / "out.csv", delimiter=",", names=True, comments="#")["counts_slope"][3000:]
    true = 1024 * (0.5 + 0.18 * np.cos(9 * time))[3000:]
    assert np.std(speed - true) < 0.05 * 1000  # differences of counts come in steps of 1000 a second


def test_a_sensor_that_clips_and_one_that_drifts(tmp_path, capsys):
    generator, time = np.random.default_rng(5), np.arange(6000) / 100
    pressure = np.clip(3 * np.sin(2 * np.pi * 0.2 * time) + 0.1 * generator.normal(size=6000), -2.5, 2.5)
    scale = 20 + 0.01 * time + 0.05 * generator.normal(size=6000)
    path = write(tmp_path / "tank.csv", "time [s],pressure [bar],mass [kg]", time, pressure, scale)
    found = {finding["cause"]: finding for finding in diagnosed(capsys, path)["findings"]}
    assert found["clipping"]["channels"] == ["pressure"]
    assert abs(found["clipping"]["figures"]["limit"]) == pytest.approx(2.5)
    assert found["drift"]["channels"] == ["mass"]
    assert found["drift"]["figures"]["change"] == pytest.approx(0.6, rel=0.1)
    assert "quantisation" not in found


def test_counters_are_no_sensors_and_many_columns_are_not_all_examined(tmp_path, capsys):
    generator, time = np.random.default_rng(6), np.arange(1000) / 50
    columns = generator.normal(size=(15, 1000))
    header = ",".join(["t", "index", "level", *(f"c{number}" for number in range(15))])
    path = write(tmp_path / "wide.csv", header, time, np.arange(1000), 20 + 0.001 * np.arange(1000), *columns)
    found = diagnosed(capsys, path)
    assert found["findings"] == []
    names = {row["name"] for row in found["consistency"]}
    assert names >= {"c0", "c11"}
    assert not names & {"index", "level", "c12"}
    assert any("not examined: c12, c13, c14" in note for note in found["notes"])
