"""Spectra against scipy, and peaks of simulated tones."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import signal as sps

from fwnkf.errors import ConfigError, DataError, ShapeError
from fwnkf.metrics.consistency import whiten
from fwnkf.metrics.spectrum import innovation_spectrum, named_peaks, welch

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


def test_peaks_of_tones_have_the_right_frequency_share_and_height(rng):
    lines = {34.0: 0.5, 62.3: 0.3, 160.8: 0.1}
    frequency, density = welch(tones(rng, lines, 0.1), RATE, 512)
    peaks = named_peaks(density[:, 0], frequency, count=5)
    assert len(peaks) == 3
    assert [peak.height for peak in peaks] == sorted((peak.height for peak in peaks), reverse=True)
    bin_width = RATE / 512
    for peak, (line, power) in zip(peaks, lines.items(), strict=True):
        assert abs(peak.frequency - line) < 0.1 * bin_width
        assert peak.share == pytest.approx(power, abs=0.01)
        # with a Hann window a tone spreads over 1.5 bins, or 2.1 if it lies between two bins
        level = power / bin_width / (2 * 0.1 / RATE)
        assert level / 2.2 < peak.height < level / 1.4
    assert named_peaks(density[:, 0], frequency, count=2) == peaks[:2]
    assert [round(p.frequency) for p in named_peaks(density[:, 0], frequency, prominence=peaks[1].height)] == [34, 62]


def test_two_close_tones_are_two_peaks_that_share_the_power(rng):
    frequency, density = welch(tones(rng, {62.0: 0.5, 66.0: 0.4}, 0.1), RATE, 512)
    peaks = named_peaks(density[:, 0], frequency)
    assert [round(peak.frequency) for peak in peaks] == [62, 66]
    assert sum(peak.share for peak in peaks) == pytest.approx(0.9, abs=0.02)


def test_a_wide_resonance_is_one_peak_and_white_noise_has_none(rng):
    noise = rng.standard_normal(100_000)
    assert named_peaks(*reversed(spectrum_of_channel(noise))) == []
    pole = 0.97 * np.exp(2j * np.pi * 50 / RATE)
    ringing = sps.lfilter([1.0], np.poly([pole, pole.conj()]).real, noise)
    (peak,) = named_peaks(*reversed(spectrum_of_channel(ringing)))
    assert peak.frequency == pytest.approx(50, abs=2)
    assert peak.share > 0.9


def spectrum_of_channel(x: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    frequency, density = welch(torch.from_numpy(x).unsqueeze(-1), RATE, 256)
    return frequency, density[:, 0]


def test_a_peak_at_the_nyquist_frequency_is_detected(rng):
    alternating = torch.from_numpy(rng.standard_normal(4096) * 0.1 + (-1.0) ** np.arange(4096)).unsqueeze(-1)
    frequency, density = welch(alternating, RATE, 128)
    (peak,) = named_peaks(density[:, 0], frequency)
    assert peak.frequency == RATE / 2


def test_flat_spectra_have_no_peaks_and_invalid_input_raises():
    frequency = torch.arange(5.0)
    assert named_peaks(torch.zeros(5), frequency) == []
    assert named_peaks(torch.ones(5), frequency) == []
    assert named_peaks(torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0]), frequency)[0] == (2.0, 1.0, math.inf)
    with pytest.raises(DataError, match="not finite"):
        named_peaks(torch.full((5,), math.nan), frequency)
    with pytest.raises(ShapeError, match="least 3 bins"):
        named_peaks(torch.ones(2), torch.ones(2))
    with pytest.raises(ConfigError, match="above 1"):
        named_peaks(torch.ones(5), frequency, prominence=0.5)
