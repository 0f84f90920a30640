"""Settings of notches: found on the first half of a log, measured on the second."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.signal import group_delay

from fwnkf.diagnosis.diagnose import examine
from fwnkf.diagnosis.notch import notch
from fwnkf.diagnosis.notch_settings import notch_settings
from fwnkf.diagnosis.notched import Notch, delay_of, held_out
from fwnkf.diagnosis.rules import judge
from fwnkf.diagnosis.spectra import even_grid
from fwnkf.logs import open_log
from fwnkf.logs.log import Stream
from fwnkf.logs.memory import MemoryLog

RATE, SECONDS = 400.0, 20.0
TIME = np.arange(int(RATE * SECONDS)) / RATE
PX4 = {"IMU_GYRO_NF0_FRQ": 0.0, "IMU_GYRO_NF0_BW": 20.0, "IMU_GYRO_NF1_FRQ": 0.0, "IMU_GYRO_NF1_BW": 20.0,
       "IMU_GYRO_DNF_EN": 0.0, "IMU_GYRO_DNF_BW": 15.0, "IMU_GYRO_DNF_HMC": 3.0, "IMU_GYRO_CUTOFF": 100.0}  # fmt: skip
COPTER = {"INS_HNTCH_ENABLE": 0.0, "INS_HNTC2_ENABLE": 0.0, "INS_GYRO_FILTER": 80.0}
BETAFLIGHT = {"gyro_notch_hz": "0,0", "gyro_notch_cutoff": "0,0", "rpm_filter_harmonics": 0.0, "rpm_filter_q": 500.0,
              "rpm_filter_min_hz": 100.0, "dyn_notch_count": 0.0, "dyn_notch_q": 300.0, "dyn_notch_min_hz": 100.0,
              "dyn_notch_max_hz": 600.0, "looptime": 125.0, "pid_process_denom": 2.0}  # fmt: skip


def speed(middle: float) -> np.ndarray:
    return middle * (1 + 0.1 * np.sin(2 * np.pi * 0.3 * TIME))


def log_of(firmware, parameters, line, rotor=None, seed=0):
    generator = np.random.default_rng(seed)
    gyro = 0.02 * generator.standard_normal((len(TIME), 3)) + line[:, None] * [1.0, 0.6, 0.2]
    columns = {f"gyro_{axis}": gyro[:, k] for k, axis in enumerate("xyz")}
    streams = [Stream("gyro", TIME, columns, dict.fromkeys(columns, "rad/s"), role="gyro")]
    if rotor is not None:
        streams.append(Stream("rotor", TIME[::10], {"rotor_1": rotor[::10]}, {"rotor_1": "Hz"}, role="rotor"))
    log = MemoryLog(streams, facts={} if firmware is None else {"firmware": firmware})
    log.parameters = parameters
    return log


def suggested(log):
    evidence = examine(log)
    return notch_settings(evidence, judge(evidence))


FIXED = 0.1 * np.sin(2 * np.pi * 87.3 * TIME)


@pytest.mark.parametrize(
    ("firmware", "parameters", "frequency"),
    [
        ("PX4 1.16.1", PX4, "IMU_GYRO_NF0_FRQ"),
        ("PX4 1.16.1", {**PX4, "IMU_GYRO_NF0_FRQ": 35.0}, "IMU_GYRO_NF1_FRQ"),
        ("ArduCopter V4.6.3", COPTER, "INS_HNTCH_FREQ"),
        ("ArduCopter V4.6.3", {**COPTER, "INS_HNTCH_ENABLE": 1.0}, "INS_HNTC2_FREQ"),
        ("Betaflight 4.5.1", BETAFLIGHT, "gyro_notch1_hz"),
    ],
)
def test_a_fixed_line_gets_a_free_notch_of_the_firmware(firmware, parameters, frequency):
    rows, _ = suggested(log_of(firmware, parameters, FIXED))
    found = {row.name: row for row in rows}
    assert found[frequency].value == 87.0
    gain = found[frequency].gain
    # noise of 0.02 and a line of 0.1: behind a low-pass the share of the line is larger still
    assert 20 < gain.low <= gain.value <= gain.high < 100
    assert len({(row.group, row.gain, row.delay) for row in rows}) == 1


def test_the_delay_is_the_group_delay_at_20_hz():
    rows, _ = suggested(log_of("PX4 1.16.1", PX4, FIXED))
    values = {row.name: row.value for row in rows}
    section = notch(values["IMU_GYRO_NF0_FRQ"], values["IMU_GYRO_NF0_BW"], 1000.0)
    _, samples = group_delay((section.b, section.a), w=[20.0], fs=1000.0)
    assert rows[0].delay == pytest.approx(samples[0] / 1000.0, rel=1e-6)


def test_notches_in_series_add_their_delays():
    one = Notch(np.zeros(1), np.array([100.0]), "PX4")
    axis = Notch(np.zeros(1), np.array([60.0]), "PX4", None, 1)
    assert delay_of([one, one], 1000.0) == pytest.approx(2 * delay_of([one], 1000.0))
    assert delay_of([one, axis], 1000.0) == pytest.approx(delay_of([one], 1000.0) + delay_of([axis], 1000.0))


@pytest.mark.parametrize(
    ("firmware", "parameters", "expected", "hover"),
    [
        ("PX4 1.16.1", PX4, {"IMU_GYRO_DNF_EN": 1.0, "IMU_GYRO_DNF_BW": 15.0}, 80.0),
        ("ArduCopter V4.6.3", COPTER, {"INS_HNTCH_ENABLE": 1.0, "INS_HNTCH_MODE": 3.0, "INS_HNTCH_REF": 1.0}, 80.0),
        ("Betaflight 4.5.1", BETAFLIGHT, {"rpm_filter_q": 500.0, "rpm_filter_min_hz": 100.0}, 160.0),
    ],
)
def test_a_rotor_is_followed_where_its_speed_is_logged(firmware, parameters, expected, hover):
    rotor = speed(hover)
    line = 0.2 * np.sin(2 * np.pi * np.cumsum(rotor) / RATE)
    rows, _ = suggested(log_of(firmware, parameters, line, rotor))
    found = {row.name: row.value for row in rows}
    assert found.items() >= expected.items()
    assert rows[0].gain.low > 20


def test_a_notch_that_follows_already_is_not_suggested_again():
    rotor = speed(80.0)
    line = 0.2 * np.sin(2 * np.pi * np.cumsum(rotor) / RATE)
    rows, notes = suggested(log_of("PX4 1.16.1", {**PX4, "IMU_GYRO_DNF_EN": 1.0}, line, rotor))
    assert rows == ()
    assert any("are on already" in note for note in notes)


def test_a_line_that_the_second_half_does_not_have_is_no_gain():
    gone = np.where(TIME < 0.48 * SECONDS, FIXED, 0.0)
    rows, notes = suggested(log_of("PX4 1.16.1", PX4, gone))
    assert rows == ()
    assert any("is not suggested; held-out gain" in note for note in notes)


@pytest.mark.parametrize("firmware", [None, "INAV 7.1.0"])
def test_unknown_firmware_has_no_settings(firmware):
    assert suggested(log_of(firmware, {}, FIXED)) == ((), ())


def test_firmware_without_the_parameter_is_said():
    rows, notes = suggested(log_of("PX4 1.8.0", {"IMU_GYRO_CUTOFF": 80.0}, FIXED))
    assert rows == ()
    assert any("not among its parameters in this log (PX4 1.8.0)" in note for note in notes)


def test_the_dynamic_notch_is_tried_where_no_speed_is_logged():
    line = 0.2 * np.sin(2 * np.pi * np.cumsum(speed(150.0)) / RATE)
    rows, _ = suggested(log_of("Betaflight 4.5.1", BETAFLIGHT, line))
    assert {row.name: row.value for row in rows}.items() >= {"dyn_notch_count": 3.0, "dyn_notch_q": 500.0}.items()
    assert rows[0].gain.low > 20


@pytest.mark.parametrize("value", [1e18, -5.0])
def test_absurd_parameters_of_a_log_cost_nothing(value):
    rotor = speed(160.0)
    line = 0.2 * np.sin(2 * np.pi * np.cumsum(rotor) / RATE)
    absurd = {name: value for name in BETAFLIGHT if not name.startswith("gyro")}
    suggested(log_of("Betaflight 4.5.1", absurd, line, rotor))
    suggested(log_of("PX4 1.16.1", dict.fromkeys(PX4, value), line, rotor))


def test_halves_too_short_for_a_spectrum_are_a_note():
    log = log_of("PX4 1.16.1", PX4, FIXED)
    evidence = examine(log)
    findings = judge(evidence)
    (part,) = evidence.analysed
    short = part.grid._replace(runs=tuple(part.grid.runs[0][k : k + 4] for k in (0, 40)), starts=(0.0, 0.1))
    rows, notes = notch_settings(replace(evidence, analysed=(replace(part, grid=short),)), findings)
    assert rows == ()
    assert "too short" in notes[0]


def test_two_lines_get_two_notches():
    second = FIXED + 0.08 * np.sin(2 * np.pi * 133.2 * TIME)
    rows, _ = suggested(log_of("PX4 1.16.1", PX4, second))
    found = {row.name: row.value for row in rows}
    assert sorted((found["IMU_GYRO_NF0_FRQ"], found["IMU_GYRO_NF1_FRQ"])) == [87.0, 133.0]
    assert sum(row.gain.value for row in {row.group: row for row in rows}.values()) < 150


def test_white_noise_has_no_gain():
    """A notch takes from any noise: what it takes from the floor must not count."""
    one = [Notch(np.zeros(1), np.array([90.0]), "PX4", 20.0)]
    gains = []
    for seed in range(40):
        noise = np.random.default_rng(seed).standard_normal((4000, 3))
        gains.append(held_out(even_grid(np.arange(4000) / RATE, noise), one, 5e-4, np.ones_like).gain)
    # 95 % intervals: one end in 40; the ends of three are beyond chance
    assert sum(gain.significant for gain in gains) <= 4
    assert np.mean([gain.value for gain in gains]) == pytest.approx(0.0, abs=0.3)


def test_the_gain_is_the_share_of_the_line():
    """A line of half the power: without it the RMS is √½."""
    generator = np.random.default_rng(1)
    values = generator.standard_normal((8000, 1)) + np.sqrt(2) * np.sin(2 * np.pi * 90 * TIME)[:, None]
    one = [Notch(np.zeros(1), np.array([90.0]), "PX4", 6.0)]
    # noise below 20 Hz is no vibration
    share = 1 / (1 + 180 / 200)
    gain = held_out(even_grid(TIME, values), one, 1e-4, np.ones_like).gain
    assert gain.low < 100 * (1 - np.sqrt(1 - share)) < gain.high


@pytest.mark.skipif("FWNKF_DATA" not in os.environ, reason="needs the recordings")
def test_lines_that_the_vehicle_filters_already_are_left_alone():
    path = Path(os.environ["FWNKF_DATA"]) / "logs" / "blackbox" / "fcblackbox_LOG00037.BFL"
    if not path.is_file():
        pytest.skip("needs this log")
    rows, notes = suggested(open_log(path))  # its RPM filter was on: the filtered gyro has no line
    assert rows == ()
    assert any("is not suggested; held-out gain" in note for note in notes)
