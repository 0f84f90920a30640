"""A learned residual of the transition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...registry import PARTS, at_least
from .part import Part


@PARTS.register("mlp")
@dataclass(frozen=True)
class MLP(Part):
    """``x⁻ = f(x, u, dt) ⊞ (dt/dt₀) g(x, h_t)``: a network of one hidden layer, zero before training.

    ``h_t`` is the output of the encoder, if the filter has one.

    Args:
        width: units of the hidden layer.
        order: 2 lets the network read products of state coordinates, and extrapolate them.

    >>> import torch, fwnkf
    >>> one = torch.eye(1)
    >>> system = fwnkf.LinearSystem.of(F=one, H=one, Q=one, R=one, dt=0.01)
    >>> sum(parameter.numel() for parameter in fwnkf.FWNKF(system, residual=MLP(width=8)).residual.parameters())
    25
    """

    kind = "mlp"
    width: int = at_least(1, 64)
    order: Literal[1, 2] = 1
