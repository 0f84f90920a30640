"""Models of single channels: their spectrum against the matrices, and the fit against known values."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fwnkf.core.integrate import discretize
from fwnkf.errors import DataError
from fwnkf.identify import channels
from fwnkf.identify.channel_likelihood import ChannelLikelihood
from fwnkf.identify.channels import ChannelModel, Line, channels_filter, fit_channel
from fwnkf.identify.likelihood import StepMatrices
from fwnkf.identify.whittle import model_density

MODEL = ChannelModel(200.0, 9.0, 2.0, 0.04, (Line(60.0, 2.0, 0.3), Line(25.0, 5.0, 0.1)))
OMEGA = torch.linspace(0, math.pi, 1025, dtype=torch.float64)


def test_the_spectrum_is_that_of_the_matrices():
    linear = StepMatrices(*(MODEL.matrices()[i] for i in (0, 1, 2, 3)))
    wanted = model_density(linear, OMEGA[5:])[:, 0, 0].real
    torch.testing.assert_close(MODEL.spectrum(OMEGA[5:]), wanted, rtol=1e-9, atol=0)
    parts = MODEL.signal_spectrum(OMEGA[5:]) + MODEL.noise_spectrum(OMEGA[5:])
    torch.testing.assert_close(parts, wanted, rtol=1e-9, atol=0)


@pytest.mark.parametrize("decay", [0.05, 0.19, 0.21, 30.0])
def test_the_matrices_are_those_of_the_continuous_model(decay):
    """On either side of where the closed form is replaced by its series."""
    drift = torch.tensor([[0.0, 1.0], [0.0, -decay]], dtype=torch.float64)
    density = torch.diag(torch.tensor([0.0, 9.0], dtype=torch.float64))
    F, _, Q = discretize(drift, drift[:, :0], density, torch.tensor(1 / 200, dtype=torch.float64))
    model = ChannelModel(200.0, 9.0, decay, 0.04)
    torch.testing.assert_close(model.matrices()[0], F, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(model.matrices()[2], Q, rtol=1e-6, atol=1e-18)


@pytest.mark.parametrize("decay", [0.06, 0.19, 0.21, 30.0])
def test_the_likelihood_has_the_spectrum_of_the_model_and_its_derivatives(decay):
    rate, floor, lowest = MODEL.rate, 8.0, 0.003
    likelihood = ChannelLikelihood(OMEGA[3:].numpy(), np.ones(1022), 1.0, rate, floor, lowest)
    raw = channels._raw(replace(MODEL, decay=decay), floor, lowest)

    def modelled(raw: torch.Tensor) -> torch.Tensor:
        return channels._log_spectrum(raw, OMEGA[3:], rate, floor, lowest).exp()

    power, slopes = likelihood.spectrum(raw.numpy())
    np.testing.assert_allclose(power, modelled(raw).numpy(), rtol=1e-8)
    for slope, change in zip(slopes, 1e-5 * torch.eye(len(raw)).double(), strict=True):
        wanted = (modelled(raw + change) - modelled(raw - change)).numpy() / 2e-5
        np.testing.assert_allclose(slope, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


def simulated(model: ChannelModel, steps: int, seed: int) -> np.ndarray:
    F, H, Q, R = (item.numpy() for item in model.matrices())
    generator = np.random.default_rng(seed)
    root = np.linalg.cholesky(Q + 1e-18 * np.eye(len(Q)))
    x = np.r_[0.0, 0.0, generator.normal(size=len(F) - 2)]
    rows = []
    for drive, noise in zip(generator.normal(size=(steps, len(F))), generator.normal(size=steps), strict=True):
        x = F @ x + root @ drive
        rows.append(float((H @ x)[0] + math.sqrt(R[0, 0]) * noise))
    return np.array(rows)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_fit_finds_the_lines_of_a_simulation(seed):
    from fwnkf.diagnosis.default_filter import channel_models
    from fwnkf.diagnosis.series import Series

    y = simulated(MODEL, 12_000, seed)
    series = Series.of("y", np.arange(len(y)) / 200, y[:, None], ["y"], [""])
    (fitted,) = channel_models(series, lines=3, lowest_hz=8.0)
    assert fitted.lines[0].hz == pytest.approx(60.0, abs=0.3)
    assert fitted.lines[0].std == pytest.approx(0.3, rel=0.15)
    assert any(line.hz == pytest.approx(25.0, abs=2.0) for line in fitted.lines)
    assert fitted.white == pytest.approx(0.04, rel=0.1)
    assert len(fitted.lines) <= 3


def test_a_channel_without_lines_gets_none():
    plain = ChannelModel(200.0, 9.0, 2.0, 0.04)
    counts = []
    from fwnkf.diagnosis.default_filter import channel_models
    from fwnkf.diagnosis.series import Series

    for seed in range(3):
        y = simulated(plain, 8_000, seed)
        series = Series.of("y", np.arange(len(y)) / 200, y[:, None], ["y"], [""])
        counts.append(len(channel_models(series, lines=3, lowest_hz=8.0)[0].lines))
    assert sum(counts) <= 1


def test_the_filter_has_the_names_of_its_channels_and_their_noise():
    model = channels_filter([MODEL, ChannelModel(200.0, 1.0, 1.0, 0.5)], ["gyro_x", "gyro_y"])
    assert [part.name for part in model.observation_layout.parts] == ["gyro_x", "gyro_y"]
    states = model.get_submodule("noise_states")
    np.testing.assert_allclose(states.hz[0].detach(), [60.0, 25.0], rtol=1e-6)
    np.testing.assert_allclose(states.std[0].detach(), [0.3, 0.1], rtol=1e-6)
    assert float(states.std[1].detach().max()) < 1e-3


def test_a_constant_channel_is_refused():
    with pytest.raises(DataError, match="constant"):
        fit_channel(OMEGA, torch.zeros_like(OMEGA), rate=100.0, samples=1000)
