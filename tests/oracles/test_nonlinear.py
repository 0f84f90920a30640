"""EKF and UKF against plain numpy, filterpy and simulation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from filterpy.kalman import MerweScaledSigmaPoints, UnscentedKalmanFilter

import fwnkf

from .. import systems
from ..tolerances import assert_close


def wrap(angle):
    return (angle + np.pi) % (2 * np.pi) - np.pi


def simulate(system, generator, runs, steps, prior, dt=None, u=None):
    """Truth and measurements drawn from the system's own noise, started from the prior."""
    like = prior.mean
    layout = system.layout
    x = layout.boxplus(prior.mean.expand(runs, -1), draw(prior.cov.expand(runs, -1, -1), generator))
    states, measurements = [], []
    R = system.measurement_covariance().expand(runs, -1, -1)
    for t in range(steps):
        step = None if dt is None else dt[:, t]
        x = system.transition(x, None if u is None else u[:, t], step)
        Q = system.process_noise(step)
        x = layout.boxplus(x, draw(Q.expand(runs, *Q.shape[-2:]), generator))
        states.append(x)
        measurements.append(system.observe(x) + draw(R, generator))
    assert states[0].dtype == like.dtype
    return torch.stack(states, 1), torch.stack(measurements, 1)


def draw(cov, generator):
    noise = torch.randn(cov.shape[:-1], generator=generator, dtype=cov.dtype)
    return (torch.linalg.cholesky(cov) @ noise.unsqueeze(-1)).squeeze(-1)


def nees(system, trajectory, truth):
    """Mean squared error in units of the stated covariance, per dimension: 1 for a consistent filter."""
    error = system.layout.boxminus(truth, trajectory.mean)
    weighted = torch.linalg.solve(trajectory.cov, error.unsqueeze(-1)).squeeze(-1)
    return (error * weighted).sum(-1).mean(0) / system.layout.tangent_size


@pytest.mark.parametrize("full", [False, True], ids=["diagonal R", "full R"])
@pytest.mark.parametrize("name", ["ekf", "ukf"])
def test_on_a_linear_system_both_are_the_kalman_filter(rng, name, full):
    irregular = torch.as_tensor(rng.uniform(0.05, 0.5, (3, 25)))
    for matrices, options, dt in (
        (systems.linear_matrices(full=full), {}, None),
        (systems.continuous_matrices(full=full), {"continuous": True}, irregular),
    ):
        y, u = (torch.as_tensor(rng.standard_normal((3, 25, k))) for k in (2, 1))
        mask = torch.as_tensor(rng.random((3, 25, 2)) < 0.7)
        system = fwnkf.LinearSystem.of(**matrices, **options)
        mine = fwnkf.build(name, system=system).run(y, u, mask, dt)
        theirs = fwnkf.build("kf", **matrices, **options).run(y, u, mask, dt)
        assert torch.equal(mine.status, theirs.status)
        for field in fwnkf.StepOutput._fields[:-1]:
            assert_close(getattr(mine, field), getattr(theirs, field))


def numpy_pendulum_ekf(system, mean, cov, y, u, mask, dt):
    """An EKF written for this pendulum alone, Jacobians by hand, masked rows dropped."""
    length, damping = system.config.length, system.config.damping
    R = system.measurement_covariance().numpy()
    x, P = mean.numpy(), cov.numpy()
    means, covs = [], []
    for t in range(len(y)):
        h = dt[t]
        theta, omega = x
        F = np.array([[1, h], [-systems.GRAVITY / length * np.cos(theta) * h, 1 - damping * h]])
        rate = -systems.GRAVITY / length * np.sin(theta) - damping * omega + u[t, 0]
        x = np.array([wrap(theta + h * omega), omega + h * rate])
        P = F @ P @ F.T + system.process_noise(torch.tensor([h])).numpy()[0]
        rows = np.flatnonzero(mask[t])
        H = length * np.array([[np.cos(x[0]), 0], [np.sin(x[0]), 0]])[rows]
        predicted = length * np.array([np.sin(x[0]), -np.cos(x[0])])[rows]
        S = H @ P @ H.T + R[np.ix_(rows, rows)]
        K = P @ H.T @ np.linalg.inv(S)
        x = x + K @ (y[t, rows] - predicted)
        x[0] = wrap(x[0])
        P = (np.eye(2) - K @ H) @ P
        means.append(x.copy())
        covs.append(P)
    return np.stack(means), np.stack(covs)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
