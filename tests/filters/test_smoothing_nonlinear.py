"""Smoothing of nonlinear filters against a point-mass smoother and batch least squares, and of every filter in turn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

import fwnkf
from fwnkf.errors import ConfigError

from .. import systems
from ..conformance.cases import CASES
from ..conformance.test_conformance import make_inputs, make_prior
from ..tolerances import assert_close

NOT_SMOOTHED = {
    *("kalmannet", "kalmannet-attitude", "bayesian-kalmannet", "rkn"),  # no linear model
    *("hypotheses-levels", "hypotheses-onsets"),  # hypotheses that interact
    *("orders", "orders-linear", "everything"),  # speeds of rotors are measured beside y
    *("correction", "correction-level", "correction-attitude"),  # follows from no model of the state
}
SMOOTHED = [name for name in CASES if name not in NOT_SMOOTHED]


# ---- every filter --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMOOTHED)
def test_every_filter_with_a_covariance_recursion_is_smoothed(name):
    """Symmetric positive covariances in float32; at the end the filter's own belief; chunks give the same."""
    case = CASES[name]
    model, inputs = case.build(torch.float32), make_inputs(case, torch.float32, batch=2, steps=30)
    start = make_prior(model, 2)
    with torch.no_grad():
        track = model.run(*inputs, prior=start, smoothing=True).raise_for_status()
    smoothed = fwnkf.smooth(model, track)
    assert bool(smoothed.mean.isfinite().all())
    assert bool((smoothed.cov == smoothed.cov.mT).all())
    eigenvalues = torch.linalg.eigvalsh(smoothed.cov.double())
    assert bool((eigenvalues[..., 0] >= -1e-6 * eigenvalues[..., -1]).all())
    assert torch.equal(smoothed.mean[:, -1], track.mean[:, -1])
    # the filter does not turn a covariance with its mean, and these corrections of a quaternion are large
    if all(part.kind != "quaternion" for part in model.layout.parts):
        largest = track.cov[:, -1].abs().amax((-2, -1), keepdim=True)
        assert bool(((smoothed.cov[:, -1] - track.cov[:, -1]).abs() <= 2e-3 * largest).all())
    pieces = fwnkf.smooth_in_chunks(model, *inputs, prior=start, chunk=12)
    assert_close(model.layout.boxminus(pieces.mean, smoothed.mean), torch.zeros_like(smoothed.cov[..., 0]), "batch")
    assert_close(pieces.cov, smoothed.cov, "batch")


@pytest.mark.parametrize("name", sorted(NOT_SMOOTHED))
def test_other_filters_say_that_they_cannot_be_smoothed(name):
    case = CASES[name]
    model, inputs = case.build(torch.float32), make_inputs(case, torch.float32, steps=3)
    with pytest.raises(ConfigError, match=f"'{case.filter}' cannot be smoothed"):
        model.run(*inputs, smoothing=True)


# ---- one dimension: the posterior on a grid --------------------------------------------------------------------------


@dataclass(frozen=True)
class BendConfig:
    dt: float = 1.0


class Bend(fwnkf.System):
    """``x⁺ = x + 0.4 sin x + w``, ``y = x + 0.1 x² + v``."""

    Config = BendConfig
    layout = fwnkf.Layout.euclidean(1)
    observation_layout = fwnkf.Layout.euclidean(1, "y")
    Q, R = 0.04, 0.09

    def __init__(self, config: BendConfig) -> None:
        super().__init__(config)
        self.register_buffer("one", torch.ones(1, 1, dtype=torch.float64))

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        return x + 0.4 * x.sin()

    def observe(self, x: Tensor) -> Tensor:
        return x + 0.1 * x.square()

    def process_noise(self, dt: Tensor | None) -> Tensor:
        return self.Q * self.one

    def measurement_covariance(self) -> Tensor:
        return self.R * self.one


