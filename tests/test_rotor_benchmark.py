"""The numpy filter that fits rotor lines against an FW-NKF with ``Orders``."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import rotor_fit
import rotor_logs

STEP, LEVEL = 1e-3, 0.012


def samples(steps: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Three axes of noise and a line of one of two rotors."""
    generator = np.random.default_rng(0)
    hz = np.stack((np.linspace(180, 220, steps), np.linspace(160, 150, steps)), 1)
    line = np.cos(2 * np.pi * STEP * np.cumsum(hz[:, 0]))
    return line + 0.3 * generator.standard_normal((3, steps)), hz


def test_the_fast_filter_is_the_fwnkf_that_is_told_the_speeds():
    y, hz = samples()
    given = rotor_fit.Constants(
        np.array([[2.0, 1.0, 0.0]] * 3), np.log([[0.6, 5.0, 20.0]] * 3), np.array([40.0, 60.0, 80.0])
    )
    fast = rotor_fit.innovations(y, hz, STEP, rotor_logs.ORDERS, given, LEVEL)
    models = [rotor_logs.candidate(STEP, hz[0], given, axis, LEVEL) for axis in range(3)]
    _, value, variance = rotor_logs.together(models, y, hz)
    # the FW-NKF keeps an error of the speeds of half a per cent, which the fast filter does not have
    np.testing.assert_allclose(
        rotor_fit.density(fast, 100), rotor_fit.density(rotor_fit.Innovations(value, variance), 100), atol=0.05
    )


def test_the_search_raises_the_likelihood():
    y, hz = samples()
    found = rotor_fit.search(y, hz, STEP, (1.0,), LEVEL, 50)
    start = rotor_fit.Constants(
        np.full((3, 1), rotor_fit.POWER[0]), np.full((3, 1), np.log(rotor_fit.WIDTH[0])), np.full(3, rotor_fit.BAND)
    )
    scores = [rotor_fit.density(rotor_fit.innovations(y, hz, STEP, (1.0,), one, LEVEL), 50) for one in (start, found)]
    assert (scores[1] < scores[0]).all()
