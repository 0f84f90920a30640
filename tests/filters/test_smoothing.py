"""Smoothing of linear filters against the joint posterior of all steps, filterpy and statsmodels."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from filterpy.kalman import FixedLagSmoother, KalmanFilter
from scipy.linalg import expm
from scipy.stats import multivariate_normal
from statsmodels.tsa.statespace.kalman_smoother import KalmanSmoother
from statsmodels.tsa.statespace.mlemodel import MLEModel

import fwnkf
from fwnkf.core.linear import LinearSystem
from fwnkf.core.preprocess import Calibration, CalibrationConfig
from fwnkf.errors import ConfigError

from ..oracles.joint import autoregressive_causes, block_diagonal, joint_smoothed
from ..systems import continuous_matrices, linear_matrices
from ..tolerances import assert_close

STEPS = 15
MEAN = np.array([0.5, -1.0, 0.2])
COV = np.array([[1.0, 0.3, 0.0], [0.3, 0.8, -0.2], [0.0, -0.2, 0.5]])
LAGS = [None, 0, 1, 4, 40]


def prior(mean=MEAN, cov=COV):
    return fwnkf.Gaussian(torch.as_tensor(mean), torch.as_tensor(cov))


def record(rng, channels=2, steps=STEPS):
    """Measurements, controls, and a random mask per channel with a gap of two steps and a complete step."""
    y = rng.standard_normal((steps, channels)) * 2
    u = rng.standard_normal((steps, 1))
    mask = rng.random((steps, channels)) < 0.6
    mask[3:5], mask[5] = False, True
    return y, u, mask


def batched(*arrays):
    return [torch.as_tensor(array)[None] for array in arrays]


def compare(smoothed, expected, lag=None, coordinates=slice(None)):
    assert_close(smoothed.mean[0], expected.mean[..., coordinates], "joint")
    assert_close(smoothed.cov[0], expected.cov[..., coordinates, coordinates], "joint")
    if lag is None:
        assert_close(smoothed.cross_cov[0], expected.cross_cov[..., coordinates, coordinates], "joint")
    else:
        assert smoothed.cross_cov is None


def run(model, *inputs, start=None):
    """A run that predicts before its first measurement, as the joint Gaussian of these tests does."""
    state = None if start is None else model.init(len(inputs[0]), start)
    return model.run(*inputs, state=state, smoothing=True).raise_for_status()


@pytest.mark.parametrize("kind", ["kf", "ekf", "fwnkf"])
def test_a_prior_at_the_first_measurement_is_smoothed_as_in_statsmodels(rng, kind):
    matrices = linear_matrices(full=True)
    system = fwnkf.LinearSystem.of(**matrices)
    model = {
        "kf": lambda: fwnkf.KF(**matrices),
        "ekf": lambda: fwnkf.EKF(system),
        "fwnkf": lambda: fwnkf.FWNKF(system),
    }[kind]()
    y = rng.standard_normal((STEPS, 2))
    theirs = KalmanSmoother(k_endog=2, k_states=3)
    theirs.bind(y)
    for name, letter in {"design": "H", "transition": "F", "obs_cov": "R", "state_cov": "Q"}.items():
        theirs[name] = matrices[letter].numpy()
    theirs["selection"] = np.eye(3)
    start = prior()
    theirs.initialize_known(start.mean.numpy(), start.cov.numpy())
    expected = theirs.smooth()
    smoothed = fwnkf.smooth(model, model.run(torch.as_tensor(y)[None], prior=start, smoothing=True))
    assert_close(smoothed.mean[0], expected.smoothed_state.T, "joint")
    assert_close(smoothed.cov[0], expected.smoothed_state_cov.transpose(2, 0, 1), "joint")


# ---- the joint posterior -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("full", [False, True], ids=["diagonal R", "full R"])
def test_kf_is_the_joint_posterior(rng, full, lag):
    matrices = linear_matrices(full=full)
    y, u, mask = record(rng)
    F, B, H, Q, R = (matrices[name].numpy() for name in "FBHQR")
    causes = autoregressive_causes([MEAN], [COV], [[F]] * STEPS, u @ B.T, [Q] * STEPS)
    kf = fwnkf.build("kf", **matrices)
    smoothed = fwnkf.smooth(kf, run(kf, *batched(y, u, mask), start=prior()), lag=lag)
    compare(smoothed, joint_smoothed(causes, H, R, y, mask, lag), lag)


@pytest.mark.parametrize("case", ["process", "prior", "both", "transition"])
def test_singular_matrices_need_no_inverse(rng, case):
    """A known part of the state, a rank-one process noise, a start that is exact, and a transition that forgets."""
    matrices = linear_matrices(full=True)
    F, B, H, Q, R = (matrices[name].numpy().copy() for name in "FBHQR")
    cov = COV.copy()
    if case in ("process", "both"):
        direction = np.array([0.1, 1.0, 0.0])
        Q = 0.3 * np.outer(direction, direction)
    if case in ("prior", "both"):
        cov = np.zeros((3, 3))
        cov[1, 1] = 1e-4
    if case == "transition":
        F[2] = 0.0
        Q[2] = Q[:, 2] = 0.0
    y, u, mask = record(rng)
    kf = fwnkf.build(
        "kf", **{name: torch.as_tensor(value) for name, value in zip("FBHQR", (F, B, H, Q, R), strict=True)}
    )
    causes = autoregressive_causes([MEAN], [cov], [[F]] * STEPS, u @ B.T, [Q] * STEPS)
    smoothed = fwnkf.smooth(kf, run(kf, *batched(y, u, mask), start=prior(cov=cov)))
    compare(smoothed, joint_smoothed(causes, H, R, y, mask))


def continuous_causes(A, density, dt, mean=MEAN, cov=COV):
    """Exact steps by the matrix exponential of Van Loan's block matrix, in numpy."""
    n = len(A)
    Fs, Qs = [], []
    for step in dt:
        block = expm(np.block([[-A, density], [np.zeros_like(A), A.T]]) * step)
        F = block[n:, n:].T
        Fs.append([F])
        Qs.append(F @ block[:n, n:])
    return autoregressive_causes([mean], [cov], Fs, np.zeros((len(dt), n)), Qs)