def on_a_grid(y, mean, variance, points=2001):
    """Exact smoothed means and variances of :class:`Bend`, by sums over a grid."""
    x = np.linspace(-8, 8, points)
    move = np.exp(-0.5 * (x[None] - (x + 0.4 * np.sin(x))[:, None]) ** 2 / Bend.Q)
    seen = [np.exp(-0.5 * (value - x - 0.1 * x**2) ** 2 / Bend.R) for value in y]
    forward, density = [], np.exp(-0.5 * (x - mean) ** 2 / variance)
    for likelihood in seen:
        density = (density @ move) * likelihood
        density /= density.sum()
        forward.append(density)
    backward, later = [np.ones(points)], np.ones(points)
    for likelihood in seen[:0:-1]:
        later = move @ (likelihood * later)
        later /= later.sum()
        backward.append(later)
    means, variances = [], []
    for density, later in zip(forward, reversed(backward), strict=True):
        posterior = density * later / (density * later).sum()
        means.append(posterior @ x)
        variances.append(posterior @ x**2 - means[-1] ** 2)
    return np.array(means), np.array(variances)


@pytest.mark.parametrize("kind", ["ekf", "ekf-second-order", "ukf"])
@pytest.mark.parametrize("seed", range(4))
def test_in_one_dimension_it_is_close_to_the_posterior_on_a_grid(kind, seed):
    rng = np.random.default_rng(seed)
    x, states = rng.normal(1.0, 0.3), []
    for _ in range(25):
        x = x + 0.4 * np.sin(x) + np.sqrt(Bend.Q) * rng.standard_normal()
        states.append(x)
    y = np.array(states) + 0.1 * np.square(states) + np.sqrt(Bend.R) * rng.standard_normal(25)
    means, variances = on_a_grid(y, 1.0, 0.09)
    name, _, moments = kind.partition("-")
    model = fwnkf.build(name, system=Bend(BendConfig()), **({"moments": "second_order"} if moments else {}))
    prior = fwnkf.Gaussian(torch.tensor([1.0]).double(), torch.tensor([[0.09]]).double())
    track = model.run(torch.as_tensor(y)[None, :, None], state=model.init(1, prior), smoothing=True)
    smoothed = fwnkf.smooth(model, track)
    apart = (smoothed.mean[0, :, 0].numpy() - means) / np.sqrt(variances)
    before = (track.mean[0, :, 0].numpy() - means) / np.sqrt(variances)
    assert np.abs(apart).max() < 0.25
    assert np.sqrt(np.mean(apart**2)) < 0.15 * np.sqrt(np.mean(before**2))
    ratio = smoothed.cov[0, :, 0, 0].numpy() / variances
    assert np.abs(ratio - 1).max() < 0.2
    assert np.abs(ratio - 1).mean() < 0.05


# ---- orientation: batch least squares --------------------------------------------------------------------------------


def simulated_attitude(seed, steps=14, spread=0.1):
    """A turning body whose start is uncertain by ``spread`` radians about each axis."""
    generator = torch.Generator().manual_seed(seed)
    system = systems.attitude()

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    cov = torch.diag(torch.tensor([spread] * 3 + [0.05] * 3, dtype=torch.float64).square())
    mean = system.layout.boxplus(system.layout.origin(cov), normal(6))
    x = system.layout.boxplus(mean, cov.diagonal().sqrt() * normal(6)).unsqueeze(0)
    rate = normal(1, 3) * 0.5 + 0.3 * normal(steps, 3)
    dt = torch.full((1,), 0.05, dtype=torch.float64)
    states, measured = [], []
    for t in range(steps):
        noise = system.process_noise(dt)[0].diagonal().sqrt() * normal(6)
        x = system.layout.boxplus(system.transition(x, rate[t : t + 1], dt), noise.unsqueeze(0))
        states.append(x)
        measured.append(system.observe(x) + system.R.diagonal().sqrt() * normal(3))
    return system, fwnkf.Gaussian(mean, cov), torch.stack(measured, 1), rate.unsqueeze(0), torch.stack(states, 1)


