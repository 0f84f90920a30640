"""Noise states from the spectrum of known noise: the model that made it is found again."""

from __future__ import annotations

import math

import pytest
import torch

import fwnkf
from fwnkf.core import oscillators
from fwnkf.data import protocols
from fwnkf.errors import ConfigError
from fwnkf.evaluation.baselines import oracle_filter
from fwnkf.filters.hypotheses import FALLBACK_PRIOR, with_fallback
from fwnkf.metrics.accuracy import summarize
from fwnkf.training.noise_start import fit_cycles, noise_of, start_noise


def test_known_cycles_are_found_from_short_records():
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
    seen = torch.fft.rfft(noise).abs().square().mean(0) / 100
    found = fit_cycles(seen, 2, 100)
    order = found[0].argsort()
    torch.testing.assert_close(found[0][order], frequency, rtol=0.02, atol=0)
    torch.testing.assert_close(found[1][order], radius, rtol=0.01, atol=0)
    torch.testing.assert_close(found[2][order], amplitude.square(), rtol=0.1, atol=0)
    assert float(found[3]) == pytest.approx(0.09, rel=0.15)


@pytest.mark.parametrize(("scenario", "sections"), [("drift", 1), ("high_band", 3), ("pink", 3)])
def test_a_filter_that_measured_its_noise_is_nearly_as_good_as_one_that_was_told(scenario, sections):
    made = protocols.simulated("lorenz", "strict", scenario=scenario, train=300, val=150, test=1)
    task = made.split.val
    model = fwnkf.build("fwnkf", system=task.system, shaping="noise", hidden=0, sections=sections, pole_radius=0.9999)
    said = start_noise(model, made.split.train)
    assert "of its power is coloured" in said

    def error(filter: fwnkf.Filter) -> float:
        with torch.no_grad():
            return float(summarize(task.layout, filter.run(**task.inputs()), task.truth)["mse"])

    white, told = error(fwnkf.build("ekf", system=task.system)), error(oracle_filter(task.system, scenario, task))
    assert (white - error(model)) / (white - told) > 0.85


def test_the_noise_is_what_was_added():
    made = protocols.simulated("lorenz", "strict", train=5, val=1, test=1).split.train
    model = fwnkf.build("fwnkf", system=made.system, shaping="noise")
    torch.testing.assert_close(noise_of(model, made), made.y - made.truth[..., :2])
    with pytest.raises(ConfigError, match="needs an fwnkf with shaping: noise"):
        start_noise(fwnkf.build("ekf", system=made.system), made)
    assert math.isfinite(float(noise_of(model, made).sum()))


def test_hypotheses_find_a_tone_whose_frequency_is_drawn_for_every_record():
    """A bank of oscillators goes six tenths of the way to the filter that is told each frequency; hypotheses go on."""
    made = protocols.simulated("lorenz", "strict", scenario="tone", train=200, val=150, test=1)
    task = made.split.val
    one = {"system": task.system, "shaping": "noise", "hidden": 0, "pole_radius": 0.9999}
    model = fwnkf.build("fwnkf_hypotheses", **one, hypotheses=8)
    assert "tones from 0.2" in start_noise(model, made.split.train)

    def error(filter: fwnkf.Filter) -> float:
        with torch.no_grad():
            return float(summarize(task.layout, filter.run(**task.inputs()), task.truth)["mse"])

    white, told = error(fwnkf.build("ekf", system=task.system)), error(oracle_filter(task.system, "tone", task))
    assert (white - error(model)) / (white - told) > 0.8


def test_hypotheses_are_weighed_as_bayes_would():
    """K filters run by hand, each with one frequency, weighed by the likelihood of all they have seen."""
    made = protocols.simulated("lorenz", "strict", scenario="tone", train=4, val=1, test=1).split.train
    torch.manual_seed(0)
    bank = fwnkf.build("fwnkf_hypotheses", system=made.system, shaping="noise", hidden=0, hypotheses=3)
    with torch.no_grad():
        bank.noise_states.amplitude.fill_(0.8)
    together = bank.run(**made.inputs())
    means, evidence = [], []
    for k in range(3):
        one = fwnkf.build("fwnkf", system=made.system, shaping="noise", hidden=0)
        with torch.no_grad():
            one.noise_states.amplitude.fill_(0.8)
            one.noise_states.raw_frequency.copy_(bank.noise_states.raw_frequency[k])
        track = one.run(**made.inputs())
        means.append(track.mean)
        density = torch.distributions.MultivariateNormal(torch.zeros(2).double(), track.innovation_cov)
        evidence.append(density.log_prob(track.innovation).cumsum(1))
    weight = torch.softmax(torch.stack(evidence), 0)
    expected = (weight.unsqueeze(-1) * torch.stack(means)).sum(0)
    torch.testing.assert_close(together.mean, expected, rtol=1e-8, atol=1e-8)
    spread = ((torch.stack(means) - expected).square() * weight.unsqueeze(-1)).sum(0)
    assert (together.cov.diagonal(dim1=-2, dim2=-1) >= spread).all()


def test_a_fallback_is_the_learned_filter_beside_one_without_disturbance_and_the_classical_one():
    """Three filters run by hand: as learned, its floor alone, and the EKF; weighed by prior and likelihood."""
    made = protocols.simulated("lorenz", "strict", scenario="drift", train=4, val=1, test=1).split.train
    learned = fwnkf.build("fwnkf", system=made.system, shaping="noise", hidden=0, pole_radius=0.9999)
    learned.noise_states.set_oscillators(*(torch.tensor([[value]]) for value in (0.001, 0.99, 0.95)))
    floor = fwnkf.build("fwnkf", system=made.system, shaping="none", hidden=0)
    with torch.no_grad():
        for model in (learned, floor):
            model.head_bias[-2:] = math.atanh(math.log(0.1) / 6.0)
    tracks = [model.run(**made.inputs()) for model in (learned, floor, fwnkf.build("ekf", system=made.system))]
    density = [torch.distributions.MultivariateNormal(torch.zeros(2).double(), one.innovation_cov) for one in tracks]
    evidence = [p.log_prob(one.innovation).cumsum(1) for p, one in zip(density, tracks, strict=True)]
    prior = torch.tensor([1 - 2 * FALLBACK_PRIOR, FALLBACK_PRIOR, FALLBACK_PRIOR]).double().log()
    weight = torch.softmax(torch.stack(evidence) + prior[:, None, None], 0)
    expected = (weight.unsqueeze(-1) * torch.stack([one.mean for one in tracks])).sum(0)
    found = with_fallback(learned).run(**made.inputs())
    torch.testing.assert_close(found.mean, expected, rtol=1e-7, atol=1e-7)
    with pytest.raises(ConfigError, match="a fallback is for noise states"):
        with_fallback(floor)
