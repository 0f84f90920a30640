"""Nineteen public logs: opened, and their signals, rates and faults checked against what is known about them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fwnkf.logs import open_log
from fwnkf.logs.stamps import examine, repair
from fwnkf.logs.work import LIMITS

from .mutated import read

DATA = Path(os.environ.get("FWNKF_DATA", ".data")) / "logs"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the public logs are not here: set FWNKF_DATA")

LOGS: dict[str, dict[str, Any]] = {
    # rate: of the clock (Hz); signals: those that must be there; airborne: seconds in the air
    "ulog/3dr_hexa_flight1.ulg": {
        "median": 250,
        "signals": "imu rotor motor pose innovation",
        "rotors": 6,
        "airborne": 60.6,
    },
    "ulog/3dr_hexa_flight2.ulg": {"median": 250, "signals": "imu rotor motor pose innovation", "rotors": 6},
    "ulog/px4_quadrotor_local.ulg": {"rate": 222, "signals": "imu motor pose innovation vibration", "airborne": 85.6},
    "ulog/px4_corrupt_unregistered_msg_id.ulg": {"rate": 202, "signals": "imu motor pose innovation", "airborne": 89.1},
    "ulog/px4_esc_status_log.ulg": {"median": 9.6, "signals": "imu rotor innovation", "rotors": 4, "airborne": 39},
    "ulog/auriol_octo_log3_upset.ulg": {"rate": 198, "signals": "imu motor pose innovation vibration"},
    "ulog/auriol_octo_log48_fifo8k.ulg": {"rate": 198, "signals": "imu gyro accel motor"},
    "ulog/fsyr_octo_log123_gyrofft.ulg": {
        "rate": 200,
        "signals": "imu motor innovation peak vibration",
        "airborne": 52,
    },
    "ulog/mengchaoheng_test3_visualodom.ulg": {"median": 190, "signals": "imu pose_visual innovation", "airborne": 33},
    "dataflash/octo_15_healthy.BIN": {"rate": 25, "signals": "imu imu_2 pose innovation vibration_2"},
    "dataflash/octo_03_prop_cut_1p5cm.BIN": {"rate": 25, "signals": "imu imu_2 pose innovation vibration_2"},
    "dataflash/octo_10_prop_cut_3p5cm.BIN": {"rate": 25, "signals": "imu imu_2 pose innovation vibration_2"},
    "blackbox/fcblackbox_LOG00037.BFL": {"median": 1000, "signals": "imu gyro gyro_filtered accel motor"},
    "blackbox/bbltuning_sample-short.BFL": {"median": 1988, "signals": "imu gyro rotor motor", "rotors": 4},
    "blackbox/bblhelper_btfl_003.bbl": {"median": 1017, "signals": "imu gyro rotor motor", "rotors": 4},
    "rosbag1/robot_localization_ardrone.bag": {"median": 214, "signals": "imu"},
    "rosbag1/robot_localization_xsens_wheel_stereo.bag": {"rate": 100, "signals": "imu pose"},
    "mcap/cubs2_stabilize_2025_11_13.mcap": {"role": "pose", "median": 99.5, "signals": "pose"},
    "mcap/weedy_rover_imu50.mcap": {"rate": 50, "signals": "imu pose"},
}


@pytest.mark.parametrize("name", LOGS)
def test_signals_and_rates(name: str) -> None:
    known = LOGS[name]
    log = open_log(DATA / name)
    names = [source.name for source in log.sources()]
    assert set(known["signals"].split()) <= set(names)
    assert len(set(names)) == len(names)
    stream = log.signal(known.get("role", "imu"))
    report = examine(stream, dropouts=log.dropouts)
    assert report.factor == 1.0
    if "rate" in known:
        assert report.rate == pytest.approx(known["rate"], rel=0.01)
    if "median" in known:
        assert report.median_rate == pytest.approx(known["median"], rel=0.015)
    if "rotors" in known:
        assert len(log.signal("rotor").columns) == known["rotors"]
    if "airborne" in known:
        assert sum(stop - start for start, stop in log.airborne()) == pytest.approx(known["airborne"], abs=0.6)
    repaired = repair(stream, report)
    assert np.all(np.diff(repaired.time) > 0)
    if known.get("role", "imu") == "imu":
        # all of them rest or hover: gravity dominates
        norm = np.linalg.norm(stream.stack(["accel_x", "accel_y", "accel_z"]), axis=1)
        assert 8.0 < np.median(norm[np.isfinite(norm)]) < 13.0


def test_skipped_samples_and_gaps_are_those_that_are_known() -> None:
    skipped = examine(open_log(DATA / "ulog/fsyr_octo_log123_gyrofft.ulg").signal("imu"))
    assert skipped.mean_rate == pytest.approx(186, abs=1)
    assert skipped.rate == pytest.approx(200, abs=0.1)
    log = open_log(DATA / "ulog/auriol_octo_log3_upset.ulg")
    gaps = examine(log.signal("imu"), dropouts=log.dropouts).undeclared
    assert sorted(gap.seconds for gap in gaps)[-2:] == pytest.approx([0.57, 6.4], abs=0.02)
    log = open_log(DATA / "ulog/mengchaoheng_test3_visualodom.ulg")
    report = examine(log.signal("imu"), dropouts=log.dropouts)
    assert report.mean_rate == pytest.approx(141, abs=1)
    assert sorted(gap.seconds for gap in report.gaps) == pytest.approx([0.3, 0.5], abs=0.03)
    assert report.undeclared == ()


def test_fifo_samples_have_the_rate_of_their_stamps() -> None:
    log = open_log(DATA / "ulog/auriol_octo_log48_fifo8k.ulg")
    for role in ("gyro", "accel"):
        report = examine(log.signal(role), dropouts=log.dropouts)
        assert report.rate == pytest.approx(7911, rel=5e-4)
        assert report.nominal_rate == pytest.approx(8370, rel=5e-4)
        assert len(report.gaps) == 7
    assert len(log.dropouts) == 8


def test_vibration_tells_the_cut_propellers_from_the_healthy_ones() -> None:
    medians = {}
    for name in ("octo_15_healthy", "octo_03_prop_cut_1p5cm", "octo_10_prop_cut_3p5cm"):
        log = open_log(DATA / f"dataflash/{name}.BIN")
        stream = log.signal("vibration")
        flying = np.zeros(len(stream), bool)
        for start, stop in log.airborne():
            flying |= (stream.time > start) & (stream.time < stop)
        values = stream.stack(["vibration_x", "vibration_y", "vibration_z"])
        medians[name] = np.median(values[flying], axis=0)
    assert medians["octo_15_healthy"] == pytest.approx([3.2, 3.4, 3.0], rel=0.1)
    assert medians["octo_03_prop_cut_1p5cm"] == pytest.approx([14.7, 17.1, 7.4], rel=0.1)
    assert medians["octo_10_prop_cut_3p5cm"] == pytest.approx([24.9, 15.2, 6.3], rel=0.1)


def test_rotor_speeds_and_positions_are_those_that_are_known() -> None:
    hexa = open_log(DATA / "ulog/3dr_hexa_flight1.ulg").signal("rotor").stack()
    assert ((np.median(hexa, axis=0) > 74) & (np.median(hexa, axis=0) < 81)).all()
    speeds = open_log(DATA / "ulog/px4_esc_status_log.ulg").signal("rotor").stack()
    assert 37 < np.median(speeds) < 43
    mean = open_log(DATA / "blackbox/bblhelper_btfl_003.bbl").signal("rotor").stack().mean(1)
    assert np.percentile(mean, 95) == pytest.approx(303, abs=3)
    log = open_log(DATA / "ulog/px4_quadrotor_local.ulg")
    assert log.facts["gps_fix"] == "none"
    span = np.ptp(log.signal("pose").stack(["position_x", "position_y", "position_z"]), axis=0)
    assert sorted(span) == pytest.approx([2.1, 298, 742], rel=0.05)


def test_the_damaged_log_is_read_behind_its_damage() -> None:
    log = open_log(DATA / "ulog/px4_corrupt_unregistered_msg_id.ulg")
    assert "message id 32812" in log.notes[0]
    report = examine(log.signal("imu"))
    assert (report.backwards, report.duplicates, report.gaps) == (0, 0, ())
    assert report.seconds == pytest.approx(95.1, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOGS)
def test_limits_of_work_are_far_away(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of what a file may take is enough to read all topics of these."""
    for what, (least, for_each_byte) in LIMITS.items():
        monkeypatch.setitem(LIMITS, what, (least // 10, for_each_byte / 10))
    assert not read(DATA / name).startswith("0 samples")