def least_squares(system, prior, y, u, iterations=8):
    """The most probable trajectory by Gauss-Newton over all states at once, and the inverse of its information."""
    layout, steps, d = system.layout, y.shape[1], system.layout.tangent_size
    root_Q, root_R, root_P = (torch.linalg.cholesky(item) for item in (system.process_noise(None), system.R, prior.cov))

    def residuals(delta, states):
        moved = layout.boxplus(states, delta)
        start = layout.boxminus(moved[:1], prior.mean.unsqueeze(0))
        predicted = system.transition(moved[:-1], u[0], None)
        process = layout.boxminus(moved[1:], predicted)
        sensor = y[0] - system.observe(moved[1:])
        pairs = ((start, root_P), (process, root_Q), (sensor, root_R))
        return torch.cat([torch.linalg.solve_triangular(L, r.mT, upper=False).mT.flatten() for r, L in pairs])

    states = prior.mean.expand(steps + 1, -1)
    for t in range(steps):  # dead reckoning to begin with
        moved = system.transition(states[t : t + 1], u[0, t : t + 1], None)
        states = torch.cat((states[: t + 1], moved.expand(steps - t, -1)))
    for _ in range(iterations):
        zero = states.new_zeros(steps + 1, d)
        J = torch.func.jacrev(residuals)(zero, states).flatten(1)
        information = J.mT @ J
        step = -torch.linalg.solve(information, J.mT @ residuals(zero, states))
        states = layout.boxplus(states, step.unflatten(0, (steps + 1, d)))
    assert float(step.abs().max()) < 1e-6
    cov = torch.linalg.inv(information).unflatten(0, (steps + 1, d)).unflatten(2, (steps + 1, d))
    blocks = torch.stack([cov[t, :, t] for t in range(1, steps + 1)])
    cross = torch.stack([cov[t, :, t + 1] for t in range(1, steps)])
    return states[1:], blocks, cross


@pytest.mark.parametrize("kind", ["ekf", "ukf"])
@pytest.mark.parametrize("seed", range(3))
def test_orientations_are_close_to_batch_least_squares(kind, seed):
    system, prior, y, u, _ = simulated_attitude(seed)
    states, cov, cross = least_squares(system, prior, y, u)
    model = fwnkf.build(kind, system=system)
    track = model.run(y, u, state=model.init(1, prior), smoothing=True).raise_for_status()
    smoothed = fwnkf.smooth(model, track)

    def distance(mean):
        error = system.layout.boxminus(mean, states)
        return float(torch.linalg.solve(cov, error.unsqueeze(-1)).squeeze(-1).mul(error).mean())

    assert distance(smoothed.mean[0]) < min(0.05, 0.15 * distance(track.mean[0]))
    for mine, theirs in ((smoothed.cov[0], cov), (smoothed.cross_cov[0], cross)):
        assert float((mine - theirs).abs().max()) < 0.05 * float(theirs.abs().max())


def test_small_turns_are_the_linear_smoother():
    """Turns of 1e-5 rad about the origin: rotations add like vectors, and the filter is a Kalman filter."""
    system, prior, y, u, _ = simulated_attitude(0)
    small = 1e-5
    generator = torch.Generator().manual_seed(1)
    like = torch.zeros((), dtype=torch.float64)
    origin = system.layout.origin(like)
    model = fwnkf.build("ekf", system=system)
    y = small * torch.randn(y.shape, generator=generator, dtype=torch.float64) + system.observe(origin)
    u = small * torch.randn(u.shape, generator=generator, dtype=torch.float64)
    prior = fwnkf.Gaussian(origin, prior.cov)
    smoothed = fwnkf.smooth(model, model.run(y, u, state=model.init(1, prior), smoothing=True))
    F = torch.eye(6, dtype=torch.float64)
    F[:3, 3:] = -0.05 * torch.eye(3)
    B = torch.cat((0.05 * torch.eye(3), torch.zeros(3, 3))).double()
    _, H = system.linearize_observation(origin.unsqueeze(0))
    kf = fwnkf.build("kf", F=F, B=B, H=H[0], Q=system.process_noise(None), R=system.R)
    start = fwnkf.Gaussian(torch.zeros(6, dtype=torch.float64), prior.cov)
    linear = fwnkf.smooth(kf, kf.run(y - system.observe(origin), u, state=kf.init(1, start), smoothing=True))
    turned = system.layout.boxminus(smoothed.mean, origin.expand_as(smoothed.mean))
    assert float(linear.mean.abs().max()) > 0.1 * small
    torch.testing.assert_close(turned, linear.mean, rtol=0, atol=1e-3 * small)
    torch.testing.assert_close(smoothed.cov, linear.cov, rtol=1e-3, atol=1e-7)
