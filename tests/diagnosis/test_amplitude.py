"""Allan deviation against closed forms, drift against a known attitude, clipping, shocks and vibration levels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import signal
from scipy.spatial.transform import Rotation

from fwnkf.data.flights import flight
from fwnkf.diagnosis.allan import allan, fit_terms
from fwnkf.diagnosis.amplitude import clipping, low_pass, shocks, vibe
from fwnkf.diagnosis.attitude import gyro_bias
from fwnkf.diagnosis.spectra import even_grid

RATE = 100.0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("gaps", [False, True])
def test_white_noise_and_random_walk_are_read_from_the_allan_deviation(seed, gaps):
    generator = np.random.default_rng(seed)
    count, white, walk = 200_000, 0.02, 0.004
    noise = white * np.sqrt(RATE) * generator.normal(size=count)
    noise += np.cumsum(walk / np.sqrt(RATE) * generator.normal(size=count))
    time = np.arange(count) / RATE
    keep = ~((time > 700) & (time < 760)) if gaps else np.ones(count, bool)
    (result,) = allan(even_grid(time[keep], noise[keep]), ["gyro_x"], ["rad/s"])
    assert result.white == pytest.approx(white, rel=0.03)
    assert result.walk == pytest.approx(walk, rel=0.35)
    # at a second, both terms of the closed form
    at = np.argmin(np.abs(result.tau - 1))
    closed = np.sqrt(white**2 / result.tau[at] + walk**2 * result.tau[at] / 3)
    assert result.deviation[at] == pytest.approx(closed, rel=0.05)


def test_white_noise_alone_has_no_walk_to_speak_of():
    noise = np.random.default_rng(5).normal(size=(60_000, 1))
    (result,) = allan(even_grid(np.arange(60_000) / RATE, noise), ["x"], [""])
    assert (result.walk or 0.0) < 0.03


def test_a_period_that_averages_to_nothing_does_not_count():
    tau = np.geomspace(0.01, 10, 30)
    variance = 4e-4 / tau
    variance[[7, 19]] = 0.0, 1e-34
    assert fit_terms(tau, variance, np.ones(30))[0] == pytest.approx(0.02)
    assert fit_terms(tau, np.zeros(30), np.ones(30)) == (None, None, None)
    sawtooth = (np.arange(700.0) % 7)[:, None]
    (result,) = allan(even_grid(np.arange(700) / RATE, sawtooth), ["x"], [""])
    assert np.isfinite([result.white or 0.0, result.walk or 0.0]).all()


def test_the_bias_of_a_gyro_is_measured_against_the_attitude():
    generator = np.random.default_rng(0)
    time = np.arange(6000) / RATE
    rates = np.stack([np.sin(time * f) for f in (0.7, 1.1, 0.4)], -1)
    turned = [Rotation.identity()]
    for rate in rates[:-1]:
        turned.append(turned[-1] * Rotation.from_rotvec(rate / RATE))
    attitude = np.array([one.as_quat()[[3, 0, 1, 2]] for one in turned])
    drift = np.stack([0.1 * time / time[-1], np.zeros(6000), np.full(6000, 0.05)], -1)
    measured = rates + drift + 0.02 * generator.normal(size=(6000, 3))
    bias = gyro_bias(time, measured, time[::5], attitude[::5])
    middle = np.stack([np.interp(bias.time, time, column) for column in drift.T], -1)
    np.testing.assert_allclose(bias.bias, middle, atol=0.015)
    assert bias.change == pytest.approx([0.08, 0.0, 0.0], abs=0.025)


def test_whole_turns_and_unknown_attitudes_make_no_drift():
    """Two turns in a window hide the bias of the axes across: such windows say nothing, and do not fail."""
    time = np.arange(6000) / 100
    rate = np.where((time > 20) & (time < 40), 2 * np.pi * 2 / 3, 0.0)
    angle = np.cumsum(rate) / 100 - rate[0] / 100
    attitude = np.stack([np.cos(angle / 2), np.sin(angle / 2), 0 * angle, 0 * angle], -1)
    attitude[:300] = np.nan
    gyro = np.stack([rate, 0 * rate, 0 * rate], -1) + 0.02 * np.random.default_rng(0).normal(size=(6000, 3))
    bias = gyro_bias(time, gyro, time[::5], attitude[::5])
    assert len(bias.time) > 8
    assert (bias.change < 0.03).all()


@pytest.mark.parametrize("seed", range(4))
def test_drift_is_told_from_flight(seed):
    for cause in (None, "drift"):
        flown = flight(cause, seed=seed)
        change = gyro_bias(flown.imu_time, flown.gyro, flown.pose_time, flown.orientation).change
        assert (change.max() > 0.03) == (cause == "drift")


def test_clipping_is_a_pile_at_the_limit():
    noise = np.random.default_rng(1).normal(size=(20_000, 2)) * 10
    assert clipping(noise, "xy") == []
    assert clipping(np.round(noise, 1), "xy") == []  # a coarse sensor
    (low, high) = sorted(clipping(np.clip(noise, -25, 25), "x"), key=lambda clip: clip.limit)
    assert (low.limit, high.limit) == (-25, 25)
    assert low.samples == (noise[:, 0] <= -25).sum()
    assert clipping(np.zeros((100, 1)), "x") == []


@pytest.mark.parametrize("spread", [0.4, 1.0, 3.0])
def test_a_sensor_at_rest_with_few_values_does_not_clip(spread):
    noise = np.random.default_rng(3).normal(size=(20_000, 1)) * spread
    assert clipping(np.round(noise), "x") == []
    coarse = np.clip(np.round(20 * noise / spread), -25, 100)  # 20 counts, cut off at 25
    assert [clip.limit for clip in clipping(coarse, "x")] == [-25]


def test_a_smooth_maximum_of_a_coarse_sensor_is_no_limit():
    """Whole degrees per second: a slow turn stays at its fastest for longer than just below it."""
    time = np.arange(3000) / 100
    turn = np.round(35 * np.exp(-(((time - 12) / 4) ** 2)) + 3 * np.sin(2 * time))[:, None]
    assert (turn == turn.max()).sum() > 5
    assert clipping(turn, "z") == []
    assert [clip.limit for clip in clipping(np.minimum(turn, 25), "z")] == [25]


def test_a_shock_is_found_once_and_flight_has_none():
    flown = flight(seed=1)
    assert shocks(flown.imu_time, flown.accel) == []
    accel = flown.accel.copy()
    hit = (flown.imu_time > 30) & (flown.imu_time < 30.5)
    accel[hit] += 100
    (shock,) = shocks(flown.imu_time, accel)
    assert shock.time == pytest.approx(30, abs=0.025)
    assert shock.seconds == pytest.approx(0.5, abs=0.05)


def test_the_low_pass_is_scipys():
    values = np.random.default_rng(2).normal(size=(5000, 3))
    share = 1 - np.exp(-2 * np.pi * 5.0 / 400)
    start = (1 - share) * values[:1]
    expected, _ = signal.lfilter([share], [1, share - 1], values, axis=0, zi=start)
    np.testing.assert_allclose(low_pass(values, 5.0, 400.0), expected, rtol=1e-9, atol=1e-12)


def test_vibe_is_the_root_of_the_power_above_five_hertz():
    time = np.arange(8000) / 400
    wave = 9.8 + 12 * np.sin(2 * np.pi * 80 * time) + 3 * np.sin(2 * np.pi * 0.2 * time)
    assert vibe(wave[:, None], 400.0)[4000:].mean() == pytest.approx(12 / np.sqrt(2), rel=0.05)
