"""Filters of the pendulum beside those of the library, and its motion beside the distribution that it should have."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.core import iir
from fwnkf.core.spectral import spectral_distance
from tasks.when import nonlinear
from tasks.when.cells import WEIGHT
from tasks.when.nonlinear import SKIP, Cell, Workbench, errors, rms
from tasks.when.pendulum import (
    DAMPING,
    FIRST,
    HEAT,
    RMS,
    SPEED,
    TORQUE,
    Lanes,
    Records,
    Track,
    observe,
    run,
    simulate,
)
from tasks.when.problem import STEP, WHITE, Disturbance
from tasks.when.search import RECORD, butterworth, stable_sections

BAND = Disturbance("band", 5.0, 0.3, 1.0)
R = (WHITE * RMS) ** 2


def move(x: torch.Tensor) -> torch.Tensor:
    theta, rate = x[..., 0], x[..., 1]
    faster = rate - STEP * (SPEED**2 * torch.sin(theta) + 2 * DAMPING * SPEED * rate)
    return torch.stack((theta + STEP * rate, faster), -1)


def tip(x: torch.Tensor) -> torch.Tensor:
    return torch.stack((torch.sin(x[..., 0]), -torch.cos(x[..., 0])), -1)


def system(r: float = R) -> fwnkf.System:
    return fwnkf.System.of(
        move, tip, Q=torch.tensor([1e-30, TORQUE]).double(), R=torch.tensor([r, r]).double(), dt=STEP
    ).double()


def theirs(model: fwnkf.Filter, y: np.ndarray) -> fwnkf.Trajectory:
    prior = fwnkf.Gaussian(torch.zeros(2).double(), torch.from_numpy(FIRST))
    with torch.no_grad():
        return model.run(torch.from_numpy(np.ascontiguousarray(y.transpose(2, 0, 1))), prior=prior)


@pytest.fixture(scope="module")
def records() -> Records:
    return simulate(BAND, 2, 300, seed=0)


def test_it_is_the_extended_kalman_filter_of_the_library(records):
    ours = run(Lanes(np.array([R, 5 * R]), np.ones(2)), records.y)
    for lane, r in enumerate((R, 5 * R)):
        track = theirs(fwnkf.EKF(system(r)).double(), records.y)
        np.testing.assert_allclose(
            ours.theta[:, lane], track.mean[..., 0].T, atol=1e-6
        )  # near the top differences grow
        np.testing.assert_allclose(ours.variance[:, lane], track.cov[..., 0, 0].T, rtol=1e-6)


def test_noise_states_are_those_of_the_library(records):
    model = fwnkf.FWNKF(system(), noise=fwnkf.Lines(shared=False, pole_radius=0.9999)).double()
    model.noise_states.set(hz=5.0, bandwidth_hz=1.5, std=RMS)
    track = theirs(model, records.y)
    ours = run(Lanes(np.array([R]), np.ones(1), parts=[tuple(np.array([v]) for v in (5.0, 1.5, RMS))]), records.y)
    np.testing.assert_allclose(ours.theta[:, 0], track.mean[..., 0].T, atol=1e-7)
    np.testing.assert_allclose(ours.variance[:, 0], track.cov[..., 0, 0].T, rtol=1e-5)
    innovation, cov = track.innovation, track.innovation_cov
    density = torch.distributions.MultivariateNormal(torch.zeros(2).double(), cov).log_prob(innovation).sum()
    constant = innovation[..., 0].numel() * math.log(2 * math.pi)
    assert ours.log_likelihood[0] == pytest.approx(float(density) + constant, rel=1e-6)


def test_phi_is_that_of_the_library(records):
    b, a = stable_sections(np.array([[-0.4, 0.5, -0.2, -0.6, 0.4]]))
    model = fwnkf.FWNKF(system(5 * R), phi=fwnkf.Phi(sections=1, pole_radius=0.9999)).double()
    model.shaper.set_sections(iir.Sections(torch.from_numpy(b), torch.from_numpy(a)))
    track = theirs(model, records.y)
    ours = run(Lanes(np.array([5 * R]), np.ones(1), phi=(b, a)), records.y)
    np.testing.assert_allclose(ours.theta[:, 0], track.mean[..., 0].T, atol=1e-7)


def test_a_filter_that_passes_everything_changes_nothing(records):
    nothing = np.array([[1.0, 0.0, 0.0]]), np.zeros((1, 2))
    plain = run(Lanes(np.array([R]), np.ones(1)), records.y)
    for changed in (Lanes(np.array([R]), np.ones(1), front=nothing), Lanes(np.array([R]), np.ones(1), phi=nothing)):
        np.testing.assert_allclose(run(changed, records.y).theta, plain.theta, atol=1e-12)
    ahead = run(Lanes(np.array([R]), np.ones(1), front=butterworth(np.log([45.0]))), np.ones((50, 2, 1)))
    np.testing.assert_allclose(ahead.theta, run(Lanes(np.array([R]), np.ones(1)), np.ones((50, 2, 1))).theta, atol=1e-9)


def test_the_pendulum_has_the_distribution_of_its_heat():
    records = simulate(Disturbance("tone", 20.0, 0.0, 0.1), 200, 1000, seed=1)
    assert np.sqrt(np.mean(np.sin(records.theta) ** 2)) == pytest.approx(RMS, rel=0.05)
    rate = np.diff(records.theta, axis=0) / STEP
    heated = 1 - SPEED * STEP / (2 * DAMPING)  # an Euler step of a swing takes ω₀² h from its damping 2 ζ ω₀
    assert np.mean(rate**2) == pytest.approx(HEAT * SPEED**2 / heated, rel=0.05)


def test_disturbances_have_their_strength_over_that_of_the_motion():
    for one in (BAND, Disturbance("sweep", 10.0, 0.5, 1.0), Disturbance("pink", 1.0, 0.0, 1.0)):
        records = simulate(one, 60, 1000, seed=2)
        found = np.mean((records.y - records.tip) ** 2)
        assert found == pytest.approx(RMS**2 * (one.std**2 + WHITE**2), rel=0.1), one


def test_a_filter_that_is_told_a_sweep_states_its_error():
    one = Disturbance("sweep", 10.0, 0.5, 1.0)
    records = simulate(one, 30, 1000, seed=3)
    line = [tuple(np.array([v]) for v in (one.line.hz, one.line.width, RMS))]
    told = run(Lanes(np.array([R]), np.ones(1), parts=line, omega=records.omega), records.y)
    error = np.angle(np.exp(1j * (told.theta[SKIP:, 0] - records.theta[SKIP:])))
    assert np.mean(error**2 / told.variance[SKIP:, 0]) == pytest.approx(1.0, abs=0.1)


def test_the_spectral_loss_is_that_of_the_library():
    generator = np.random.default_rng(0)
    steps = SKIP + 2 * RECORD + 7
    predicted, theta = generator.standard_normal((steps, 3, 4)), generator.standard_normal((steps, 4))
    found = nonlinear.spectral_loss(Track(predicted, predicted, predicted, np.zeros(3)), Records(theta, theta, theta))
    for lane in range(3):
        pieces = [
            spectral_distance(
                *(torch.from_numpy(observe(each[part])[..., b].copy()) for each in (predicted[:, lane], theta))
            )
            for part in (slice(SKIP, SKIP + RECORD), slice(SKIP + RECORD, SKIP + 2 * RECORD))
            for b in range(4)
        ]
        assert found[lane] == pytest.approx(float(torch.stack(pieces).mean()), rel=1e-9)


def test_searches_are_no_worse_than_where_they_begin(monkeypatch):
    monkeypatch.setattr(nonlinear, "TRAINED_STEPS", 400)
    bench = Workbench(Cell(Disturbance("tone", 20.0, 0.0, 1.0), 1.0, 0), trained=4, tested=8)
    found = {name: estimate(bench)["rmse"] for name, estimate in nonlinear.ESTIMATORS.items()}
    plain = rms(errors(run(bench.lanes(np.zeros(1)), bench.test.y), bench.test))
    assert found["best R"] < 0.9 * plain
    assert found["notch"] < 0.6 * found["best R"]
    assert found["Φ"] < 0.6 * found["best R"]
    assert found["states fitted"] == pytest.approx(found["states told"], rel=0.05)
    assert found["Φ"] > 0.97 * found["states told"]
    assert found["Φ, spectral loss"] > 0.97 * found["Φ"]
    assert WEIGHT == 0.1
