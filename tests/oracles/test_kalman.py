"""The Kalman filter against filterpy, and against the joint posterior with masks and irregular steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from filterpy.kalman import KalmanFilter
from scipy.integrate import quad_vec
from scipy.linalg import expm

import fwnkf
from fwnkf.core.gaussian import log_prob

from ..systems import continuous_matrices, linear_matrices
from ..tolerances import assert_close
from .joint import autoregressive_causes, joint_posterior

STEPS = 15
MEAN = np.array([0.5, -1.0, 0.2])
COV = np.array([[1.0, 0.3, 0.0], [0.3, 0.8, -0.2], [0.0, -0.2, 0.5]])


def prior():
    return fwnkf.Gaussian(torch.as_tensor(MEAN), torch.as_tensor(COV))


def record(rng, channels=2, steps=STEPS):
    """Measurements, controls, a random mask per channel with an empty and a full step, and irregular steps."""
    y = rng.standard_normal((steps, channels)) * 2
    u = rng.standard_normal((steps, 1))
    mask = rng.random((steps, channels)) < 0.6
    mask[3], mask[4] = False, True
    dt = rng.uniform(0.01, 0.8, steps)
    return y, u, mask, dt


def batched(*arrays):
    return [torch.as_tensor(array)[None] for array in arrays]


def compare(trajectory, expected, kind="joint"):
    for name in ("mean", "cov", "prior_mean", "prior_cov"):
        assert_close(getattr(trajectory, name)[0], getattr(expected, name), kind)
    assert not trajectory.status.any()


def test_kf_is_filterpys(rng):
    matrices = linear_matrices(full=True)
    y, u, mask, _ = record(rng)
    theirs = KalmanFilter(3, 2, 1)
    theirs.F, theirs.H, theirs.Q, theirs.R, theirs.B = (matrices[name].numpy() for name in "FHQRB")
    theirs.x, theirs.P = MEAN[:, None], COV
    trajectory = fwnkf.build("kf", **matrices).run(*batched(y, u, mask), prior=prior(), prior_at="before_first_step")
    for t in range(STEPS):
        theirs.predict(u=u[t][:, None])
        assert_close(trajectory.prior_mean[0, t], theirs.x[:, 0])
        assert_close(trajectory.prior_cov[0, t], theirs.P)
        rows = np.flatnonzero(mask[t])
        if len(rows):
            theirs.update(
                y[t, rows][:, None],
                R=matrices["R"].numpy()[np.ix_(rows, rows)],
                H=matrices["H"].numpy()[rows],
            )
            assert_close(trajectory.innovation[0, t, rows], theirs.y[:, 0])
        assert_close(trajectory.mean[0, t], theirs.x[:, 0])
        assert_close(trajectory.cov[0, t], theirs.P)


@pytest.mark.parametrize(
    ("full", "solve"),
    [(full, solve) for full in (False, True) for solve in ("auto", "cholesky", "unrolled")]
    + [(False, "sequential"), (False, "square_root"), (True, "square_root")],
)
def test_discrete_kf_is_the_joint_posterior(rng, full, solve):
    matrices = linear_matrices(full=full)
    y, u, mask, _ = record(rng)
    F, B, H, Q, R = (matrices[name].numpy() for name in "FBHQR")
    causes = autoregressive_causes([MEAN], [COV], [[F]] * STEPS, u @ B.T, [Q] * STEPS)
    expected = joint_posterior(causes, H, R, y, mask)
    compare(
        fwnkf.build("kf", **matrices, solve=solve).run(
            *batched(y, u, mask), prior=prior(), prior_at="before_first_step"
        ),
        expected,
    )


@pytest.mark.parametrize("full", [False, True], ids=["diagonal R", "full R"])
def test_continuous_kf_with_irregular_steps_is_the_joint_posterior(rng, full):
    """Masks and irregular dt together; F from expm and Q from quadrature, not from the package."""
    matrices = continuous_matrices(full=full)
    y, u, mask, dt = record(rng)
    A, B, H, density, R = (matrices[name].numpy() for name in "FBHQR")
    Fs, pushes, Qs = [], [], []
    for step, push in zip(dt, u, strict=True):
        Fs.append([expm(A * step)])
        held, _ = quad_vec(lambda s: expm(A * s) @ B, 0, step, epsabs=1e-13, epsrel=1e-13)
        pushes.append(held @ push)
        Qs.append(quad_vec(lambda s: expm(A * s) @ density @ expm(A.T * s), 0, step, epsabs=1e-13, epsrel=1e-13)[0])
    expected = joint_posterior(autoregressive_causes([MEAN], [COV], Fs, pushes, Qs), H, R, y, mask)
    kf = fwnkf.build("kf", **matrices, continuous=True)
    trajectory = kf.run(*batched(y, u, mask, dt), prior=prior(), prior_at="before_first_step")
    compare(trajectory, expected)
    logs, ok = log_prob(trajectory.innovation, trajectory.innovation_cov, torch.as_tensor(mask).double()[None])
    assert bool(ok.all())
    assert_close(logs.sum(), np.float64(expected.log_likelihood), "joint")


@pytest.mark.parametrize("order", [1, 2, 3])
def test_arkf_is_the_joint_posterior_of_the_autoregression(rng, order):
    matrices = linear_matrices(full=True)
    lags = np.stack([matrices["F"].numpy() * 0.6**i * (-1) ** i for i in range(order)])
    y, u, mask, _ = record(rng)
    B, H, Q, R = (matrices[name].numpy() for name in "BHQR")
    causes = autoregressive_causes([MEAN] * order, [COV] * order, [lags] * STEPS, u @ B.T, [Q] * STEPS)
    expected = joint_posterior(causes, H, R, y, mask)
    arkf = fwnkf.build("arkf", **{**matrices, "F": torch.as_tensor(lags)})
    compare(arkf.run(*batched(y, u, mask), prior=prior(), prior_at="before_first_step"), expected)


def test_arkf_of_order_one_is_the_kf(rng):
    matrices = linear_matrices()
    y, u, mask, _ = record(rng)
    arkf = fwnkf.build("arkf", **{**matrices, "F": matrices["F"][None]}).run(
        *batched(y, u, mask), prior=prior(), prior_at="before_first_step"
    )
    kf = fwnkf.build("kf", **matrices).run(*batched(y, u, mask), prior=prior(), prior_at="before_first_step")
    for name in fwnkf.StepOutput._fields:
        assert torch.equal(getattr(arkf, name), getattr(kf, name)), name


@pytest.mark.parametrize("kind", ["kf", "arkf"])
def test_every_learned_parameter_has_a_gradient(kind):
    matrices = linear_matrices(torch.float32, full=True)
    if kind == "arkf":
        matrices["F"] = torch.stack((matrices["F"], -0.2 * matrices["F"]))
    model = fwnkf.build(kind, **matrices, learn=("F", "B", "H", "Q", "R"))
    generator = torch.Generator().manual_seed(1)
    y, u = torch.randn(4, 20, 2, generator=generator), torch.randn(4, 20, 1, generator=generator)
    trajectory = model.run(y, u)
    (-log_prob(trajectory.innovation, trajectory.innovation_cov)[0].mean()).backward()
    parameters = dict(model.named_parameters())
    assert len(parameters) == 7  # F, B, H and two each for Q and R
    for name, parameter in parameters.items():
        assert bool((parameter.grad != 0).all()), name
        assert bool(parameter.grad.isfinite().all()), name


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
@pytest.mark.parametrize("kind", ["kf", "arkf"])
def test_covariances_stay_definite_at_a_very_high_learning_rate_in_float32(kind):
    """Q, R and every P stay positive during 200 Adam steps at rate 0.3."""
    generator = torch.Generator().manual_seed(2)
    matrices = linear_matrices(torch.float32, full=True)
    if kind == "arkf":
        matrices["F"] = torch.stack((matrices["F"], -0.2 * matrices["F"]))
    model = fwnkf.build(kind, **matrices, learn=("F", "B", "H", "Q", "R"))
    linear = model.system if kind == "kf" else model.noise
    optimizer = torch.optim.Adam(model.parameters(), lr=0.3)
    y, u = torch.randn(4, 6, 2, generator=generator), torch.randn(4, 6, 1, generator=generator)
    moved = 0.0
    for _ in range(200):
        optimizer.zero_grad()
        trajectory = model.run(y, u).raise_for_status()
        loss = -log_prob(trajectory.innovation, trajectory.innovation_cov)[0].mean() + trajectory.mean.square().mean()
        loss.backward()
        optimizer.step()
        for cov in (linear.Q(), linear.R()):
            eigenvalues = torch.linalg.eigvalsh(cov.detach().double())
            assert eigenvalues[0] > 0
        eigenvalues = torch.linalg.eigvalsh(trajectory.cov.detach().double())
        assert bool((eigenvalues[..., 0] >= -1e-6 * eigenvalues[..., -1]).all())
        moved = max(moved, (linear.Q() - matrices["Q"]).abs().max().item())
    assert moved > 0.05  # the parameters changed, so the test does not check the initial values only
