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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["3dr_hexa_flight1.ulg", "3dr_hexa_flight2.ulg"])
def test_the_blade_pass_of_a_hexacopter_is_folded(name):
    aliases = findings(name, "aliasing")
    assert aliases
    for item in aliases:
        folded = float(item.figures["rate_hz"]) - float(item.figures["origin_hz"])
        assert float(item.figures["frequency_hz"]) == pytest.approx(folded, rel=0.05)  # means of two things that sweep
        assert item.figures["harmonic"] == 2
    assert any("gyro_x" in item.channels for item in aliases)


@pytest.mark.slow
def test_the_line_of_the_on_board_spectrum_is_in_the_log():
    """96.8 Hz by the autopilot's own transform at 8 kHz; samples are skipped, and the sampling rate is 200 Hz.

    That transform also says that the line moves, from 74 to 114 Hz in nine windows of ten: it sweeps across half the
    sampling rate, where it is folded. What sweeps below and what gathers there are the first two findings.
    """
    result = diagnosis("fsyr_octo_log123_gyrofft.ulg")
    assert any(abs(peak.frequency - 96.9) < 2.5 for peak in result.peaks if peak.channel.startswith("gyro"))
    sweep, line = sorted(result.findings[:2], key=lambda item: item.cause)
    assert (sweep.cause, line.cause) == ("rotor_vibration", "vibration")
    assert float(line.figures["frequency_hz"]) == pytest.approx(96.9, abs=2.5)
    assert float(result.facts["imu_rate_hz"]) == pytest.approx(200.0, rel=0.005)
    (item,) = [item for item in findings("fsyr_octo_log123_gyrofft.ulg", "gaps") if "missing_share" in item.figures]
    assert float(item.figures["mean_rate_hz"]) == pytest.approx(186, abs=1)


@pytest.mark.slow
def test_undeclared_gaps_are_named():
    listed = [item for item in findings("auriol_octo_log3_upset.ulg", "gaps") if "longest_s" in item.figures]
    assert float(listed[0].figures["longest_s"]) == pytest.approx(6.4, abs=0.1)
    assert "without a dropout message" in listed[0].what


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
    assert float(item.figures["span_m"]) == pytest.approx(722, abs=1)  # 742 m with the time on the ground
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


@pytest.mark.slow
def test_a_gyro_before_its_filters_follows_the_rotors():
    assert findings("bblhelper_btfl_003.bbl", "rotor_vibration")
