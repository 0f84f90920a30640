"""Fisher information before and after a filter, by closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from tasks.paper.information import STEPS, information, largest_gain, random_filter, ratios


def test_information_of_repeated_measurements_in_white_noise_is_their_number_over_the_variance():
    assert information(np.ones((8, 1)), 2.0 * np.eye(8)) == pytest.approx(4.0)


def test_an_average_of_all_samples_keeps_what_white_noise_leaves_and_loses_what_coloured_noise_leaves():
    J, mean = np.ones((8, 1)), np.full((1, 8), 1 / 8)
    assert ratios(J, np.eye(8), mean) == pytest.approx(1.0)
    uneven = np.diag(np.arange(1.0, 9.0))
    # weights by the inverse variances would be best
    wanted = (1 / np.mean(np.arange(1.0, 9.0)) * 8) / np.sum(1 / np.arange(1.0, 9.0))
    assert ratios(J, uneven, mean) == pytest.approx(wanted)
    assert wanted < 0.9


def test_the_matrix_of_a_filter_filters_as_scipy_does():
    phi = random_filter(np.random.default_rng(4))
    impulse = np.zeros(STEPS)
    impulse[0] = 1.0
    signal = np.random.default_rng(5).standard_normal(STEPS)
    radius, angle, of_zero, angle_of_zero = np.random.default_rng(4).uniform(
        (0.1, 0, 0.1, 0), (0.95, np.pi, 0.95, np.pi)
    )
    b, a = ([1.0, -2 * r * np.cos(w), r * r] for r, w in ((of_zero, angle_of_zero), (radius, angle)))
    assert phi @ signal == pytest.approx(lfilter(b, a, signal))
    assert phi @ impulse == pytest.approx(phi[:, 0])


def test_no_filter_adds_information():
    found = largest_gain(50)
    assert found.inverted == pytest.approx(1.0, abs=1e-6)
    assert found.lost < 1
