"""Causal FIR filters: against numpy's least squares and convolution, and against a filter that is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fwnkf.errors import ConfigError, DataError
from tasks.dido.fir import apply_fir, choose_ridge, fit_fir


def test_output_is_the_convolution(rng):
    weights, y = rng.standard_normal((5, 2, 3)), rng.standard_normal((4, 50, 2))
    ours = apply_fir(torch.from_numpy(weights), torch.from_numpy(y)).numpy()
    for record, out in zip(y, ours, strict=True):
        held = np.concatenate((np.repeat(record[:1], 4, 0), record))
        theirs = sum(
            np.stack([np.convolve(held[:, i], weights[:, i, j], "valid") for j in range(3)], -1) for i in (0, 1)
        )
        np.testing.assert_allclose(out, theirs, rtol=1e-12, atol=1e-12)


def test_weights_are_numpys_least_squares(rng):
    y, target = rng.standard_normal((2, 300, 2)), rng.standard_normal((2, 300, 1))
    rows = [
        np.concatenate([np.concatenate((np.repeat(record[:1], k, 0), record))[: len(record)] for k in range(4)], -1)
        for record in y
    ]
    theirs = np.linalg.lstsq(np.concatenate(rows), target.reshape(-1, 1), rcond=None)[0].reshape(4, 2, 1)
    ours = fit_fir(torch.from_numpy(y), torch.from_numpy(target), taps=4, ridge=1e-13)
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-8, atol=1e-9)


def test_a_known_filter_is_found_and_the_ridge_with_the_least_error_left_out_chosen(generator):
    y = torch.randn(4, 400, 2, generator=generator, dtype=torch.float64)
    weights = torch.randn(3, 2, 1, generator=generator, dtype=torch.float64)
    target = apply_fir(weights, y)
    torch.testing.assert_close(fit_fir(y, target, taps=3, ridge=1e-12), weights, rtol=1e-6, atol=1e-6)
    # without noise the least ridge is best; a target that has nothing to do with y wants the largest
    assert choose_ridge(y, target, taps=3, ridges=(1e-8, 1e-2, 1e2)).ridge == 1e-8
    noise = torch.randn(target.shape, generator=generator, dtype=torch.float64)
    assert choose_ridge(y, noise, taps=60, ridges=(1e-8, 1e-2, 1e2)).ridge == 1e2


def test_wrong_lengths_are_refused():
    y = torch.zeros(1, 10, 1)
    with pytest.raises(ConfigError, match="taps"):
        fit_fir(y, y, taps=11)
    with pytest.raises(DataError, match="collinear"):
        fit_fir(y, y, taps=2)
    with pytest.raises(DataError, match="at least two"):
        choose_ridge(y, y, taps=2, ridges=(1.0,))
