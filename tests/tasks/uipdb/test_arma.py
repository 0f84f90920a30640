"""ARMA models from spectra against scipy, statsmodels and the coefficients a series was simulated with."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import signal

from fwnkf.errors import ConfigError, DataError
from tasks.uipdb import arma

A, C = [1.0, -1.4, 0.7], [1.0, 0.5, 0.2]


def simulated(count: int = 60_000, scales: tuple[float, ...] = (1.0, 20.0)) -> tuple[torch.Tensor, torch.Tensor]:
    """Series of one ARMA model at several scales, and the innovations they were made of."""
    noise = np.random.default_rng(0).normal(size=(count, len(scales))) * scales
    return torch.from_numpy(signal.lfilter(C, A, noise, axis=0)), torch.from_numpy(noise)


def test_the_coefficients_of_a_simulated_series_are_found() -> None:
    series, _ = simulated()
    model = arma.fit(arma.power([series[:30_000], series[30_000:]]), 2)
    torch.testing.assert_close(model.a, torch.tensor(A, dtype=torch.float64), atol=0.03, rtol=0)
    torch.testing.assert_close(model.c, torch.tensor(C, dtype=torch.float64), atol=0.03, rtol=0)


def test_the_fit_is_statsmodels_within_its_standard_errors() -> None:
    statsmodels = pytest.importorskip("statsmodels.tsa.arima.model")
    series, _ = simulated(8000, (1.0,))
    model = arma.fit(arma.power([series]), 2)
    theirs = statsmodels.ARIMA(series.numpy(), order=(2, 0, 2), trend="n").fit()
    ours = np.concatenate((-model.a[1:].numpy(), model.c[1:].numpy()))
    assert np.all(np.abs(ours - theirs.params[:4]) < 3 * theirs.bse[:4])


def test_innovations_are_those_of_scipy_and_of_the_simulation() -> None:
    series, noise = simulated(500)
    model = arma.ARMA(torch.tensor(A, dtype=torch.float64), torch.tensor(C, dtype=torch.float64))
    innovations = model.innovations(series)
    np.testing.assert_allclose(innovations.numpy(), signal.lfilter(A, C, series.numpy(), axis=0), atol=1e-9)
    torch.testing.assert_close(innovations, noise, atol=1e-9, rtol=1e-9)


def test_the_state_space_form_has_the_impulse_response_of_the_model() -> None:
    model = arma.ARMA(torch.tensor(A, dtype=torch.float64), torch.tensor(C, dtype=torch.float64))
    F, g = model.state_space()
    expected = signal.lfilter(C, A, np.eye(1, 30)[0])
    s, response = torch.zeros(2, dtype=torch.float64), []
    for t in range(30):
        e = float(t == 0)
        response.append(float(s[0]) + e)
        s = F @ s + g * e
    np.testing.assert_allclose(response, expected, atol=1e-12)


def test_monic_polynomials_are_stable_whatever_the_numbers() -> None:
    raw = 3 * torch.randn(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert max(np.abs(np.roots(row)).max() for row in arma.monic(raw).numpy()) < 1


def test_too_little_data_is_refused() -> None:
    with pytest.raises(DataError, match="100 samples is shorter than the window of 256"):
        arma.power([torch.zeros(100, 1)])
    with pytest.raises(ConfigError, match="order 3"):
        arma.fit(torch.ones(4, 1), 3)