@pytest.mark.parametrize("lag", [None, 3])
def test_irregular_steps_are_exact(rng, lag):
    matrices = continuous_matrices(full=True)
    y, _, mask = record(rng)
    dt = rng.uniform(0.01, 0.8, STEPS)
    dt[6] = 0.0  # two samples at the same time
    A, H, density, R = (matrices[name].numpy() for name in "FHQR")
    expected = joint_smoothed(continuous_causes(A, density, dt), H, R, y, mask, lag)
    kf = fwnkf.build("kf", **matrices, continuous=True)
    y, mask, dt = batched(y, mask, dt)
    compare(fwnkf.smooth(kf, run(kf, y, None, mask, dt, start=prior()), lag=lag), expected, lag)


@pytest.mark.parametrize("lag", [None, 2])
def test_arkf_is_the_joint_posterior_of_the_autoregression(rng, lag):
    matrices = linear_matrices(full=True)
    lags = np.stack([matrices["F"].numpy() * 0.6**i * (-1) ** i for i in range(3)])
    y, u, mask = record(rng)
    B, H, Q, R = (matrices[name].numpy() for name in "BHQR")
    causes = autoregressive_causes([MEAN] * 3, [COV] * 3, [lags] * STEPS, u @ B.T, [Q] * STEPS)
    arkf = fwnkf.build("arkf", **{**matrices, "F": torch.as_tensor(lags)})
    smoothed = fwnkf.smooth(arkf, run(arkf, *batched(y, u, mask), start=prior()), lag=lag)
    compare(smoothed, joint_smoothed(causes, H, R, y, mask, lag), lag)
    if lag is None:  # what is said of a lagged state is what is said of that step
        assert_close(smoothed.noise.mean[0, 1:, :3], smoothed.mean[0, :-1], "joint")


OSCILLATORS = torch.tensor([[0.9, 2.1]]), torch.tensor([[0.995, 0.7]]), torch.tensor([[2.0, 1.5]])


