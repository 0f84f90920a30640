"""A gyro against the attitude: signs, axes, scale and delay before a bias."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from fwnkf.diagnosis.attitude import agreement, attitude_rates, gyro_bias, jump, rotation_vector


@pytest.fixture(scope="module")
def turned():
    """Time, rates of a body and its orientation (w, x, y, z), from scipy."""
    time = np.arange(6000) / 100
    phase = np.array([0.3, 1.1, 2.0])
    rates = 0.4 * np.sin(np.array([0.7, 0.9, 0.5]) * time[:, None] + phase) + 0.2 * np.sin(2.1 * time)[:, None]
    attitude = [Rotation.identity()]
    for rate in rates[:-1]:
        attitude.append(attitude[-1] * Rotation.from_rotvec(rate / 100))
    orientation = np.array([one.as_quat()[[3, 0, 1, 2]] for one in attitude])
    return time, rates + 0.01 * np.random.default_rng(0).normal(size=rates.shape), orientation


def found(time, gyro, orientation, late=0):
    return agreement(time, gyro, attitude_rates(time[late::5], orientation[: len(time) - late : 5]))


def test_rotation_vectors_are_scipys():
    first, second = Rotation.random(50, random_state=0), Rotation.random(50, random_state=1)
    expected = (first.inv() * second).as_rotvec()
    quaternions = [one.as_quat()[:, [3, 0, 1, 2]] for one in (first, second)]
    np.testing.assert_allclose(rotation_vector(*quaternions), expected, atol=1e-9)


def test_a_healthy_gyro_agrees(turned):
    result = found(*turned)
    np.testing.assert_allclose(result.matrix, np.eye(3), atol=0.05)
    assert result.seen == (0, 1, 2)
    assert abs(result.delay) < 0.05


@pytest.mark.parametrize("change", [[1, 1, -1], [2.0, 2.0, 2.0]])
def test_signs_and_factors_are_in_the_matrix(turned, change):
    time, gyro, orientation = turned
    result = found(time, gyro * change, orientation)
    np.testing.assert_allclose(np.diag(result.matrix), 1 / np.array(change), atol=0.05)


def test_exchanged_axes_are_in_the_matrix(turned):
    time, gyro, orientation = turned
    result = found(time, gyro[:, [1, 0, 2]], orientation)
    np.testing.assert_allclose(result.matrix, np.eye(3)[[1, 0, 2]], atol=0.05)


def test_a_late_attitude_has_its_delay(turned):
    result = found(*turned, late=30)
    assert result.delay == pytest.approx(0.3, abs=0.03)
    assert result.sharpness > 1.5


def test_a_jump_is_told_from_a_drift(turned):
    time, gyro, orientation = turned
    for shape, jumps in ((np.where(time > 33, 0.1, 0.0), True), (0.1 * time / time[-1], False)):
        biased = gyro + np.stack([shape, 0 * shape, 0 * shape], -1)
        bias = gyro_bias(time, biased, time[::5], orientation[::5], seconds=1.0)
        place, size, better = jump(bias.bias[:, 0])
        assert (better > 1) == jumps
        if jumps:
            assert bias.time[place] == pytest.approx(33, abs=1.1)
            assert size == pytest.approx(0.1, abs=0.02)
