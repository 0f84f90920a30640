"""The autoregressive filter against statsmodels' SARIMAX and a reading in numpy, coefficients given and learned."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import block_diag
from statsmodels.tsa.statespace.sarimax import SARIMAX

import fwnkf
from fwnkf.errors import ConfigError

from ..tolerances import assert_close

COEFFICIENTS = np.array([1.2, -0.5, 0.15])
PROCESS, NOISE, START = 0.7, 0.4, 2.0
"""Variances of the driving noise, of the measurement noise, and of each state before the first step."""


def series(rng, steps):
    """A simulated autoregression, measured in white noise."""
    x = list(rng.normal(0, START**0.5, len(COEFFICIENTS)))
    for _ in range(steps):
        x.append(COEFFICIENTS @ x[: -len(COEFFICIENTS) - 1 : -1] + rng.normal(0, PROCESS**0.5))
    return np.array(x[-steps:]) + rng.normal(0, NOISE**0.5, steps)


def sarimax(y, coefficients):
    """SARIMAX with measurement error, its state being that of the first measurement, from independent lags.

    Its state is in Harvey's form: the present value, and sums of coefficients times lagged values.
    """
    order = len(coefficients)
    model = SARIMAX(y, order=(order, 0, 0), measurement_error=True, enforce_stationarity=False)
    harvey = np.zeros((order, order))
    harvey[0, 0] = 1
    for i in range(1, order):
        for j in range(1, order - i + 1):
            harvey[i, j] = coefficients[i + j - 1]
    model.ssm.initialize_known(np.zeros(order), START * harvey @ harvey.T)
    model.loglikelihood_burn = 0  # the start is known: every step counts
    return model


def arkf(coefficients, process, noise, **options):
    F = torch.as_tensor(np.asarray(coefficients, float))[:, None, None]
    one = torch.eye(1, dtype=torch.float64)
    return fwnkf.build("arkf", F=F, H=one, Q=process * one, R=noise * one, **options)


def run(model, y):
    prior = fwnkf.Gaussian(torch.zeros(1, dtype=torch.float64), START * torch.eye(1, dtype=torch.float64))
    return model.run(torch.as_tensor(y)[None, :, None], prior=prior)


def test_estimates_and_likelihood_are_those_of_sarimax(rng):
    y = series(rng, 60)
    theirs = sarimax(y, COEFFICIENTS).smooth(np.concatenate((COEFFICIENTS, [NOISE, PROCESS])))
    track = run(arkf(COEFFICIENTS, PROCESS, NOISE), y)
    assert_close(track.mean[0, :, 0], theirs.filtered_state[0])
    assert_close(track.cov[0, :, 0, 0], theirs.filtered_state_cov[0, 0])
    assert_close(track.log_likelihood[0], np.float64(theirs.llf))


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
@pytest.mark.filterwarnings("ignore")  # of the optimizer of statsmodels, about its steps
def test_coefficients_learned_by_likelihood_are_those_that_sarimax_estimates(rng):
    y = series(rng, 60)
    start = [0.5, 0.0]

    def their_likelihood(values):
        model = sarimax(y, values[:2])  # the initial covariance depends on the coefficients in Harvey's form
        return model.loglike(values)

    model = arkf(start, 1.0, 1.0, learn=("F", "Q", "R"))
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=25, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = -run(model, y).log_likelihood[0]
        loss.backward()
        return loss

    before = -float(closure().detach())
    optimizer.step(closure)
    learned = np.array([*model.coefficients.detach().flatten(), *(float(c.detach()) for c in noises(model))])
    ours = float(run(model, y).log_likelihood.detach())
    assert ours == pytest.approx(their_likelihood(learned), rel=1e-9)  # the likelihood means the same
    assert ours > before + 2
    # nothing nearby is likelier by SARIMAX's own account
    for number in range(4):
        for factor in (0.97, 1.03):
            moved = learned.copy()
            moved[number] *= factor
            assert their_likelihood(moved) < ours + 1e-3, number


def noises(model):
    """Variances of measurement and process, in the order of SARIMAX's parameters."""
    return model.noise.R(), model.noise.Q()


