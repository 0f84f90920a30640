"""Lorenz records of a few steps, named in the tiny file of recipes."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch

import fwnkf
from fwnkf.data.protocols import Protocol, Split, simulated

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
    whole = simulated("lorenz", protocol, seed=seed, train=train, val=val, test=test, dtype=dtype)
    cut = {name: slice(STEPS) for name in ("y", "truth", "mask", "dt")}
    splits = (
        replace(records, **{name: getattr(records, name)[:, steps] for name, steps in cut.items()})
        for records in whole.split
    )
    return replace(whole, split=Split(*splits))
