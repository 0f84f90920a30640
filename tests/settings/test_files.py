"""Files of settings, read back by other readers than ours."""

from __future__ import annotations

import csv
import re

import pytest
import yaml

from fwnkf.errors import ConfigError
from fwnkf.settings import (
    FORMATS,
    Gain,
    ImuNoise,
    SensorNoise,
    Suggestion,
    find,
    format_of,
    gtsam,
    kalibr,
    openvins,
    settings_text,
)

GAIN = Gain(12.0, 9.0, 15.0, "% less gyro vibration")


def suggestions(values):
    return [Suggestion.of(find(name), value, current=0.0, why="A line at 97 Hz, 0.35 m/s².", gain=GAIN, delay=5e-4)
            for name, value in values.items()]  # fmt: skip


PX4 = suggestions({"IMU_GYRO_NF0_FRQ": 97.0, "IMU_GYRO_DNF_EN": 1, "EKF2_GYR_B_NOISE": 0.000012})
ARDUPILOT = suggestions({"INS_HNTCH_ENABLE": 1, "INS_HNTCH_FREQ": 87.0, "EK3_GBIAS_P_NSE": 0.000012})
BETAFLIGHT = suggestions({"rpm_filter_harmonics": 3, "rpm_filter_q": 500})


def test_qgroundcontrol_reads_it_back(tmp_path):
    path = tmp_path / "notch.params"
    path.write_text(settings_text(PX4, format_of(path), source="flight.ulg", vehicle=8), encoding="ascii")
    # QGroundControl: lines that do not begin with # have five parts between tabs
    with path.open(encoding="ascii") as file:
        rows = list(csv.reader((line for line in file if not line.startswith("#")), delimiter="\t"))
    assert {len(row) for row in rows} == {5}
    assert {(row[0], row[1]) for row in rows} == {("8", "1")}
    assert {row[2]: float(row[3]) for row in rows} == {row.name: row.value for row in PX4}
    assert {row[2]: int(row[4]) for row in rows} == {
        "IMU_GYRO_NF0_FRQ": 9,
        "IMU_GYRO_DNF_EN": 6,
        "EKF2_GYR_B_NOISE": 9,
    }


def test_mission_planner_reads_it_back(tmp_path, capsys):
    mavparm = pytest.importorskip("pymavlink.mavparm")
    path = tmp_path / "notch.param"
    path.write_text(settings_text(ARDUPILOT, format_of(path), source="flight.bin"), encoding="ascii")
    read = mavparm.MAVParmDict()
    read.load(str(path))
    assert "Invalid" not in capsys.readouterr().out
    assert dict(read) == {row.name: row.value for row in ARDUPILOT}
    for line in path.read_text(encoding="ascii").splitlines():
        assert re.fullmatch(r"#.*|[A-Z0-9_]{1,16},-?\d+(\.\d+)?", line)


def test_the_command_line_of_betaflight_reads_it_back(tmp_path):
    path = tmp_path / "notch.txt"
    path.write_text(settings_text(BETAFLIGHT, format_of(path)), encoding="ascii")
    lines = [line for line in path.read_text(encoding="ascii").splitlines() if not line.startswith("#")]
    assert lines.pop() == "save"
    found = dict(re.fullmatch(r"set (\w+) = (\d+)", line).groups() for line in lines)
    assert found == {row.name: str(int(row.value)) for row in BETAFLIGHT}


def test_names_of_logs_cannot_add_lines():
    text = settings_text(PX4, format_of("a.params"), source="a\n1\t1\tEVIL\t1\t9\n\u202eb.ulg")
    assert not any(line.startswith("1\t1\tEVIL") for line in text.splitlines())
    assert text.isascii()


def test_the_suffix_or_the_firmware_decides():
    assert [format_of(f"x{suffix}") for item in FORMATS for suffix in item.suffixes] == [
        item for item in FORMATS for _ in item.suffixes
    ]
    assert format_of("x", "PX4").name == "QGroundControl"
    assert format_of("x", "ArduPilot").name == "Mission Planner"


@pytest.mark.parametrize(
    ("name", "firmware"), [("x.ini", None), ("x.ini", "PX4"), ("x", None), ("x.param", "PX4"), ("x.txt", "ArduPilot")]
)
def test_an_error_names_the_formats(name, firmware):
    with pytest.raises(ConfigError, match=r"\.params for QGroundControl; \.param, \.parm for Mission Planner; \.txt"):
        format_of(name, firmware)


def test_settings_of_one_firmware_are_not_written_for_another():
    with pytest.raises(ConfigError, match="INS_HNTCH_FREQ"):
        settings_text(ARDUPILOT, format_of("x.txt"))


NOISE = ImuNoise(
    SensorNoise("rad/s", 2e-4, 1e-5, 2e-3), SensorNoise("m/s²", 3e-3, None, 0.05), 200.0, "at rest, 40 s", "/imu0"
)


def test_kalibr_reads_it_back():
    read = yaml.safe_load(kalibr(NOISE, source="rest.bag"))
    assert read == {
        "accelerometer_noise_density": 3e-3,
        "gyroscope_noise_density": 2e-4,
        "gyroscope_random_walk": 1e-5,
        "rostopic": "/imu0",
        "update_rate": 200,
    }
    assert "accelerometer_random_walk: the log does not show it" in kalibr(NOISE)
    shaken = yaml.safe_load(kalibr(NOISE, vibration=True))
    assert (shaken["accelerometer_noise_density"], shaken["gyroscope_noise_density"]) == (0.05, 2e-3)


def test_openvins_has_the_same_numbers():
    assert yaml.safe_load(openvins(NOISE))["imu0"] == {
        name: value for name, value in yaml.safe_load(kalibr(NOISE)).items() if name != "rostopic"
    }


def test_gtsam_gets_variances():
    class Params:
        def __getattr__(self, name):
            return lambda value: found.setdefault(name, value)

    class Numpy:
        eye = staticmethod(lambda size: float(size))

    found: dict[str, float] = {}
    exec(gtsam(NOISE), {"params": Params(), "np": Numpy})
    assert found["setGyroscopeCovariance"] == pytest.approx(3 * 2e-4**2)
    assert found["setAccelerometerCovariance"] == pytest.approx(3 * 3e-3**2)
    assert found["setBiasOmegaCovariance"] == pytest.approx(3 * 1e-5**2)
    assert "setBiasAccCovariance" not in found


def test_vibration_is_said_apart():
    said = kalibr(NOISE)
    assert "10 times" in said
    assert f"vibration adds {(0.05**2 - 3e-3**2) ** 0.5:.3g}" in said


def test_without_a_flight_there_is_no_density_in_motion():
    rest = ImuNoise(SensorNoise("rad/s", 2e-4), SensorNoise("m/s²", 3e-3), 200.0, "at rest")
    with pytest.raises(ConfigError, match="recorded at rest"):
        kalibr(rest, vibration=True)
