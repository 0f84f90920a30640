"""Several sets of parameters of one filter, run at once by ``torch.func.vmap``, equal the single runs."""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call, grad, grad_and_value, stack_module_state, vmap

import fwnkf
from fwnkf.data.simulated import generate
from fwnkf.filters.stacked import CompiledSteps, FilterStack

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


@pytest.mark.parametrize("name", ["kalmannet", "recursive_kalmannet", "bayesian_kalmannet", "fwnkf_public_code"])
def test_filters_of_a_system_with_stacked_parameters_equal_single_runs(name, generator):
    """Values and gradients, on a nonlinear system, with masked channels and the same random numbers for all members."""
    small = {
        "kalmannet": {"in_mult": 2, "out_mult": 2, "gain_factor": 1.0},
        "recursive_kalmannet": {"fc1_mult": 2, "hidden_mult": 2, "fc2_mult": 2, "weight_factor": 1.0},
        "bayesian_kalmannet": {"members": 3, "in_mult": 2, "hidden_mult": 1, "out_mult": 1, "gain_factor": 1.0},
        "fwnkf_public_code": {"units": 6},
    }[name]
    data = generate("lorenz", 3, steps=6, seed=4)
    members = []
    for seed in range(2):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            members.append(fwnkf.build(name, system=data.system, **small).double())
    mask = torch.rand(data.y.shape, generator=generator) < 0.8

    def loss(tensors):
        options = {"mask": mask, "prior": data.start, "generator": torch.Generator().manual_seed(9)}
        track = functional_call(members[0], tensors, (data.y,), options)
        return (track.mean - data.truth).square().mean() + track.cov.square().mean()

    parameters, buffers = stack_module_state(members)
    stacked = vmap(grad_and_value(lambda own, fixed: loss({**own, **fixed})), randomness="same")
    gradients, together = stacked(parameters, buffers)
    for number, member in enumerate(members):
        alone = loss({**dict(member.named_parameters()), **dict(member.named_buffers())})
        alone.backward()
        torch.testing.assert_close(together[number], alone.detach(), rtol=1e-10, atol=1e-12)
        for key, parameter in member.named_parameters():
            scale = float(parameter.grad.abs().max())
            assert scale > 0, key
            torch.testing.assert_close(gradients[key][number], parameter.grad, rtol=1e-8, atol=1e-10 * scale)
    assert float((together[0] - together[1]).detach().abs()) > 1e-3  # the members differ


@pytest.mark.parametrize("name", ["fwnkf", "kalmannet", "recursive_kalmannet"])
def test_compiled_steps_of_a_stack_equal_its_loop(name, generator):
    """Values and gradients, with masked channels; the graph is run as it was traced, without a C++ compiler."""
    options = {
        "fwnkf": {"encoder": fwnkf.GRU(4), "residual": fwnkf.MLP(4), "phi": fwnkf.Phi()},
        "kalmannet": {"in_mult": 2, "out_mult": 2, "gain_factor": 1.0},
        "recursive_kalmannet": {"fc1_mult": 2, "hidden_mult": 2, "fc2_mult": 2, "weight_factor": 1.0},
    }[name]
    data = generate("lorenz", 6, steps=5, seed=4)
    members = []
    for seed in range(2):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = fwnkf.build(name, system=data.system, **options).double()
            for parameter in model.parameters():
                parameter.data.add_(0.05 * torch.randn(parameter.shape, dtype=torch.float64))
            members.append(model)
    stack = FilterStack(members)
    y, truth = data.y.unflatten(0, (2, 3)), data.truth.unflatten(0, (2, 3))
    mask = torch.rand(y.shape, generator=generator) < 0.8
    prior = fwnkf.Gaussian(*(item.expand(6, *item.shape[-(axes):]).unflatten(0, (2, 3)) for item, axes in
                             zip(data.start, (1, 2), strict=True)))  # fmt: skip

    def score(mean, cov):
        return (mean - truth).square().sum() + cov.square().mean()

    def run(model, y, mask, *prior):
        track = model.run(y, mask=mask, prior=fwnkf.Gaussian(*prior))
        return track.mean, track.cov

    looped = score(*stack.map(run, y, mask, *prior))
    looped.backward()
    wanted = {key: value.grad.clone() for key, value in stack.named_parameters().items()}
    for value in stack.named_parameters().values():
        value.grad = None
    track = CompiledSteps(stack, backend="aot_eager").run(y, mask=mask, prior=prior)
    compiled = score(track.mean, track.cov)
    compiled.backward()
    torch.testing.assert_close(compiled, looped, rtol=1e-11, atol=0)
    for key, value in stack.named_parameters().items():
        torch.testing.assert_close(value.grad, wanted[key], rtol=1e-8, atol=1e-10 * float(wanted[key].abs().max()))


def test_a_filter_takes_the_place_of_a_member(generator):
    models = [build("kf", generator) for _ in range(3)]
    stack = FilterStack(models)
    before = [stack.values(member) for member in range(3)]
    stack.place(1, models[2])
    for key, value in stack.values(1).items():
        assert torch.equal(value, before[2][key])
        assert torch.equal(stack.values(0)[key], before[0][key])
