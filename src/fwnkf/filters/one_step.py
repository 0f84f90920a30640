"""An FW-NKF's transition on states that are known: one step ahead, nothing estimated."""

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
    """What the transition makes of given states: predictions of ``x[:, 1:]``, for ``S = T - 1`` steps.

    Transition, and encoder where the transition reads its head, can so be fitted to known states by plain regression.
    A residual network is taken without context.

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
        read = [model.layout.features(before), y[:, 1:] if config.encoder_reads == "current" else y[:, :-1]]
        if model.control_dim:
            read.append(y.new_zeros(*before.shape[:-1], model.control_dim) if u is None else u[:, 1:])
        cells = model.encoder.weights()

        def encode(hidden: Hidden, inputs: Any) -> tuple[Hidden, tuple[Tensor]]:
            following = gru_step(cells, inputs[0], hidden)
            return following, (following[-1],)

        _, (seen,) = scan(encode, model.encoder.start(before[:, 0]), (torch.cat(read, -1),))
        head = nn.functional.linear(seen, model.head_weight, model.head_bias)
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
