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
    >>> model = fwnkf.build("fwnkf", H=torch.eye(2, 3), Q=torch.eye(3), R=torch.eye(2))
    >>> x = torch.randn(4, 10, 3)
    >>> bool((predict_one_step(model, x, x[..., :2], None, None) == x[:, :-1]).all())  # untrained: a random walk
    True
    """
    before = x[:, :-1]
    size, config = model.transition.head_size, model.config
    head = model.head_bias.expand(*before.shape[:-1], -1)
    if size and model.encoder is not None and model.head_weight is not None:
        features = [model.layout.features(before), y[:, 1:] if config.encoder_reads == "current" else y[:, :-1]]
        if model.control_dim:
            features.append(y.new_zeros(*before.shape[:-1], model.control_dim) if u is None else u[:, 1:])
        cells = model.encoder.weights()

        def encode(hidden: Hidden, inputs: Any) -> tuple[Hidden, tuple[Tensor]]:
            next_hidden = gru_step(cells, inputs[0], hidden)
            return next_hidden, (next_hidden[-1],)

        _, (outputs,) = scan(encode, model.encoder.start(before[:, 0]), (torch.cat(features, -1),))
        head = nn.functional.linear(outputs, model.head_weight, model.head_bias)
    context = before.new_zeros(before.shape[0] * before.shape[1], config.hidden) if config.hidden else None
    step = None if dt is None else dt[:, 1:].flatten()
    mean, _ = model.transition(
        before.flatten(0, 1),
        head[..., :size].flatten(0, 1),
        context,
        None if u is None else u[:, 1:].flatten(0, 1),
        step,
        None if step is None else step / config.dt,
    )
    return mean.unflatten(0, before.shape[:2])
