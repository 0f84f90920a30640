"""Disturbances against their stated variance and spectrum, as scipy.signal estimates them, and their state models."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import signal

from fwnkf.errors import ConfigError
from fwnkf.systems import noise

from ..tolerances import assert_close

PARTS = {
    "white": noise.White(0.7),
    "tone": noise.Tone(0.7),
    "band": noise.Band(0.7, low=0.3, high=0.5),
    "low band": noise.Band(0.7, low=0.0, high=0.1),
    "drift": noise.Drift(0.7, pole=0.95),
    "pink": noise.Pink(0.7),
}


def draws(seed=0):
    return np.random.Generator(np.random.PCG64(seed))


def assert_variance(samples, variance):
    """Mean square within four standard errors, which the spread over independent trajectories and channels gives."""
    power = (samples**2).mean(1).ravel()
    assert abs(power.mean() - variance) < 4 * power.std() / math.sqrt(power.size) + 1e-12


@pytest.mark.parametrize("name", PARTS)
def test_the_variance_is_as_stated_from_the_first_sample(name):
    samples = PARTS[name].sample((4000, 60, 2), draws())
    assert samples.shape == (4000, 60, 2)
    assert samples.dtype == np.float64
    for begin in (0, 20, 40):  # stationary: no part of the record differs
        assert_variance(samples[:, begin : begin + 20], 0.7)
    assert_variance(samples[:, :1], 0.7)
    assert abs(samples.mean()) < 5 * math.sqrt(0.7 / 4000)


@pytest.mark.parametrize("name", PARTS)
def test_channels_and_trajectories_are_uncorrelated(name):
    samples = PARTS[name].sample((4000, 10, 2), draws(1))
    kurtosis = (samples**4).mean() / 0.7**2
    bound = 4 * 0.7 * math.sqrt(kurtosis / 4000)
    assert abs((samples[..., 0] * samples[..., 1]).mean(0)).max() < bound
    assert abs((samples[:-1] * samples[1:]).mean((0, 2))).max() < bound


@pytest.mark.parametrize("name", [*PARTS, *noise.SCENARIOS])
def test_one_seed_one_stream(name):
    part = PARTS.get(name) or noise.scenario(name, 1.0)
    first, again, other = (part.sample((3, 40, 2), draws(seed)) for seed in (5, 5, 6))
    assert (first == again).all()
    assert not (first == other).all()


def test_a_tone_has_its_amplitude_frequency_and_phase():
    part = noise.Tone(0.5, low=0.2, high=0.4)
    samples = part.sample((200, 4096, 2), draws())
    frequency = part.frequency(200, draws())  # the first thing drawn, so the same stream tells
    assert (np.abs(samples) <= 1.0).all()
    np.testing.assert_allclose((samples**2).mean(1), 0.5, rtol=2e-3)  # in every trajectory and channel
    bins, density = signal.periodogram(samples, fs=2.0, window="hann", axis=1)
    np.testing.assert_allclose(bins[density.argmax(1)], frequency[:, None] + np.zeros((1, 2)), atol=2 / 4096)
    assert frequency.min() > 0.2
    assert frequency.max() < 0.4
    assert np.ptp(frequency) > 0.18


def test_a_band_has_its_power_inside():
    samples = noise.Band(1.0, low=0.3, high=0.5).sample((500, 512, 1), draws())[..., 0]
    bins, density = signal.periodogram(samples, fs=2.0, window="hann", detrend=False, axis=1)
    density = density.mean(0)
    inside = (bins >= 0.3) & (bins <= 0.5)
    assert density[inside].sum() / density.sum() > 0.98  # what the window lets out
    flat = density[(bins > 0.32) & (bins < 0.48)]
    assert flat.std() / flat.mean() < 0.1
    assert density[(bins < 0.28) | (bins > 0.52)].max() < 1e-4 * flat.mean()


def test_the_two_ends_of_a_band_are_uncorrelated():
    samples = noise.Band(1.0, low=0.0, high=0.3).sample((4000, 64, 1), draws())[..., 0]
    assert abs((samples[:, 0] * samples[:, -1]).mean()) < 4 / math.sqrt(4000)


def test_drift_is_first_order():
    samples = noise.Drift(1.0, pole=0.9).sample((4000, 30, 1), draws())[..., 0]
    for lag in (1, 5, 20):
        assert abs((samples[:, lag:] * samples[:, :-lag]).mean() - 0.9**lag) < 0.02


def test_pink_falls_as_one_over_f():
    samples = noise.Pink(1.0).sample((300, 4096, 1), draws())[..., 0]
    bins, density = signal.welch(samples, nperseg=2048, axis=1)  # cycles per sample
    use = (bins > 0.01 / (2 * np.pi) * 1.5) & (bins < 3 / (2 * np.pi))
    # equal weight per decade
    grid = np.geomspace(bins[use][0], bins[use][-1], 60)
    log_density = np.interp(np.log(grid), np.log(bins[use]), np.log(density.mean(0)[use]))
    slope, level = np.polyfit(np.log(grid), log_density, 1)
    assert abs(slope + 1) < 0.05
    assert np.abs(log_density - level - slope * np.log(grid)).max() < 0.25


# ---- operations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("burst", [1.0, 4.0])
def test_dropout_has_its_rate_and_bursts(burst):
    y, mask = np.zeros((2000, 200, 2)), np.ones((2000, 200, 2), bool)
    lost, seen = noise.Dropout(0.2, burst=burst).apply(y, mask, draws())
    assert (np.isnan(lost) == ~seen).all()
    assert (seen[..., 0] == seen[..., 1]).all()
    gone = ~seen[..., 0]
    assert abs(gone.mean() - 0.2) < 0.01
    assert abs(gone[:, 0].mean() - 0.2) < 0.04  # from the first sample
    begins = (gone[:, 1:] & ~gone[:, :-1]).sum()
    assert abs(gone[:, 1:].sum() / begins - burst) < 0.05 * burst + (0.25 if burst == 1 else 0)
    apart = noise.Dropout(0.2, together=False).apply(y, mask, draws())[1]
    assert (apart[..., 0] != apart[..., 1]).any()


class Clipping:
    """An operation of a user's own."""

    def apply(self, y, mask, generator):
        return np.clip(y, -1, 1), mask.copy()