@pytest.mark.parametrize("correlation", [0.0, 0.5])
@pytest.mark.parametrize("make", [systems.pendulum, systems.analytic_pendulum])
def test_ekf_on_the_pendulum_equals_a_numpy_ekf(generator, rng, make, correlation):
    """Starts near the top and fast enough to rotate over it: the angle wraps many times."""
    system = make(correlation=correlation)
    prior = fwnkf.Gaussian(torch.tensor([3.0, 7.0]).double(), torch.diag(torch.tensor([0.02, 0.1]).double()))
    dt = torch.as_tensor(rng.uniform(0.005, 0.03, (1, 300)))
    u = torch.as_tensor(rng.standard_normal((1, 300, 1)) + 1.0)
    truth, y = simulate(system, generator, 1, 300, prior, dt, u)
    mask = torch.as_tensor(rng.random((1, 300, 2)) < 0.8)
    trajectory = fwnkf.build("ekf", system=system).run(y, u, mask, dt, prior, prior_at="before_first_step")
    means, covs = numpy_pendulum_ekf(system, *prior, *(x[0].numpy() for x in (y, u, mask, dt)))
    assert_close(wrap(trajectory.mean[0, :, 0].numpy() - means[:, 0]), np.zeros(300))
    assert_close(trajectory.mean[0, :, 1], means[:, 1])
    assert_close(trajectory.cov[0], covs)
    jumps = (truth[0, 1:, 0] - truth[0, :-1, 0]).abs() > np.pi
    assert int(jumps.sum()) >= 3  # the angle wrapped


@pytest.mark.parametrize("correlation", [0.0, 0.4])
@pytest.mark.parametrize(("alpha", "beta", "kappa"), [(0.5, 2.0, 0.0), (1.0, 0.0, 0.0)])
def test_ukf_is_filterpys(generator, rng, alpha, beta, kappa, correlation):
    """Partial measurements: rows are dropped in filterpy and masked in the filter."""
    system = systems.wave(correlation=correlation)
    steps = 40
    prior = fwnkf.Gaussian(torch.tensor([0.5, -0.3, 0.8]).double(), 0.3 * torch.eye(3).double())
    dt = torch.as_tensor(rng.uniform(0.02, 0.3, (1, steps)))
    u = torch.as_tensor(rng.standard_normal((1, steps, 1)))
    _, y = simulate(system, generator, 1, steps, prior, dt, u)
    mask = torch.as_tensor(rng.random((1, steps, 2)) < 0.7)
    mask[0, 5] = False
    trajectory = fwnkf.build("ukf", system=system, alpha=alpha, beta=beta, kappa=kappa).run(
        y, u, mask, dt, prior, prior_at="before_first_step"
    )

    def move(x, step, push):
        # written independently: the reference shares no code with the package
        a, b, c = x
        rate = np.array([b - 0.5 * np.sin(a), -a - 0.4 * b + push, 0.3 * np.tanh(a - c) - 0.1 * c])
        return x + step * rate

    def see(x, rows):
        a, b, c = x
        return np.array([a + 0.1 * np.sin(b), c + 0.2 * np.sin(a * 0.5) * np.cos(b)])[rows]

    theirs = UnscentedKalmanFilter(3, 2, 1.0, see, move, MerweScaledSigmaPoints(3, alpha, beta, kappa))
    theirs.x, theirs.P = prior.mean.numpy(), prior.cov.numpy()
    R = system.measurement_covariance().numpy()
    for t in range(steps):
        theirs.Q = system.process_noise(dt[:, t]).numpy()[0]
        theirs.predict(dt=dt[0, t].item(), push=u[0, t, 0].item())
        assert_close(trajectory.prior_mean[0, t], theirs.x)
        assert_close(trajectory.prior_cov[0, t], theirs.P)
        rows = np.flatnonzero(mask[0, t].numpy())
        if len(rows):
            theirs.update(y[0, t].numpy()[rows], R=R[np.ix_(rows, rows)], rows=rows)
            assert_close(trajectory.innovation[0, t, rows], theirs.y)
            assert_close(trajectory.innovation_cov[0, t][np.ix_(rows, rows)], theirs.S)
        assert_close(trajectory.mean[0, t], theirs.x)
        assert_close(trajectory.cov[0, t], theirs.P)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
