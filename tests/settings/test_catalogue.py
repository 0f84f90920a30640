"""The catalogue of firmware parameters, and what a log says of its own."""

from __future__ import annotations

import math

import pytest

from fwnkf.errors import ConfigError
from fwnkf.settings import CATALOGUE, Gain, Suggestion, Vehicle, find, firmware_of, significant

WANTED = """
    EKF2_GYR_NOISE EKF2_ACC_NOISE EKF2_GYR_B_NOISE EKF2_ACC_B_NOISE EKF2_GPS_P_NOISE EKF2_GPS_V_NOISE EKF2_BARO_NOISE
    EKF2_MAG_NOISE EKF2_GPS_DELAY EKF2_BARO_DELAY EKF2_MAG_DELAY EKF2_GPS_POS_X EKF2_GPS_POS_Y EKF2_GPS_POS_Z
    EK3_GYRO_P_NSE EK3_ACC_P_NSE EK3_GBIAS_P_NSE EK3_ABIAS_P_NSE EK3_POSNE_M_NSE EK3_VELNE_M_NSE EK3_VELD_M_NSE
    EK3_ALT_M_NSE EK3_MAG_M_NSE GPS_DELAY_MS GPS1_DELAY_MS IMU_GYRO_CUTOFF IMU_DGYRO_CUTOFF IMU_GYRO_NF0_FRQ
    IMU_GYRO_NF0_BW IMU_GYRO_NF1_FRQ IMU_GYRO_NF1_BW IMU_GYRO_DNF_EN IMU_GYRO_DNF_BW IMU_GYRO_DNF_HMC IMU_GYRO_DNF_MIN
    INS_GYRO_FILTER INS_HNTCH_ENABLE INS_HNTCH_FREQ INS_HNTCH_BW INS_HNTCH_ATT INS_HNTCH_HMNCS INS_HNTCH_MODE
    INS_HNTCH_REF rpm_filter_harmonics rpm_filter_q rpm_filter_min_hz rpm_filter_fade_range_hz rpm_filter_lpf_hz
    dyn_notch_count dyn_notch_q dyn_notch_min_hz dyn_notch_max_hz gyro_lpf1_static_hz gyro_lpf2_static_hz
"""


@pytest.mark.parametrize("name", WANTED.split())
def test_every_parameter_is_found(name):
    assert name in (find(name).name, *find(name).former)


@pytest.mark.parametrize("parameter", CATALOGUE.values(), ids=lambda row: row.name)
def test_defaults_are_inside_their_ranges_and_survive_typing(parameter):
    low = -math.inf if parameter.minimum is None else parameter.minimum
    high = math.inf if parameter.maximum is None else parameter.maximum
    assert low <= parameter.default <= high
    assert parameter.typed(parameter.default) == parameter.default


def test_an_unknown_parameter_is_named():
    with pytest.raises(ConfigError, match="no parameter EKF2_NONSENSE"):
        find("EKF2_NONSENSE")


@pytest.mark.parametrize(
    ("text", "firmware"),
    [
        ("PX4 1.16.1", "PX4"),
        ("ArduCopter V4.3.6", "ArduPilot"),
        ("ArduPlane V4.5.7", "ArduPilot"),
        ("Betaflight 4.5.1 (77d01ba3b) STM32F405", "Betaflight"),
        ("Rotorflight 4.3.0", None),
        ("INAV 7.1.0", None),
        (None, None),
    ],
)
def test_the_firmware_of_a_log(text, firmware):
    assert firmware_of(text) == firmware


def test_a_vehicle_has_what_its_log_lists():
    old = Vehicle("PX4 1.8.0", {"IMU_GYRO_CUTOFF": 80.0})
    assert old.has("IMU_GYRO_CUTOFF")
    assert not old.has("IMU_GYRO_NF0_FRQ")
    assert Vehicle("PX4", {}).has("IMU_GYRO_NF0_FRQ")
    assert not Vehicle("ArduCopter V4.3.6", {}).has("IMU_GYRO_NF0_FRQ")
    hidden = Vehicle("ArduCopter V4.3.6", {"INS_HNTCH_ENABLE": 0.0})
    assert hidden.has("INS_HNTCH_BW")
    assert not hidden.has("INS_HNTC2_BW")
    assert hidden.value("INS_HNTCH_BW") is None


def test_values_are_typed_as_a_person_would():
    assert find("EKF2_GYR_NOISE").typed(0.0123456) == 0.012
    assert find("IMU_GYRO_NF0_FRQ").typed(96.83) == 97.0
    assert find("EKF2_GPS_POS_X").typed(-0.1234) == -0.12
    assert find("rpm_filter_min_hz").typed(12.0) == 30.0
    assert Suggestion.of(find("rpm_filter_q"), 500.0, why="").text == "500"
    assert Suggestion.of(find("EKF2_GPS_POS_X"), -0.1234, why="").text == "-0.12"


def test_a_limit_of_the_firmware_is_said():
    row = Suggestion.of(find("EKF2_ACC_NOISE"), 2.4, why="Vibration.")
    assert row.value == 1.0
    assert "allows 0.01 to 1; the data ask for 2.4" in row.why
    assert "allows" not in Suggestion.of(find("EKF2_ACC_NOISE"), 1.0, why="Vibration.").why


def test_only_what_changes_and_gains_significantly_is_suggested():
    sure, unsure = Gain(10.0, 8.0, 12.0, "%"), Gain(10.0, -1.0, 21.0, "%")
    delay, noise, same = find("EKF2_GPS_DELAY"), find("EKF2_BARO_NOISE"), find("EKF2_GPS_V_NOISE")
    kept = Suggestion.of(delay, 180, current=110, why="", gain=sure)
    rows = [
        kept,
        Suggestion.of(noise, 2.0, current=3.5, why="", gain=unsure),
        Suggestion.of(same, 0.3, current=0.3, why="", gain=sure),
        Suggestion.of(noise, 2.0, current=3.5, why=""),
        Suggestion.of(noise, 2.0, current=3.5, why="", gain=Gain(math.nan, math.nan, math.nan, "%")),
    ]
    assert significant(rows) == (kept,)


def test_settings_that_belong_together_stay_together():
    gain = Gain(10.0, 8.0, 12.0, "%")
    names = ("IMU_GYRO_NF0_FRQ", "IMU_GYRO_NF0_BW")
    rows = [Suggestion.of(find(name), 20.0, current=value, why="", gain=gain, group="notch")
            for name, value in zip(names, (0.0, 20.0), strict=True)]  # fmt: skip
    assert not rows[1].changes
    assert significant(rows) == tuple(rows)
