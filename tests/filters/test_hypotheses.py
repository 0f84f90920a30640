"""Hypotheses about level and presence of noise: the classical one to the bit, and noise that comes and goes."""

from __future__ import annotations

import math

import pytest
import torch

import fwnkf
from fwnkf import Hypotheses, Lines
from fwnkf.errors import ConfigError

RATE = 100.0


def system() -> fwnkf.LinearSystem:
    return fwnkf.LinearSystem.of(
        F=torch.tensor([[0.0, 1.0], [0.0, 0.0]]).double(),
        Q=torch.tensor([[0.0, 0.0], [0.0, 1.0]]).double(),
        H=torch.tensor([[1.0, 0.0]]).double(),
        R=torch.tensor([[0.01]]).double(),
        continuous=True,
        dt=1 / RATE,
    )


def with_tone() -> fwnkf.FWNKF:
    return fwnkf.FWNKF(system(), noise=Lines(hz=17.0, bandwidth_hz=0.2, std=0.4, shared=True))


def bank_of(model: fwnkf.FWNKF, **options: object) -> fwnkf.FWNKF:
    """The model, and the hypotheses that its noise is absent and that nothing was learned."""
    return model.with_parts(hypotheses=Hypotheses(1, fallback=True, **options))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [0, 6])
def test_the_last_hypothesis_is_the_classical_filter_to_the_bit(generator, dtype, width):
    """Whatever encoder, residual network and noise states have learned."""
    trained = fwnkf.FWNKF(
        system(), noise=Lines(shared=True), encoder=fwnkf.GRU(5), residual=fwnkf.MLP(width) if width else None
    ).to(dtype)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator).to(dtype))
    mixture, classical = bank_of(trained, levels=(0.5, 1.0)), fwnkf.EKF(trained.system)
    y = torch.randn(3, 30, 1, generator=generator).to(dtype)
    state, expected = mixture.init(3), classical.init(3)
    dt = torch.full((3,), 1 / RATE, dtype=dtype)
    for k in range(30):
        # with dt both multiply matrices of each record, in the same order
        state, _ = mixture.step(state, y[:, k], dt=dt)
        expected, out = classical.step(expected, y[:, k], dt=dt)
        assert torch.equal(state.members.mean[:, -1], out.mean)
        assert torch.equal(state.members.cov[:, -1, :2, :2], out.cov)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_a_level_is_found_and_the_error_bars_follow_it(generator):
    """At four times the variance the bank states what the filter that is told the level states."""
    model = with_tone()
    time = torch.arange(600) / RATE
    tone = 0.4 * math.sqrt(2) * (2 * math.pi * 17.0 * time).sin()
    y = 2 * (tone + 0.1 * torch.randn(6, 600, generator=generator)).double().unsqueeze(-1)
    bank = bank_of(model, levels=(0.25, 1.0, 4.0))
    told = model.with_parts(hypotheses=Hypotheses(1, levels=(4.0,)))
    with torch.no_grad():
        found, nominal, expected = bank.run(y), model.run(y), told.run(y)
    weight = found.state.log_weight.exp()
    assert (weight[:, 2] > 0.95).all()  # the order is that of the levels, then the fallback
    torch.testing.assert_close(found.cov[:, 300:], expected.cov[:, 300:], rtol=0.02, atol=0)
    torch.testing.assert_close(found.mean[:, 300:], expected.mean[:, 300:], rtol=0, atol=0.01)
    assert (nominal.cov[:, 300:, 0, 0] < 0.5 * found.cov[:, 300:, 0, 0]).all()


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
@pytest.mark.parametrize("dwell", [None, 2.0])
def test_hypotheses_forget_within_half_a_second_only_if_noise_may_change(generator, dwell):
    time = torch.arange(450) / RATE
    tone = 0.6 * (2 * math.pi * 17.0 * time).sin() * (time < 4.0)
    y = (tone + 0.1 * torch.randn(4, 450, generator=generator)).double().unsqueeze(-1)
    mixture = bank_of(with_tone(), dwell=dwell)
    with torch.no_grad():
        weight = mixture.run(y).state.log_weight.exp()
    without = weight[:, 1:].sum(-1)
    assert (without > 0.5).all() if dwell else (without < 1e-3).all()


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_beginnings_kept_apart_do_not_forget_where_the_state_was(generator):
    """A drift that begins: mixed with earlier beginnings the state is lost, and the filter is too certain of it."""
    model = fwnkf.FWNKF(system(), noise=Lines(hz=0.1, bandwidth_hz=0.1, std=1.0, shared=True))
    count, steps, onset, decay = 64, 160, 100, math.exp(-2 * math.pi * 0.1 / RATE)
    known = fwnkf.Gaussian(torch.zeros(1, 2).double(), 1e-4 * torch.eye(2).double().unsqueeze(0))
    F, _, Q = system().matrices(None)
    root, normal = torch.linalg.cholesky(Q), torch.randn(steps, count, 4, generator=generator, dtype=torch.float64)
    x, drift, truth, y = torch.zeros(count, 2).double(), normal[0, :, 2], [], []
    for k in range(steps):
        x = x @ F.mT + normal[k, :, :2] @ root.mT
        drift = decay * drift + math.sqrt(1 - decay**2) * normal[k, :, 2]
        truth.append(x)
        y.append(x[:, :1] + 0.1 * normal[k, :, 3:] + (drift.unsqueeze(-1) if k >= onset else 0))
    y, truth = torch.stack(y, 1), torch.stack(truth, 1)
    nees = []
    with torch.no_grad():
        for onsets in (0, 4):
            track = bank_of(model, dwell=5.0, onsets=onsets).run(y, prior=known)
            squared = (track.mean - truth)[:, onset:, 0].square() / track.cov[:, onset:, 0, 0]
            nees.append(float(squared.mean()))
    assert nees[0] > 1.5 * nees[1]
    assert nees[1] < 2.0


