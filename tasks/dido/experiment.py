"""DIDO in an experiment: ``data: {name: dido, …}`` after ``--import tasks.dido``."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch

import fwnkf
from fwnkf import Gaussian
from fwnkf.data.protocols import Protocol, Records, Split
from tasks.dido.protocol import RATE, denoise
from tasks.windows import cut, subset

WINDOW = round(RATE)
"""One second."""


@fwnkf.register_data("dido")
def dido(
    *,
    protocol: Literal["strict"] = "strict",
    window: int = WINDOW,
    stride: int | None = None,
    train: int | None = None,
    val: int | None = None,
    test: int | None = None,
    folder: str | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Protocol:
    """DIDO: the IMU of a vibrating quadrotor as measurement (6), its true rate and force as state (6).

    Flights are split as in the task ``dido`` and cut into windows of ``window`` samples at 400 Hz, ``stride`` apart; a
    filter starts from mean and covariance of the training flights. ``train``, ``val`` and ``test`` limit the number of
    windows.
    """
    data = denoise(folder)
    known = data.split.train.truth.flatten(0, 1)
    start = Gaussian(known.mean(0).to(dtype), torch.cov(known.mT).to(dtype))

    def windows(records: Records) -> Records:
        part = cut(records, window, stride or window)
        tensors = {name: getattr(part, name).to(dtype) for name in ("y", "truth", "dt")}
        return replace(part, **tensors, start=start)

    split = Split(*(windows(records) for records in data.split))
    return replace(data, seed=seed, split=subset(split, (train, val, test), seed))
