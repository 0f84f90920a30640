"""fwnkf diagnose --params: settings as files, in the text, in JSON and on the page."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pytest
import yaml

from fwnkf.cli import main
from fwnkf.data.flights import Vehicle, flight

from ..logs.writers import write_flight
from ..logs.writers.ulog import Topic, ticks, write

PARAMETERS = {"MAV_SYS_ID": 8, "IMU_GYRO_CUTOFF": 80.0, "IMU_GYRO_NF0_FRQ": 0.0, "IMU_GYRO_NF0_BW": 20.0}


@pytest.fixture(scope="module")
def flown(tmp_path_factory):
    """A PX4 log of an IMU with a fixed line at 61 Hz in the gyro."""
    path = tmp_path_factory.mktemp("flown") / "flight.ulg"
    imu = flight(seed=4, seconds=20.0, vehicle=Vehicle(rate=250.0, hover=68.0))
    line = 0.2 * np.sin(2 * np.pi * 61.3 * imu.imu_time)
    columns = {
        "timestamp": ("uint64_t", ticks(imu.imu_time)),
        "gyro_rad": ("float", imu.gyro + line[:, None] * [1.0, 0.5, 0.2]),
        "accelerometer_m_s2": ("float", imu.accel),
    }
    release = {"ver_sw_release": 1 << 24 | 15 << 16 | 255}
    write(path, [Topic("sensor_combined", columns, imu.imu_time)], parameters=PARAMETERS, information=release)
    return path


def test_a_file_for_qgroundcontrol_is_written(flown, tmp_path, capsys):
    path = tmp_path / "new" / "notch.params"
    assert main(["diagnose", str(flown), "--params", str(path)]) == 0
    text = capsys.readouterr().out
    rows = [line.split("\t") for line in path.read_text(encoding="ascii").splitlines() if not line.startswith("#")]
    assert {row[2]: row[3] for row in rows}["IMU_GYRO_NF0_FRQ"] == "61"
    assert {row[0] for row in rows} == {"8"}
    assert re.search(r"Numbers to type in:\n +parameter +log +suggested +range +gain +delay\n +IMU_GYRO_NF0_FRQ", text)


def test_json_and_the_page_have_the_same_numbers(flown, tmp_path, capsys):
    page = tmp_path / "report.html"
    assert main(["diagnose", str(flown), "--json", "-o", str(page), "--params", str(tmp_path / "x.params")]) == 0
    rows = json.loads(capsys.readouterr().out)["settings"]
    found = {row["name"]: row for row in rows}
    assert found["IMU_GYRO_NF0_FRQ"]["value"] == 61.0
    assert found["IMU_GYRO_NF0_FRQ"]["gain"]["low"] > 1
    assert found["IMU_GYRO_NF0_FRQ"]["delay"] > 0
    html = page.read_text(encoding="utf-8")
    assert "Which settings would help?" in html
    assert "IMU_GYRO_NF0_FRQ" in html
    assert (tmp_path / "x.params").is_file()


def test_without_a_gain_no_file_is_written(tmp_path, capsys):
    clean = write_flight(tmp_path, "ulog", flight(seed=12, seconds=20.0, vehicle=Vehicle(rate=200.0, hover=68.0)))
    path = tmp_path / "notch.params"
    assert main(["diagnose", str(clean), "--params", str(path)]) == 0
    assert not path.exists()
    output = capsys.readouterr()
    assert "Numbers to type in: none." in output.out
    assert "is not written: there is no setting to change" in output.err


def test_the_noise_of_the_imu_is_written_for_kalibr(flown, tmp_path, capsys):
    path = tmp_path / "imu.yaml"
    assert main(["diagnose", str(flown), "--params", str(path)]) == 0
    capsys.readouterr()
    read = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert read["update_rate"] == pytest.approx(250, rel=0.01)
    assert 0 < read["gyroscope_noise_density"] < 1


@pytest.mark.parametrize("name", ["notch.ini", "notch.param", "notch.txt"])
def test_a_wrong_format_is_a_usage_error_that_names_the_formats(flown, tmp_path, name, capsys):
    assert main(["diagnose", str(flown), "--params", str(tmp_path / name)]) == 2
    output = capsys.readouterr()
    assert "known are .params for QGroundControl" in output.err
    assert output.out == ""


def test_a_log_of_no_known_firmware_has_no_settings(tmp_path, capsys):
    log = write_flight(tmp_path, "csv", flight(seed=4, seconds=8.0))
    assert main(["diagnose", str(log), "--params", str(tmp_path / "a.params")]) == 1
    assert "names no firmware" in capsys.readouterr().err
    assert main(["diagnose", str(log), "--params", str(tmp_path / "a")]) == 2
    assert "known are" in capsys.readouterr().err


def test_settings_need_no_torch(flown, tmp_path):
    code = (
        "import sys; from fwnkf.cli import main; import fwnkf.settings; "
        "main(['diagnose', sys.argv[1], '--params', sys.argv[2]]); assert 'torch' not in sys.modules"
    )
    path = tmp_path / "notch.params"
    subprocess.run([sys.executable, "-c", code, str(flown), str(path)], check=True, stdout=subprocess.DEVNULL)
    assert path.is_file()