def with_noise_states():
    """A linear system with a tone and a band in every channel, its parameters as they are."""
    matrices = {name: value for name, value in linear_matrices().items() if name != "B"}
    model = fwnkf.FWNKF(LinearSystem.of(**matrices), noise=fwnkf.Lines(2, shared=True))
    model.noise_states.set_oscillators(*(item.double() for item in OSCILLATORS))
    return model, matrices


def noise_model(R):
    """Transition, process noise and output of the oscillators, written out."""
    blocks, noises, columns = [], [], []
    for channel in range(2):
        for frequency, radius, amplitude in zip(*(item[0].tolist() for item in OSCILLATORS), strict=True):
            c, s = np.cos(frequency), np.sin(frequency)
            blocks.append(radius * np.array([[c, -s], [s, c]]))
            noises.append((1 - radius**2) * np.eye(2))
            column = np.zeros((2, 2))
            column[channel, 0] = amplitude * np.sqrt(R[channel, channel])
            columns.append(column)
    return block_diagonal(blocks), block_diagonal(noises), np.concatenate(columns, 1)


@pytest.mark.parametrize("lag", [None, 4])
def test_noise_states_are_smoothed_with_the_state(rng, lag):
    model, matrices = with_noise_states()
    F, H, Q, R = (matrices[name].numpy() for name in "FHQR")
    y, _, mask = record(rng)
    A, noise_Q, C = noise_model(R)
    causes = autoregressive_causes(
        [np.concatenate((MEAN, np.zeros(8)))],
        [block_diagonal([COV, np.eye(8)])],
        [[block_diagonal([F, A])]] * STEPS,
        np.zeros((STEPS, 11)),
        [block_diagonal([Q, noise_Q])] * STEPS,
    )
    expected = joint_smoothed(causes, np.concatenate((H, C), 1), R, y, mask, lag)
    y, mask = batched(y, mask)
    smoothed = fwnkf.smooth(model, run(model, y, None, mask, start=prior()), lag=lag)
    compare(smoothed, expected, lag, slice(3))
    assert_close(smoothed.noise.mean[0], expected.mean[:, 3:], "joint")
    assert_close(smoothed.noise.cov[0], expected.cov[:, 3:, 3:], "joint")


def test_hypotheses_are_the_mixture_of_their_joint_posteriors(rng):
    """Each model alone is exact; all measurements weigh them."""
    matrices = {name: value for name, value in continuous_matrices().items() if name != "B"}
    system = LinearSystem.of(**matrices, continuous=True, dt=0.1)
    lines = fwnkf.Lines(1, shared=True)
    mixture = fwnkf.FWNKF(system, noise=lines, hypotheses=fwnkf.Hypotheses(2))
    frequency = torch.tensor([1.5, 1.7], dtype=torch.float64)
    with torch.no_grad():
        mixture.noise_states.raw_frequency.copy_(torch.logit(frequency / torch.pi)[:, None, None])
        mixture.noise_states.amplitude.fill_(2.0)
    y, _, mask = record(rng)
    y, mask = batched(0.3 * y, mask)
    track = run(mixture, y, None, mask, start=prior())
    singles, logs = [], []
    for value in frequency:
        single = fwnkf.FWNKF(system, noise=lines)
        radius, amplitude = mixture.noise_states.radius()[:1], mixture.noise_states.amplitude
        single.noise_states.set_oscillators(value.reshape(1, 1), radius, amplitude)
        alone = run(single, y, None, mask, start=prior())
        singles.append((fwnkf.smooth(single, alone), fwnkf.smooth(single, alone, lag=2)))
        logs.append(log_likelihoods(alone, mask[0]))
    for lag, which in ((None, 0), (2, 1)):
        last = np.minimum(np.arange(STEPS) + (STEPS if lag is None else lag), STEPS - 1)
        total = np.stack([np.cumsum(log)[last] for log in logs])
        weight = np.exp(total - total.max(0))
        weight /= weight.sum(0)
        assert weight[0].min() > 0.01  # otherwise one alone would do
        means = np.stack([single[which].mean[0].numpy() for single in singles])
        covs = np.stack([single[which].cov[0].numpy() for single in singles])
        mean = (weight[..., None] * means).sum(0)
        apart = means - mean
        cov = (weight[..., None, None] * (covs + apart[..., :, None] * apart[..., None, :])).sum(0)
        smoothed = fwnkf.smooth(mixture, track, lag=lag)
        assert_close(smoothed.mean[0], mean, "joint")
        assert_close(smoothed.cov[0], cov, "joint")


