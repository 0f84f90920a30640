"""Spectra against numpy and scipy, the loss against its definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import signal

from fwnkf.core import spectral

from ..tolerances import assert_close


def weights(taper, length):
    return np.ones(length) if taper == "none" else signal.get_window("hann", length)


@pytest.mark.parametrize("length", [64, 65])
@pytest.mark.parametrize("taper", ["none", "hann"])
def test_magnitude_is_numpys_rfft(rng, taper, length):
    x = rng.standard_normal((3, length, 2))
    expected = np.abs(np.fft.rfft(x * weights(taper, length)[:, None], axis=1))
    assert_close(spectral.magnitude(torch.as_tensor(x), taper), expected, "rounding")


@pytest.mark.parametrize("length", [1, 2, 7, 8, 64, 65, 100])
@pytest.mark.parametrize(
    "band", [(0.0, np.pi / 2), (0.0, np.pi), (0.3, 1.1), (np.pi / 4, np.pi / 4), (3.0, 9.0)], ids=str
)
def test_band_bins_are_those_whose_frequency_lies_in_the_band(length, band):
    frequencies = 2 * np.pi * np.arange(length // 2 + 1) / length
    inside = np.flatnonzero((frequencies >= band[0] - 1e-12) & (frequencies <= band[1] + 1e-12))
    assert np.array_equal(np.arange(length // 2 + 1)[spectral.band_bins(length, band)], inside)


@pytest.mark.parametrize("reduction", ["paper", "mean"])
@pytest.mark.parametrize("taper", ["none", "hann"])
def test_the_loss_is_its_definition(rng, taper, reduction):
    """A plain sum over batch, bins in [0, π/2] and channels."""
    x, y = rng.standard_normal((2, 3, 40, 2))
    w = weights(taper, 40)
    total = 0.0
    for b in range(3):
        for k in range(11):  # 2πk/40 ≤ π/2
            for c in range(2):
                wave = w * np.exp(-2j * np.pi * k * np.arange(40) / 40)
                total += abs(abs(wave @ x[b, :, c]) - abs(wave @ y[b, :, c])) / (3 * 11)
    expected = total if reduction == "paper" else total / 2
    loss = spectral.spectral_distance(torch.as_tensor(x), torch.as_tensor(y), taper=taper, reduction=reduction)
    assert_close(loss.mean(), np.float64(expected))


@pytest.mark.parametrize("length", [64, 65])
def test_parseval(rng, length):
    """The mean over the whole circle is the mean square; the rfft bins count twice but for the ends."""
    x = rng.standard_normal((2, length, 3))
    psd = spectral.periodogram(torch.as_tensor(x))
    twice = np.full(length // 2 + 1, 2.0)
    twice[0] = 1
    if length % 2 == 0:
        twice[-1] = 1
    assert_close(np.einsum("k,bkc->bc", twice, psd.numpy()) / length, (x**2).mean(1), "rounding")


@pytest.mark.parametrize("taper", ["none", "hann"])
def test_the_periodogram_is_scipys(rng, taper):
    x = rng.standard_normal((2, 50, 3))
    kind = "boxcar" if taper == "none" else "hann"
    expected = signal.periodogram(
        x, fs=1.0, window=kind, detrend=False, return_onesided=False, scaling="density", axis=1
    )[1]
    assert_close(spectral.periodogram(torch.as_tensor(x), taper), expected[:, :26], "rounding")
