"""Pretraining of the transition, against least squares and against the prior of a filter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf import GRU, MLP, LocallyLinear
from fwnkf.data import protocols
from fwnkf.errors import ConfigError
from fwnkf.evaluation.evaluate import evaluate
from fwnkf.filters.one_step import predict_one_step
from fwnkf.systems import LearnedSystem
from fwnkf.training.experiments import read_experiment
from fwnkf.training.fit import prepare_filter
from fwnkf.training.pretrain import _quasi_newton, pretrain
from fwnkf.training.setup import load_data

SMALL = [
    "data.train=60",
    "data.val=4",
    "data.test=40",
    "data.dtype=float64",
    "trainer.compile=false",
    "trainer.pretrain=0",
]


@pytest.mark.parametrize("transition", ["locally_linear", "residual"])
@pytest.mark.parametrize("reads", ["previous", "current"])
def test_one_step_prediction_is_the_prior_of_a_filter_with_the_true_state(transition, reads):
    """Replace the estimate by the true state after each step, and compare priors."""
    records = protocols.simulated("lorenz", "strict", train=3, val=1, test=1).split.train
    eye = {"H": torch.eye(2, 3).double(), "Q": torch.eye(3).double(), "R": torch.eye(2).double()}
    torch.manual_seed(0)
    part = {"transition": LocallyLinear()} if transition == "locally_linear" else {"residual": MLP(64)}
    model = fwnkf.FWNKF(LearnedSystem.of(**eye, dt=1 / 99), encoder=GRU(6, reads=reads), **part)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "context" not in name:  # one-step prediction leaves out the context of a residual network
                parameter.add_(0.1 * torch.randn(parameter.shape).double())
    x, y = records.truth[:, :12], records.y[:, :12]
    predicted = predict_one_step(model, x, y, None, records.dt[:, :12])
    state = model.init(3)
    for t in range(1, 12):
        state = state._replace(mean=x[:, t - 1], encoder=state.encoder._replace(seen=y[:, t - 1]))
        state, out = model.step(state, y[:, t], dt=records.dt[:, t])
        torch.testing.assert_close(predicted[:, t - 1], out.prior_mean, rtol=1e-10, atol=1e-10)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_a_linear_system_is_recovered_with_its_process_noise():
    """x⁺ = F x + w: the regression comes close to least squares, and cannot be better."""
    rng = np.random.default_rng(0)
    F = np.array([[0.98, 0.1, 0.0], [-0.1, 0.98, 0.05], [0.0, 0.0, 0.95]])
    x = np.zeros((80, 100, 3))
    x[:, 0] = rng.standard_normal((80, 3))
    for t in range(1, 100):
        x[:, t] = x[:, t - 1] @ F.T + 0.05 * rng.standard_normal((80, 3))
    records = protocols.simulated("lorenz", "strict", train=80, val=1, test=1).split.train
    truth = torch.from_numpy(x)
    records = replace(records, truth=truth, y=truth[..., :2].clone(), dt=torch.ones_like(records.dt))
    model = prepare_filter(read_experiment("lorenz", SMALL), records)
    status = pretrain(model, records, 600, 1.0, seed=0)
    pairs = x[:, :-1].reshape(-1, 3), x[:, 1:].reshape(-1, 3)
    solution = np.linalg.lstsq(*pairs, rcond=None)[0]
    best = ((pairs[1] - pairs[0] @ solution) ** 2).mean(0)
    variance = model.system.process_noise(None).diagonal().detach().numpy()
    assert "is not predicted" in status
    assert (variance > 0.9 * best).all()
    assert (variance < 1.15 * best).all()


def test_pretraining_is_far_more_accurate_than_the_initial_random_walk():
    experiment = read_experiment("lorenz", [*SMALL, "trainer.pretrain=200"])
    protocol = load_data(experiment)
    initial = evaluate(prepare_filter(experiment, protocol.split.train, fresh=False), protocol, "plain")
    first = prepare_filter(experiment, protocol.split.train)
    pretrained = evaluate(first, protocol, "pretrained")
    assert pretrained["mse"] < 0.05 * initial["mse"]
    short = read_experiment("lorenz", [*SMALL, "trainer.pretrain=20"])
    twice = [prepare_filter(short, protocol.split.train).system.process_noise(None) for _ in range(2)]
    assert torch.equal(*twice)
    assert not torch.equal(twice[0], first.system.process_noise(None))


def test_quasi_newton_iterations_find_least_squares_and_keep_only_what_helps_other_records():
    rng = np.random.default_rng(1)
    inputs = rng.standard_normal((40, 5)) * [1.0, 10.0, 0.1, 3.0, 30.0]  # badly scaled: gradient descent is slow
    targets = inputs @ [1.0, -0.3, 20.0, 0.5, 0.01] + 0.1 * rng.standard_normal(40)
    weight = torch.nn.Parameter(torch.zeros(5, dtype=torch.float64))
    A, b = torch.from_numpy(inputs), torch.from_numpy(targets)

    def loss_on(rows):
        return (A[rows] @ weight - b[rows]).square().mean()

    used, others = torch.arange(30), torch.arange(30, 40)
    _quasi_newton([weight], loss_on, used, used, 200)
    wanted = np.linalg.lstsq(inputs[:30], targets[:30], rcond=None)[0]
    np.testing.assert_allclose(weight.detach().numpy(), wanted, rtol=1e-6)

    start = weight.detach().clone()
    b[others] = A[others] @ start  # which these weights fit exactly and no others better
    b[used] += 1.0
    _quasi_newton([weight], loss_on, used, others, 200)
    assert torch.equal(weight, start)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_refined_regression_of_motion_without_noise_beats_as_many_more_steps_of_adam():
    records = load_data(read_experiment("lorenz", SMALL)).split.train

    def unpredicted(steps: int, refine: int) -> float:
        more = [f"trainer.pretrain={steps}", f"trainer.refine={refine}"]
        model = prepare_filter(read_experiment("lorenz", [*SMALL, *more]), records)
        return float(model.system.process_noise(None).detach().diagonal().sum())

    assert unpredicted(50, 200) < 0.25 * unpredicted(250, 0)
    with pytest.raises(ConfigError, match="refine = 5 has no effect without a regression"):
        read_experiment("lorenz", [*SMALL, "trainer.refine=5"])


def test_pretraining_refuses_filters_without_a_learned_transition():
    records = protocols.simulated("lorenz", "strict", train=2, val=1, test=1).split.train
    for model in (fwnkf.EKF(records.system), fwnkf.FWNKF(records.system, encoder=GRU(6), residual=MLP(6))):
        with pytest.raises(ConfigError, match=r"trainer\.pretrain = 1: filter '\w+' has no learned transition"):
            pretrain(model, records, 1, 1.0, 0)
