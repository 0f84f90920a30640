"""Consistency of innovations beside statsmodels and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from statsmodels.stats.diagnostic import acorr_ljungbox

from fwnkf.diagnosis.consistency import LAGS, whiteness


def test_whiteness_of_one_run_is_the_test_of_statsmodels(rng):
    noise = rng.normal(size=3000)
    for values in (noise, noise[1:] + 0.1 * noise[:-1]):
        expected = acorr_ljungbox(values, lags=[LAGS])["lb_pvalue"].iloc[0]
        assert whiteness(values, [slice(0, len(values))]).p == pytest.approx(expected, rel=0.1, abs=1e-4)


def test_autocorrelation_of_runs_with_the_largest_values_is_at_most_one(rng):
    """One long run with little in it, and short ones with much: their pairs have more power than the series."""
    quiet, loud = rng.normal(size=2000), 50 + rng.normal(size=60)
    values = np.concatenate((quiet, loud))
    runs = [slice(i, i + 1) for i in range(2000)] + [slice(2000, 2060)]
    result = whiteness(values, runs)
    assert 0.9 < abs(result.largest) <= 1.0


def test_a_first_order_process_has_its_coefficient(rng):
    values = np.zeros(20_000)
    for step, noise in enumerate(rng.normal(size=20_000)):
        values[step] = 0.6 * values[step - 1] + noise
    runs = [slice(0, 7000), slice(7000, 20_000)]
    assert whiteness(values, runs).largest == pytest.approx(0.6, abs=0.03)