@pytest.mark.parametrize("correlation", [0.0, 0.5], ids=["diagonal R", "full R"])
@pytest.mark.parametrize("name", ["ekf", "ukf"])
def test_the_attitude_estimate_is_consistent(generator, name, correlation):
    """NEES on simulated rotations, which is 1 only if mean, correction, Jacobian and covariance share a tangent space.

    The prior is far from the identity and anisotropic (0.3 rad about one body axis, 0.03 about the others), so that a
    covariance in the wrong frame fails the test.
    """
    system = systems.attitude(correlation=correlation)
    runs, steps = 200, 150
    start = system.layout.boxplus(
        system.layout.origin(torch.zeros(()).double()), torch.tensor([1.0, -0.7, 0.4, 0.02, -0.03, 0.05]).double()
    )
    prior = fwnkf.Gaussian(start, torch.tensor([0.3, 0.03, 0.03, 0.02, 0.02, 0.02]).double().square().diag())
    time = torch.arange(steps).double() * 0.05
    rates = torch.stack((time.sin() * 1.5, torch.full_like(time, 0.8), (0.7 * time).cos() * 2), -1)
    u = rates.expand(runs, -1, -1)
    truth, y = simulate(system, generator, runs, steps, prior, u=u)
    trajectory = (
        fwnkf.build(name, system=system).run(y, u, prior=prior, prior_at="before_first_step").raise_for_status()
    )
    scores = nees(system, trajectory, truth)
    assert 0.9 < scores.mean() < 1.1
    # at any single time the mean over the runs has a standard deviation of √(2 / (6 · 200)) = 0.04
    assert scores.min() > 0.8
    assert scores.max() < 1.2


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
@pytest.mark.parametrize("name", ["ekf", "ukf"])
def test_the_pendulum_is_consistent_where_the_angle_wraps(generator, name):
    """The pendulum rotates over the top repeatedly: without wrapping the error would be 2π there."""
    system = systems.pendulum()
    runs, steps = 200, 200
    prior = fwnkf.Gaussian(torch.tensor([3.1, 8.0]).double(), torch.diag(torch.tensor([0.02, 0.1]).double()))
    u = torch.ones(runs, steps, 1).double()
    truth, y = simulate(system, generator, runs, steps, prior, u=u)
    trajectory = (
        fwnkf.build(name, system=system).run(y, u, prior=prior, prior_at="before_first_step").raise_for_status()
    )
    crossings = ((truth[:, 1:, 0] - truth[:, :-1, 0]).abs() > np.pi).sum()
    assert crossings > 3 * runs
    assert bool((trajectory.mean[..., 0].abs() <= np.pi).all())
    scores = nees(system, trajectory, truth)
    assert 0.9 < scores.mean() < 1.1
    assert scores.min() > 0.6  # √(2 / (2 · 200)) = 0.07 at any single time
    assert scores.max() < 1.4


def test_the_ukf_accepts_a_known_initial_state():
    """With zero initial covariance the UKF agrees with the EKF and sets no status."""
    system = systems.pendulum()
    u = torch.zeros(2, 30, 1).double()
    x = torch.tensor([[0.4, -0.2], [2.0, 0.5]]).double()
    prior = fwnkf.Gaussian(x, torch.zeros(2, 2).double())
    clean = []
    for t in range(30):
        x = system.transition(x, u[:, t], None)
        clean.append(system.observe(x))
    y = torch.stack(clean, 1)
    ours, theirs = (
        fwnkf.build(name, system=system).run(y, u, prior=prior, prior_at="before_first_step") for name in ("ukf", "ekf")
    )
    ours.raise_for_status()
    assert float(system.layout.boxminus(ours.mean, theirs.mean).abs().max()) < 1e-2