def test_scenarios_compose_and_operations_apply_in_order():
    parts = (noise.Tone(3.0), noise.White(1.0))
    rough = noise.Scenario(parts, (noise.Dropout(0.5), Clipping()), variance=0.5)
    assert isinstance(Clipping(), noise.Operation)
    assert [part.variance for part in rough.scaled()] == [0.375, 0.125]
    clean = np.zeros((50, 10, 2))
    y, mask = rough.apply(clean, draws())
    assert (np.isnan(y) == ~mask).all()
    assert 0.3 < mask.mean() < 0.7
    assert np.nanmax(np.abs(y)) == 1
    assert not clean.any()  # arguments are not modified
    assert noise.Scenario().apply(np.ones((1, 2, 3)), draws())[0].sum() == 6


def test_nonsense_is_refused():
    for wrong in (
        lambda: noise.Tone(low=0.5, high=0.2),
        lambda: noise.Band(low=0.5, high=1.5),
        lambda: noise.Drift(pole=1.0),
        lambda: noise.Dropout(rate=0.9, burst=1.0),
        lambda: noise.scenario("brown", 1.0),
        lambda: noise.oscillators("brown", 1.0),
        lambda: noise.oscillators("drift", 1.0, frequency=0.3),
        lambda: noise.Scenario(variance=1.0).sample((1, 2, 3), draws()),
    ):
        with pytest.raises(ConfigError):
            wrong()


# ---- the five scenarios and their models ----------------------------------------------------------------------------

SPECTRA = {  # of the coloured part at unit variance, as a function of the fraction of Nyquist
    "white": lambda f: np.ones_like(f),
    "tone": lambda f: np.where((f > 0.2) & (f < 0.4), 5.0, 0.0),
    "high_band": lambda f: np.where(f > 0.5, 2.0, 0.0),
    "drift": lambda f: (1 - 0.99**2) / (1 + 0.99**2 - 2 * 0.99 * np.cos(np.pi * f)),
    "pink": lambda f: sum((1 - p * p) / (1 + p * p - 2 * p * np.cos(np.pi * f)) for p in (0.5, 0.9, 0.99)) / 3,
}