def log_likelihoods(track, mask):
    """The log density of the measured channels of each step, by scipy."""
    logs = []
    innovation, cov = (item[0].detach().numpy() for item in (track.innovation, track.innovation_cov))
    for r, S, present in zip(innovation, cov, mask.numpy(), strict=True):
        rows = np.flatnonzero(present)
        logs.append(multivariate_normal(cov=S[np.ix_(rows, rows)]).logpdf(r[rows]) if len(rows) else 0.0)
    return np.array(logs)


@pytest.mark.parametrize("covariance", ["joseph", "augmented"])
def test_a_shaped_filter_is_smoothed_from_its_own_belief(rng, covariance):
    """The textbook recursion on what the filter states: means, covariances and F."""
    matrices = {name: value for name, value in linear_matrices().items() if name != "B"}
    model = fwnkf.FWNKF(LinearSystem.of(**matrices), phi=fwnkf.Phi(covariance=covariance))
    with torch.no_grad():
        model.shaper.raw.add_(torch.tensor([0.3, -0.2, 0.1, 0.4, -0.3]).double())
    y, _, mask = record(rng)
    y, mask = batched(y, mask)
    track = run(model, y, None, mask, start=prior())
    mean, cov = textbook(track, matrices["F"].numpy())
    smoothed = fwnkf.smooth(model, track)
    assert_close(smoothed.mean[0], mean, "joint")
    assert_close(smoothed.cov[0], cov, "joint")


def textbook(track, F):
    """Rauch, Tung and Striebel as in the textbook, with an inverse of the predicted covariance."""
    items = (track.mean, track.cov, track.prior_mean, track.prior_cov)
    mean, cov, prior_mean, prior_cov = (item[0].detach().numpy().copy() for item in items)
    for t in reversed(range(len(mean) - 1)):
        G = cov[t] @ F.T @ np.linalg.inv(prior_cov[t + 1])
        mean[t] += G @ (mean[t + 1] - prior_mean[t + 1])
        cov[t] += G @ (cov[t + 1] - prior_cov[t + 1]) @ G.T
    return mean, cov


def test_adaptive_kf_is_smoothed_with_the_process_noise_it_used(rng):
    matrices = linear_matrices(full=True)
    arrays = {name: matrices[name] for name in ("F", "B", "H", "R")}
    arrays |= {"G": torch.eye(3, 2, dtype=torch.float64), "S": 0.5 * matrices["R"]}
    arrays["H"] = torch.eye(2, 3, dtype=torch.float64)
    model = fwnkf.build("adaptive_kf", **arrays, half_life=4.0, update_every=3, nugget=1e-2)
    y, u, mask = record(rng)
    track = run(model, *batched(y, u, mask), start=prior())
    smoothed = fwnkf.smooth(model, track)
    Q = track.linear.steps.Q[0].numpy()
    assert not np.allclose(Q[0], Q[-1])
    F, B, H, R = (arrays[name].numpy() for name in "FBHR")
    causes = autoregressive_causes([MEAN], [COV], [[F]] * STEPS, u @ B.T, list(Q))
    compare(smoothed, joint_smoothed(causes, H, R, y, mask))


# ---- other implementations -----------------------------------------------------------------------------------------


