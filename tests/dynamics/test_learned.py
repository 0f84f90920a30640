"""A learned system from matrices: sizes, forms of noise, and the random walk that it is without a network."""

from __future__ import annotations

import pytest
import torch

import fwnkf
from fwnkf.core.linear import LinearSystem
from fwnkf.errors import ConfigError
from fwnkf.systems import LearnedSystem, Pendulum, PendulumConfig

from ..tolerances import assert_close

H = torch.tensor([[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]], dtype=torch.float64)
Q = torch.diag(torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64))
R = torch.tensor([[1.0, 0.4], [0.4, 2.0]], dtype=torch.float64)


def test_without_a_network_it_is_the_linear_random_walk():
    walk, linear = LearnedSystem.of(H, Q, R), LinearSystem.of(torch.eye(3, dtype=torch.float64), H, Q, R)
    assert walk.linearity == linear.linearity == "constant"
    y = torch.randn(2, 30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    actual, expected = fwnkf.EKF(walk).run(y), fwnkf.EKF(linear).run(y)
    assert_close(actual.mean, expected.mean)
    assert_close(actual.cov, expected.cov)
    # a step of twice the length has twice the noise
    assert_close(walk.process_noise(torch.tensor([2.0], dtype=torch.float64))[0], 2 * Q)


def test_sizes_and_forms_follow_from_the_matrices():
    system = LearnedSystem.of(H=H, Q=Q, R=R)
    assert (system.layout.size, system.observation_layout.size) == (3, 2)
    assert (system.diagonal_noise, system.diagonal_process) == (False, True)
    assert system.measurement_covariance().dtype == torch.float64
    assert LearnedSystem.of(R=R, state_dim=4).layout.size == 4
    turning = LearnedSystem.of(layout=[("q", "quaternion", 4)], observation_dim=9, observation="learned_matrix")
    assert (turning.layout.size, turning.linearity) == (4, "state_dependent")
    assert LearnedSystem.of(H=H, width=8).transition_linearity == "state_dependent"
    with pytest.raises(ConfigError, match="state_dim is missing"):
        LearnedSystem.of(R=R)
    with pytest.raises(ConfigError, match=r"Q has shape \(3, 3\), wanted \(4, 4\)"):
        LearnedSystem.of(Q=Q, state_dim=4, observation_dim=1)
    with pytest.raises(ConfigError, match="no effect without a network"):
        LearnedSystem.of(H=H, order=2)


def test_a_learned_covariance_keeps_its_form():
    system = LearnedSystem.of(H, Q, R, learn=("Q", "R"))
    assert_close(system.measurement_covariance(), R)
    assert_close(system.process_noise(None), Q)
    loss = system.measurement_covariance().sum() + (system.process_noise(None) * torch.arange(9.0).view(3, 3)).sum()
    loss.backward()
    assert {name for name, _ in system.named_parameters()} == {"Q.log_std", "R.log_std", "R.slopes"}
    assert all(bool(parameter.grad.any()) for parameter in system.parameters())


def test_the_observation_of_a_registered_system_comes_back_from_disk(tmp_path):
    system = LearnedSystem.of(
        Q=0.1 * torch.eye(2), observed_by=Pendulum(PendulumConfig(length=0.7)), observation="given_function"
    )
    assert system.observation_linearity == "state_dependent"
    model = fwnkf.EKF(system)
    y = torch.randn(1, 5, 2, generator=torch.Generator().manual_seed(0))
    again = fwnkf.load(fwnkf.save(model, tmp_path / "model"))
    assert (again.run(y).mean == model.run(y).mean).all()
