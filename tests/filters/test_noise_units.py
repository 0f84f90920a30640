"""Noise states in physical units, against the spectrum and the stationary variance of what they model."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from scipy.optimize import brentq

import fwnkf
from fwnkf.core.gaussian import dense
from fwnkf.errors import ConfigError
from fwnkf.systems import LearnedSystem

from ..tolerances import assert_close

DT = 0.01
WHITE = torch.tensor([0.25, 4.0], dtype=torch.float64)  # variances: standard deviations 0.5 and 2


def filter_with(channels: int = 2, dtype: torch.dtype = torch.float64, part=None, **options) -> fwnkf.FWNKF:
    eye = torch.eye(channels, dtype=dtype)
    R = WHITE[:channels].to(dtype).diag()
    walk = LearnedSystem.of(H=eye, Q=0.1 * eye, R=R, dt=DT)
    return fwnkf.FWNKF(walk, noise=(part or fwnkf.Lines)(**{"pole_radius": 0.99999, **options}))


def number(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def density(model: fwnkf.FWNKF, channel: int, hz: float) -> float:
    """The density of the coloured noise of a channel at ``hz`` from ``A``, ``Q`` and ``C``: ``|C (zI - A)⁻¹|² Q``."""
    prepared = model.prepare().noise
    A, Q, C = (item.detach() for item in (prepared.A, prepared.Q, prepared.C))
    z = torch.polar(torch.ones((), dtype=torch.float64), torch.tensor(2 * math.pi * hz * DT, dtype=torch.float64))
    response = torch.linalg.solve((z * torch.eye(len(A)) - A).mT, C[channel].to(torch.complex128))
    return float((response.abs().square() * Q.diagonal()).sum())


@pytest.mark.parametrize(("hz", "bandwidth"), [(23.0, 0.2), (10.0, 0.02), (30.0, 1.0)])
def test_the_bandwidth_is_the_full_width_at_half_power(hz: float, bandwidth: float):
    model = filter_with(1)
    model.noise_states.set(hz=hz, bandwidth_hz=bandwidth, std=0.3)
    peak = density(model, 0, hz)
    left, right = (brentq(lambda f: density(model, 0, f) - peak / 2, hz, hz + side * 3 * bandwidth) for side in (-1, 1))
    # the line of the sampled oscillator is that of the continuous one up to the square of bandwidth times step
    assert right - left == pytest.approx(bandwidth, rel=2e-3)
    assert (left + right) / 2 == pytest.approx(hz, rel=1e-3)


def test_std_is_in_the_unit_of_the_measurement():
    """The stationary covariance of an oscillator is the identity, so the variance of a channel is ``C Cᵀ``."""
    model = filter_with(count=2)
    std = [[0.3, 0.1], [0.2, 0.0]]
    model.noise_states.set(hz=[5.0, 40.0], bandwidth_hz=[[0.5, 1.0], [0.25, 2.0]], std=std)
    C = model.prepare().noise.C
    assert_close((C @ C.mT).diagonal(), number(std).square().sum(-1), "rounding")
    states = model.noise_states
    assert_close(states.std, number(std), "rounding")
    assert_close(states.hz, number([[5.0, 40.0]] * 2), "rounding")
    assert_close(states.bandwidth_hz, number([[0.5, 1.0], [0.25, 2.0]]), "rounding")
    assert_close(dense(model.prepare().R).diagonal(), WHITE, "rounding")  # white noise stays as it was


def test_shared_modes_in_physical_units():
    model = filter_with(part=fwnkf.Modes, count=2)
    std, phase = [[0.3, 0.1], [0.2, 0.4]], [[0.0, 1.0], [math.pi / 2, -1.0]]
    model.noise_states.set(hz=[12.0, 31.0], bandwidth_hz=0.3, std=std, phase=phase)
    C = model.prepare().noise.C
    expected = torch.polar(number(std), number(phase))
    # the covariance of two channels at equal times is the real part of the product of their complex amplitudes
    assert_close(C @ C.mT, (expected @ expected.mH).real, "rounding")
    assert_close(model.noise_states.std, number(std), "rounding")
    assert_close(model.noise_states.hz, number([12.0, 31.0]), "rounding")
    assert_close(model.noise_states.bandwidth_hz, number([0.3, 0.3]), "rounding")


@pytest.mark.parametrize(
    ("part", "given"),
    [
        (fwnkf.Lines, {"hz": 23.7, "bandwidth_hz": 0.13, "std": 0.3}),
        (fwnkf.Modes, {"hz": 23.7, "bandwidth_hz": 0.13, "std": 0.3}),
        (fwnkf.Drift, {"seconds": 0.7, "std": 0.3}),
    ],
)
def test_given_values_keep_their_digits_in_float64(part, given):
    eye = torch.eye(1).double()
    states = fwnkf.FWNKF(LearnedSystem.of(H=eye, Q=eye, R=eye, dt=DT), noise=part(**given)).noise_states
    for name, value in given.items():
        assert getattr(states, name).item() == pytest.approx(value, rel=1e-11)


def test_a_narrow_line_survives_float32():
    model = filter_with(1, torch.float32)
    model.noise_states.set(hz=17.0, bandwidth_hz=0.05, std=0.3)
    assert float(model.noise_states.bandwidth_hz.detach()) == pytest.approx(0.05, rel=1e-2)
    assert float(model.noise_states.hz.detach()) == pytest.approx(17.0, rel=1e-5)


def test_units_are_those_of_the_filter_after_a_copy_and_from_disk(tmp_path):
    model = filter_with(1)
    model.noise_states.set(hz=17.0, bandwidth_hz=0.5, std=0.3)
    for other in (copy.deepcopy(model), fwnkf.load(fwnkf.save(model, tmp_path))):
        assert other.noise_states.std.item() == pytest.approx(0.3)
        with torch.no_grad():
            other.system.R.assign(4 * WHITE[:1].diag())  # amplitudes are relative to the white noise of its own system
        assert other.noise_states.std.item() == pytest.approx(0.6)
    assert model.noise_states.std.item() == pytest.approx(0.3)


def test_hypotheses_take_one_frequency_each():
    eye = torch.eye(1).double()
    walk = LearnedSystem.of(H=eye, Q=eye, R=eye, dt=DT)
    model = fwnkf.FWNKF(walk, noise=fwnkf.Lines(), hypotheses=fwnkf.Hypotheses(3))
    model.noise_states.set(hz=number([5.0, 10.0, 20.0]).reshape(3, 1, 1), bandwidth_hz=0.5, std=2.0)
    assert_close(model.noise_states.hz.flatten(), number([5.0, 10.0, 20.0]), "rounding")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"hz": 50.0}, "below half the sampling rate, 50 Hz at the nominal step of 0.01 s"),
        ({"hz": -1.0}, "hz = .* must not be negative"),
        ({"bandwidth_hz": 0.0}, "pole_radius = 0.99999 at 100 samples per second allows bandwidths above"),
        ({"bandwidth_hz": -1.0}, "bandwidth_hz = .* must not be negative"),
        ({"std": -0.1}, "std = .* must not be negative"),
        ({"hz": [1.0, 2.0, 3.0]}, r"hz has shape \[3\]; wanted a number, 1 numbers, or shape \[2, 1\]"),
    ],
)
def test_values_that_do_not_fit(options, sentence):
    given = {"hz": 10.0, "bandwidth_hz": 1.0, "std": 0.1, **options}
    with pytest.raises(ConfigError, match=sentence):
        filter_with().noise_states.set(**given)
    with pytest.raises(ConfigError, match=sentence):
        filter_with(count=1, **given)


def test_shared_lines_need_std_in_proportion_to_white_noise():
    model = filter_with(shared=True)
    model.noise_states.set(hz=10.0, bandwidth_hz=1.0, std=[[0.1], [0.4]])  # as 0.5 to 2
    assert_close(model.noise_states.std, number([[0.1], [0.4]]), "rounding")
    with pytest.raises(ConfigError, match="use shared=False"):
        model.noise_states.set(hz=10.0, bandwidth_hz=1.0, std=0.1)
