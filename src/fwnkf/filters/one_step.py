"""One-step prediction of an FW-NKF's transition from known states."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..core.scan import scan
from ..shapes import Float
from .fwnkf import FrequencyWeightedNeuralKalmanFilter
from .networks import Hidden, gru_step


def predict_one_step(
    model: FrequencyWeightedNeuralKalmanFilter,
    x: Float[Tensor, "B T n"],
    y: Float[Tensor, "B T m"],
    u: Float[Tensor, "B T p"] | None,
    dt: Float[Tensor, "B T"] | None,
) -> Float[Tensor, "B S n"]:
    """One-step predictions of ``x[:, 1:]`` from the states ``x[:, :-1]``, for ``S = T - 1`` steps.

    With it the transition, and the encoder where the transition uses its output, can be fitted to known states by
    regression. A residual network is evaluated without context.

    >>> import fwnkf
    >>> model = fwnkf.FWNKF.paper(fwnkf.systems.LearnedSystem.of(H=torch.eye(2, 3)))
    >>> x = torch.randn(4, 10, 3)
    >>> bool((predict_one_step(model, x, x[..., :2], None, None) == x[:, :-1]).all())  # untrained: a random walk
    True
    """
    before, batch = x[:, :-1], x.shape[0]
    steps = before.shape[1]
    control, length = (None if item is None else item[:, 1:].flatten(0, 1) for item in (u, dt))
    ratio = None if length is None else length / model.system.dt
    points = before.flatten(0, 1)
    if model.transition is not None:
        head = model.head_bias[: model.split].expand(len(points), -1)
        if model.encoder is not None and model.head_weight is not None:
            reads = model.predicts_from_measurement
            features = [model.layout.features(before), y[:, 1:] if reads else y[:, :-1]]
            if model.system.control_dim:
                features.append(y.new_zeros(batch, steps, model.system.control_dim) if u is None else u[:, 1:])
            cells = model.encoder.weights()

            def encode(hidden: Hidden, inputs: Any) -> tuple[Hidden, tuple[Tensor]]:
                next_hidden = gru_step(cells, inputs[0], hidden)
                return next_hidden, (next_hidden[-1],)

            _, (outputs,) = scan(encode, model.encoder.start(before[:, 0]), (torch.cat(features, -1),))
            weight, bias = model.head_weight[: model.split], model.head_bias[: model.split]
            head = nn.functional.linear(outputs, weight, bias).flatten(0, 1)
        mean, _ = model.transition(points, head, ratio)
    else:
        mean = model.system.transition(points, control, length)
        if model.residual is not None:
            units = 0 if model.encoder is None else model.encoder.hidden_size
            context = points.new_zeros(len(points), units) if units else None
            change = model.residual(model.layout.features(points), context)
            mean = model.layout.boxplus(mean, change if ratio is None else change * ratio.unsqueeze(-1))
    return mean.unflatten(0, (batch, steps))