def test_the_usual_level_has_the_probability_that_is_given():
    options = Hypotheses(frequencies=2, fallback=True, levels=(0.25, 1.0, 4.0), usual=0.8)
    prior = options.prior(torch.zeros((), dtype=torch.float64))
    rest = prior[-2:].sum()
    assert prior.sum() == pytest.approx(1.0)
    assert float(prior[:6][options.level(prior)[:6] == 1].sum() / (1 - rest)) == pytest.approx(0.8)
    assert len(set(prior[:6][options.level(prior)[:6] != 1].tolist())) == 1
    with pytest.raises(ConfigError, match=r"usual = 0\.8 is of the level 1.0 among others"):
        Hypotheses(levels=(0.5, 2.0), usual=0.8)


def test_without_a_disturbance_the_floor_is_the_white_noise(generator):
    """Lines that took up the white noise leave a hypothesis without it, which no record supports."""
    y = 0.1 * torch.randn(8, 60, 1, generator=generator, dtype=torch.float64)
    weights = []
    for floor in (0.01, 1.0):
        state = bank_of(with_tone(), floor=floor).run(y).state
        weights.append(float(state.log_weight.detach()[:, -2].mean()))
    assert weights[0] < weights[1] - 10
    with pytest.raises(ConfigError, match=r"floor = 2\.0 is of the hypotheses that fallback adds"):
        Hypotheses(floor=2.0)


def test_what_cannot_be_combined_is_refused():
    with pytest.raises(ConfigError, match=r"levels = .* must be above 0"):
        bank_of(with_tone(), levels=(0.0, 1.0))
    with pytest.raises(ConfigError, match="onsets = 2; noise begins anew only with dwell"):
        bank_of(with_tone(), onsets=2)
    with pytest.raises(ConfigError, match="cannot be smoothed with dwell"):
        bank_of(with_tone(), dwell=1.0).run(torch.zeros(1, 5, 1).double(), smoothing=True)
    with pytest.raises(ConfigError, match="hypotheses are about the frequencies of lines"):
        fwnkf.FWNKF(system(), noise=[Lines(), fwnkf.Drift()], hypotheses=Hypotheses(2))
    with pytest.raises(ConfigError, match="dwell mixes covariances"):
        fwnkf.FWNKF(system(), noise=Lines(), hypotheses=Hypotheses(2, dwell=1.0), solve="square_root")
    with pytest.raises(ConfigError, match="no level of all covariances"):
        fwnkf.FWNKF(system(), noise=Lines(), hypotheses=Hypotheses(2), level=fwnkf.Level(of="all"))