def test_known_lags_are_an_autoregression_of_past_estimates(rng):
    """As a plain loop: past estimates are constants, and the covariance is that of the last lag's matrix alone."""
    n, order = 2, 3
    F = rng.standard_normal((order, n, n)) * 0.3
    H, Q, R = rng.standard_normal((1, n)), np.diag([0.3, 0.5]), np.array([[0.2]])
    y = rng.standard_normal((12, 1))
    mean, cov = np.array([0.5, -1.0]), np.array([[1.0, 0.2], [0.2, 0.6]])
    model = fwnkf.build(
        "arkf", **{name: torch.as_tensor(value) for name, value in zip("FHQR", (F, H, Q, R), strict=True)}, lags="known"
    )
    prior = fwnkf.Gaussian(torch.as_tensor(mean), torch.as_tensor(cov))
    track = model.run(torch.as_tensor(y)[None], prior=prior, prior_at="before_first_step")
    past = [mean] * order
    for t in range(len(y)):
        predicted, cov = sum(F[i] @ past[i] for i in range(order)), F[0] @ cov @ F[0].T + Q
        gain = cov @ H.T / (H @ cov @ H.T + R)
        mean, cov = predicted + gain @ (y[t] - H @ predicted), (np.eye(n) - gain @ H) @ cov
        past = [mean, *past[:-1]]
        assert_close(track.mean[0, t], mean)
        assert_close(track.cov[0, t], cov)
    with pytest.raises(ConfigError, match=r"lags='known' cannot be smoothed.*lags='estimated'"):
        model.run(torch.as_tensor(y)[None], prior=prior, smoothing=True)


def test_lags_before_the_start_are_a_random_walk_back_from_the_prior(rng):
    """Against the joint Gaussian of lags and states, drawn out: x₀ of the prior, each earlier state a step away."""
    n, order, steps = 2, 3, 4
    F = rng.standard_normal((order, n, n)) * 0.4
    H, Q, R, step_cov = np.eye(1, n), np.diag([0.3, 0.5]), np.array([[0.2]]), np.array([[0.5, 0.1], [0.1, 0.9]])
    mean, cov = np.array([0.5, -1.0]), np.zeros((n, n))  # an exact prior
    y = rng.standard_normal((steps, 1))
    names = ("F", "H", "Q", "R", "step_cov")
    model = fwnkf.build("arkf", **dict(zip(names, map(torch.as_tensor, (F, H, Q, R, step_cov)), strict=True)))
    track = model.run(torch.as_tensor(y)[None], prior=fwnkf.Gaussian(torch.as_tensor(mean), torch.as_tensor(cov)))
    # every state as a linear function of independent causes: two steps back, then the process noises
    causes = (order - 1 + steps - 1) * n
    maps = [np.zeros((n, causes)) for _ in range(order)]  # x₀, x₋₁, x₋₂
    for lag in range(1, order):
        maps[lag] = maps[lag - 1].copy()
        maps[lag][:, (lag - 1) * n : lag * n] += np.eye(n)
    means = [mean] * order
    spread = block_diag(*[step_cov] * (order - 1), *[Q] * (steps - 1))
    states, state_means = [maps[0]], [mean]
    for t in range(1, steps):
        new = sum(F[i] @ maps[i] for i in range(order))
        at = (order - 1 + t - 1) * n
        new[:, at : at + n] += np.eye(n)
        maps, means = [new, *maps[:-1]], [sum(F[i] @ means[i] for i in range(order)), *means[:-1]]
        states.append(new)
        state_means.append(means[0])
    for t in range(steps):
        G = np.concatenate([H @ states[i] for i in range(t + 1)])
        S = G @ spread @ G.T + R[0, 0] * np.eye(t + 1)
        gain = states[t] @ spread @ G.T @ np.linalg.inv(S)
        residual = y[: t + 1, 0] - np.concatenate([H @ state_means[i] for i in range(t + 1)])
        assert_close(track.mean[0, t], state_means[t] + gain @ residual)
        assert_close(track.cov[0, t], states[t] @ spread @ states[t].T - gain @ S @ gain.T)


def test_angles_are_measured_along_the_arc_and_not_wrapped():
    F = torch.tensor([[[2.0]], [[-1.0]]], dtype=torch.float64)  # a constant rate: the angle passes ±π
    one = torch.eye(1, dtype=torch.float64)
    layout = (("angle", "angle", 1),)
    model = fwnkf.build("arkf", F=F, H=one, Q=1e-6 * one, R=1e-6 * one, layout=layout)
    y = torch.linspace(0, 6, 13, dtype=torch.float64)[None, :, None]
    track = model.run(y, prior=fwnkf.Gaussian(torch.zeros(1).double(), one))
    assert float(track.mean[0, -1, 0]) == pytest.approx(6.0, abs=1e-3)
    wrapped = torch.remainder(y + torch.pi, 2 * torch.pi) - torch.pi
    assert float(model.layout.boxminus(track.mean, wrapped)[:, 2:].abs().max()) < 1e-2
    with pytest.raises(ConfigError, match="linear in its state, which a rotation is not"):
        fwnkf.build("arkf", state_dim=4, observation_dim=1, layout=(("q", "quaternion", 4),))
