"""Shared vibration modes: recovered from simulated recordings, and the fitted model against the filter made of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.core.gaussian import log_prob
from fwnkf.errors import ConfigError, DataError
from fwnkf.identify import VibrationModel, VibrationOptions, cross_spectra, fit_model, fit_vibration, levels_left_out
from fwnkf.identify.modes import objective
from fwnkf.metrics.consistency import nis

RATE, HERTZ, RADIUS = 200.0, (23.0, 61.0), (0.98, 0.97)


def recordings(seed: int, count: int = 3, steps: int = 6000) -> tuple[torch.Tensor, torch.Tensor]:
    """Three slow signals, two modes that shake them with different gains and phases, white noise."""
    rng = np.random.default_rng(seed)
    signal = np.zeros((count, 2, 3))
    mode = rng.standard_normal((count, 2, 2))
    mixing = np.random.default_rng(0).standard_normal((3, 2, 2))
    truth, y = np.zeros((count, steps, 3)), np.zeros((count, steps, 3))
    turns = [
        r * np.array([[np.cos(w), -np.sin(w)], [np.sin(w), np.cos(w)]])
        for r, w in zip(RADIUS, 2 * np.pi * np.array(HERTZ) / RATE, strict=True)
    ]
    for t in range(steps):
        slope = 0.995 * signal[:, 1] - 0.004 * signal[:, 0] + 0.02 * rng.standard_normal((count, 3))
        signal = np.stack((0.995 * signal[:, 0] + 0.1 * slope, slope), 1)
        drive = rng.standard_normal((count, 2, 2))
        mode = np.stack([mode[:, k] @ turns[k].T + math.sqrt(1 - RADIUS[k] ** 2) * drive[:, k] for k in range(2)], 1)
        truth[:, t] = signal[:, 0]
        y[:, t] = signal[:, 0] + 0.5 * np.einsum("ckj,bkj->bc", mixing, mode) + 0.1 * rng.standard_normal((count, 3))
    return torch.from_numpy(y), torch.from_numpy(truth)


@pytest.mark.parametrize("with_truth", [True, False])
def test_two_known_modes_are_recovered_and_the_filter_is_consistent(with_truth):
    y, truth = recordings(1)
    spectra = cross_spectra(y, truth if with_truth else None)
    options = VibrationOptions(modes=2, oscillators=0, iterations=150, learning_rate=0.06, truth_weight=1.0)
    model = fit_model(spectra, RATE, options)
    assert model.mode_hertz().detach().sort().values.tolist() == pytest.approx(HERTZ, rel=0.01)
    other, other_truth = recordings(2, count=2, steps=4000)
    track = model.run(other, spectra.scale)
    assert float(nis(track.innovation, track.innovation_cov)[:, 200:].mean()) == pytest.approx(1.0, abs=0.05)
    error = (track.mean[..., :3] - other_truth)[:, 200:].square().mean()
    raw = (other - other_truth)[:, 200:].square().mean()
    assert float(error) < 0.1 * float(raw)


@pytest.fixture(scope="module")
def shaken() -> VibrationModel:
    """A model away from its start: coupled signals, correlated noises."""
    model = VibrationModel(3, RATE, VibrationOptions(modes=2), seed=3)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in (model.coupling, model.drive, model.white):
            parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
@pytest.mark.parametrize("level", [1.0, 1.7])
def test_the_filter_is_the_model_in_other_units(shaken, generator, level):
    scale = torch.tensor([0.2, 1.0, 30.0], dtype=torch.float64)
    y = scale * torch.randn(2, 700, 3, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        track = shaken.to_filter(scale, level).run(y)
    steady = shaken.run(y, scale)
    # the starts differ and are forgotten
    end = slice(-20, None)
    torch.testing.assert_close(track.mean[:, end, :3], steady.mean[:, end], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(track.cov[:, end, :3, :3], level * steady.cov[:, end], rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(track.innovation[:, end], steady.innovation[:, end], rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(
        track.innovation_cov[:, end], level * steady.innovation_cov[:, end], rtol=1e-5, atol=1e-7
    )


def test_the_objective_over_frequencies_is_that_over_time(shaken, generator):
    """Likelihood and squared error, as the filter has them step by step."""
    white = torch.randn(4, 12_000, 3, generator=generator, dtype=torch.float64)
    truth = torch.from_numpy(np.apply_along_axis(lambda x: np.convolve(x, np.ones(80), "same"), 1, white.numpy()))
    y = truth + 0.3 * truth.std() * torch.randn(truth.shape, generator=generator, dtype=torch.float64)
    spectra = cross_spectra(y, truth)
    with torch.no_grad():
        value, squared = objective(shaken, spectra, 2.0)
    track = shaken.run(y, spectra.scale)
    error = ((track.mean - truth) / spectra.scale)[:, 500:].square().mean((0, 1))
    # a windowed estimate of the spectrum: a few percent
    torch.testing.assert_close(squared, error, rtol=0.1, atol=0.0)
    density = log_prob(track.innovation, track.innovation_cov)[0][:, 500:].mean() + spectra.scale.log().sum()
    likelihood = value - squared.log().sum()
    assert float(likelihood) == pytest.approx(-float(density) - 1.5 * math.log(2 * math.pi), rel=0.1)


def test_without_noise_states_the_filter_is_a_kalman_filter():
    y, truth = recordings(3, count=1, steps=2100)
    model = fit_vibration(y, truth, rate=RATE, modes=0, oscillators=0, iterations=3)
    assert model.name == "kf"
    assert fit_vibration(y, rate=RATE, modes=1, oscillators=0, iterations=3).name == "fwnkf"


def test_levels_left_out_say_by_how_much_a_filter_is_too_certain(generator):
    """Noise of the recordings nine times the variance the fit is told: innovations and errors show it."""
    eye = torch.eye(5, dtype=torch.float64)  # five channels in a step, not five times as many steps

    def fit(y: torch.Tensor, truth: torch.Tensor):
        assert len(y) == 2
        return fwnkf.build("kf", F=0.0 * eye, H=eye, Q=eye, R=eye).run

    truth = torch.randn(3, 300, 5, generator=generator, dtype=torch.float64)
    y = truth + 3 * torch.randn(truth.shape, generator=generator, dtype=torch.float64)
    levels = levels_left_out(fit, y, truth, skip=10)
    # S = 2, r² = 10; error (y - truth) / 2 - truth / 2, of variance 2.5 where 0.5 is stated
    assert float(levels.nis.mean()) == pytest.approx(5.0, rel=0.1)
    assert float(levels.variance_ratio.mean()) == pytest.approx(5.0, rel=0.1)
    assert float(levels.squared_error.mean()) == pytest.approx(2.5, rel=0.1)


def test_what_has_no_spectrum_is_refused():
    with pytest.raises(DataError, match="shorter than one segment"):
        cross_spectra(torch.zeros(1, 100, 2))
    with pytest.raises(DataError, match="channel 1 never changes"):
        cross_spectra(torch.stack((torch.randn(2048), torch.ones(2048)), -1)[None])
    with pytest.raises(ConfigError, match="bandwidth"):
        VibrationModel(2, 10.0, VibrationOptions(bandwidth=5.0))
    with pytest.raises(DataError, match="at least two"):
        levels_left_out(lambda y, x: None, torch.zeros(1, 10, 1), torch.zeros(1, 10, 1))
