"""Consistency metrics against scipy and statsmodels."""

from __future__ import annotations

import numpy as np
import torch
from scipy.stats import multivariate_normal
from statsmodels.stats.diagnostic import acorr_ljungbox

from fwnkf.metrics.consistency import ljung_box, mahalanobis_squared, nees, nis, whiten

from ..tolerances import assert_close


def random_covariances(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    root = rng.standard_normal((count, size, size))
    return root @ root.transpose(0, 2, 1) + 0.1 * np.eye(size)


def test_mahalanobis_is_the_exponent_of_the_normal_density(rng):
    cov, residual = random_covariances(rng, 6, 3), rng.standard_normal((6, 3))
    expected = [
        -2 * (multivariate_normal(cov=c).logpdf(r) - multivariate_normal(cov=c).logpdf(np.zeros(3)))
        for c, r in zip(cov, residual, strict=True)
    ]
    distance = mahalanobis_squared(torch.from_numpy(residual), torch.from_numpy(cov))
    assert_close(distance, torch.tensor(expected, dtype=torch.float64))
    assert_close(nees(torch.from_numpy(residual), torch.from_numpy(cov)), distance / 3)
    assert_close(nis(torch.from_numpy(residual), torch.from_numpy(cov)), distance / 3)


def test_an_indefinite_covariance_gives_nan():
    cov = torch.stack((torch.eye(2), -torch.eye(2)))
    distance = mahalanobis_squared(torch.ones(2, 2), cov)
    assert distance[0] == 2
    assert distance[1].isnan()


def test_ljung_box_agrees_with_statsmodels(rng):
    series = rng.standard_normal((4, 300))
    series[2:, 1:] += 0.3 * series[2:, :-1]
    result = ljung_box(torch.from_numpy(series), 12)
    for i in range(4):
        expected = acorr_ljungbox(series[i], lags=[12])
        assert_close(result.statistic[i], torch.tensor(float(expected["lb_stat"].iloc[0]), dtype=torch.float64))
        assert_close(result.p_value[i], torch.tensor(float(expected["lb_pvalue"].iloc[0]), dtype=torch.float64))


def test_whitened_innovations_have_the_identity_as_covariance(rng):
    cov = random_covariances(rng, 1, 3)[0]
    draws = torch.from_numpy(rng.multivariate_normal(np.zeros(3), cov, 20_000))
    white = whiten(draws, torch.from_numpy(cov).expand(20_000, 3, 3))
    assert float((white.mT @ white / len(white) - torch.eye(3)).abs().max()) < 0.05
