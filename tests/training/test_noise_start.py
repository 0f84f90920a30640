"""Noise states fitted to the spectrum of simulated noise recover the model that generated it."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

import fwnkf
from fwnkf import Hypotheses, Lines
from fwnkf.core import oscillators
from fwnkf.core.gaussian import dense
from fwnkf.data import protocols
from fwnkf.errors import ConfigError
from fwnkf.evaluation import baselines
from fwnkf.filters.parts.hypotheses import FALLBACK_PRIOR
from fwnkf.metrics.accuracy import summarize
from fwnkf.training.noise_start import fit_oscillators, noise_floor, noise_of, start_noise


def test_known_oscillators_are_recovered_from_short_records():
    """Simulated by their state-space form, fitted through their periodogram."""
    g = torch.Generator().manual_seed(0)
    radius, frequency = torch.tensor([0.98, 0.9]).double(), torch.tensor([0.6, 2.0]).double()
    A, Q = oscillators.transition(radius, frequency)
    amplitude = torch.tensor([1.0, 0.5]).double()
    state = torch.randn(2000, 4, generator=g, dtype=torch.float64)
    path = []
    for _ in range(100):
        v = state[:, [0, 2]] @ amplitude + 0.3 * torch.randn(2000, generator=g, dtype=torch.float64)
        path.append(v)
        state = state @ A.mT + torch.randn(2000, 4, generator=g, dtype=torch.float64) * Q.diagonal().sqrt()
    noise = torch.stack(path, 1)
    spectrum = torch.fft.rfft(noise).abs().square().mean(0) / 100
    estimate = fit_oscillators(spectrum, 2, 100)
    order = estimate[0].argsort()
    torch.testing.assert_close(estimate[0][order], frequency, rtol=0.02, atol=0)
    torch.testing.assert_close(estimate[1][order], radius, rtol=0.01, atol=0)
    torch.testing.assert_close(estimate[2][order], amplitude.square(), rtol=0.1, atol=0)
    assert float(estimate[3]) == pytest.approx(0.09, rel=0.15)


@pytest.mark.parametrize("cycles", [0.17, 0.1712])  # on a bin of the periodogram, and between two
def test_a_pure_tone_is_recovered_with_its_power(cycles):
    g = torch.Generator().manual_seed(0)
    phase = 2 * math.pi * torch.rand(160, 1, generator=g, dtype=torch.float64)
    time = torch.arange(200, dtype=torch.float64)
    tone = 0.3 * torch.sin(2 * math.pi * cycles * time + phase)
    noise = tone + 0.05 * torch.randn(160, 200, generator=g, dtype=torch.float64)
    spectrum = torch.fft.rfft(noise).abs().square().mean(0) / 200
    frequency, radius, power, floor = fit_oscillators(spectrum, 1, 200)
    assert float(frequency) == pytest.approx(2 * math.pi * cycles, rel=1e-3)
    assert float(radius) > 0.999
    assert float(power) == pytest.approx(0.3**2 / 2, rel=0.02)
    assert float(floor) == pytest.approx(0.05**2, rel=0.03)


def test_the_floor_is_the_white_noise_beside_a_tone():
    """Simulated: a quarter of the variance that the filter assumes, and a tone of a hundred times that power."""
    records = protocols.simulated("lorenz", "strict", train=1, val=1, test=400).split.test
    g = torch.Generator().manual_seed(0)
    model = fwnkf.build("ekf", system=records.system)
    variance = float(dense(model.prepare().R).diagonal().mean())
    count, steps, channels = records.y.shape
    white = 0.5 * math.sqrt(variance) * torch.randn(count, steps, channels, generator=g)
    bin = 2 * math.pi * 20 * torch.arange(steps) / steps  # on a frequency of the periodogram
    tone = math.sqrt(50 * variance) * torch.sin(bin + 2 * math.pi * torch.rand(count, 1, generator=g)).unsqueeze(-1)
    shaken = dataclasses.replace(records, y=model.observe(records.truth) + white + tone)
    assert noise_floor(model, shaken) == pytest.approx(0.25, rel=0.15)


@pytest.mark.parametrize(("scenario", "sections"), [("drift", 1), ("high_band", 3), ("pink", 3)])
def test_a_filter_with_estimated_noise_is_nearly_as_accurate_as_the_oracle(scenario, sections):
    protocol = protocols.simulated("lorenz", "strict", scenario=scenario, train=300, val=150, test=1)
    records = protocol.split.val
    model = fwnkf.FWNKF(records.system, noise=Lines(sections, shared=True))
    assert "of its power is coloured" in start_noise(model, protocol.split.train)

    def error(filter: fwnkf.Filter) -> float:
        with torch.no_grad():
            return float(summarize(records.layout, filter.run(**records.inputs()), records.truth)["mse"])

    white, oracle = (
        error(fwnkf.build("ekf", system=records.system)),
        error(baselines.oracle(records.system, scenario, records)),
    )
    assert (white - error(model)) / (white - oracle) > 0.85


def test_the_noise_is_the_measurement_minus_the_observed_state():
    records = protocols.simulated("lorenz", "strict", train=5, val=1, test=1).split.train
    model = fwnkf.FWNKF(records.system, noise=Lines())
    torch.testing.assert_close(noise_of(model, records), records.y - records.truth[..., :2])
    with pytest.raises(ConfigError, match="needs an fwnkf with lines"):
        start_noise(fwnkf.build("ekf", system=records.system), records)
    assert math.isfinite(float(noise_of(model, records).sum()))


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_hypotheses_track_a_tone_of_random_frequency():
    """A bank of oscillators reaches 60 % of the improvement of the oracle; hypotheses reach more than 80 %."""
    protocol = protocols.simulated("lorenz", "strict", scenario="tone", train=200, val=150, test=1)
    records = protocol.split.val
    model = fwnkf.FWNKF(records.system, noise=Lines(shared=True), hypotheses=Hypotheses(8))
    assert "tones from 0.2" in start_noise(model, protocol.split.train)

    def error(filter: fwnkf.Filter) -> float:
        with torch.no_grad():
            return float(summarize(records.layout, filter.run(**records.inputs()), records.truth)["mse"])

    white, oracle = (
        error(fwnkf.build("ekf", system=records.system)),
        error(baselines.oracle(records.system, "tone", records)),
    )
    assert (white - error(model)) / (white - oracle) > 0.8


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_hypotheses_are_weighted_by_their_posterior_probability():
    """K separate filters, each with one frequency, weighted by the likelihood of their innovations so far."""
    records = protocols.simulated("lorenz", "strict", scenario="tone", train=4, val=1, test=1).split.train
    torch.manual_seed(0)
    bank = fwnkf.FWNKF(records.system, noise=Lines(shared=True), hypotheses=Hypotheses(3))
    with torch.no_grad():
        bank.noise_states.amplitude.fill_(0.8)
    together = bank.run(**records.inputs())
    means, evidence = [], []
    for k in range(3):
        single = fwnkf.FWNKF(records.system, noise=Lines(shared=True))
        with torch.no_grad():
            single.noise_states.amplitude.fill_(0.8)
            single.noise_states.raw_frequency.copy_(bank.noise_states.raw_frequency[k])
        track = single.run(**records.inputs())
        means.append(track.mean)
        density = torch.distributions.MultivariateNormal(torch.zeros(2).double(), track.innovation_cov)
        evidence.append(density.log_prob(track.innovation).cumsum(1))
    weight = torch.softmax(torch.stack(evidence), 0)
    expected = (weight.unsqueeze(-1) * torch.stack(means)).sum(0)
    torch.testing.assert_close(together.mean, expected, rtol=1e-8, atol=1e-8)
    spread = ((torch.stack(means) - expected).square() * weight.unsqueeze(-1)).sum(0)
    assert (together.cov.diagonal(dim1=-2, dim2=-1) >= spread).all()


def test_a_fallback_mixes_the_trained_filter_with_its_white_floor_and_the_ekf():
    """Three separate filters (trained, white floor only, EKF), weighted by prior and likelihood."""
    records = protocols.simulated("lorenz", "strict", scenario="drift", train=4, val=1, test=1).split.train
    learned = fwnkf.FWNKF(records.system, noise=Lines(shared=True))
    learned.noise_states.set_oscillators(*(torch.tensor([[value]]) for value in (0.001, 0.99, 0.95)))
    floor = fwnkf.FWNKF(records.system)
    with torch.no_grad():
        for model in (learned, floor):
            model.head_bias[-2:] = math.atanh(math.log(0.1) / 6.0)
    tracks = [model.run(**records.inputs()) for model in (learned, floor, fwnkf.build("ekf", system=records.system))]
    density = [
        torch.distributions.MultivariateNormal(torch.zeros(2).double(), track.innovation_cov) for track in tracks
    ]
    evidence = [p.log_prob(track.innovation).cumsum(1) for p, track in zip(density, tracks, strict=True)]
    prior = torch.tensor([1 - 2 * FALLBACK_PRIOR, FALLBACK_PRIOR, FALLBACK_PRIOR]).double().log()
    weight = torch.softmax(torch.stack(evidence) + prior[:, None, None], 0)
    expected = (weight.unsqueeze(-1) * torch.stack([track.mean for track in tracks])).sum(0)
    fallback = Hypotheses(1, fallback=True)
    mixed = learned.with_parts(hypotheses=fallback).run(**records.inputs())
    torch.testing.assert_close(mixed.mean, expected, rtol=1e-7, atol=1e-7)
    with pytest.raises(ConfigError, match="hypotheses are about the frequencies of lines"):
        floor.with_parts(hypotheses=fallback)


def test_given_lines_stay_where_they_are_beside_a_fallback():
    records = protocols.simulated("lorenz", "strict", train=1, val=1, test=1).split.train
    bank = fwnkf.FWNKF(records.system, noise=Lines(hz=23.0, std=0.2), hypotheses=Hypotheses(1, fallback=True))
    torch.testing.assert_close(bank.noise_states.hz, torch.full((1, 2, 1), 23.0).double(), check_dtype=False)
    sensor = next(iter(records.system.sensor_channels))
    with pytest.raises(ConfigError, match="lines of all channels: leave the sensor out"):
        fwnkf.FWNKF(records.system, noise={sensor: Lines()}, hypotheses=Hypotheses(3))
