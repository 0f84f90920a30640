"""Linear systems: exact discretisation against scipy and quadrature, invalid arguments, learned matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.integrate import quad_vec
from scipy.linalg import expm

import fwnkf
from fwnkf import LinearSystem
from fwnkf.core.gaussian import DiagonalNoise, FullNoise, dense
from fwnkf.core.integrate import discretize
from fwnkf.core.system import build_system
from fwnkf.errors import ConfigError
from fwnkf.filters.separate import separate

from .. import systems
from ..tolerances import assert_close


@pytest.mark.parametrize("controls", [0, 2])
def test_discretisation_is_expm_and_the_integral(rng, controls):
    A = rng.standard_normal((3, 3))
    B = rng.standard_normal((3, controls))
    root = rng.standard_normal((3, 3))
    density = root @ root.T
    dts = np.array([0.0, 1e-6, 0.01, 0.3, 1.7])
    F, G, Q = discretize(*(torch.as_tensor(x) for x in (A, B, density, dts)))
    for item, dt in enumerate(dts):
        assert_close(F[item], expm(A * dt))
        spread, _ = quad_vec(lambda s: expm(A * s) @ density @ expm(A.T * s), 0, dt, epsabs=1e-13, epsrel=1e-13)
        assert_close(Q[item], spread)
        if controls:
            held, _ = quad_vec(lambda s: expm(A * s) @ B, 0, dt, epsabs=1e-13, epsrel=1e-13)
            assert_close(G[item], held)
    assert torch.equal(Q, Q.mT)


def test_discretisation_of_a_stiff_drift_keeps_q_right():
    """Decay far faster than the step: Q must be the stationary variance, though e^{-A dt} overflows."""
    rate = torch.tensor([[-40.0]], dtype=torch.float64)
    _, _, Q = discretize(rate, torch.zeros(1, 0).double(), torch.tensor([[3.0]]).double(), torch.tensor([1.0]).double())
    assert_close(Q[0, 0, 0], np.float64(3.0 / 80.0))


def test_discretisation_can_be_differentiated():
    A = torch.tensor([[-0.3, 1.0], [-1.5, -0.4]], dtype=torch.float64, requires_grad=True)
    B = torch.ones(2, 1, dtype=torch.float64, requires_grad=True)
    root = torch.tensor([[0.5, 0.0], [0.2, 0.7]], dtype=torch.float64, requires_grad=True)
    dt = torch.tensor([0.1, 0.7], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda A, B, L, dt: discretize(A, B, L @ L.mT, dt), (A, B, root, dt))


def test_a_continuous_system_without_dt_takes_its_nominal_step():
    matrices = systems.continuous_matrices()
    system = LinearSystem.of(**matrices, continuous=True, dt=0.25)
    F, B, Q = system.matrices(None)
    same = system.matrices(torch.tensor([0.25], dtype=torch.float64))
    for mine, theirs in zip((F, B, Q), same, strict=True):
        assert_close(mine, theirs[0], "rounding")
    assert_close(F, expm(matrices["F"].numpy() * 0.25))


def test_a_discrete_system_refuses_dt():
    system = LinearSystem.of(**systems.linear_matrices())
    with pytest.raises(ConfigError, match="continuous=True"):
        system.matrices(torch.ones(2, dtype=torch.float64))


def test_a_diagonal_r_is_detected():
    diagonal, full = (LinearSystem.of(**systems.linear_matrices(full=full)) for full in (False, True))
    assert isinstance(diagonal.measurement_noise(), DiagonalNoise)
    assert isinstance(full.measurement_noise(), FullNoise)
    for system, is_full in ((diagonal, False), (full, True)):
        assert torch.equal(dense(system.measurement_noise()), systems.linear_matrices(full=is_full)["R"])


@pytest.mark.parametrize("learn", [("Q", "R"), ("F", "B", "H"), ()])
def test_learned_matrices_are_parameters_with_the_initial_values(learn):
    matrices = systems.linear_matrices(full=True)
    system = LinearSystem.of(**matrices, learn=learn)
    roots = {name.split(".")[0] for name, _ in system.named_parameters()}
    assert roots == set(learn)
    F, B, Q = system.matrices(None)
    for mine, name in ((F, "F"), (B, "B"), (Q, "Q"), (system.H, "H"), (system.measurement_covariance(), "R")):
        assert_close(mine, matrices[name])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Q": torch.eye(2).double()}, r"Q has shape \(2, 2\), wanted \(3, 3\)"),
        ({"learn": ("Z",)}, "learn.*'Z'"),
        ({"layout": (("q", "quaternion", 4),)}, "a state of numbers and angles"),
        ({"diagonal_noise": True}, "off its diagonal"),
        ({"state_dim": "three"}, "state_dim.*'three'"),
    ],
)
def test_invalid_arguments_raise_a_config_error(change, message):
    with pytest.raises(ConfigError, match=message):
        LinearSystem.of(**{**systems.linear_matrices(full=True), **change})


def test_a_linear_system_may_name_its_parts():
    named = (("position", "euclidean", 2), ("velocity", "euclidean", 1))
    system = LinearSystem.of(**systems.linear_matrices(), layout=named)
    assert system.layout.describe() == named


def test_a_system_is_built_from_its_name_and_plain_values():
    """As read from JSON: lists for tuples."""
    values = {"state_dim": 2, "observation_dim": 1, "learn": ["Q"], "layout": [["x", "euclidean", 2]]}
    system = build_system("linear", values)
    assert system.config.learn == ("Q",)
    assert isinstance(build_system("tests/pendulum", {"length": 2}), systems.Pendulum)
    with pytest.raises(ConfigError, match="system tests/pendulum: no option 'lenght'; there are: length"):
        build_system("tests/pendulum", {"lenght": 2.0})


def test_a_linear_system_states_the_belief_that_filters_start_from(tmp_path):
    """As a prior one step before the first measurement, saved with the filter; filters of its parts have theirs."""
    eye = torch.eye(2, dtype=torch.float64)
    matrices = {"F": eye, "H": eye, "Q": 0.1 * eye, "R": eye}
    y = torch.ones(1, 5, 2, dtype=torch.float64)
    prior = fwnkf.Gaussian(torch.zeros(2).double(), torch.diag(torch.tensor([9.0, 0.25]).double()))
    expected = fwnkf.KF(**matrices).run(y, prior=prior, prior_at="before_first_step").mean
    stated = fwnkf.KF(**matrices, initial_std=(3.0, 0.5))
    fwnkf.save(stated, tmp_path / "kf")
    system = fwnkf.LinearSystem.of(**matrices, initial_std=(3.0, 0.5))
    for model in (stated, fwnkf.load(tmp_path / "kf"), fwnkf.FWNKF(system)):
        assert torch.equal(model.run(y).mean, expected)
    apart = [part.filter.run(y[..., [axis]]).mean for axis, part in enumerate(separate(stated))]
    assert torch.equal(torch.cat(apart, -1), expected)
    with pytest.raises(ConfigError, match="2 standard deviations"):
        fwnkf.KF(**matrices, initial_std=(3.0,))
