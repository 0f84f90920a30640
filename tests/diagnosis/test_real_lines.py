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


def test_the_lines_of_samples_at_8_khz_on_the_ground():
    lines = lines_of("ulog/auriol_octo_log48_fifo8k.ulg", "accel", ("accel_z",))
    assert lines.spectrum.rate == pytest.approx(7911, rel=2e-3)  # the log itself states 8,370 Hz
    assert min(abs(peak.frequency - 30.9) for peak in lines.peaks) < 3
