"""Where the prior stands: at the first measurement, as in statsmodels, or one step before, as in filterpy's loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from filterpy.kalman import ExtendedKalmanFilter, KalmanFilter
from statsmodels.tsa.statespace.kalman_filter import KalmanFilter as StateSpace
from torch import Tensor

import fwnkf
from fwnkf.errors import ConfigError

from ..systems import GRAVITY, continuous_matrices, linear_matrices, pendulum, wave
from ..tolerances import assert_close

STEPS = 12
MEAN = np.array([0.5, -1.0, 0.2])
COV = np.array([[1.0, 0.3, 0.0], [0.3, 0.8, -0.2], [0.0, -0.2, 0.5]])


def prior() -> fwnkf.Gaussian:
    return fwnkf.Gaussian(torch.as_tensor(MEAN), torch.as_tensor(COV))


def measurements(rng, channels: int = 2) -> np.ndarray:
    return rng.standard_normal((STEPS, channels)) * 2


def discrete(kind: str, full: bool) -> tuple[fwnkf.Filter, dict[str, np.ndarray]]:
    """A filter on a linear system, and the discrete matrices of its nominal step from scipy-free closed forms."""
    if kind == "continuous kf":
        matrices = continuous_matrices(full=full)
        model = fwnkf.KF(**matrices, continuous=True, dt=0.3)
        F, B, Q = (item.numpy() for item in model.system.matrices(None))
        return model, {"F": F, "B": B, "Q": Q, "H": matrices["H"].numpy(), "R": matrices["R"].numpy()}
    matrices = linear_matrices(full=full)
    numbers = {name: value.numpy() for name, value in matrices.items()}
    system = fwnkf.LinearSystem.of(**matrices)
    models = {
        "kf": lambda: fwnkf.KF(**matrices),
        "ekf": lambda: fwnkf.EKF(system),
        "ukf": lambda: fwnkf.UKF(system),
        "arkf": lambda: fwnkf.ARKF(**{**matrices, "F": matrices["F"][None]}),
        "fwnkf": lambda: fwnkf.FWNKF(system, encoder=fwnkf.GRU(4), residual=fwnkf.MLP(4), phi=fwnkf.Phi()),
        "fwnkf with noise states": lambda: fwnkf.FWNKF(system, noise=fwnkf.Lines(), residual=fwnkf.MLP()),
    }
    return models[kind](), numbers


KINDS = ["kf", "continuous kf", "ekf", "ukf", "arkf", "fwnkf", "fwnkf with noise states"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_default_is_that_of_statsmodels(rng, kind: str):
    """With gaps; ``initialize_known`` states the belief at the first observation."""
    model, numbers = discrete(kind, full=True)
    y = measurements(rng)
    y[3], y[5, 0] = np.nan, np.nan
    theirs = StateSpace(k_endog=2, k_states=3)
    theirs.bind(y)
    theirs["design"], theirs["transition"] = numbers["H"], numbers["F"]
    theirs["obs_cov"], theirs["state_cov"], theirs["selection"] = numbers["R"], numbers["Q"], np.eye(3)
    theirs.initialize_known(MEAN, COV)
    expected = theirs.filter()
    record = torch.as_tensor(y)[None]
    with torch.no_grad():
        track = model.run(record, mask=record.isfinite(), prior=prior())
    # an untrained filter with noise states has them with 1e-8 of the power of white noise
    kind_of_error = "noise states" if "noise" in kind else "joint"
    tolerance = {"noise states": 1e-6, "joint": 1e-9}[kind_of_error]
    np.testing.assert_allclose(track.mean[0].numpy(), expected.filtered_state.T, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(track.prior_mean[0], expected.predicted_state.T[:-1], rtol=tolerance, atol=tolerance)
    filtered = expected.filtered_state_cov.transpose(2, 0, 1)
    np.testing.assert_allclose(track.cov[0].numpy(), filtered, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(float(track.log_likelihood), expected.llf, rtol=tolerance)
    assert_close(track.step_log_likelihood.sum(-1), track.log_likelihood)


@pytest.mark.parametrize("prior_at", ["first_measurement", "before_first_step"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "noise" not in kind])
def test_both_places_of_the_prior_are_filterpys(rng, kind: str, prior_at):
    """filterpy's user calls ``update`` first, or ``predict`` first, with a control that only a prediction applies."""
    model, numbers = discrete(kind, full=True)
    y, u = measurements(rng), rng.standard_normal((STEPS, 1))
    theirs = KalmanFilter(3, 2, 1)
    theirs.F, theirs.H, theirs.Q, theirs.R, theirs.B = (numbers[name] for name in "FHQRB")
    theirs.x, theirs.P = MEAN[:, None], COV
    with torch.no_grad():
        track = model.run(torch.as_tensor(y)[None], torch.as_tensor(u)[None], prior=prior(), prior_at=prior_at)
    for t in range(STEPS):
        if t > 0 or prior_at == "before_first_step":
            theirs.predict(u=u[t][:, None])
        theirs.update(y[t][:, None])
        assert_close(track.mean[0, t], theirs.x[:, 0], "joint")
        assert_close(track.cov[0, t], theirs.P, "joint")


