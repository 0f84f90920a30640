"""Lines of public flight logs against what is known of them from other measurements."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from fwnkf.diagnosis.rotors import name_lines
from fwnkf.diagnosis.spectra import even_grid
from fwnkf.logs import open_log

LOGS = Path(os.environ.get("FWNKF_DATA", "")) / "logs"


def lines_of(name, role="imu", columns=("gyro_x",)):
    path = LOGS / name
    if not os.environ.get("FWNKF_DATA") or not path.exists():
        pytest.skip("needs the public logs in $FWNKF_DATA/logs")
    log = open_log(path)
    stream = log.signal(role)
    flown = np.ones(len(stream), bool)
    if log.airborne():
        flown = np.any([(stream.time >= start) & (stream.time <= stop) for start, stop in log.airborne()], axis=0)
    roles = {source.role for source in log.sources()}
    tracks = {}
    for name in {"rotor", "motor"} & roles:
        track = log.signal(name)
        tracks[name] = (track.time, track.stack())
    return name_lines(even_grid(stream.time[flown], stream.stack(columns)[flown]), columns, **tracks)


@pytest.mark.parametrize("flight", [1, 2])
def test_blade_pass_is_folded_in_both_flights_of_a_hexacopter(flight):
    """The strongest line of the gyro follows the sampling rate less twice the speed of a rotor."""
    lines = lines_of(f"ulog/3dr_hexa_flight{flight}.ulg")
    top = lines.peaks[0]
    assert top.harmonic == 2
    assert top.rotor is not None
    assert top.origin == pytest.approx(150, abs=6)
    assert top.frequency == pytest.approx(lines.spectrum.rate - top.origin, abs=6)


def test_the_line_of_an_octocopter_is_where_the_sensor_at_8_khz_saw_it():
    lines = lines_of("ulog/fsyr_octo_log123_gyrofft.ulg", columns=("gyro_y",))
    assert lines.spectrum.rate == pytest.approx(200.0, rel=1e-3)  # the mean rate is 186 Hz
    assert lines.peaks[0].frequency == pytest.approx(96.9, rel=0.01)
    assert "folded" in lines.peaks[0].label


def test_a_heavily_vibrating_racer_follows_its_rotors_and_an_acrobatic_one_hardly():
    following = lines_of("blackbox/bblhelper_btfl_003.bbl", "gyro", ("gyro_x", "gyro_y", "gyro_z")).ridge
    hardly = lines_of("blackbox/bbltuning_sample-short.BFL", "gyro", ("gyro_x", "gyro_y", "gyro_z")).ridge
    assert following.correlation > 0.9
    assert hardly is None or (hardly.correlation or 0) < 0.8


def test_the_lines_of_samples_at_8_khz_on_the_ground():
    lines = lines_of("ulog/auriol_octo_log48_fifo8k.ulg", "accel", ("accel_z",))
    assert lines.spectrum.rate == pytest.approx(7911, rel=2e-3)  # the log itself states 8,370 Hz
    assert min(abs(peak.frequency - 30.9) for peak in lines.peaks) < lines.spectrum.resolution


def test_a_line_near_half_the_sampling_rate_may_be_folded():
    peaks = lines_of("ulog/px4_corrupt_unregistered_msg_id.ulg", columns=("accel_y",)).peaks
    near = [peak for peak in peaks if 95 <= peak.frequency <= 100]
    assert near
    assert "possibly folded" in near[0].label
