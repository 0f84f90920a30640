"""Properties of a filter against scipy.signal and the state-space form of its noise."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import scipy.signal
import torch

import fwnkf
from fwnkf import Drift, Lines, Phi
from fwnkf.core.iir import Sections
from fwnkf.filters import diagnostics
from fwnkf.report.inspect import frequencies, group_delay, inspect

from .. import systems
from ..conformance.cases import CASES, built
from ..tolerances import assert_close

LINEAR = {name: value for name, value in systems.linear_matrices().items() if name != "B"}


def on_linear(shaken: float = 0.0, full: bool = False, **parts):
    matrices = {name: value for name, value in systems.linear_matrices(full=full).items() if name != "B"}
    return built("fwnkf", shaken=shaken, system=fwnkf.LinearSystem.of(**matrices, dt=0.02), **parts)


@pytest.mark.parametrize("case", CASES)
def test_the_properties_of_every_filter_round_trip_through_json(case, monkeypatch):
    """No tuples and no NaN."""
    monkeypatch.setattr(diagnostics, "BLOCKS", 1)  # the form does not depend on convergence
    model = CASES[case].build(torch.float32)
    facts = inspect(model)
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert facts["name"] == CASES[case].filter
    assert facts["parameters"] == sum(p.numel() for p in model.parameters())
    assert facts["dtype"] == "float32"


def test_filters_without_a_frequency_response_give_a_reason():
    assert "white" in frequencies(fwnkf.build("ekf", system=systems.wave()))["reason"]
    facts = frequencies(on_linear())
    assert facts["kind"] == "none"
    assert "the noise is white" in facts["reason"]


@pytest.mark.parametrize("shared", [True, False])
def test_the_innovation_filter_equals_scipy(shared):
    model = on_linear(shaken=0.6, phi=Phi(3, shared=shared))
    facts = inspect(model)["frequencies"]
    assert [entry["channel"] for entry in facts["filters"]] == (["all"] if shared else ["y1", "y2"])
    w = np.pi * np.array(facts["frequency"])
    np.testing.assert_allclose(facts["hz"], np.array(facts["frequency"]) * 25.0, rtol=1e-14)  # Nyquist of 50 Hz
    for entry in facts["filters"]:
        sos = np.array([[*section["b"], *section["a"]] for section in entry["sections"]])
        _, response = scipy.signal.sosfreqz(sos, w)
        np.testing.assert_allclose(entry["magnitude_db"], 20 * np.log10(np.abs(response)), rtol=1e-10, atol=1e-10)
        delays = [scipy.signal.group_delay((section[:3], section[3:]), w)[1] for section in sos]
        np.testing.assert_allclose(entry["group_delay"], sum(delays), rtol=1e-8, atol=1e-8)
        zeros, poles, _ = scipy.signal.sos2zpk(sos)
        for listed, expected in ((entry["poles"], poles), (entry["zeros"], zeros)):
            positions = np.array([complex(*root["at"]) for root in listed])
            ordered = [sorted(roots, key=lambda z: (round(z.real, 9), z.imag)) for roots in (positions, expected)]
            np.testing.assert_allclose(*ordered, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose([root["radius"] for root in listed], np.abs(positions), rtol=1e-14)
            np.testing.assert_allclose([root["frequency"] for root in listed], np.abs(np.angle(positions)) / np.pi)
            np.testing.assert_allclose([root["hz"] for root in listed], np.abs(np.angle(positions)) / np.pi * 25)


def test_group_delay_is_the_slope_of_the_phase():
    """Numerical derivative of the unwrapped phase, independent of the formula for polynomials."""
    sos = scipy.signal.butter(4, 0.3, output="sos")
    cascade = Sections(torch.from_numpy(sos[:, :3].copy()), torch.from_numpy(sos[:, 4:].copy()))
    w, h = np.linspace(0.1, 2.5, 11), 1e-5
    phase = [np.unwrap(np.angle(scipy.signal.sosfreqz(sos, w + step)[1])) for step in (-h, h)]
    assert_close(group_delay(cascade, torch.from_numpy(w)), -(phase[1] - phase[0]) / (2 * h), "finite_difference")


def test_zeros_on_the_unit_circle_and_at_infinity():
    model = on_linear(phi=Phi())
    nyquist = Sections(torch.tensor([[1.0, 1.0, 0.0]]).double(), torch.tensor([[-0.5, 0.1]]).double())
    model.shaper.set_sections(nyquist)
    response = inspect(model)["frequencies"]["filters"][0]
    assert response["group_delay"][-1] is None
    assert None not in response["group_delay"][:-1]
    assert {tuple(zero["at"]) for zero in response["zeros"]} == {(-1.0, 0.0), (0.0, 0.0)}
    late = Sections(torch.tensor([[0.0, 1.0, 0.5]]).double(), torch.tensor([[-0.5, 0.1]]).double())
    model.shaper.set_sections(late)
    facts = inspect(model)["frequencies"]
    json.dumps(facts, allow_nan=False)
    assert len(facts["filters"][0]["zeros"]) < 2


def test_the_grid_resolves_a_narrow_notch():
    """A notch of width 1e-3 between two points of the uniform grid appears with its depth and frequency."""
    model = on_linear(phi=Phi(pole_radius=0.9999))
    b, a = scipy.signal.iirnotch(0.123456, 60)
    model.shaper.set_sections(Sections(torch.from_numpy(b)[None], torch.from_numpy(a[1:])[None]))
    facts = frequencies(model, loop=False)
    depth = [math.inf if value is None else value for value in facts["filters"][0]["magnitude_db"]]
    assert min(depth) < -80
    assert abs(facts["frequency"][int(np.argmin(depth))] - 0.123456) < 1e-6


def test_the_loop_has_a_spectral_radius_or_a_reason():
    """With Φ = 1 the loop is that of the Kalman filter; another gain has no loop."""
    F, H = LINEAR["F"].numpy(), LINEAR["H"].numpy()
    loop = inspect(on_linear(phi=Phi()))["frequencies"]["loop"]
    K = np.array(loop["gain"])
    assert abs(loop["spectral_radius"] - max(abs(np.linalg.eigvals((np.eye(3) - K @ H) @ F)))) < 1e-9
    loop = inspect(on_linear(phi=Phi(covariance="augmented", gain="shaped")))["frequencies"]["loop"]
    assert loop["spectral_radius"] is None
    assert "gain='kalman'" in loop["reason"]


def test_an_unstable_loop_is_detected():
    """A stable low-pass delays the correction and makes the loop unstable; a run grows with the spectral radius."""
    matrices = {"F": [[1.0, 1.0], [0.0, 1.0]], "H": [[1.0, 0.0]], "Q": [[0.0, 0.0], [0.0, 0.1]], "R": [[1.0]]}
    system = fwnkf.LinearSystem.of(**{name: torch.tensor(value).double() for name, value in matrices.items()})
    model = fwnkf.FWNKF(system, phi=Phi())
    b, a = scipy.signal.butter(2, 0.1)
    model.shaper.set_sections(Sections(torch.from_numpy(b)[None], torch.from_numpy(a[1:])[None]))
    facts = inspect(model)["frequencies"]
    assert max(pole["radius"] for pole in facts["filters"][0]["poles"]) < 1
    prior = fwnkf.Gaussian(torch.tensor([1.0, 0.0]).double(), torch.eye(2).double())
    magnitude = model.run(torch.zeros(1, 2000, 1).double(), prior=prior).mean.detach()[0].norm(dim=-1).log()
    # growth of the envelope of the oscillation
    growth = (magnitude[1500:].max() - magnitude[500:1000].max()).div(1000).exp()
    assert facts["loop"]["spectral_radius"] > 1.001
    assert abs(facts["loop"]["spectral_radius"] - float(growth)) < 1e-4


@pytest.mark.parametrize(("full", "shared"), [(False, True), (True, False)])
def test_the_noise_density_equals_that_of_the_state_space_form(full, shared):
    """``S(ω) = C (zI - A)⁻¹ Q (zI - A)⁻ᴴ Cᵀ + R`` for each channel, from the matrices the filter runs on."""
    model = on_linear(shaken=0.3, full=full, noise=Lines(2, shared=shared))
    facts = inspect(model)["frequencies"]
    prepared = model.prepare()
    A, Q, C = (getattr(prepared.noise, name).detach().numpy() for name in "AQC")
    head = model.head_bias.detach().numpy()[-2:]
    R = np.diag(LINEAR["R"].numpy()) * np.exp(6.0 * np.tanh(head))
    for i, channel in enumerate(facts["channels"]):
        expected = []
        for w in np.pi * np.array(facts["frequency"]):
            T = C[i] @ np.linalg.inv(np.exp(1j * w) * np.eye(len(A)) - A)
            expected.append(2 * 0.02 * ((T @ Q @ T.conj()).real + R[i]))
        np.testing.assert_allclose(channel["density"], expected, rtol=1e-9)
        # one-sided per Hz, so it integrates to the variance
        total = np.trapezoid(channel["density"], facts["hz"])
        variance = sum(oscillator["std"] ** 2 for oscillator in channel["oscillators"]) + channel["white_std"] ** 2
        assert abs(total / variance - 1) < 1e-3  # error of the trapezoidal rule
        poles = np.linalg.eigvals(A[4 * i : 4 * i + 4, 4 * i : 4 * i + 4])
        for oscillator in channel["oscillators"]:
            pole = oscillator["radius"] * np.exp(1j * np.pi * oscillator["frequency"])
            assert abs(poles - pole).min() < 1e-9
            assert abs(oscillator["hz"] - 25 * oscillator["frequency"]) < 1e-12
            assert abs(oscillator["std"] - oscillator["amplitude"] * math.sqrt(LINEAR["R"][i, i])) < 1e-12


def test_the_density_agrees_with_welch_of_simulated_noise(rng):
    """The unit is one-sided per Hz, as in scipy and ``fwnkf.metrics.spectrum``."""
    model = on_linear(noise=Lines())
    oscillator = [torch.tensor([[value]]).double() for value in (0.8, 0.9, 2.0)]
    model.noise_states.set_oscillators(*oscillator)
    facts = frequencies(model)
    A, Q, C = (getattr(model.prepare().noise, name).detach().numpy() for name in "AQC")
    nu, drawn = np.zeros(4), rng.standard_normal((200_000, 4)) @ np.sqrt(Q)
    path = np.empty((200_000, 4))
    for t, kick in enumerate(drawn):
        nu = path[t] = A @ nu + kick
    v = path @ C[0] + rng.standard_normal(200_000) * math.sqrt(LINEAR["R"][0, 0])
    hz, density = scipy.signal.welch(v, fs=50.0, nperseg=512)
    expected = np.interp(hz, facts["hz"], facts["channels"][0]["density"])
    # 780 overlapping segments: about 5 % standard error
    np.testing.assert_allclose(density[4:-4], expected[4:-4], rtol=0.25)
    assert abs(np.mean(density[4:-4] / expected[4:-4]) - 1) < 0.01


@pytest.mark.parametrize("noise", [Drift(0.5, std=0.3), [Lines(hz=5.0), Drift(0.5, std=0.3)]])
def test_a_drift_is_part_of_the_density(noise):
    """``2 σ² τ / (1 + (2π f τ)²)`` per Hz, two-sided, far below half the sampling rate."""
    facts = frequencies(on_linear(noise=noise))
    without = frequencies(on_linear(noise=Lines(hz=5.0))) if isinstance(noise, list) else None
    hz, found = np.array(facts["hz"]), np.array(facts["channels"][0]["density"])
    known = facts["channels"][0]["white_density"]
    if without is not None:
        known = np.interp(hz, without["hz"], without["channels"][0]["density"])
    low = (hz > 0) & (hz < 2.0)
    expected = 4 * 0.3**2 * 0.5 / (1 + (2 * np.pi * hz * 0.5) ** 2)
    np.testing.assert_allclose((found - known)[low], expected[low], rtol=0.02)
