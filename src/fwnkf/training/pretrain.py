"""Pretraining: fit the transition of a filter by one-step-prediction regression on true states.

Training through the filter learns dynamics and gains together, by backpropagation through a hundred steps. With true
states in the training records, one-step prediction is an ordinary regression, a thousand times cheaper; the filter then
only has to learn the noise levels. No equations of motion are used.
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
"""Pairs of consecutive time steps in one regression batch."""
RATE = 1e-2
NOISE_FLOOR = 1e-8
"""Smallest process variance as a fraction of the mean square of one step, at the resolution of float32."""


def pretrain(model: Filter, records: Records, steps: int, share: float, seed: int) -> str:
    """Fit the transition, and set the process noise to ``share`` times the mean square of the prediction error.

    Returns a status line with the part of the motion in one step that is not predicted.
    """
    if not isinstance(model, FrequencyWeightedNeuralKalmanFilter) or model.system is not None:
        raise ConfigError(
            "trainer.pretrain trains the transition of an fwnkf without equations; set it to 0 for other filters"
        )
    parts = [model.transition, *([model.encoder] if model.transition.head_size and model.encoder is not None else [])]
    trained = [parameter for part in parts for parameter in part.parameters()]
    if model.transition.head_size:
        trained += [p for p in (model.head_weight, model.head_bias) if p is not None]
    optimizer = torch.optim.Adam(trained, RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 0.5 * (1 + math.cos(math.pi * min(k / steps, 1))))
    batch_size = max(1, PAIRS // (records.y.shape[1] - 1))
    plan = Plan(len(records), records.y.shape[1], batch_size, None, seed + 500_009)
    scale = step_sizes(records)
    for step in range(steps):
        error, known = _errors(model, records, plan.at(step).rows)
        loss = ((error / scale).square().mean(-1) * known).sum() / known.sum().clamp_min(1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        squares, count = torch.zeros_like(scale), torch.zeros(())
        for first in range(0, len(records), batch_size):
            error, known = _errors(model, records, torch.arange(first, min(first + batch_size, len(records))))
            squares += (error.square() * known.unsqueeze(-1)).sum((0, 1))
            count += known.sum()
        residual = squares / count
        model.set_noise((share * residual).maximum(NOISE_FLOOR * scale.square()).diag())
    return (
        f"pretrained: {float((residual / scale.square()).mean().sqrt()):.2g} of the motion in one step is not predicted"
    )


def _errors(model: FrequencyWeightedNeuralKalmanFilter, records: Records, rows: Tensor) -> tuple[Tensor, Tensor]:
    """One-step prediction errors, and a mask of those between two known states."""
    truth, y = records.truth[rows], records.y[rows]
    valid = truth.isfinite().all(-1)
    origin = records.layout.origin(truth)
    truth = torch.where(valid.unsqueeze(-1), truth, origin)
    measured = torch.where(records.mask[rows] & y.isfinite(), y, model.observe(truth).detach())
    u = records.u[rows] if records.u is not None and model.control_dim else None
    predicted = predict_one_step(model, truth, measured, u, records.dt[rows])
    known = valid[:, 1:] & valid[:, :-1] & (records.dt[rows][:, 1:] > 0)
    return records.layout.boxminus(predicted, truth[:, 1:]), known.to(truth.dtype)
