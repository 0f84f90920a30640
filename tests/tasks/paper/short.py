"""Lorenz records of a few steps, named in the tiny file of recipes."""

from __future__ import annotations

from typing import Literal

import torch

import fwnkf
from fwnkf.data.protocols import Protocol, simulated

from ..cut import cut

STEPS = 12


@fwnkf.register_data("short_lorenz")
def short_lorenz(
    *,
    protocol: Literal["paper", "strict"] = "strict",
    train: int = 8,
    val: int = 2,
    test: int = 4,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Protocol:
    return cut(simulated("lorenz", protocol, seed=seed, train=train, val=val, test=test, dtype=dtype), STEPS)
