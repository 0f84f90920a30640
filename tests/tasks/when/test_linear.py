"""The closed form of the linear map, beside scipy, long simulations and the library's own filters."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.linalg import solve_discrete_are, solve_discrete_lyapunov
from scipy.signal import butter, lfilter

import fwnkf
from fwnkf.core import iir
from fwnkf.core.spectral import spectral_distance
from tasks.when import search
from tasks.when.cells import simulated, steady
from tasks.when.linear import (
    Estimator,
    after,
    error_variance,
    followed,
    kalman,
    lyapunov,
    response,
    riccati,
    shaped,
    spectral_error,
)
from tasks.when.problem import (
    RATE,
    STEP,
    WHITE,
    Disturbance,
    frequencies,
    motion,
    motion_covariance,
    motion_spectrum,
    with_states,
)
from tasks.when.search import Bench

DISTURBANCES = [
    Disturbance("tone", 20.0, 0.0, 1.0),
    Disturbance("tone", 0.3, 0.0, 3.0),
    Disturbance("band", 5.0, 0.3, 1.0),
    Disturbance("drift", 0.01, 0.0, 1.0),
    Disturbance("pink", 0.1, 0.0, 0.3),
]
SWEEP = Disturbance("sweep", 10.0, 0.5, 1.0)
RAW = np.array([[-0.4, 0.5, -0.2, -0.6, 0.4], [0.3, 0.2, 0.1, 0.2, -0.1]])
"""Of two biquads that, before the gain, leave the loop stable."""


def estimators(bench: Bench) -> dict[str, Estimator]:
    b, a = search.notch_sections(np.log([4.0]), np.log([2.0]))
    low = search.butterworth(np.log([8.0]))
    phi = tuple(zip(*search.stable_sections(RAW), strict=True))
    return {
        "white": kalman(bench.true),
        "oracle": kalman(with_states(bench.true, bench.disturbance.oscillators())),
        "notch": after((b[0], a[0]), kalman(bench.true)),
        "low-pass": after((low[0][0], low[1][0]), kalman(bench.with_r(2.0))),
        "phi": shaped(bench.with_r(2.0), phi[:1]),
        "phi of two": shaped(bench.with_r(2.0), phi),
    }


def run(estimator: Estimator, y: np.ndarray) -> np.ndarray:
    """The estimator over one record, step by step."""
    state, found = np.zeros((len(estimator.A), 1)), []
    for value in y:
        found.append(float((estimator.C @ state + estimator.D * value)[0, 0]))
        state = estimator.A @ state + estimator.B * value
    return np.array(found)


# ---- solvers --------------------------------------------------------------------------------------------------------


def test_doubling_solves_the_lyapunov_equation():
    generator = np.random.default_rng(0)
    for size in (1, 3, 8):
        A = generator.standard_normal((size, size))
        A *= 0.999 / np.abs(np.linalg.eigvals(A)).max()
        root = generator.standard_normal((size, size))
        Q = root @ root.T
        np.testing.assert_allclose(lyapunov(A, Q), solve_discrete_lyapunov(A, Q), rtol=1e-8)


def test_an_unstable_system_has_an_infinite_variance():
    assert np.all(np.isinf(lyapunov(np.array([[1.01]]), np.eye(1))))
    unstable = Estimator(np.array([[1.2]]), np.ones((1, 1)), np.ones((1, 1)), np.zeros((1, 1)))
    assert math.isinf(error_variance(motion(), unstable))


@pytest.mark.parametrize("disturbance", DISTURBANCES, ids=str)
def test_doubling_solves_the_riccati_equation(disturbance):
    model = with_states(motion(), disturbance.oscillators())
    ours, _ = riccati(model.F, model.Q, model.H, np.array([model.R, 10 * model.R]))
    for P, R in zip(ours, (model.R, 10 * model.R), strict=True):
        np.testing.assert_allclose(P, solve_discrete_are(model.F.T, model.H.T, model.Q, [[R]]), rtol=1e-5, atol=1e-9)


# ---- the problem ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("disturbance", [*DISTURBANCES, SWEEP], ids=str)
def test_spectra_and_covariances_are_those_of_one_process(disturbance):
    omega, weight = frequencies(disturbance)
    lags = np.arange(4)
    for density, covariance in (
        (motion_spectrum(omega), motion_covariance(lags)),
        (disturbance.spectrum(omega), disturbance.covariance(lags)),
    ):
        found = [np.sum(density * np.cos(lag * omega) * weight) for lag in lags]
        np.testing.assert_allclose(found, covariance, rtol=2e-3, atol=2e-3 * covariance[0])


def test_the_motion_has_unit_rms_and_its_bandwidth():
    assert motion_covariance(np.arange(1))[0] == 1
    half, zero = motion_spectrum(2 * math.pi * STEP * np.array([1.0, 1e-6]))
    assert half / zero == pytest.approx(0.5, rel=1e-3)


def test_a_simulated_sweep_has_the_spectrum_it_is_said_to_have():
    _, y = simulated(SWEEP, 20, 4000, seed=0)
    lags = np.arange(12)
    found = np.array([np.mean(y[:, : 4000 - lag] * y[:, lag:]) for lag in lags])
    expected = motion_covariance(lags) + SWEEP.covariance(lags)
    expected[0] += WHITE**2
    np.testing.assert_allclose(found, expected, atol=0.12)  # 800 s of a motion that is correlated over half a second


# ---- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("disturbance", DISTURBANCES, ids=str)
def test_both_closed_forms_agree(disturbance):
    bench = Bench(disturbance)
    omega, weight = frequencies(disturbance, 4000)
    signal, noise = motion_spectrum(omega), disturbance.spectrum(omega) + WHITE**2
    for name, estimator in estimators(bench).items():
        by_states = error_variance(bench.truth, estimator)
        by_spectra = spectral_error(response(estimator, omega), signal, noise, weight)
        assert by_spectra == pytest.approx(by_states, rel=2e-3), name


@pytest.mark.parametrize("disturbance", [DISTURBANCES[0], DISTURBANCES[2]], ids=str)
def test_the_closed_form_is_the_error_of_a_long_simulation(disturbance):
    bench = Bench(disturbance)
    signal, y = simulated(disturbance, 8, 6000, seed=1)
    for name, estimator in estimators(bench).items():
        errors = [np.mean((run(estimator, one) - truth)[500:] ** 2) for one, truth in zip(y, signal, strict=True)]
        spread = np.std(errors) / math.sqrt(len(errors))
        assert np.mean(errors) == pytest.approx(error_variance(bench.truth, estimator), abs=4 * spread), name


def test_a_line_that_is_told_has_the_error_of_the_riccati_recursion():
    """A sweep of no range is a tone, whose error is known."""
    still = Disturbance("sweep", 10.0, 1e-9, 1.0)
    tone = Bench(Disturbance("tone", 10.0, 0.0, 1.0))
    assert followed(motion(), still, 4000) == pytest.approx(search.states_told(tone).variance, rel=1e-4)


def test_a_stable_phi_may_leave_the_loop_unstable_and_the_error_is_infinite():
    bench = Bench(DISTURBANCES[0])
    b, a = search.notch_sections(np.log([4.0]), np.log([2.0]))
    assert math.isinf(bench.score(shaped(bench.with_r(1.0), ((b[0], a[0]),))).variance)
    K = bench.gains(np.array([1.0]))
    assert search.loop_radius(bench, K, b[:, None], a[:, None])[0] > 1


# ---- forms of the library -------------------------------------------------------------------------------------------


def test_phi_is_that_of_the_library():
    b, a = search.stable_sections(RAW)
    model = Bench(DISTURBANCES[2]).with_r(2.0)
    F, H, Q = (torch.from_numpy(np.ascontiguousarray(each)) for each in (model.F, model.H, model.Q))
    system = fwnkf.LinearSystem.of(F=F, H=H, Q=Q, R=torch.tensor([[model.R]]).double(), dt=STEP)
    theirs = fwnkf.FWNKF(system, phi=fwnkf.Phi(sections=2, pole_radius=0.9999)).double()
    theirs.shaper.set_sections(iir.Sections(torch.from_numpy(b), torch.from_numpy(a)))
    _, y = simulated(DISTURBANCES[2], 1, 3000, seed=2)
    with torch.no_grad():
        found = theirs.run(torch.from_numpy(y).unsqueeze(-1)).mean[0, :, 0].numpy()
    ours = run(shaped(model, tuple(zip(b, a, strict=True))), y[0])
    np.testing.assert_allclose(found[1000:], ours[1000:], atol=1e-6)  # after both have reached the steady state


def test_the_steady_state_of_a_filter_with_noise_states_is_the_oracle():
    bench = Bench(DISTURBANCES[2])
    model = bench.true
    F, H, Q = (torch.from_numpy(np.ascontiguousarray(each)) for each in (model.F, model.H, model.Q))
    system = fwnkf.LinearSystem.of(F=F, H=H, Q=Q, R=torch.tensor([[model.R]]).double(), dt=STEP)
    filter_ = fwnkf.FWNKF(system, noise=fwnkf.Lines(shared=True, pole_radius=0.9999)).double()
    filter_.noise_states.set(hz=5.0, bandwidth_hz=1.5, std=1.0)
    told = search.states_told(bench)
    assert bench.score(steady(filter_)).variance == pytest.approx(told.variance, rel=1e-6)
    assert told.stated == pytest.approx(told.variance, rel=1e-9)


def test_filters_in_front_are_those_of_scipy():
    b, a = search.butterworth(np.log([8.0]))
    theirs = butter(2, 8.0, fs=RATE)
    np.testing.assert_allclose(b[0], theirs[0], atol=1e-12)
    np.testing.assert_allclose([1, *a[0]], theirs[1], atol=1e-12)
    y = np.random.default_rng(0).standard_normal(200)
    passing = Estimator(np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((1, 1)), np.ones((1, 1)))
    np.testing.assert_allclose(run(after((b[0], a[0]), passing), y), lfilter(*theirs, y), atol=1e-12)


def test_the_expected_spectral_loss_is_that_of_long_records():
    bench = Bench(Disturbance("band", 5.0, 0.3, 1.0))
    signal, y = simulated(bench.disturbance, 40, 4000, seed=3)
    model = bench.with_r(2.0)
    K = bench.gains(np.array([2.0]))
    expected = float(search.spectral_loss(bench, bench.closed(K, np.ones((1, len(bench.omega))))[1])[0])
    prior = kalman(model)._replace(C=model.H, D=np.zeros((1, 1)))  # ŷ⁻ = H x̂⁻
    predicted = np.stack([run(prior, one) for one in y])
    found = spectral_distance(*(torch.from_numpy(each[:, 500:, None]) for each in (predicted, signal)))
    per_record = math.sqrt(search.RECORD / 3500) * found.numpy()
    assert np.mean(per_record) == pytest.approx(expected, rel=0.03)


# ---- bounds ---------------------------------------------------------------------------------------------------------

FORMS = {
    "best R": search.best_r,
    "low-pass": search.low_pass,
    "notch": search.notch,
    "phi": search.phi,
    "spectral": lambda bench: search.phi(bench, spectral=0.1),
    "fir": search.fir,
}


@pytest.fixture(scope="module", params=[DISTURBANCES[0], DISTURBANCES[2], DISTURBANCES[3]], ids=str)
def searched(request):
    bench = Bench(request.param)
    return bench, {name: form(bench).variance for name, form in FORMS.items()}


def test_no_estimator_is_better_than_the_oracle(searched):
    bench, found = searched
    least = search.states_told(bench).variance
    assert all(variance >= least * (1 - 1e-9) for variance in found.values()), found


def test_more_freedom_is_no_worse(searched):
    bench, found = searched
    assert found["best R"] <= search.as_assumed(bench).variance * (1 + 1e-9)
    assert found["low-pass"] <= 1.01 * found["best R"]  # a cutoff just below Nyquist is not quite no low-pass
    assert found["notch"] <= 1.001 * found["best R"]
    assert found["phi"] <= 1.001 * found["best R"]
    assert found["phi"] <= 1.001 * found["spectral"]  # what is minimised is the error itself


def test_one_biquad_is_enough_for_one_line(searched):
    """The filter with a line as noise states is of the order of the filter with one biquad."""
    bench, found = searched
    assert found["phi"] <= 1.002 * search.states_told(bench).variance


def test_more_taps_are_no_worse_and_reach_the_oracle():
    bench = Bench(DISTURBANCES[2])
    found = [search.fir(bench, taps).variance for taps in (5, 20, 80, 320)]
    assert found == sorted(found, reverse=True)
    assert found[-1] == pytest.approx(search.states_told(bench).variance, rel=1e-3)


def test_a_search_that_meets_an_unstable_loop_goes_on():
    """With a tenth of R and ten times Q, and R not free, the spectra of an unstable loop look better than any."""
    bench = Bench(Disturbance("tone", 10.0, 0.0, 1.0), 10.0, 0.1)
    assert search.phi(bench, free_r=False).variance < search.as_assumed(bench).variance


def test_a_notch_against_a_very_slow_drift_stays_stable():
    bench = Bench(Disturbance("drift", 0.001, 0.0, 0.3))
    assert search.notch(bench).variance <= 1.001 * search.best_r(bench).variance


def test_a_stronger_disturbance_is_no_easier():
    errors = [search.states_told(Bench(Disturbance("band", 2.0, 0.3, std))).variance for std in (0.1, 0.3, 1.0, 3.0)]
    assert errors == sorted(errors)


def test_only_the_ratio_of_q_and_r_matters_to_a_gain():
    one = DISTURBANCES[2]
    assert search.as_assumed(Bench(one, 3.0, 3.0)).variance == pytest.approx(search.as_assumed(Bench(one)).variance)
    assert search.best_r(Bench(one, 10.0, 0.1)).variance == pytest.approx(search.best_r(Bench(one)).variance, rel=1e-4)