@pytest.mark.parametrize("irregular", [False, True])
def test_a_nonlinear_filter_conditions_first_as_filterpys(rng, irregular: bool):
    """Whatever the first ``dt`` is; with and without ``dt`` for the others."""
    system = pendulum(torch.float64)
    length, damping, step = system.config.length, system.config.damping, system.config.dt
    dt = rng.uniform(0.01, 0.05, STEPS) if irregular else np.full(STEPS, step)
    y = rng.standard_normal((STEPS, 2))
    mean, cov = np.array([0.4, -0.3]), np.diag([0.3, 0.2])
    theirs = ExtendedKalmanFilter(2, 2)
    theirs.x, theirs.P, theirs.R = mean.copy(), cov, system.measurement_covariance().numpy()
    track = fwnkf.EKF(system).run(
        torch.as_tensor(y)[None],
        dt=torch.as_tensor(dt)[None] if irregular else None,
        prior=fwnkf.Gaussian(torch.as_tensor(mean), torch.as_tensor(cov)),
    )

    def observe(x):
        return length * np.array([np.sin(x[0]), -np.cos(x[0])])

    def slope(x):
        return length * np.array([[np.cos(x[0]), 0.0], [np.sin(x[0]), 0.0]])

    for t in range(STEPS):
        if t > 0:
            h, (theta, omega) = dt[t], theirs.x
            theirs.F = np.eye(2) + h * np.array([[0.0, 1.0], [-GRAVITY / length * np.cos(theta), -damping]])
            theirs.x = theirs.x + h * np.array([omega, -GRAVITY / length * np.sin(theta) - damping * omega])
            theirs.P = theirs.F @ theirs.P @ theirs.F.T + system.process.numpy() * h
        theirs.update(y[t], slope, observe)
        wrapped = np.array([(theirs.x[0] + np.pi) % (2 * np.pi) - np.pi, theirs.x[1]])
        assert_close(track.mean[0, t], wrapped, "joint")
        assert_close(track.cov[0, t], theirs.P, "joint")


class Doubling(fwnkf.System):
    """A discrete system of one's own: it has no step but the whole one, and takes no ``dt``."""

    layout = observation_layout = fwnkf.Layout.euclidean(1)
    takes_dt = False

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        assert dt is None
        return 2 * x

    def observe(self, x: Tensor) -> Tensor:
        return x

    def process_noise(self, dt: Tensor | None) -> Tensor:
        assert dt is None
        return torch.ones(1, 1)

    def measurement_covariance(self) -> Tensor:
        return torch.ones(1, 1)


@pytest.mark.parametrize("cls", [fwnkf.EKF, fwnkf.UKF, fwnkf.FWNKF])
def test_a_discrete_system_of_ones_own(cls):
    model = cls(Doubling(None))
    given = fwnkf.Gaussian(torch.ones(1), torch.ones(1, 1))
    y = torch.tensor([[[3.0], [5.0]]])
    track = model.run(y, prior=given)
    # N(1, 1) and 3 with unit noise: N(2, 1/2); doubled, with unit noise: N(4, 3); and 5 with unit noise: N(4.75, 3/4)
    torch.testing.assert_close(track.mean.flatten(), torch.tensor([2.0, 4.75]))
    torch.testing.assert_close(track.cov.flatten(), torch.tensor([0.5, 0.75]))
    moved = model.run(y[:, :1], prior=given, prior_at="before_first_step")
    torch.testing.assert_close(moved.mean.flatten(), torch.tensor([2 + 5 / 6]))


def test_the_adaptive_filter_does_not_learn_process_noise_from_its_start():
    eye = torch.eye(1)
    model = fwnkf.AdaptiveKF(F=eye, H=eye, S=eye, R=eye, half_life=1.0, update_every=1)
    far = fwnkf.Gaussian(torch.full((1,), 100.0), 1e4 * eye)
    state = model.run(torch.zeros(1, 1, 1), prior=far).state
    assert float(state.noise_cov) == 1.0
    assert float(model.run(torch.zeros(1, 1, 1), prior=far, prior_at="before_first_step").state.noise_cov) != 1.0


def test_a_run_in_parts_uses_the_prior_once(rng):
    model = fwnkf.EKF(wave(torch.float64))
    y = torch.as_tensor(measurements(rng))[None]
    given = fwnkf.Gaussian(torch.zeros(model.layout.size).double(), torch.eye(model.layout.tangent_size).double())
    whole = model.run(y, prior=given)
    first = model.run(y[:, :5], prior=given)
    assert torch.equal(model.run(y[:, 5:], state=first.state).mean, whole.mean[:, 5:])
    for options in ({"checkpoint": 3}, {"truncate": 4}):
        assert_close(model.run(y, prior=given, **options).mean, whole.mean, "rounding")


@pytest.mark.unchecked("the checker of types raises first")
def test_unknown_places_are_refused():
    model = fwnkf.EKF(wave(torch.float32))
    with pytest.raises(ConfigError, match="prior_at = 'first'; wanted one of first_measurement, before_first_step"):
        model.run(torch.zeros(1, 2, 2), prior_at="first")  # type: ignore[arg-type]
