"""Subspace identification against a simulated system whose poles, response and best filter are known."""

from __future__ import annotations

import pytest
import torch

import fwnkf
from fwnkf.core.linear import LinearSystem
from fwnkf.errors import DataError
from fwnkf.identify import subspace


def truth() -> LinearSystem:
    """A damped oscillation that a control drives through a lag; the first state is measured, two are hidden."""
    F = torch.tensor([[0.9, 0.2, 0.0], [-0.2, 0.9, 0.3], [0.0, 0.0, 0.7]]).double()
    B = torch.tensor([[0.0], [0.0], [0.5]]).double()
    Q = torch.diag(torch.tensor([1e-3, 4e-3, 1e-4])).double()
    R = torch.tensor([[1e-3]]).double()
    return LinearSystem.of(F=F, B=B, H=torch.eye(1, 3).double(), Q=Q, R=R)


def simulated(system: LinearSystem, steps: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    u = torch.randn(steps, 1, generator=generator).double()
    noise = torch.randn(steps, 3, generator=generator).double() @ system.Q().sqrt()
    x, states = torch.zeros(3).double(), []
    for t in range(steps):
        x = system.F @ x + system.B @ u[t] + noise[t]
        states.append(x)
    y = torch.stack(states)[:, :1] + 0.001**0.5 * torch.randn(steps, 1, generator=generator).double()
    return y, u


@pytest.fixture(scope="module")
def found() -> LinearSystem:
    system = truth()
    return subspace(
        [simulated(system, 4000, seed) for seed in range(2)], 4, horizons=(1, 2, 4, 8)
    )  # noisy, so one more state


def test_the_response_to_control_is_that_of_the_simulated_system(found) -> None:
    system = truth()

    def response(one: LinearSystem) -> torch.Tensor:
        x, outputs = one.B[:, 0], []
        for _ in range(20):
            outputs.append(x[0])
            x = one.F @ x
        return torch.stack(outputs)

    # an estimate from 8,000 noisy samples
    assert (response(found) - response(system)).abs().max() < 0.03


def test_its_filter_predicts_as_well_as_that_of_the_true_system(found) -> None:
    y, u = (item.unflatten(0, (100, 40)) for item in simulated(truth(), 4000, seed=9))
    mask = (torch.arange(40) < 35).view(1, 40, 1).expand_as(y)
    errors = []
    for system in (found, truth()):
        track = fwnkf.EKF(system=system).run(y, u, mask)
        errors.append((y - track.prior_mean[..., :1])[:, 35:].square().mean().sqrt())
    assert errors[0] < 1.03 * errors[1]


def test_too_few_states_or_samples_are_named() -> None:
    y, u = simulated(truth(), 20, seed=0)
    with pytest.raises(DataError, match="order = 0"):
        subspace([(y, u)], 0)
    with pytest.raises(DataError, match="no record has more than"):
        subspace([(y, u)], 3)
