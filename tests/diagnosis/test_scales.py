"""Sensors that are wrong by a factor, and flights that look as if they were."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from fwnkf.data.labelled import labelled_flight
from fwnkf.diagnosis import rules
from fwnkf.diagnosis.attitude import agreement, attitude_rates, least_squares, rotations
from fwnkf.diagnosis.evidence import gather
from fwnkf.diagnosis.scales import GRAVITY, accel_scale
from fwnkf.diagnosis.thresholds import THRESHOLDS
from fwnkf.logs.log import Stream

TIME = np.arange(3000) / 100


def streams(rng, tilt, factor=1.0):
    """A vehicle that flies at a constant speed with a tilt (rad), and its attitude."""
    turned = Rotation.from_euler("zyx", np.stack([0.1 * TIME, np.full(len(TIME), tilt), 0 * TIME], -1))
    thrust = factor * np.array([0, 0, GRAVITY / np.cos(tilt)]) + 0.2 * rng.normal(size=(len(TIME), 3))
    quaternion = turned.as_quat()[:, [3, 0, 1, 2]]
    accel = {f"accel_{axis}": column for axis, column in zip("xyz", thrust.T, strict=True)}
    attitude = {f"orientation_{part}": column for part, column in zip("wxyz", quaternion.T, strict=True)}
    return Stream("imu", TIME, accel, role="imu"), Stream("pose", TIME, attitude, role="pose")


def test_a_tilted_flight_is_no_wrong_scale(rng):
    accel, attitude = streams(rng, tilt=0.6)  # feels 1.21 times gravity
    assert accel_scale(accel, None, attitude, 0.12) is None
    assert accel_scale(accel, None, None, 0.12) is None
    assert accel_scale(accel, None, streams(rng, tilt=0.0)[1], 0.12).factor == pytest.approx(1.21, rel=0.01)


@pytest.mark.parametrize("factor", [0.55, 1.3, 2.0, 1 / GRAVITY])
@pytest.mark.parametrize("tilt", [0.0, 0.4])
def test_a_factor_is_found_at_any_tilt(rng, factor, tilt):
    found = accel_scale(*(streams(rng, tilt, factor)[0], None, streams(rng, tilt)[1]), 0.12)
    tilted = 1 / np.cos(tilt) if factor < 1 else 1.0  # below gravity the size is taken, which needs no attitude
    assert found.factor == pytest.approx(factor * tilted, rel=0.01)


def test_rotations_are_scipys():
    turned = Rotation.random(20, random_state=0)
    np.testing.assert_allclose(rotations(turned.as_quat()[:, [3, 0, 1, 2]]), turned.as_matrix(), atol=1e-12)


def test_noise_of_the_gyro_is_no_factor():
    """It makes coefficients smaller (errors in variables), as a gyro that reads too much does."""
    rng = np.random.default_rng(5)
    rates = 0.2 * np.sin(np.array([0.7, 0.9, 0.5]) * TIME[:, None])
    attitude = [Rotation.identity()]
    for rate in rates[:-1]:
        attitude.append(attitude[-1] * Rotation.from_rotvec(rate / 100))
    orientation = np.array([one.as_quat()[[3, 0, 1, 2]] for one in attitude])
    steps = attitude_rates(TIME, orientation)
    slow = np.repeat(0.11 * rng.normal(size=(len(TIME) // 20, 3)), 20, axis=0)
    noisy = agreement(TIME, rates + slow, steps)
    assert np.median(np.diag(noisy.matrix)) < 1 / 1.12
    assert noisy.factor == pytest.approx(1.0, abs=0.05)
    assert agreement(TIME, 1.4 * rates, steps).factor == pytest.approx(1.4, rel=0.02)


def test_least_squares_has_the_variances_of_the_normal_matrix(rng):
    design, target = rng.normal(size=(40, 3)) * [1, 1e3, 1e-3], rng.normal(size=(40, 2))
    weights, variance = least_squares(design, target)
    np.testing.assert_allclose(weights, np.linalg.lstsq(design, target, rcond=None)[0], rtol=1e-9)
    np.testing.assert_allclose(variance, np.diag(np.linalg.inv(design.T @ design)), rtol=1e-6)
    _, variance = least_squares(np.column_stack((design[:, 0], 2 * design[:, 0], design[:, 2])), target)
    assert np.isinf(variance).tolist() == [True, True, False]


def test_findings_do_not_depend_on_the_order_of_the_rules(monkeypatch):
    """A gyro in degrees per second has lines that are judged in rad/s, whichever rule is asked first."""
    flown = labelled_flight(4, ("scale",), {"rate": 250.0})
    first = rules.judge(gather(flown.log, THRESHOLDS))
    assert first[0].cause == "scale"
    monkeypatch.setattr(rules, "RULES", rules.RULES[::-1])
    assert sorted(rules.judge(gather(flown.log, THRESHOLDS)), key=repr) == sorted(first, key=repr)
