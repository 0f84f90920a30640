"""Innovations that no noise explains, such as those of a collision: process noise of what is measured."""

from __future__ import annotations

import torch
from torch import Tensor

from ..shapes import Float
from .gaussian import Noise, dense, symmetrize


def jump_noise(
    P: Float[Tensor, "*B n n"],
    innovation: Float[Tensor, "*B m"],
    H: Float[Tensor, "*H m n"],
    noise: Noise,
    limit: float,
) -> tuple[Float[Tensor, "*B n n"], Float[Tensor, "*B m m"]]:
    """Process noise of what is measured that explains innovations beyond ``limit`` standard deviations, and ``S``.

    Added to ``P``, it raises the variance of channel ``i`` from ``S_ii`` to ``S_ii |ν_i| / (limit √S_ii)``: the gain on
    the measured states goes to one, and what the other states learn is that of an innovation of ``limit`` standard
    deviations (Huber's function).

    Args:
        P: covariance of the prior.
        innovation: the innovation, zero where masked.
        H, noise: Jacobian of the observation, which selects states, and ``R``.
        limit: standard deviations of a channel.

    Returns:
        The process noise to add, and the covariance of the innovation without it.

    >>> from fwnkf.core.gaussian import DiagonalNoise, condition
    >>> P = torch.tensor([[1.0, 0.5], [0.5, 1.0]])
    >>> Q, _ = jump_noise(P, torch.tensor([30.0]), torch.eye(1, 2), DiagonalNoise(torch.zeros(1)), 3.0)
    >>> condition(P + Q, torch.tensor([30.0]), torch.eye(1, 2), DiagonalNoise(torch.zeros(1))).correction
    tensor([30.0000,  1.5000])
    """
    S = symmetrize(H @ P @ H.mT + dense(noise))
    variance = torch.diagonal(S, dim1=-2, dim2=-1)
    beyond = (innovation.abs() / (limit * variance.sqrt()) - 1).clamp_min(0)
    return H.mT @ (H * (variance * beyond).unsqueeze(-1)), S
