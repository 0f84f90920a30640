"""Simulated flights: motion that is consistent with itself, and faults that are what their labels say."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from fwnkf.data.flights import FAULTS, GRAVITY, STAMP_FAULTS, Vehicle, flight
from fwnkf.diagnosis.finding import CAUSES
from fwnkf.diagnosis.spectra import spectrum
from fwnkf.errors import ConfigError

SHORT = 20.0


@pytest.mark.parametrize("cause", [None, *FAULTS])
def test_equal_seeds_give_equal_flights_and_others_differ(cause):
    first, again, other = (flight(cause, seed=seed, seconds=SHORT) for seed in (1, 1, 2))
    for entry in fields(first):
        a, b = getattr(first, entry.name), getattr(again, entry.name)
        assert np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b
    assert first.gyro.shape != other.gyro.shape or not np.allclose(first.gyro, other.gyro)
    assert {one.name for one in first.causes} <= set(CAUSES)


def test_gyro_and_accelerometer_agree_with_the_pose():
    quiet = Vehicle(rate=500.0, gyro_noise=0.0, accel_noise=0.0)
    flown = flight(seed=4, seconds=SHORT, vehicle=quiet)
    pose = Rotation.from_quat(flown.orientation[:, [1, 2, 3, 0]])
    step = np.diff(flown.pose_time)[:, None]
    turned = (pose[:-1].inv() * pose[1:]).as_rotvec() / step
    per_pose = len(flown.gyro) // len(flown.pose_time)
    measured = flown.gyro[: len(turned) * per_pose].reshape(-1, per_pose, 3).mean(1)
    assert np.std(measured - turned, axis=0).max() < 0.015  # of gusts of 0.03 rad/s
    # without gusts the specific force is the thrust along z, and gravity on average
    assert np.abs(flown.accel[:, :2]).max() < 6 * 0.15
    assert flown.accel[:, 2].mean() == pytest.approx(GRAVITY, rel=0.05)


@pytest.mark.parametrize("seed", range(3))
def test_a_line_above_nyquist_folds_and_is_weakened_by_the_integration(seed):
    flown = flight("aliasing", seed=seed)
    figures = flown.causes[0].figures
    rotor = flown.rotor[:, int(figures["rotor"]) - 1]
    assert 2 * rotor.min() > flown.rate / 2
    welch = spectrum(flown.imu_time, flown.gyro[:, 0])
    folded = flown.rate - 2 * rotor
    inside = (welch.frequency > folded.min() - 1) & (welch.frequency < folded.max() + 1)
    beside = (welch.frequency > folded.max() + 5) | ((welch.frequency > 8) & (welch.frequency < folded.min() - 5))
    assert welch.density[inside].mean() > 10 * np.median(welch.density[beside])


def test_clipped_samples_lie_at_the_limit_and_are_counted():
    flown = flight("clipping", seed=2, seconds=SHORT)
    limit = flown.causes[0].figures["limit"]
    assert np.abs(flown.accel).max() == limit
    assert flown.clipped[-1] == (np.abs(flown.accel) == limit).any(1).sum() > 0


def test_stated_variances_are_wrong_by_the_factor():
    flown = flight("confidence", seed=3)
    ratio = (flown.innovation**2 / flown.innovation_variance).mean()
    assert ratio == pytest.approx(flown.causes[0].figures["factor"], rel=0.15)


@pytest.mark.parametrize("fault", STAMP_FAULTS)
def test_faults_of_the_time_base_change_the_stamps_alone(fault):
    clean, flown = flight(seed=6, seconds=SHORT), flight("time_base", seed=6, seconds=SHORT, fault=fault)
    assert np.array_equal(clean.gyro, flown.gyro)
    assert np.array_equal(clean.received, flown.received)
    assert not np.allclose(clean.imu_time, flown.imu_time, rtol=1e-4)
    assert (np.diff(flown.imu_time) < 0).any() == (fault == "order")


def test_missing_samples_are_missing_from_all_inertial_arrays():
    for seed in range(4):
        flown = flight("gaps", seed=seed, seconds=SHORT)
        assert len(flown.imu_time) == len(flown.gyro) == len(flown.accel) == len(flown.received) == len(flown.clipped)
        lost = 1 - len(flown.imu_time) / (SHORT * flown.rate)
        assert lost == pytest.approx(flown.causes[0].figures["share"])


def test_unknown_faults_are_named():
    with pytest.raises(ConfigError, match="there are: vibration"):
        flight("flutter")
    with pytest.raises(ConfigError, match="there are: unit"):
        flight("time_base", fault="leap second")
