"""Notches and low-passes against scipy, delays and fixed lags against closed forms and simulation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import signal

from fwnkf.diagnosis.notch import low_pass, notch, notch_bandwidth
from fwnkf.diagnosis.trade import lagged, trade
from fwnkf.identify.channels import ChannelModel, Line

MODEL = ChannelModel(200.0, 9.0, 2.0, 0.04, (Line(60.0, 2.0, 0.3),))


def test_a_notch_is_that_of_scipy():
    section = notch(60.0, 8.0, 500.0)
    b, a = signal.iirnotch(60.0, 60.0 / 8.0, 500.0)
    np.testing.assert_allclose(section.b, b, rtol=1e-9)
    np.testing.assert_allclose(section.a, a, rtol=1e-9)


def test_a_low_pass_is_that_of_scipy():
    section = low_pass(30.0, 500.0)
    b, a = signal.butter(2, 30.0, fs=500.0)
    np.testing.assert_allclose(section.b, b, rtol=1e-9)
    np.testing.assert_allclose(section.a, a, rtol=1e-9)


@pytest.mark.parametrize("section", [notch(60.0, 8.0, 500.0), low_pass(30.0, 500.0)])
def test_the_delay_is_the_group_delay_at_zero(section):
    _, delay = signal.group_delay((section.b, section.a), [1e-3], fs=500.0)
    assert section.delay(500.0) == pytest.approx(float(delay[0]) / 500, rel=1e-4)


def test_filtering_is_that_of_scipy():
    values = np.random.default_rng(0).normal(size=(400, 2)) + 5
    section = notch(60.0, 8.0, 500.0)
    state = signal.lfilter_zi(section.b, section.a)[:, None] * values[0]
    wanted = signal.lfilter(section.b, section.a, values, axis=0, zi=state)[0]
    np.testing.assert_allclose(section.apply(values), wanted, rtol=1e-9, atol=1e-12)


def test_figures_of_practice():
    """Four notches of 15 Hz with three harmonics at 100 Hz cost 1.3 ms, a low-pass at 40 Hz 5.7 ms."""
    rate = 8000.0
    total = 4 * sum(notch(100.0 * harmonic, 15.0, rate).delay(rate) for harmonic in (1, 2, 3))
    assert 1e3 * total == pytest.approx(1.3, abs=0.05)
    assert 1e3 * low_pass(40.0, rate).delay(rate) == pytest.approx(5.7, abs=0.1)
    assert notch_bandwidth(100.0, 1.0, 1000.0) == 10.0


@pytest.mark.parametrize("line", [Line(30.0, 45.0, 0.3), Line(10.0, 80.0, 0.3), Line(95.0, 20.0, 0.3)])
def test_notches_for_broad_lines_are_stable_and_late(line):
    result = trade("x", "rad/s", replace(MODEL, lines=(line,)))
    delay, error = result.marks["notches alone"]
    section = notch(line.hz, notch_bandwidth(line.hz, line.bandwidth_hz, MODEL.rate), MODEL.rate)
    assert np.abs(np.roots(section.a)).max() < 1
    assert delay == pytest.approx(1e3 * section.delay(MODEL.rate))
    assert delay > 0
    assert error > 0


def test_errors_at_fixed_lags_are_those_of_a_simulation():
    """The error that the spectra state against a simulated filter and smoother."""
    curves = trade("x", "rad/s", MODEL).curves["Kalman filter with noise states"]
    F, H, Q, R = (item.numpy() for item in MODEL.matrices())
    generator = np.random.default_rng(1)
    root = np.linalg.cholesky(Q + 1e-18 * np.eye(len(Q)))
    P = np.eye(len(F))
    for _ in range(3000):
        K = P @ H.T / (H @ P @ H.T + R)
        P = F @ (P - K @ H @ P) @ F.T + Q
    K, S = P @ H.T / (H @ P @ H.T + R), H @ P @ H.T + R
    steps, closed = 40_000, (F - F @ K @ H).T
    x, estimate = np.zeros(len(F)), np.zeros(len(F))
    truth, posterior, innovation = np.empty(steps), np.empty(steps), np.empty(steps)
    for step in range(steps):
        x = F @ x + root @ generator.normal(size=len(F))
        y = float((H @ x)[0]) + math.sqrt(R[0, 0]) * generator.normal()
        prior = F @ estimate
        innovation[step] = y - float((H @ prior)[0])
        estimate = prior + K[:, 0] * innovation[step]
        truth[step], posterior[step] = x[0], estimate[0]
    smoothed, weight = posterior.copy(), H.T / S
    delays = dict(zip(np.rint(curves[0] * MODEL.rate / 1e3).astype(int).tolist(), curves[1], strict=True))
    for lag in range(1, 9):
        weight = closed @ weight
        smoothed[:-lag] += float((P[0] @ weight)[0]) * innovation[lag:]
        if lag in delays:
            rms = math.sqrt(np.mean((smoothed - truth)[500:-40] ** 2))
            assert delays[lag] == pytest.approx(rms, rel=0.03)
    assert delays[0] == pytest.approx(math.sqrt(np.mean((posterior - truth)[500:] ** 2)), rel=0.03)


def test_the_curves_are_in_the_order_that_theory_says():
    result = trade("x", "rad/s", MODEL)
    delay, error = result.curves["Kalman filter with noise states"]
    assert (np.diff(delay) > 0).all()
    assert (np.diff(error) <= 1e-12).all()  # more measurements never hurt the right model
    assert (error <= result.curves["Kalman filter, white noise"][1] + 1e-12).all()
    # whatever a low-pass or notch knows at its delay, the right filter knows better at the next lag
    for name, (late, other) in result.curves.items():
        after = np.minimum(np.searchsorted(delay, late), len(error) - 1)
        assert (error[after] <= other + 1e-12).all(), name
    assert result.marks["unfiltered"][1] == pytest.approx(MODEL.noise_std)


def test_a_lag_of_zero_is_the_filter():
    omega = torch.tensor([0.3, 1.0, 2.0], dtype=torch.float64)
    response, delay = lagged(MODEL, omega)[0]
    assert delay == 0.0
    assert abs(response[0]) > abs(response[2])
