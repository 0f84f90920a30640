"""Noise of an IMU for calibration files, against what was simulated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fwnkf.diagnosis.diagnose import examine
from fwnkf.diagnosis.imu_noise import imu_noise
from fwnkf.errors import DataError
from fwnkf.logs.log import Stream
from fwnkf.logs.memory import MemoryLog

RATE = 200.0
GYRO, ACCEL = 2e-4, 3e-3


def log_of(seconds: float, airborne=(), accel: bool = True) -> MemoryLog:
    """White noise of known densities; in the air a line and more noise on both sensors."""
    time = np.arange(int(seconds * RATE)) / RATE
    generator = np.random.default_rng(3)
    flying = np.any([(time >= a) & (time <= b) for a, b in airborne], axis=0) if airborne else np.zeros(len(time), bool)
    columns = {}
    for sensor, density, line in (("gyro", GYRO, 0.1), ("accel", ACCEL, 2.0)):
        for axis in "xyz":
            noise = density * np.sqrt(RATE) * generator.standard_normal(len(time))
            shaken = line * np.sin(2 * np.pi * 61 * time + 1) + 4 * noise
            columns[f"{sensor}_{axis}"] = np.where(flying, shaken, noise)
    columns["accel_z"] = columns["accel_z"] + 9.81
    chosen = columns if accel else {name: values for name, values in columns.items() if name.startswith("gyro")}
    role = "imu" if accel else "gyro"
    units = {name: "rad/s" if name.startswith("gyro") else "m/s²" for name in chosen}
    return MemoryLog([Stream(role, time, chosen, units, role=role)], airborne=airborne)


def test_densities_at_rest_are_those_simulated():
    noise = imu_noise(examine(log_of(60.0)))
    assert noise.gyroscope.density == pytest.approx(GYRO, rel=0.1)
    assert noise.accelerometer.density == pytest.approx(ACCEL, rel=0.1)
    assert noise.gyroscope.in_motion is None
    assert noise.rate == pytest.approx(RATE)
    assert noise.measured == "at rest, 60 s"


def test_a_random_walk_needs_a_minute_in_one_piece():
    assert imu_noise(examine(log_of(30.0))).gyroscope.walk is None


def test_a_random_walk_is_that_simulated():
    log = log_of(400.0)
    stream = log.signal("imu")
    steps = 1e-3 / np.sqrt(RATE) * np.random.default_rng(5).standard_normal((len(stream), 3))
    walked = {f"gyro_{axis}": stream.columns[f"gyro_{axis}"] + steps[:, k].cumsum() for k, axis in enumerate("xyz")}
    moved = MemoryLog([replace(stream, columns={**stream.columns, **walked})])
    # the largest of three axes, each known from a few independent averages
    assert imu_noise(examine(moved)).gyroscope.walk == pytest.approx(1e-3, rel=0.5)


def test_what_vibration_adds_is_its_power():
    noise = imu_noise(examine(log_of(60.0, airborne=[(20.0, 60.0)])))
    assert noise.gyroscope.density == pytest.approx(GYRO, rel=0.15)
    # samples at a rate f of noise with the density N have the variance N² f; a line has half its square
    for sensor, density, line in ((noise.gyroscope, GYRO, 0.1), (noise.accelerometer, ACCEL, 2.0)):
        white = 16 * density**2
        above_motion = RATE / 2 - 20
        expected = np.sqrt(white + line**2 / 2 / (2 * above_motion))
        assert sensor.in_motion == pytest.approx(expected, rel=0.1)
        assert sensor.vibration == pytest.approx(np.sqrt(expected**2 - density**2), rel=0.1)


def test_without_rest_the_quietest_band_bounds_it():
    noise = imu_noise(examine(log_of(30.0, airborne=[(0.0, 30.0)])))
    assert "quietest band" in noise.measured
    assert noise.gyroscope.density == pytest.approx(4 * GYRO, rel=0.15)
    assert noise.gyroscope.walk is None
    assert noise.gyroscope.in_motion > 2 * noise.gyroscope.density


def test_a_log_without_an_accelerometer_is_an_error():
    with pytest.raises(DataError, match="no accel"):
        imu_noise(examine(log_of(20.0, accel=False)))
