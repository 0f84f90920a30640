"""Verdicts on public logs against what is known of them; skipped where the logs are not there."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from fwnkf.diagnosis import Diagnosis, Finding, diagnose
from fwnkf.logs import open_log

LOGS = Path(os.environ.get("FWNKF_DATA", "")) / "logs"
pytestmark = pytest.mark.skipif(
    "FWNKF_DATA" not in os.environ or not LOGS.is_dir(), reason="the logs are not in $FWNKF_DATA/logs"
)
ALL = {
    "ulog": (
        "3dr_hexa_flight1.ulg", "3dr_hexa_flight2.ulg", "px4_quadrotor_local.ulg",
        "px4_corrupt_unregistered_msg_id.ulg", "px4_esc_status_log.ulg", "auriol_octo_log3_upset.ulg",
        "auriol_octo_log48_fifo8k.ulg",
        "fsyr_octo_log123_gyrofft.ulg", "mengchaoheng_test3_visualodom.ulg",
    ),
    "dataflash": ("octo_15_healthy.BIN", "octo_03_prop_cut_1p5cm.BIN", "octo_10_prop_cut_3p5cm.BIN"),
    "blackbox": ("fcblackbox_LOG00037.BFL", "bbltuning_sample-short.BFL", "bblhelper_btfl_003.bbl"),
    "rosbag1": ("robot_localization_ardrone.bag", "robot_localization_xsens_wheel_stereo.bag"),
    "mcap": ("cubs2_stabilize_2025_11_13.mcap", "weedy_rover_imu50.mcap"),
}  # fmt: skip
QUICK = ("px4_esc_status_log.ulg", "octo_10_prop_cut_3p5cm.BIN", "cubs2_stabilize_2025_11_13.mcap")
"""Logs that every run of the tests reads; the others take ten seconds each."""


@cache
def diagnosis(name: str) -> Diagnosis:
    (folder,) = [folder for folder, names in ALL.items() if name in names]
    return diagnose(open_log(LOGS / folder / name))


def findings(name: str, cause: str) -> list[Finding]:
    return [item for item in diagnosis(name).findings if item.cause == cause]


@pytest.mark.parametrize("name", QUICK)
def test_a_quick_log_has_a_verdict(name):
    result = diagnosis(name)
    assert result.findings
    assert result.as_dict(arrays=False)["verdict"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for names in ALL.values() for name in names])
def test_every_log_has_a_verdict(name):
    result = diagnosis(name)
    assert result.findings
    assert all(item.action and item.evidence and 0 < item.score <= 1 for item in result.findings)


@pytest.mark.parametrize("name", ["px4_esc_status_log.ulg", "octo_10_prop_cut_3p5cm.BIN"])
def test_a_slow_log_says_what_it_cannot_show(name):
    assert any("cannot be seen in this log" in item.what for item in findings(name, "not_observable"))


def test_a_log_that_shows_nothing_of_its_sensors_says_that_first():
    first = diagnosis("px4_esc_status_log.ulg").findings[0]
    assert first.what.startswith("Vibration above")


def test_rotors_above_the_nyquist_frequency_are_named():
    (item, *_) = findings("px4_esc_status_log.ulg", "not_observable")
    assert "rotors turn at" in item.what


def test_a_log_without_imu_says_so():
    assert any("no IMU" in item.what for item in findings("cubs2_stabilize_2025_11_13.mcap", "not_observable"))


@pytest.mark.slow
def test_a_rover_below_100_hz_cannot_show_vibration():
    assert any("cannot be seen" in item.what for item in findings("weedy_rover_imu50.mcap", "not_observable"))


def first(name: str, cause: str) -> Finding:
    """The only warning of a cause, among the first three."""
    problems = diagnosis(name).problems[:3]
    (item,) = [item for item in problems if item.cause == cause]
    return item


def never_fixed(name: str) -> None:
    assert not [item for item in diagnosis(name).problems if item.cause == "vibration"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["3dr_hexa_flight1.ulg", "3dr_hexa_flight2.ulg"])
def test_the_blade_pass_of_a_hexacopter_is_folded(name):
    item = first(name, "rotor_vibration")
    assert item.figures["harmonic"] == 2
    folded = float(item.figures["rate_hz"]) - float(item.figures["origin_hz"])
    assert float(item.figures["frequency_hz"]) == pytest.approx(folded, rel=0.05)  # means of two things that sweep
    never_fixed(name)


@pytest.mark.slow
def test_the_line_of_the_on_board_spectrum_is_in_the_log():
    """96.8 Hz by the autopilot's own transform at 8 kHz, and from 74 to 114 Hz: it moves across half the sampling rate.

    Samples are skipped, and the sampling rate is 200 Hz.
    """
    result = diagnosis("fsyr_octo_log123_gyrofft.ulg")
    assert result.problems[0].cause in ("aliasing", "rotor_vibration")
    assert float(result.problems[0].figures["frequency_hz"]) == pytest.approx(96.9, abs=4)
    never_fixed("fsyr_octo_log123_gyrofft.ulg")
    assert float(result.facts["imu_rate_hz"]) == pytest.approx(200.0, rel=0.005)
    (item,) = findings("fsyr_octo_log123_gyrofft.ulg", "gaps")
    assert float(item.figures["mean_rate_hz"]) == pytest.approx(186, abs=1)


@pytest.mark.slow
def test_lines_that_follow_motors_are_not_fixed():
    """53 Hz follows motor 4, 70 Hz motor 2 (rank correlations 0.91 and 0.94 of ridges of other spectrograms)."""
    name = "px4_quadrotor_local.ulg"
    assert findings(name, "rotor_vibration")
    never_fixed(name)
    labels = {round(peak.frequency): peak.label for peak in diagnosis(name).peaks}
    assert any("motor 4" in label for at, label in labels.items() if 51 <= at <= 55)
    assert any("motor 2" in label for at, label in labels.items() if 68 <= at <= 72)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("fcblackbox_LOG00037.BFL", 110, 145),
        ("bbltuning_sample-short.BFL", 185, 260),
        ("bblhelper_btfl_003.bbl", 235, 300),
    ],
)
def test_what_the_rotors_shake_is_one_finding_where_the_power_is(name, low, high):
    item = first(name, "rotor_vibration")
    assert low < float(item.figures["frequency_hz"]) < high
    assert {one.cause for one in diagnosis(name).problems} == {"rotor_vibration", "time_base"}


@pytest.mark.slow
def test_a_mirrored_gyro_is_no_drift():
    """Its yaw is +6.0 rad where that of the wheels is -6.4."""
    result = diagnosis("robot_localization_xsens_wheel_stereo.bag")
    assert result.problems[0].cause == "axis_sign"
    assert "gyro_z" in result.problems[0].channels
    assert not {"drift", "bias_step", "scale"} & {item.cause for item in result.problems}


@pytest.mark.slow
def test_a_touchdown_is_no_vibration():
    """35.4 Hz is there for the two seconds of touchdown; 51 to 63 Hz for most of the flight."""
    name = "mengchaoheng_test3_visualodom.ulg"
    lines = [float(item.figures["frequency_hz"]) for item in diagnosis(name).problems if "frequency_hz" in item.figures]
    assert lines
    assert all(47 < at < 80 for at in lines)
    assert any(51 < at < 63 for at in lines)


def test_a_healthy_flight_has_no_warning():
    result = diagnosis("octo_15_healthy.BIN")
    assert result.problems == ()
    assert result.verdict == "No problem was found in this log."


@pytest.mark.slow
def test_undeclared_gaps_are_named():
    (item,) = findings("auriol_octo_log3_upset.ulg", "gaps")  # one cause, one finding, whatever the number of signals
    assert float(item.figures["longest_s"]) == pytest.approx(6.4, abs=0.1)
    assert "without a dropout message" in item.what


@pytest.mark.slow
def test_a_fifo_states_a_wrong_rate():
    wrong = findings("auriol_octo_log48_fifo8k.ulg", "time_base")
    assert any(float(item.figures["rate_hz"]) == pytest.approx(7911, rel=0.005) for item in wrong)


@pytest.mark.slow
def test_a_damaged_file_is_read_behind_the_damage():
    assert findings("px4_corrupt_unregistered_msg_id.ulg", "damaged_file")
    lines = [peak.frequency for peak in diagnosis("px4_corrupt_unregistered_msg_id.ulg").peaks]
    assert any(90 < frequency < 101 for frequency in lines)


@pytest.mark.slow
def test_dead_reckoning_is_named():
    (item,) = findings("px4_quadrotor_local.ulg", "no_aiding")
    assert item.severity == "failure"
    assert float(item.figures["span_m"]) == pytest.approx(680, abs=2)  # 742 m with the time on the ground
    assert diagnosis("px4_quadrotor_local.ulg").findings[0] is item


@pytest.mark.slow
def test_a_cut_propeller_is_told_from_a_healthy_one():
    """At 25 Hz only the autopilot's own level of vibration tells."""
    levels = {}
    for name in ALL["dataflash"]:
        strong = [item for item in findings(name, "broadband") if "level" in item.figures]
        levels[name] = max((float(item.figures["level"]) for item in strong), default=0.0)
    assert levels["octo_15_healthy.BIN"] == 0.0
    assert 10 < levels["octo_03_prop_cut_1p5cm.BIN"] < levels["octo_10_prop_cut_3p5cm.BIN"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL["blackbox"])
def test_signals_with_the_same_stamps_have_one_finding_about_them(name):
    (item,) = findings(name, "time_base")
    assert {"imu", "gyro", "accel"} & set(item.what.partition(":")[0].split(", "))


@pytest.mark.slow
def test_a_rover_at_rest_is_not_clipped():
    """Its accelerometer is coarse: a few levels, each of them repeated."""
    assert not findings("weedy_rover_imu50.mcap", "clipping")
