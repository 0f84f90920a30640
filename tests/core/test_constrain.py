"""Maps of raw parameters to valid values: round trips, and validity for every raw value in float32."""

from __future__ import annotations

import math

import pytest
import torch

from fwnkf.core import constrain
from fwnkf.errors import ConfigError

from ..tolerances import assert_close


def test_round_trips(generator):
    raw = torch.randn(500, generator=generator, dtype=torch.float64) * 3
    assert_close(constrain.inverse_positive(constrain.positive(raw)), raw)
    assert_close(constrain.inverse_soft_clamp(constrain.soft_clamp(raw, 20.0), 20.0), raw)
    value = raw.exp()
    assert_close(constrain.positive(constrain.inverse_positive(value)), value)


def test_small_raw_values_are_nearly_exp_and_identity():
    """The maps are close to exp and the identity where raw values are small, as their docstrings say."""
    raw = torch.linspace(-0.5, 0.5, 11, dtype=torch.float64)
    torch.testing.assert_close(constrain.positive(raw), raw.exp(), rtol=2e-4, atol=0)  # (0.5/20)²/3 · 0.5
    torch.testing.assert_close(constrain.soft_clamp(raw, 20.0), raw, rtol=3e-4, atol=0)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_inverse_covariance_reproduces_the_covariance(generator, size):
    root = torch.randn(10, size, size, generator=generator, dtype=torch.float64)
    cov = root @ root.mT + 0.3 * torch.eye(size, dtype=torch.float64)
    log_std, slopes = constrain.inverse_covariance(cov)
    assert slopes.shape == (10, size * (size - 1) // 2)
    assert_close(constrain.covariance(log_std, slopes), cov)


@pytest.mark.parametrize("limit", [1.0, 10.0, 1e6, 1e30])
@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_covariances_are_positive_for_every_raw_value_in_float32(generator, size, limit):
    """All corners and many random raws; eigenvalues of the correlation matrix, in float64.

    The floor is minus the rounding of a unit-diagonal float32 matrix, size · eps.
    """
    count = 2000
    pick = torch.randint(0, 3, (count, size + size * (size - 1) // 2), generator=generator)
    raw = torch.where(pick == 2, torch.randn(pick.shape, generator=generator), (pick * 2.0 - 1)) * limit
    cov = constrain.covariance(raw[:, :size], raw[:, size:])
    assert cov.dtype == torch.float32
    assert bool(cov.isfinite().all())
    assert torch.equal(cov, cov.mT)
    wide = cov.double()
    std = torch.diagonal(wide, dim1=-2, dim2=-1).sqrt()
    assert bool((std > 0).all())
    correlation = wide / (std.unsqueeze(-1) * std.unsqueeze(-2))
    assert torch.linalg.eigvalsh(correlation).min() >= -size * torch.finfo(torch.float32).eps
    if size <= 2:  # with one slope the least eigenvalue is 1 - 30/√901 = 5.5e-4, far above rounding: definite
        assert torch.linalg.eigvalsh(correlation).min() > 5e-4


def test_saturated_positive_values_square_in_float32():
    raw = torch.tensor([-math.inf, -1e6, 1e6, math.inf])
    squared = constrain.positive(raw).square()
    assert bool((squared > 0).all())
    assert bool(squared.isfinite().all())
    bounded = constrain.bounded(raw, -2.0, 5.0)
    assert bounded.tolist() == [-2.0, -2.0, 5.0, 5.0]


@pytest.mark.parametrize(
    ("cov", "message"),
    [
        ([[1.0, 0.0], [0.0, 0.0]], "positive variances"),
        ([[1.0, 2.0], [2.0, 1.0]], "not positive definite"),
        ([[1.0, 0.99999], [0.99999, 1.0]], "nearly singular"),
    ],
)
def test_an_invalid_initial_covariance_raises_a_config_error(cov, message):
    with pytest.raises(ConfigError, match=message):
        constrain.inverse_covariance(torch.tensor(cov, dtype=torch.float64))


def test_gradients(generator):
    log_std = torch.randn(2, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    slopes = torch.randn(2, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(constrain.covariance, (log_std, slopes))