def test_smoothed_means_and_covariances_are_filterpys(rng):
    matrices = linear_matrices(full=True)
    y = rng.standard_normal((STEPS, 2))
    theirs = KalmanFilter(3, 2)
    theirs.F, theirs.H, theirs.Q, theirs.R = (matrices[name].numpy() for name in "FHQR")
    theirs.x, theirs.P = MEAN[:, None], COV
    means, covs, _, _ = theirs.batch_filter(y[..., None])
    expected = theirs.rts_smoother(means, covs)
    kf = fwnkf.build("kf", **matrices)
    smoothed = fwnkf.smooth(kf, run(kf, *batched(y), start=prior()))
    assert_close(smoothed.mean[0], expected[0][..., 0])
    assert_close(smoothed.cov[0], expected[1])


@pytest.mark.parametrize("lag", [2, 5])
def test_a_fixed_lag_is_filterpys_filter_on_a_state_with_its_past(rng, lag):
    """A Kalman filter on ``[x_t, …, x_{t-k}]``: its last block is the estimate with a lag of ``k``."""
    matrices = linear_matrices(full=True)
    F, H, Q, R = (matrices[name].numpy() for name in "FHQR")
    y = rng.standard_normal((STEPS, 2))
    n = 3 * (lag + 1)
    theirs = KalmanFilter(n, 2)
    theirs.F = np.eye(n, k=-3)
    theirs.F[:3, :3] = F
    theirs.H = np.concatenate((H, np.zeros((2, n - 3))), 1)
    theirs.Q = block_diagonal([Q, np.zeros((n - 3, n - 3))])
    theirs.R = R
    theirs.x[:3, 0] = MEAN
    theirs.P = block_diagonal([COV, np.zeros((n - 3, n - 3))])
    means, covs, _, _ = theirs.batch_filter(y[..., None])
    kf = fwnkf.build("kf", **matrices)
    smoothed = fwnkf.smooth(kf, run(kf, *batched(y), start=prior()), lag=lag)
    assert_close(smoothed.mean[0, :-lag], means[lag:, -3:, 0])
    assert_close(smoothed.cov[0, :-lag], covs[lag:, -3:, -3:])


def test_a_fixed_lag_is_more_accurate_than_filterpys_approximation(rng):
    """filterpy's smoother takes one gain for all lags; on simulated data it must lose against the exact one."""
    matrices = {name: value for name, value in linear_matrices(full=True).items() if name != "B"}
    F, H, Q, R = (matrices[name].numpy() for name in "FHQR")
    x, states, lag = rng.multivariate_normal(MEAN, COV), [], 4
    for _ in range(400):
        x = F @ x + rng.multivariate_normal(np.zeros(3), Q)
        states.append(x)
    states = np.stack(states)
    y = states @ H.T + rng.multivariate_normal(np.zeros(2), R, 400)
    theirs = FixedLagSmoother(3, 2, N=lag)
    theirs.F, theirs.H, theirs.Q, theirs.R = F, H, Q, R
    theirs.x, theirs.P = MEAN[:, None], COV
    for sample in y:
        theirs.smooth(sample[:, None])
    kf = fwnkf.build("kf", **matrices)
    track = run(kf, *batched(y), start=prior())
    mine = fwnkf.smooth(kf, track, lag=lag).mean[0].numpy()
    errors = [
        ((estimate - states) ** 2).mean()
        for estimate in (mine, np.stack(theirs.xSmooth)[..., 0], track.mean[0].numpy())
    ]
    assert errors[0] < 0.95 * min(errors[1:])


@pytest.mark.parametrize("prior_at", ["first_measurement", "before_first_step"])
def test_smoothed_moments_are_statsmodels(rng, prior_at):
    """With missing channels, and the autocovariance of neighbouring steps."""
    matrices = linear_matrices(full=True)
    F, H, Q, R = (matrices[name].numpy() for name in "FHQR")
    y, _, mask = record(rng)
    theirs = MLEModel(np.where(mask, y, np.nan), k_states=3, k_posdef=3)
    for name, value in (("transition", F), ("design", H), ("state_cov", Q), ("obs_cov", R), ("selection", np.eye(3))):
        theirs.ssm[name] = value
    if prior_at == "first_measurement":
        theirs.ssm.initialize_known(MEAN, COV)
    else:
        theirs.ssm.initialize_known(F @ MEAN, F @ COV @ F.T + Q)
    expected = theirs.ssm.smooth()
    kf = fwnkf.build("kf", **matrices)
    y, mask = batched(y, mask)
    smoothed = fwnkf.smooth(kf, kf.run(y, None, mask, prior=prior(), prior_at=prior_at, smoothing=True))
    assert_close(smoothed.mean[0], expected.smoothed_state.T)
    assert_close(smoothed.cov[0], np.moveaxis(expected.smoothed_state_cov, -1, 0))
    autocov = np.moveaxis(expected.smoothed_state_autocov, -1, 0)[:-1]  # Cov(x_{t+1}, x_t)
    assert_close(smoothed.cross_cov[0], autocov.swapaxes(1, 2))


