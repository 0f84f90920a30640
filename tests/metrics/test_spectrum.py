"""Spectra against scipy, and peaks of simulated tones."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import signal as sps

from fwnkf.errors import ShapeError
from fwnkf.metrics.consistency import whiten
from fwnkf.metrics.spectrum import innovation_spectrum, welch

from ..tolerances import assert_close

RATE = 400.0


@pytest.mark.parametrize(("length", "segment"), [(1000, 256), (1000, 255), (777, 64), (100, 100), (99, 99), (9, 2)])
def test_welch_equals_scipy(rng, length: int, segment: int):
    x = rng.standard_normal((3, length, 2)) + np.linspace(0, 4, length)[:, None]
    spectrum = welch(torch.from_numpy(x), RATE, segment)
    frequency, density = sps.welch(x, RATE, "hann", segment, axis=-2)
    assert_close(spectrum.frequency, torch.from_numpy(frequency))
    assert_close(spectrum.density, torch.from_numpy(density))


def test_a_short_signal_is_one_segment(rng):
    x = rng.standard_normal((50, 1))
    assert_close(welch(torch.from_numpy(x)).density, torch.from_numpy(sps.welch(x, nperseg=50, axis=0)[1]))
    with pytest.raises(ShapeError, match="at least 2"):
        welch(torch.zeros(1, 1))


def test_whitened_innovations_of_a_consistent_filter_are_flat(generator):
    root = torch.tensor([[2.0, 0.0], [1.0, 0.3]], dtype=torch.float64)
    innovation = torch.randn(20, 2000, 2, generator=generator, dtype=torch.float64) @ root.mT
    cov = (root @ root.mT).expand(20, 2000, 2, 2)
    frequency, density = innovation_spectrum(innovation, cov, RATE, 64)
    assert density.shape == (33, 2)
    inner = density[2:-1] * RATE / 2  # the removed mean affects the first two bins
    assert float((inner - 1).abs().max()) < 0.15
    assert_close(density, welch(whiten(innovation, cov), RATE, 64).density.mean(0))
    plain = innovation_spectrum(innovation, rate=RATE, segment=64)
    assert_close(plain.density, welch(innovation, RATE, 64).density.mean(0))
    assert float(plain.density.sum(0)[0] * frequency[1]) == pytest.approx(4, rel=0.05)  # the variance of channel 0


def tones(rng: np.random.Generator, lines: dict[float, float], floor: float, length: int = 20_000) -> torch.Tensor:
    """Sines of the given power at the given frequencies over white noise of power ``floor``."""
    t = np.arange(length) / RATE
    x = math.sqrt(floor) * rng.standard_normal(length)
    for frequency, power in lines.items():
        x += math.sqrt(2 * power) * np.sin(2 * np.pi * frequency * t + rng.uniform(0, 2 * np.pi))
    return torch.from_numpy(x).unsqueeze(-1)


def spectrum_of_channel(x: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    frequency, density = welch(torch.from_numpy(x).unsqueeze(-1), RATE, 256)
    return frequency, density[:, 0]
