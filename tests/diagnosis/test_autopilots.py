"""Filters of autopilots against closed forms, scipy, and tones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import bilinear, butter, lfilter

from fwnkf.diagnosis import autopilots
from fwnkf.diagnosis.notch import notch

STEP = 1e-3
TIME = STEP * np.arange(2000)


def amplitude(values: np.ndarray, hz: float) -> float:
    """Of the line at ``hz`` in the second half."""
    half = len(values) // 2
    return float(2 * np.abs(np.mean(values[half:] * np.exp(-2j * np.pi * hz * TIME[half:]))))


def noise(channels: int = 2) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((len(TIME), channels))


def test_a_notch_of_px4_that_stands_still_is_its_biquad():
    values = noise()
    moving = autopilots.moving_notch(values, np.full(len(TIME), 120.0), STEP, "PX4")
    # both begin in a steady state, but of different memories
    np.testing.assert_allclose(moving[200:], notch(120.0, 15.0, 1 / STEP).apply(values)[200:], atol=1e-5)


def test_a_notch_of_betaflight_that_stands_still_is_the_notch_of_its_quality():
    values = noise() - noise()[0]
    moving = autopilots.moving_notch(values, np.full(len(TIME), 180.0), STEP, "Betaflight")
    # (s² + 1) / (s² + s / Q + 1), with the zero of the bilinear transform at 180 Hz
    w = 2 * np.pi * 180.0 * STEP
    b, a = bilinear([1, 0, 1], [1, 1 / 5.0, 1], fs=0.5 / np.tan(w / 2))
    np.testing.assert_allclose(moving, lfilter(b, a, values, axis=0), atol=1e-12)


@pytest.mark.parametrize("name", ["Betaflight", "ArduPilot", "PX4"])
def test_a_sweeping_rotor_is_taken_away_and_slow_motion_passes(name: autopilots.Autopilot):
    hz = np.linspace(180, 220, len(TIME))
    rotor = np.sin(2 * np.pi * STEP * np.cumsum(hz))
    slow = np.sin(2 * np.pi * 2 * TIME)
    out = autopilots.rotor_notches((slow + rotor)[:, None], hz[:, None], STEP, name)[:, 0]
    passed = autopilots.rotor_notches(slow[:, None], hz[:, None], STEP, name)[:, 0]
    assert np.std((out - passed)[500:]) < 0.06 * np.std(rotor)
    assert amplitude(passed, 2.0) == pytest.approx(1.0, abs=0.02)


def test_the_low_pass_is_that_of_scipy():
    values = noise()
    b, a = butter(2, 40.0, fs=1 / STEP)
    expected = lfilter(b, a, values - values[0], axis=0) + values[0]
    np.testing.assert_allclose(autopilots.notches_without_speeds(values, STEP, "PX4"), expected, atol=1e-12)


def test_the_harmonic_notch_has_its_depth_at_the_centre():
    tone = np.sin(2 * np.pi * 80.0 * TIME)[:, None]
    left = autopilots.moving_notch(tone, np.full(len(TIME), 80.0), STEP, "ArduPilot")[:, 0]
    assert amplitude(left, 80.0) == pytest.approx(0.01, rel=0.02)  # 40 dB


def test_the_dynamic_notch_finds_a_tone_and_takes_it_away():
    slow, tone = np.sin(2 * np.pi * 5 * TIME), np.sin(2 * np.pi * 237 * TIME)
    values = (slow + tone)[:, None] + 0.01 * noise(1)
    assert np.abs(autopilots.dynamic_peaks(values[:, 0], STEP)[-1] - 237).min() < 3
    left = autopilots.dynamic_notch(values, STEP)[:, 0]
    assert amplitude(left, 237.0) < 0.1
    assert amplitude(left, 5.0) > 0.9


def test_a_rotor_below_the_lowest_centre_of_betaflight_is_left_alone():
    values = noise()
    same = autopilots.moving_notch(values, np.full(len(TIME), 60.0), STEP, "Betaflight")
    np.testing.assert_array_equal(same, values)
