"""The halves of a step: predictions in closed form, updates of single sensors, and what each call computes once."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.linalg import expm

import fwnkf
from fwnkf import Lines
from fwnkf.core import linear
from fwnkf.core.tree import named_leaves
from fwnkf.errors import ConfigError, DataError, ShapeError

from ..systems import continuous_matrices
from ..tolerances import assert_close, assert_same_bits

STEP = 0.1


def continuous(**options) -> fwnkf.LinearSystem:
    channels = {"channels": ("gps", "baro")}
    return fwnkf.LinearSystem.of(**continuous_matrices(), continuous=True, dt=STEP, **channels, **options)


def filters() -> dict[str, fwnkf.Filter]:
    kf = fwnkf.KF(**continuous_matrices(), continuous=True, dt=STEP, channels=("gps", "baro"))
    lines = fwnkf.FWNKF(continuous(), noise=Lines(hz=2.0, bandwidth_hz=0.5, std=0.4))
    roots = fwnkf.FWNKF(continuous(), solve="square_root")
    return {
        "kf": kf, "ekf": fwnkf.EKF(continuous()), "ukf": fwnkf.UKF(continuous()), "lines": lines, "square root": roots
    }  # fmt: skip


FILTERS = filters()


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def seconds(value: float, batch: int = 2) -> torch.Tensor:
    return torch.full((batch,), value, dtype=torch.float64)


def started(model: fwnkf.Filter, batch: int = 2):
    """A state with a mean and correlations."""
    y = torch.tensor([[0.5, -1.0], [2.0, 0.3]], dtype=torch.float64)[:batch]
    return model.step(model.init(batch), y, torch.ones(batch, 1, dtype=torch.float64))[0]


def same_state(left, right) -> None:
    for (name, mine), (_, theirs) in zip(named_leaves(left), named_leaves(right), strict=True):
        assert_same_bits(mine, theirs, name)


# ---- predict -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILTERS)
def test_two_half_steps_are_one_step(name):
    model = FILTERS[name]
    state, u = started(model), torch.tensor([[0.7], [-0.2]], dtype=torch.float64)
    once = model.predict(state, u, seconds(0.3))
    twice = model.predict(model.predict(state, u, seconds(0.15)), u, seconds(0.15))
    assert_close(twice.mean, once.mean)
    assert_close(model.joint_covariance(twice), model.joint_covariance(once))


def test_a_prediction_is_the_solution_of_the_equations():
    """``exp(A t) x + ∫ exp(A s) B u ds`` and the integral of the noise, by scipy."""
    model, matrices = FILTERS["ekf"], continuous_matrices()
    A, B, Q = (matrices[name].numpy() for name in "FBQ")
    state, u, length = started(model), torch.tensor([[0.7], [-0.2]], dtype=torch.float64), 0.3
    ahead = model.predict(state, u, seconds(length))
    held = expm(np.block([[A, B], [np.zeros((1, 4))]]) * length)
    van_loan = expm(np.block([[-A, Q], [np.zeros_like(A), A.T]]) * length)
    F = van_loan[3:, 3:].T
    noise = F @ van_loan[:3, 3:]
    for row in range(2):
        assert_close(ahead.mean[row], held[:3, :3] @ state.mean[row].numpy() + held[:3, 3:] @ u[row].numpy())
        assert_close(ahead.cov[row], F @ state.cov[row].numpy() @ F.T + noise)


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_control_that_is_no_number_leaves_the_state_of_its_stream(name, value):
    model = FILTERS[name]
    state, u = started(model), torch.tensor([[0.7], [value]], dtype=torch.float64)
    ahead, clean = model.predict(state, u), model.predict(state, torch.nan_to_num(u, posinf=0.0))
    for (leaf, mine), (_, before), (_, moved) in zip(
        named_leaves(ahead), named_leaves(state), named_leaves(clean), strict=True
    ):
        assert_same_bits(mine[1], before[1], leaf)
        assert_same_bits(mine[0], moved[0], leaf)


def test_inputs_of_a_prediction_are_checked():
    model = FILTERS["ekf"]
    state = started(model)
    with pytest.raises(ShapeError, match=r"u has shape \(2, 3\)"):
        model.predict(state, torch.zeros(2, 3, dtype=torch.float64))
    with pytest.raises(DataError, match="stream 1"):
        model.predict(state, dt=torch.tensor([0.1, -0.1], dtype=torch.float64))


# ---- update --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILTERS)
def test_an_update_of_a_sensor_is_one_in_which_the_others_are_missing(name):
    model = FILTERS[name]
    ahead = model.predict(started(model))
    y = torch.tensor([[0.4, math.nan], [-0.3, math.nan]], dtype=torch.float64)
    for sensor, column in (("gps", 0), ("baro", 1)):
        order = [0, 1] if column == 0 else [1, 0]
        mask = torch.tensor([[True, False], [True, False]])[:, order]
        alone, out = model.update(ahead, y[:, :1], sensor=sensor)
        masked, expected = model.update(ahead, y[:, order], mask)
        same_state(alone, masked)
        assert_same_bits(out.mean, expected.mean)
    present = torch.tensor([[True], [False]])
    some, _ = model.update(ahead, y[:, :1], present, "baro")
    assert_same_bits(some.mean[1], ahead.mean[1])


@pytest.mark.parametrize("name", ["kf", "ekf", "lines", "square root"])
def test_sensors_one_after_the_other_are_both_at_once(name):
    """Their noise is independent, so the order does not matter."""
    model, y = FILTERS[name], torch.tensor([[0.4, 1.0], [-0.3, 0.2]], dtype=torch.float64)
    ahead = model.predict(started(model))
    together, _ = model.update(ahead, y)
    for first, second in (("gps", "baro"), ("baro", "gps")):
        place = {"gps": slice(0, 1), "baro": slice(1, 2)}
        apart, _ = model.update(ahead, y[:, place[first]], sensor=first)
        apart, _ = model.update(apart, y[:, place[second]], sensor=second)
        assert_close(apart.mean, together.mean)
        assert_close(model.joint_covariance(apart), model.joint_covariance(together))


def test_a_sensor_that_does_not_fit_is_named():
    model = FILTERS["ekf"]
    with pytest.raises(ConfigError, match="has no sensor 'imu'; there are: gps, baro"):
        model.update(model.init(1), torch.zeros(1, 1).double(), sensor="imu")
    with pytest.raises(ShapeError, match=r"sensor 'gps' has 1 channel\(s\), but y has shape \(1, 2\)"):
        model.update(model.init(1), torch.zeros(1, 2).double(), sensor="gps")


# ---- what is computed once -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kf", "ekf", "lines", "square root"])
def test_matrix_exponentials_are_those_of_steps_with_a_length(monkeypatch, name):
    """None in a step of the nominal length, whose matrices were prepared; one in a step with ``dt``."""
    model, calls = FILTERS[name], []
    discretize = linear.discretize
    monkeypatch.setattr(linear, "discretize", lambda *given: calls.append(given) or discretize(*given))
    prepared, state, y = model.prepare(), started(model), torch.ones(2, 2).double()
    assert calls
    for dt, wanted in ((None, 0), (seconds(0.2), 1)):
        calls.clear()
        model.step(state, y, dt=dt, prepared=prepared)
        assert len(calls) == wanted
        calls.clear()
        model.predict(state, dt=dt, prepared=prepared)
        assert len(calls) == wanted
    calls.clear()
    model.run(torch.ones(2, 7, 2).double(), prepared=prepared)
    assert not calls
    model.run(torch.ones(2, 7, 2).double(), dt=torch.full((2, 7), 0.2).double(), prepared=prepared)
    assert len(calls) == 7