# ---- properties ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lag", [1, 4])
def test_a_fixed_lag_is_the_fixed_interval_of_the_data_up_to_it(rng, lag):
    model, _ = with_noise_states()
    y, _, mask = record(rng)
    y, mask = batched(y, mask)
    smoothed = fwnkf.smooth(model, run(model, y, None, mask, start=prior()), lag=lag)
    for t in range(STEPS):
        stop = t + lag + 1
        whole = fwnkf.smooth(model, run(model, y[:, :stop], None, mask[:, :stop], start=prior()))
        assert_close(smoothed.mean[:, t], whole.mean[:, t], "rounding")
        assert_close(smoothed.cov[:, t], whole.cov[:, t], "rounding")
        assert_close(smoothed.noise.mean[:, t], whole.noise.mean[:, t], "rounding")


@pytest.mark.parametrize("chunk", [1, 4, 15, 100])
def test_chunks_equal_the_whole(rng, chunk):
    model, _ = with_noise_states()
    y, _, mask = record(rng)
    y, mask = batched(y, mask)
    whole = fwnkf.smooth(model, run(model, y, None, mask, start=prior()))
    pieces = fwnkf.smooth_in_chunks(model, y, None, mask, chunk=chunk, state=model.init(1, prior()))
    for name in ("mean", "cov", "cross_cov"):
        assert_close(getattr(pieces, name), getattr(whole, name), "rounding")
    for mine, theirs in zip(pieces.noise, whole.noise, strict=True):
        assert_close(mine, theirs, "rounding")


def test_recording_for_smoothing_changes_no_bit_of_the_run(rng):
    model, _ = with_noise_states()
    y, _, mask = record(rng)
    y, mask = batched(y, mask)
    with_record, without = run(model, y, None, mask), model.run(y, None, mask)
    assert without.linear is None
    for name in ("mean", "cov", "prior_mean", "prior_cov", "innovation", "innovation_cov"):
        assert torch.equal(getattr(with_record, name), getattr(without, name)), name


def test_preprocessing_and_calibration_are_those_of_the_filter(rng):
    """Blocks of two raw samples are averaged; the factors scale covariances and leave means alone."""
    matrices = linear_matrices()
    kf = fwnkf.build("kf", **matrices)
    raw = torch.as_tensor(rng.standard_normal((1, 2 * STEPS, 2)))
    u = torch.as_tensor(rng.standard_normal((1, 2 * STEPS, 1)))
    plain = fwnkf.smooth(kf, run(kf, raw.unflatten(1, (-1, 2)).mean(2), u.unflatten(1, (-1, 2)).mean(2), start=prior()))
    kf.preprocess = Calibration(CalibrationConfig(channels=2, block=2), kf.system).double()
    kf.calibrate_covariance(torch.tensor([4.0, 1.0, 0.25]))
    smoothed = fwnkf.smooth(kf, run(kf, raw, u, start=prior()))
    pieces = fwnkf.smooth_in_chunks(kf, raw, u, chunk=4, state=kf.init(1, prior()))
    root = torch.tensor([2.0, 1.0, 0.5]).double()
    for result in (smoothed, pieces):
        assert_close(result.mean, plain.mean, "rounding")
        assert_close(result.cov, plain.cov * root * root[:, None], "rounding")
        assert_close(result.cross_cov, plain.cross_cov * root * root[:, None], "rounding")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("seed", range(8))
