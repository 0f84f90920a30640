"""The transition fitted to known states: against least squares, and as the start of a filter."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.data import protocols
from fwnkf.errors import ConfigError
from fwnkf.filters.one_step import predict_one_step
from fwnkf.training.experiments import read_experiment
from fwnkf.training.fit import prepare_filter
from fwnkf.training.pretrain import pretrain
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
def test_foresight_is_the_prior_of_a_filter_that_knows_the_state(transition, reads):
    """Step a filter by hand, put the truth in the place of its estimate after each step, and compare priors."""
    task = protocols.simulated("lorenz", "strict", train=3, val=1, test=1).split.train
    eye = {"H": torch.eye(2, 3).double(), "Q": torch.eye(3).double(), "R": torch.eye(2).double()}
    torch.manual_seed(0)
    model = fwnkf.build(
        "fwnkf", **eye, transition=transition, encoder_reads=reads, shaping="none", hidden=6, dt=1 / 99
    ).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "context" not in name:  # foresight leaves the context of a residual network out
                parameter.add_(0.1 * torch.randn(parameter.shape).double())
    x, y = task.truth[:, :12], task.y[:, :12]
    found = predict_one_step(model, x, y, None, task.dt[:, :12])
    state = model.init(3)
    for t in range(1, 12):
        state = state._replace(mean=x[:, t - 1], seen=y[:, t - 1])
        state, out = model.step(state, y[:, t], dt=task.dt[:, t])
        torch.testing.assert_close(found[:, t - 1], out.prior_mean, rtol=1e-10, atol=1e-10)


def test_a_linear_system_is_found_and_what_is_left_is_its_noise():
    """x⁺ = F x + w: the regression cannot beat least squares, and should come near it."""
    rng = np.random.default_rng(0)
    F = np.array([[0.98, 0.1, 0.0], [-0.1, 0.98, 0.05], [0.0, 0.0, 0.95]])
    x = np.zeros((80, 100, 3))
    x[:, 0] = rng.standard_normal((80, 3))
    for t in range(1, 100):
        x[:, t] = x[:, t - 1] @ F.T + 0.05 * rng.standard_normal((80, 3))
    task = protocols.simulated("lorenz", "strict", train=80, val=1, test=1).split.train
    truth = torch.from_numpy(x)
    from dataclasses import replace

    task = replace(task, truth=truth, y=truth[..., :2].clone(), dt=torch.ones_like(task.dt))
    model = prepare_filter(read_experiment("lorenz", SMALL), task)
    said = pretrain(model, task, 600, 1.0, seed=0)
    pairs = x[:, :-1].reshape(-1, 3), x[:, 1:].reshape(-1, 3)
    solution = np.linalg.lstsq(*pairs, rcond=None)[0]
    best = ((pairs[1] - pairs[0] @ solution) ** 2).mean(0)
    left = model.base_Q().diagonal().numpy()
    assert "is not predicted" in said
    assert (left > 0.9 * best).all()
    assert (left < 1.15 * best).all()


def test_a_pretrained_filter_is_far_better_than_a_random_walk_before_it_is_trained():
    experiment = read_experiment("lorenz", [*SMALL, "trainer.pretrain=200"])
    made = load_data(experiment)
    from fwnkf.evaluation.evaluate import evaluate

    plain = evaluate(prepare_filter(experiment, made.split.train, fresh=False), made, "plain")
    ready = evaluate(prepare_filter(experiment, made.split.train), made, "pretrained")
    assert ready["mse"] < 0.05 * plain["mse"]
    again = prepare_filter(experiment, made.split.train)
    assert torch.equal(again.base_Q(), prepare_filter(experiment, made.split.train).base_Q())


def test_filters_without_a_transition_of_their_own_are_refused():
    task = protocols.simulated("lorenz", "strict", train=2, val=1, test=1).split.train
    for model in (fwnkf.build("ekf", system=task.system), fwnkf.build("fwnkf", system=task.system)):
        with pytest.raises(ConfigError, match=r"trainer\.pretrain fits the transition of an fwnkf without equations"):
            pretrain(model, task, 1, 1.0, 0)
