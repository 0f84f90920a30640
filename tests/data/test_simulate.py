"""Any system simulated: moments of states and noise against the system, the same generator as for the pendulum."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.core import oscillators
from fwnkf.data import loaders
from fwnkf.data.protocols import Records
from fwnkf.data.simulate import RandomControl, simulate
from fwnkf.errors import ConfigError
from fwnkf.registry import DATA
from fwnkf.systems import ConstantVelocity, ConstantVelocityConfig, Pendulum, PendulumConfig, noise
from fwnkf.types import Gaussian

R = torch.tensor([[0.5, 0.3], [0.3, 0.4]], dtype=torch.float64)


def decaying():
    """Stationary at covariance one, with correlated measurement noise."""
    return fwnkf.System.of(lambda x: 0.8 * x, lambda x: x, Q=[0.36, 0.36], R=R, initial_std=1.0)


def test_states_and_noise_have_the_moments_of_the_system():
    data = simulate(decaying(), 4000, steps=6, seed=3)
    error = 4 / np.sqrt(4000)
    for t in (0, 5):
        states = data.truth[:, t]
        torch.testing.assert_close(states.mT @ states / 4000, torch.eye(2).double(), rtol=0, atol=2 * error)
    lagged = data.truth[:, 1:].flatten(0, 1).mT @ data.truth[:, :-1].flatten(0, 1) / 20000
    torch.testing.assert_close(lagged, 0.8 * torch.eye(2).double(), rtol=0, atol=error)
    drawn = (data.y - data.clean).flatten(0, 1)
    torch.testing.assert_close(drawn.mT @ drawn / len(drawn), R, rtol=0, atol=error)


def test_coloured_noise_has_the_spectrum_of_the_scenario():
    data = simulate(decaying(), 500, steps=256, scenario="drift", seed=1)
    drawn = data.y - data.clean
    torch.testing.assert_close(drawn.flatten(0, 1).var(0), R.diagonal(), rtol=0.15, atol=0)
    lag = 20
    share = (drawn[:, lag:] * drawn[:, :-lag]).mean((0, 1)) / R.diagonal()
    model = noise.oscillators("drift", 1.0)
    expected = 0.9 * oscillators.transition(model.radius[0], model.frequency[0], torch.tensor([lag]).double())[0]
    torch.testing.assert_close(share, expected.flatten()[:1].expand(2), rtol=0.1, atol=0)


def test_filters_on_the_simulated_system_are_consistent():
    system = Pendulum(PendulumConfig()).double()
    prior = Gaussian(torch.tensor([0.3, 0.0]).double(), 0.01 * torch.eye(2).double())
    data = simulate(system, 300, steps=40, prior=prior, seed=5)
    track = fwnkf.EKF(system).run(**data.inputs(), prior=data.start)
    error = system.layout.boxminus(track.mean, data.truth)
    nees = (error.unsqueeze(-2) @ torch.linalg.solve(track.cov, error.unsqueeze(-1))).mean() / 2
    assert 0.9 < nees < 1.1


def test_controls_masks_and_seeds():
    system = Pendulum(PendulumConfig())
    control = RandomControl(mean=(1.0,), std=(0.5,), hold=4)
    first = simulate(system, 50, 13, control=control, seed=2)
    again = simulate(system, 50, 13, control=control, seed=2)
    assert torch.equal(first.y, again.y)
    assert not torch.equal(first.y, simulate(system, 50, 13, control=control, seed=3).y)
    assert torch.equal(first.u[:, 0], first.u[:, 3])
    assert first.u.mean() == pytest.approx(1.0, abs=0.2)
    assert (first.dt[:, 0] == 0).all()
    gaps = noise.Scenario((noise.White(1.0),), (noise.Dropout(0.3),))
    masked = simulate(system, 50, 13, scenario=gaps, seed=2)
    assert torch.equal(masked.mask, masked.y.isfinite())
    assert 0.5 < masked.mask.double().mean() < 0.9
    with pytest.raises(ConfigError, match="wanted 1 numbers"):
        simulate(system, 2, 3, control=RandomControl(mean=(1.0, 2.0)))
    with pytest.raises(ConfigError, match="at least one of each"):
        simulate(system, 0)


def test_a_noise_without_variance_stays_without():
    system = ConstantVelocity(ConstantVelocityConfig(dims=1, density=0.0)).double()
    data = simulate(system, 5, 4, seed=1)
    expected = data.truth[:, :1, :1] + data.truth[:, :1, 1:] * data.dt.cumsum(1).unsqueeze(-1)
    torch.testing.assert_close(data.truth[..., :1], expected, rtol=0, atol=1e-12)


# ---- loaders --------------------------------------------------------------------------------------------------------


@pytest.fixture
def registered():
    """Removes what a test registers."""
    yield
    DATA._classes.pop("test_plant", None)


def test_simulated_splits_share_nothing_and_the_test_records_are_fixed():
    system = Pendulum(PendulumConfig())
    options = {"train": 3, "val": 2, "test": 4, "steps": 7}
    first, second = (loaders.load("simulated", options, seed=seed, system=system) for seed in (0, 1))
    assert [len(records) for records in first.split] == [3, 2, 4]
    assert torch.equal(first.split.test.y, second.split.test.y)
    assert not torch.equal(first.split.train.y, second.split.train.y)
    assert not torch.equal(first.split.train.y[:2], first.split.val.y)
    assert first.split.test.y.dtype == torch.float32


def test_own_loaders_return_records_and_get_what_they_name(registered):
    system = Pendulum(PendulumConfig())

    @fwnkf.register_data("test_plant")
    def plant(*, count: int, seed: int, kind: str = "three") -> object:
        """A test."""
        splits = loaders.simulated(system=system, train=count, val=1, test=1, seed=seed, steps=3).split
        return {"three": tuple(splits), "one": splits.train}[kind]

    protocol = loaders.load("test_plant", {"count": 2}, seed=4)
    assert (protocol.data, protocol.seed, len(protocol.split.train)) == ("test_plant", 4, 2)
    assert isinstance(protocol.split.test, Records)
    with pytest.raises(ConfigError, match="its loader returns Records; wanted a Protocol"):
        loaders.load("test_plant", {"count": 2, "kind": "one"})
    with pytest.raises(ConfigError, match=r"has 2 states, 2 measurements and 1 controls; system .* has 2, 1 and 0"):
        loaders.load("test_plant", {"count": 2}, system=ConstantVelocity(ConstantVelocityConfig(dims=1)))
    options = loaders.options_class(DATA["test_plant"], "test_plant")
    assert options(count=3).kind == "three"
