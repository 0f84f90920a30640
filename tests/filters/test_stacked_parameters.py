"""Several sets of parameters of one filter, run at once by ``torch.func.vmap``, equal the single runs."""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call, grad, stack_module_state, vmap

import fwnkf

ORDER = 2
LEARN = ("F", "B", "H", "Q", "R")


def linear(generator):
    """Matrices of a stable system of three states, two measurements and one control, drawn anew at every call."""
    factor = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    return {
        "F": 0.8 * torch.eye(3, dtype=torch.float64) + 0.05 * factor,
        "B": torch.randn(3, 1, generator=generator, dtype=torch.float64),
        "H": torch.eye(2, 3, dtype=torch.float64) + 0.1 * factor[:2],
        "Q": factor @ factor.mT / 10 + torch.eye(3, dtype=torch.float64),
        "R": torch.eye(2, dtype=torch.float64) + 0.1 * torch.ones(2, 2, dtype=torch.float64),
    }


def build(name, generator):
    if name == "rkn":
        with torch.random.fork_rng():
            torch.manual_seed(int(torch.randint(1000, (), generator=generator)))
            return fwnkf.build(name, state_dim=3, observation_dim=2, latent_dim=4, hidden=(8,)).double()
    matrices = linear(generator)
    if name == "arkf":
        matrices["F"] = torch.stack((matrices["F"], *[-0.1 * matrices["F"]] * (ORDER - 1)))
    return fwnkf.build(name, **matrices, learn=LEARN)


@pytest.mark.parametrize("name", ["kf", "arkf", "rkn"])
def test_a_run_of_two_stacked_parameter_sets_equals_two_runs(name, generator):
    members = [build(name, generator) for _ in range(2)]
    y = torch.randn(3, 8, 2, generator=generator, dtype=torch.float64)
    u = None if name == "rkn" else torch.randn(3, 8, 1, generator=generator, dtype=torch.float64)
    mask = torch.rand(3, 8, 2, generator=generator) < 0.8
    truth = torch.randn(3, 8, 3, generator=generator, dtype=torch.float64)
    prior = fwnkf.Gaussian(torch.zeros(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64))

    def loss(tensors):
        track = functional_call(members[0], tensors, (y,), {"u": u, "mask": mask, "prior": prior})
        return (track.mean - truth).square().mean() + track.cov.diagonal(dim1=-2, dim2=-1).log().mean()

    parameters, buffers = stack_module_state(members)
    together = vmap(lambda own, fixed: loss({**own, **fixed}))(parameters, buffers)
    gradients = vmap(grad(lambda own, fixed: loss({**own, **fixed})))(parameters, buffers)
    for number, member in enumerate(members):
        own = {key: value.detach() for key, value in member.named_parameters()}
        alone = loss({**own, **dict(member.named_buffers())})
        torch.testing.assert_close(together[number], alone, rtol=1e-10, atol=1e-12)
        member.zero_grad()
        alone = loss({**dict(member.named_parameters()), **dict(member.named_buffers())})
        alone.backward()
        for key, parameter in member.named_parameters():
            assert parameter.grad.abs().max() > 0, key
            torch.testing.assert_close(gradients[key][number], parameter.grad, rtol=1e-8, atol=1e-10)
    assert abs(float((together[0] - together[1]).detach())) > 1e-3  # the members differ