@pytest.mark.parametrize("name", noise.SCENARIOS)
def test_scenarios_have_one_variance_and_their_own_spectrum(name):
    samples = noise.scenario(name, 0.26).sample((2000, 100, 2), draws(3))
    assert_variance(samples, 0.26)
    long = noise.scenario(name, 1.0).sample((1000, 2048, 1), draws(4))[..., 0]
    bins, density = signal.welch(long, fs=2.0, nperseg=1024, axis=1, detrend=False)
    expected = 0.9 * SPECTRA[name](bins) + 0.1 if name != "white" else np.ones_like(bins)
    # away from edges and from the peak at zero, which the window smears
    use = (bins > 0.02) & (np.abs(bins - 0.5) > 0.01) & (np.abs(bins - 0.2) > 0.01) & (np.abs(bins - 0.4) > 0.01)
    use &= bins < 0.995
    # 1,000 random frequencies fill the range of the tone unevenly
    tolerance = 0.6 if name == "tone" else 0.12
    np.testing.assert_allclose(density.mean(0)[use], expected[use], rtol=tolerance)
    octaves = [(low, 2 * low) for low in (0.03, 0.06, 0.12, 0.25, 0.5)]
    for low, high in octaves:
        band = (bins > low) & (bins < high)
        assert abs(density.mean(0)[band & use].sum() / expected[band & use].sum() - 1) < 0.06


@pytest.mark.parametrize("name", noise.SCENARIOS)
def test_oscillators_have_the_stated_variance(name):
    model = noise.oscillators(name, 0.26)
    assert_close(torch.tensor(model.total).double(), torch.tensor(0.26).double(), "rounding")
    omega = (torch.arange(20_000, dtype=torch.float64) + 0.5) * math.pi / 20_000
    # the mean over all frequencies of the spectrum is the variance: midpoint rule over the peak of the drift
    torch.testing.assert_close(model.spectrum(omega).mean(), torch.tensor(0.26).double(), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("name", "limit"),
    # Whittle divergence in nats per sample, that is what a filter with this model loses of the likelihood. The fitted
    # ones are soft where the truth is a cliff; a white model in their place loses far more, and the test says so.
    [("white", 1e-12), ("drift", 1e-12), ("pink", 1e-12), ("high_band", 0.15), ("tone", 0.235)],
)
def test_oscillators_are_the_spectrum_of_the_scenario(name, limit):
    f = (np.arange(20_000) + 0.5) / 20_000
    truth = torch.tensor(0.9 * SPECTRA[name](f) + 0.1 if name != "white" else np.ones_like(f))
    model = noise.oscillators(name, 1.0).spectrum(torch.tensor(f * np.pi))

    def divergence(guess):
        return float((truth / guess - (truth / guess).log() - 1).mean())

    assert divergence(model) <= limit
    if name != "white":
        assert divergence(torch.ones_like(model)) > max(2 * limit, 0.35)


def test_the_fitted_oscillators_are_at_their_optimum():
    f = (np.arange(8000) + 0.5) / 8000
    for name, (floor, entries) in noise.FITTED.items():
        truth = torch.tensor(0.9 * SPECTRA[name](f) + 0.1)
        table = torch.tensor(entries, dtype=torch.float64)

        def loss(table, floor=floor, truth=truth):
            power = table[:, 2] * ((1 - floor) / table[:, 2].sum())
            model = floor + noise.core_oscillators.spectrum(
                table[:, 1], math.pi * table[:, 0], power, torch.tensor(f * np.pi)
            )
            return float((truth / model + model.log()).mean())

        best = loss(table)
        for entry in range(table.numel()):
            for change in (-0.01, 0.01):
                moved = table.clone().view(-1)
                moved[entry] += change
                assert loss(moved.view_as(table)) > best


def test_a_known_tone_is_one_sharp_oscillator():
    model = noise.oscillators("tone", 0.26, frequency=0.3)
    omega = torch.linspace(0.01, 3.1, 3000, dtype=torch.float64)
    assert abs(float(omega[model.spectrum(omega).argmax()]) - 0.3 * math.pi) < 2e-3
    assert model.floor == pytest.approx(0.026)
