"""Polynomial regression finds a system that is a polynomial, and is wrong by what is left where it is not."""

from __future__ import annotations

import torch

from fwnkf.data import protocols
from tasks.simulated.regression import fit_polynomial


def test_a_pendulum_is_found_exactly_but_for_its_noise():
    """Its Euler step is linear in sin θ, ω and u, its tip in sin θ and cos θ."""
    records = protocols.simulated("pendulum", "paper", train=2000, val=1, test=1).split.train
    system = fit_polynomial(records, 2)
    x, u = records.truth[:200, 50], records.u[:200, 50]
    for dt in (None, records.dt[:200, 50], 0.5 * records.dt[:200, 50]):
        apart = system.layout.boxminus(system.transition(x, u, dt), records.system.transition(x, u, dt))
        assert float(apart.abs().max()) < 0.01  # of a process noise of 0.05
    assert float((system.observe(x) - records.system.observe(x)).abs().max()) < 0.005
    torch.testing.assert_close(
        system.process_noise(None).diagonal(), records.system.process_noise(None).diagonal(), rtol=0.02, atol=0
    )
    torch.testing.assert_close(
        system.measurement_covariance(), records.system.measurement_covariance(), rtol=0.02, atol=2e-4
    )


def test_higher_degrees_come_closer_to_the_flow_of_lorenz():
    records = protocols.simulated("lorenz", "paper", train=200, val=1, test=100)
    x = records.split.test.truth[:, 20]
    true = records.split.test.system.transition(x, None, None)
    errors = [
        float((fit_polynomial(records.split.train, degree).transition(x, None, None) - true).square().mean())
        for degree in (1, 2, 3)
    ]
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
