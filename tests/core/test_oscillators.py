"""Damped rotations: stationary covariance, autocorrelation, spectrum and irregular steps against closed forms."""

from __future__ import annotations

import numpy as np
import torch

from fwnkf.core import oscillators

from ..tolerances import assert_close

RADIUS = torch.tensor([0.95, 0.7, 0.999, 0.3], dtype=torch.float64)
FREQUENCY = torch.tensor([0.4, 0.0, 2.9, 1.3], dtype=torch.float64)
POWER = torch.tensor([0.5, 2.0, 0.1, 1.0], dtype=torch.float64)


def test_the_stationary_covariance_is_the_identity():
    """The identity solves P = A P Aᵀ + Q, and any other start ends there."""
    A, Q = (x.numpy() for x in oscillators.transition(RADIUS, FREQUENCY))
    assert_close(A @ A.T + Q, np.eye(8), "rounding")
    P = np.full((8, 8), 3.0)
    for _ in range(30_000):
        P = A @ P @ A.T + Q
    assert_close(P, np.eye(8))


def test_the_autocorrelation_is_a_damped_cosine():
    A, _ = oscillators.transition(RADIUS, FREQUENCY)
    for lag in range(60):
        power = np.linalg.matrix_power(A.numpy(), lag)
        for c in range(4):
            expected = RADIUS[c].item() ** lag * np.cos(FREQUENCY[c].item() * lag)
            assert_close(power[2 * c, 2 * c], np.float64(expected), "rounding")
        pairs = np.kron(np.eye(4), np.ones((2, 2)))
        assert not (power * (1 - pairs)).any()  # the oscillators do not touch one another


def test_the_spectrum_is_the_fourier_sum_of_the_autocorrelation():
    radius, frequency, power = RADIUS[[0, 1, 3]], FREQUENCY[[0, 1, 3]], POWER[[0, 1, 3]]
    A, _ = oscillators.transition(radius, frequency)
    C = np.zeros(6)
    C[::2] = power.sqrt().numpy()
    omega = torch.linspace(-np.pi, np.pi, 101, dtype=torch.float64)
    total, moved = np.full(101, C @ C), np.eye(6)
    for lag in range(1, 800):  # 0.95^800 is below 1e-17
        moved = A.numpy() @ moved
        total += 2 * (C @ moved @ C) * np.cos(lag * omega.numpy())
    assert_close(oscillators.spectrum(radius, frequency, power, omega), total)


def test_the_mean_of_the_spectrum_is_the_power():
    omega = torch.arange(20_000, dtype=torch.float64) * (2 * np.pi / 20_000)
    assert_close(oscillators.spectrum(RADIUS, FREQUENCY, POWER, omega).mean(), POWER.sum(), "algebra")


def test_two_half_steps_are_one_whole_step():
    """Also three unequal ones, per batch item: the discretisation is exact, covariance included."""
    parts = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.7, 1.6], [1.0, 1.0, 3.0]], dtype=torch.float64)
    A, Q = torch.eye(8, dtype=torch.float64).expand(3, 8, 8), torch.zeros(3, 8, 8, dtype=torch.float64)
    for ratio in parts.unbind(1):
        a, q = oscillators.transition(RADIUS, FREQUENCY, ratio)
        A, Q = a @ A, a @ Q @ a.mT + q
    whole = oscillators.transition(RADIUS, FREQUENCY, parts.sum(1))
    assert_close(whole[0], A, "rounding")
    assert_close(whole[1], Q, "rounding")
    once = oscillators.transition(RADIUS, FREQUENCY)
    assert_close(whole[0][0], once[0], "rounding")
    assert_close(whole[1][0], once[1], "rounding")


def test_the_output_picks_the_first_component_of_each_oscillator():
    amplitude = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    expected = np.zeros((3, 12))
    for channel in range(3):
        for k in range(2):
            expected[channel, channel * 4 + 2 * k] = amplitude[channel, k]
    assert np.array_equal(oscillators.output(amplitude).numpy(), expected)
