"""What frequency-awareness is worth to a navigation filter: the IMU as it is, behind notches, behind noise states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fwnkf.diagnosis.calibrate import calibrated
from fwnkf.diagnosis.default_filter import LINES
from fwnkf.diagnosis.fix import notched, tuned_notches
from fwnkf.diagnosis.notch import low_pass
from fwnkf.diagnosis.series import Series
from fwnkf.navigation.recording import NavigationRecording
from fwnkf.navigation.timeline import Array
from tasks.ins_gnss import recordings

CHANNELS = ("gyro_x", "gyro_y", "gyro_z", "accel_x", "accel_y", "accel_z")
UNITS = ("rad/s",) * 3 + ("m/s²",) * 3
CUTOFF = 40.0
"""PX4's low-pass behind its notches (Hz)."""
LOGS = ("3dr_hexa_flight1", "3dr_hexa_flight2", "SwissLog1")
"""Flights with an IMU fast enough to see vibration."""
FITTED = 20_000
"""Samples at most that models of the IMU's channels are fitted to."""


def series_of(recording: NavigationRecording) -> Series:
    """The samples of the IMU."""
    return Series.of(recording.name, recording.imu.time, recording.imu.values, CHANNELS, UNITS)


def behind_notches(recording: NavigationRecording) -> NavigationRecording:
    """Notches at the strongest lines of the first half, and PX4's low-pass; both delay."""
    series = series_of(recording)
    half = series.part(series.time[0], 0.5 * (series.time[0] + series.time[-1]))
    sections = [*tuned_notches(half), low_pass(min(CUTOFF, 0.4 * series.rate), series.rate)]
    return _with(recording, series, notched(series, sections, half).values)


def behind_noise_states(recording: NavigationRecording) -> NavigationRecording:
    """The rate and force that filters with noise states, fitted to the first half, estimate from the samples."""
    series = series_of(recording)
    half = series.part(series.time[0], 0.5 * (series.time[0] + series.time[-1])).first(FITTED)
    _, lined = calibrated(half, lines=LINES)
    model = lined.filter(series.channels)
    y = torch.from_numpy(series.values).to(model.dtype)[None]
    steps = torch.from_numpy(np.diff(series.index, prepend=series.index[0] - 1) / series.rate).to(model.dtype)[None]
    with torch.no_grad():
        track = model.run(y, mask=y.isfinite(), dt=steps, outputs=("mean",))
        cleaned = model.observe(track.mean)[0].double().numpy()
    return _with(recording, series, cleaned)


def _with(recording: NavigationRecording, series: Series, values: Array) -> NavigationRecording:
    return replace(recording, imu=replace(recording.imu, time=series.time, values=values))


def vibration_rows(flight: Callable[[NavigationRecording], dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The same navigation filter on each form of the IMU; ``flight`` measures one."""
    kinds = {"white noise": lambda item: item, "notches before": behind_notches, "noise states": behind_noise_states}
    for name in LOGS:
        for kind, change in kinds.items():
            yield f"{name}, {kind}", lambda name=name, change=change: flight(change(recordings.RECORDINGS[name]()))
