"""Before a filter is trained as a whole: its transition alone, by regression on states that are known.

Training through the filter has to find the dynamics and the gains at once, a hundred steps deep. Where training
records hold the states, one step ahead is an ordinary regression problem, a thousand times cheaper; what is left for
the filter to learn is how far to trust it. No equations are used.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..data.protocols import Records
from ..errors import ConfigError
from ..filters.base import Filter
from ..filters.fwnkf import FrequencyWeightedNeuralKalmanFilter
from ..filters.one_step import predict_one_step
from .batches import Plan
from .setup import step_sizes

PAIRS = 4096
"""Steps of time in one batch of regression."""
RATE = 1e-2
NOISE_FLOOR = 1e-8
"""Least process variance, as a share of one step's mean square: below it float32 has nothing to say."""


def pretrain(model: Filter, task: Records, steps: int, share: float, seed: int) -> str:
    """Fit the transition, and take for process noise ``share`` of the mean square that is left.

    Returns a line that says how much of a step's motion is predicted.
    """
    if not isinstance(model, FrequencyWeightedNeuralKalmanFilter) or model.system is not None:
        raise ConfigError(
            "trainer.pretrain fits the transition of an fwnkf without equations; set it to 0 for other filters"
        )
    parts = [model.transition, *([model.encoder] if model.transition.head_size and model.encoder is not None else [])]
    trained = [parameter for part in parts for parameter in part.parameters()]
    if model.transition.head_size:
        trained += [p for p in (model.head_weight, model.head_bias) if p is not None]
    optimizer = torch.optim.Adam(trained, RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 0.5 * (1 + math.cos(math.pi * min(k / steps, 1))))
    records = max(1, PAIRS // (task.y.shape[1] - 1))
    plan = Plan(len(task), task.y.shape[1], records, None, seed + 500_009)
    scale = step_sizes(task)
    for step in range(steps):
        error, known = _errors(model, task, plan.at(step).rows)
        loss = ((error / scale).square().mean(-1) * known).sum() / known.sum().clamp_min(1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        squares, count = torch.zeros_like(scale), torch.zeros(())
        for first in range(0, len(task), records):
            error, known = _errors(model, task, torch.arange(first, min(first + records, len(task))))
            squares += (error.square() * known.unsqueeze(-1)).sum((0, 1))
            count += known.sum()
        left = squares / count
        model.set_noise((share * left).maximum(NOISE_FLOOR * scale.square()).diag())
    return f"pretrained: {float((left / scale.square()).mean().sqrt()):.2g} of a step's motion is not predicted"


def _errors(model: FrequencyWeightedNeuralKalmanFilter, task: Records, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Errors of predicting one step ahead, and which of them count."""
    truth, y = task.truth[rows], task.y[rows]
    valid = truth.isfinite().all(-1)
    origin = task.layout.origin(truth)
    truth = torch.where(valid.unsqueeze(-1), truth, origin)
    seen = torch.where(task.mask[rows] & y.isfinite(), y, model.observe(truth).detach())
    u = task.u[rows] if task.u is not None and model.control_dim else None
    predicted = predict_one_step(model, truth, seen, u, task.dt[rows])
    known = valid[:, 1:] & valid[:, :-1] & (task.dt[rows][:, 1:] > 0)
    return task.layout.boxminus(predicted, truth[:, 1:]), known.to(truth.dtype)
