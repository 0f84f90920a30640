"""The initial model on a folder of logs: a prior from the training states, and an identified linear model."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.core.integrate import discretize
from fwnkf.data import tables
from fwnkf.data._identify import DENSITY_FLOOR, _density, logm
from fwnkf.data.tables import Columns
from fwnkf.errors import DataError
from tests.tolerances import assert_close, assert_same_bits

from .test_tables import COLUMNS, H_STEP, SMALL, STD_Q, STD_R, F, H, carts, write


def test_start_is_the_spread_of_the_training_states(tmp_path, rng):
    carts(tmp_path, rng, 4, 100)
    train = tables.load(tmp_path, COLUMNS, dtype=torch.float64)[0].split.train
    states = train.truth.reshape(-1, 4).numpy()
    assert_close(train.start.mean, torch.from_numpy(states.mean(0)))
    torch.testing.assert_close(train.start.cov.numpy(), np.cov(states.T, bias=True), rtol=2e-6, atol=1e-9)


def test_angles_are_averaged_on_the_circle_and_have_no_linear_model(tmp_path, rng):
    heading = math.pi + 0.2 * rng.standard_normal(4000)
    values = {"t [s]": (0.1 * np.arange(4000)).tolist(), "psi": heading.tolist(), "r": heading.tolist()}
    write(tmp_path, "a.csv", {**values, "y": heading.tolist()})
    protocol, _ = tables.load(tmp_path, Columns(("psi", "r"), ("y",), time="t", angles=("psi",)))
    train = protocol.split.train
    assert [part.kind for part in train.layout.parts] == ["angle", "euclidean"]
    assert float(train.truth[..., 0].abs().max()) <= math.pi + 1e-6
    off = train.layout.boxminus(train.start.mean, torch.tensor([math.pi, math.pi]))
    assert float(off.abs().max()) < 5 * 0.2 / math.sqrt(2800)
    assert float(train.start.cov[0, 0]) == pytest.approx(0.04, rel=5 * math.sqrt(2 / 2800))
    assert all(task.system is None for task in protocol.split)
    assert any("system is None" in note for note in protocol.notes)
    write(tmp_path, "a.csv", {"t [s]": values["t [s]"], "psi [deg]": values["psi"], "y": values["r"]})
    with pytest.raises(DataError, match="degrees"):
        tables.load(tmp_path, Columns(("psi [deg]",), ("y",), time="t", angles=("psi [deg]",)))


def test_the_model_of_a_simulated_cart_is_recovered(tmp_path, rng):
    """Every entry within five standard errors, which for least squares are σ² (XᵀX)⁻¹."""
    B = np.array([[0.0], [0.0], [0.3], [-0.2]])
    carts(tmp_path, rng, 6, 2000, B)
    columns = Columns(COLUMNS.state, COLUMNS.observe, ("push",), "t")
    protocol, _ = tables.load(tmp_path, columns, dtype=torch.float64)
    train, system = protocol.split.train, protocol.split.train.system
    assert all(task.system is system for task in protocol.split)
    fitted_F, fitted_B, fitted_Q = (value[0].numpy() for value in system.matrices(train.dt[:1, 1]))
    before, push = train.truth[:, :-1].reshape(-1, 4).numpy(), train.u[:, 1:].reshape(-1, 1).numpy()
    count = len(before)
    inputs = np.concatenate((before, push), -1)
    spread = np.sqrt(np.diag(np.linalg.inv(inputs.T @ inputs)))
    assert (np.abs(np.concatenate((fitted_F - F, fitted_B - B), -1)) < 5 * STD_Q[:, None] * spread).all()
    scale = STD_Q[:, None] * STD_Q
    # a variance has the relative standard error √(2/N), a covariance 1/√N
    assert (np.abs(fitted_Q - np.diag(STD_Q**2)) / scale < 5 * math.sqrt(2 / count) + DENSITY_FLOOR).all()
    states = train.truth.reshape(-1, 4).numpy()
    errors = np.sqrt(np.diag(np.linalg.inv(states.T @ states)))
    assert (np.abs(system.H.numpy() - H) < 5 * STD_R[:, None] * errors).all()
    assert_close(system.R(), system.R().diagonal().diag())
    np.testing.assert_allclose(system.R().diagonal().numpy(), STD_R**2, rtol=5 * math.sqrt(2 / count))
    assert system.layout == train.layout
    assert system.dt == pytest.approx(H_STEP)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_kalman_filter_of_the_fit_is_consistent(tmp_path, rng, dtype):
    carts(tmp_path, rng, 6, 2000)
    protocol, _ = tables.load(tmp_path, COLUMNS, dtype=dtype)
    test = protocol.split.test
    estimates = fwnkf.build("ekf", system=test.system).run(**test.inputs()).raise_for_status()
    # dt is 0 before the first sample: the prior is the start itself
    assert_same_bits(estimates.prior_mean[:, 0], test.start.mean.expand(len(test), 4))
    error = (estimates.mean - test.truth)[:, 20:]
    nees = torch.einsum("bti,btij,btj->bt", error, torch.linalg.inv(estimates.cov[:, 20:]), error) / 4
    assert 0.8 < float(nees.mean()) < 1.25
    best = _riccati()
    rms = error.square().mean((0, 1)).sqrt().double().numpy()
    np.testing.assert_allclose(rms, np.sqrt(np.diag(best)), rtol=0.15)  # 10 windows of one run: some 200 free samples


def _riccati():
    P = np.eye(4)
    for _ in range(2000):
        P = F @ P @ F.T + np.diag(STD_Q**2)
        S = H @ P @ H.T + np.diag(STD_R**2)
        P = P - P @ H.T @ np.linalg.solve(S, H @ P)
    return P


def test_correlated_channels_keep_their_correlation(tmp_path, rng):
    x = np.cumsum(rng.standard_normal(5000))
    noise = rng.standard_normal((5000, 2)) @ np.linalg.cholesky([[1.0, 0.6], [0.6, 1.0]]).T
    values = {"t [s]": np.arange(5000) * 1.0, "x": x, "a": x + noise[:, 0], "b": 2 * x + noise[:, 1]}
    write(tmp_path, "a.csv", {name: v.tolist() for name, v in values.items()})
    system = tables.load(tmp_path, Columns(("x",), ("a", "b"), time="t"))[0].split.train.system
    np.testing.assert_allclose(system.R().numpy(), [[1.0, 0.6], [0.6, 1.0]], atol=0.15)
    np.testing.assert_allclose(system.H.numpy(), [[1.0], [2.0]], atol=0.01)


def test_small_noise_on_a_wide_range_is_measured_as_it_is(tmp_path, rng):
    """A vehicle that travels kilometres with a sensor of a few centimetres; the channels keep their names."""
    x = np.cumsum(rng.standard_normal(4000)) + np.linspace(0, 5000, 4000)
    values = {"t [s]": np.arange(4000) * 0.1, "x": x, "gps": x + 0.05 * rng.standard_normal(4000)}
    write(tmp_path, "a.csv", {name: v.tolist() for name, v in values.items()})
    protocol, _ = tables.load(tmp_path, Columns(("x",), ("gps",), time="t"), dtype=torch.float64)
    system = protocol.split.train.system
    assert float(system.R()) == pytest.approx(0.05**2, rel=0.1)
    assert [part.name for part in system.observation_layout.parts] == ["gps"]


def test_a_large_offset_leaves_the_transition_near_the_identity(tmp_path, rng):
    x = 500.0 + np.sin(np.arange(4000) / 30) + 0.01 * rng.standard_normal(4000)
    values = {"t [s]": np.arange(4000) * 0.1, "x": x, "y": x + 0.1 * rng.standard_normal(4000)}
    write(tmp_path, "a.csv", {name: v.tolist() for name, v in values.items()})
    protocol, _ = tables.load(tmp_path, SMALL)
    system = protocol.split.train.system
    assert float(system.matrices(protocol.split.train.dt[:1, 1])[0]) == pytest.approx(1.0, abs=1e-4)
    assert float(system.H) == pytest.approx(1.0, abs=1e-3)
    assert float(system.R()) == pytest.approx(0.01, rel=0.1)


def test_a_state_that_changes_sign_at_each_step_is_replaced(tmp_path, rng):
    x = rng.standard_normal(3000) * (-1.0) ** np.arange(3000) * 0.1 + (-1.0) ** np.arange(3000)
    write(tmp_path, "a.csv", {"t [s]": [float(i) for i in range(3000)], "x": x.tolist(), "y": x.tolist()})
    protocol, _ = tables.load(tmp_path, SMALL)
    task = protocol.split.test
    assert any("change sign at each step" in note for note in protocol.notes)
    F_used, _, Q = task.system.matrices(task.dt[:1, 1])
    assert float(F_used) == pytest.approx(1e-3, rel=1e-3)
    assert float(Q) == pytest.approx(1.01, rel=0.1)  # what F does not explain is noise
    fwnkf.build("ekf", system=task.system).run(**task.inputs()).raise_for_status()


@pytest.mark.parametrize(
    "matrix",
    [
        [[1.0, 0.1], [0.0, 1.0]],  # one eigenvector only
        [[0.2, 3.0], [0.0, 5.0]],
        [[math.cos(2.9), -math.sin(2.9)], [math.sin(2.9), math.cos(2.9)]],
        [[1e-4, 0.0], [0.0, 1.0]],
    ],
)
def test_logarithm_against_mpmath(matrix):
    mpmath = pytest.importorskip("mpmath")
    log = logm(torch.tensor(matrix).double())
    assert log is not None
    with mpmath.workdps(40):
        oracle = mpmath.logm(mpmath.matrix(torch.tensor(matrix).double().tolist()))
        expected = [[float(mpmath.re(oracle[i, j])) for j in range(2)] for i in range(2)]
    np.testing.assert_allclose(log.numpy(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("matrix", [[[-1.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [0.0, 1.0]], [[math.nan, 0.0], [0.0, 1.0]]])
def test_where_there_is_no_logarithm_none_is_given(matrix):
    assert logm(torch.tensor(matrix).double()) is None


def test_the_density_gives_back_the_noise_of_a_step(generator):
    drift = torch.randn(4, 4, generator=generator).double() - 2 * torch.eye(4)
    root = torch.randn(4, 4, generator=generator).double()
    density = root @ root.mT + torch.eye(4)
    none, h = torch.zeros(4, 0).double(), torch.tensor(0.3, dtype=torch.float64)
    Q = discretize(drift, none, density, h)[2]
    assert_close(_density(drift, Q, 0.3), density, "algebra")
    # a cart whose position alone is noisy: only an indefinite density has just this Q, the one given has no less
    drift, Q = torch.tensor([[0.0, 1.0], [0.0, 0.0]]).double(), torch.tensor([[1e-6, 0.0], [0.0, 1.0]]).double()
    density = _density(drift, Q, 0.3)
    assert float(torch.linalg.eigvalsh(density).min()) > 0
    assert float(torch.linalg.eigvalsh(discretize(drift, none[:2], density, h)[2] - Q).min()) > -1e-9


def test_many_states_keep_their_variances(generator):
    """Beyond the exact solution: the variances of a step are right, the density definite."""
    n = 18
    drift = torch.randn(n, n, generator=generator).double() / n**0.5 - torch.eye(n)
    root = torch.randn(n, n, generator=generator).double()
    none, h = torch.zeros(n, 0).double(), torch.tensor(0.1, dtype=torch.float64)
    Q = discretize(drift, none, root @ root.mT / n + torch.eye(n), h)[2]
    density = _density(drift, Q, 0.1)
    assert float(torch.linalg.eigvalsh(density).min()) > 0
    # the scaling is done once and mixes the states a little, in proportion to the step
    torch.testing.assert_close(discretize(drift, none, density, h)[2].diagonal(), Q.diagonal(), rtol=1e-3, atol=0.0)