def test_covariances_are_positive_and_below_the_filtered_ones(dtype, seed):
    """Random systems: units from 1e-4 to 1e4, some directions without noise or known exactly, a wide prior, gaps."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    n, m, steps = 4 + seed % 3, 1 + seed % 2, 60
    scale = 10 ** (2 * normal(n)).clamp(-4, 4)
    F = torch.eye(n, dtype=torch.float64) + 0.2 * normal(n, n)
    F = F / max(1.0, float(torch.linalg.eigvals(F).abs().max()))
    root = normal(n, n - seed % 3) * 0.1
    prior_root = 30 * normal(n, n - seed % 2)
    F, Q = scale[:, None] * F / scale, scale[:, None] * (root @ root.mT) * scale
    H = normal(m, n) / scale
    start = fwnkf.Gaussian(scale * normal(n), scale[:, None] * (prior_root @ prior_root.mT) * scale)
    kf = fwnkf.build("kf", F=F, H=H, Q=0.5 * (Q + Q.mT), R=0.1 * torch.eye(m, dtype=torch.float64)).to(dtype)
    y = normal(2, steps, m).to(dtype)
    mask = torch.rand(2, steps, m, generator=generator) < 0.7
    track = kf.run(y, None, mask, prior=fwnkf.Gaussian(start.mean.to(dtype), start.cov.to(dtype)), smoothing=True)
    for lag in (None, 3):
        smoothed = fwnkf.smooth(kf, track, lag=lag)
        assert bool((smoothed.cov == smoothed.cov.mT).all())
        unit = scale[:, None] * scale
        eigenvalues = torch.linalg.eigvalsh(smoothed.cov.double() / unit)
        eps = torch.finfo(dtype).eps
        assert bool((eigenvalues[..., 0] >= -20 * eps * eigenvalues[..., -1]).all())
        gained = torch.linalg.eigvalsh((track.cov - smoothed.cov).double() / unit)
        largest = torch.linalg.eigvalsh(track.prior_cov.double() / unit)[..., -1].amax(1, keepdim=True)
        assert bool((gained[..., 0] >= -50 * eps * largest).all())


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_float32_agrees_with_float64(rng):
    model, _ = with_noise_states()
    y = torch.as_tensor(rng.standard_normal((2, 300, 2)))
    expected = fwnkf.smooth(model, run(model, y, start=prior()))
    single = model.float()
    start = fwnkf.Gaussian(*(item.float() for item in prior()))
    smoothed = fwnkf.smooth(single, run(single, y.float(), start=start))
    for name in ("mean", "cov"):
        torch.testing.assert_close(getattr(smoothed, name).double(), getattr(expected, name), rtol=2e-3, atol=2e-4)


# ---- errors --------------------------------------------------------------------------------------------------------


def test_a_trajectory_without_linear_models_says_how_to_get_them(rng):
    kf = fwnkf.build("kf", **linear_matrices())
    track = kf.run(torch.zeros(1, 3, 2, dtype=torch.float64))
    with pytest.raises(ConfigError, match="smoothing=True"):
        fwnkf.smooth(kf, track)
    with pytest.raises(ConfigError, match="lag = -1"):
        fwnkf.smooth(kf, run(kf, torch.zeros(1, 3, 2, dtype=torch.float64)), lag=-1)


def test_a_filter_without_a_covariance_recursion_cannot_be_smoothed():
    rkn = fwnkf.build("rkn", state_dim=3, observation_dim=2)
    with pytest.raises(ConfigError, match=r"'rkn' cannot be smoothed.*'ekf'"):
        rkn.run(torch.zeros(1, 3, 2), smoothing=True)


# ---- the page ------------------------------------------------------------------------------------------------------


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_the_page_runs():
    page = (Path(__file__).parents[2] / "docs" / "howto" / "smooth.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 3
    exec("\n".join(blocks), names)
    shapes = [tuple(getattr(names["smoothed"], name).shape) for name in ("mean", "cov", "cross_cov")]
    assert shapes == [(8, 500, 2), (8, 500, 2, 2), (8, 499, 2, 2)]
