"""AdaBelief against an independent reading of its equations, and in runs that are stopped and resumed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.errors import ConfigError
from fwnkf.training.adabelief import AdaBelief
from fwnkf.training.checkpointing import CheckpointCallback
from fwnkf.training.config import OptimizerSection
from fwnkf.training.experiments import parse_experiment
from fwnkf.training.fit import StoppedError, fit
from fwnkf.training.module import rate


def reference(start, gradients, lr, beta1, beta2, eps, decay):
    """Algorithm 2 of arXiv 2010.07468 in its closed sums, without a recursion over moments."""
    x, history, deviations = np.array(start), [], []
    for t, gradient in enumerate(gradients, 1):
        history.append(gradient(x) + decay * x)
        m = sum((1 - beta1) * beta1 ** (t - i) * g for i, g in enumerate(history, 1))
        deviations.append((history[-1] - m) ** 2)
        s = sum(beta2 ** (t - i) * ((1 - beta2) * d + eps) for i, d in enumerate(deviations, 1))
        x = x - lr * m / (1 - beta1**t) / (np.sqrt(s / (1 - beta2**t)) + eps)
    return x


@pytest.mark.parametrize(("eps", "decay"), [(1e-16, 0.0), (1e-4, 0.0), (1e-16, 0.3)])
def test_it_follows_the_equations(eps, decay):
    rng = np.random.default_rng(0)
    start, pulls = rng.standard_normal((2, 3)), rng.standard_normal((15, 2, 3))
    gradients = [lambda x, pull=pull: np.cos(x) + pull for pull in pulls]
    parameter = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = AdaBelief([parameter], lr=0.02, betas=(0.8, 0.95), eps=eps, weight_decay=decay)
    for pull in pulls:
        parameter.grad = parameter.detach().cos() + torch.from_numpy(pull)
        optimizer.step()
    expected = reference(start, gradients, 0.02, 0.8, 0.95, eps, decay)
    np.testing.assert_allclose(parameter.detach(), expected, rtol=1e-9)


def test_a_parameter_without_gradient_stays():
    moved, still = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    optimizer = AdaBelief([moved, still])
    moved.grad = torch.ones(2)
    optimizer.step()
    assert not moved.eq(1).any()
    assert still.eq(1).all()


def test_the_exponential_schedule_falls_by_the_same_factor_in_every_step():
    options = OptimizerSection(schedule="exponential", warmup=0.0, final=0.1)
    rates = [rate(options, step / 20) for step in range(21)]
    assert rates[0] == 1.0
    assert rates[-1] == pytest.approx(0.1)
    factors = [b / a for a, b in itertools.pairwise(rates)]
    assert factors == pytest.approx([math.exp(math.log(0.1) / 20)] * 20)
    with pytest.raises(ConfigError, match="cannot be reached"):
        OptimizerSection(schedule="exponential", final=0.0)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_a_stopped_and_resumed_run_equals_an_uninterrupted_one(tmp_path, monkeypatch):
    experiment = parse_experiment(
        {
            "system": {"name": "lorenz"},
            "data": {"name": "simulated", "steps": 20, "train": 8, "val": 2, "test": 2},
            "filter": {"name": "ekf", "equations": False, "learned_system": {"width": 4}},
            "optimizer": {"name": "adabelief", "weight_decay": 1e-4, "schedule": "exponential", "warmup": 0.0},
            "trainer": {"pretrain": 5, "steps": 6, "batch_size": 4, "validate_every": 3, "loggers": []},
        }
    )
    whole = fit(experiment, tmp_path / "whole")
    original = CheckpointCallback.on_train_batch_end

    def stop_at_two(self, trainer, *rest):
        self.stop_requested = self.stop_requested or trainer.global_step == 2
        return original(self, trainer, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointCallback, "on_train_batch_end", stop_at_two)
        with pytest.raises(StoppedError):
            fit(experiment, tmp_path / "stopped")
    resumed = fit(experiment, tmp_path / "stopped", resume=True)
    assert resumed.record["steps"] == whole.record["steps"] == 6
    first, second = (fwnkf.load(tmp_path / run / "last").state_dict() for run in ("whole", "stopped"))
    assert all(torch.equal(first[name], second[name]) for name in first)
