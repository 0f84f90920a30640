"""BROAD in an experiment: ``data: {name: broad, …}`` after ``--import tasks.broad``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

import fwnkf
from fwnkf import Gaussian
from fwnkf.data.protocols import Protocol, Records, Split
from fwnkf.data.recording import Recording
from fwnkf.data.sets import broad as reader
from fwnkf.errors import DataError
from tasks.broad.trials import BLOCK, TEST, TRAIN, trials
from tasks.windows import coarse, in_steps, subset

VALIDATION = ("16",)
WINDOW = 100 * BLOCK
START = math.radians(5.0)
"""Standard deviation of the error of the initial attitude about each axis."""
START_SEED = 20260601
"""Draws these errors, the same for every method."""


@fwnkf.register_data("broad")
def broad(
    *,
    protocol: Literal["strict"] = "strict",
    window: int = WINDOW,
    stride: int | None = None,
    every: int = BLOCK,
    train: int | None = None,
    val: int | None = None,
    test: int | None = None,
    folder: str | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Protocol:
    """BROAD: accelerometer and magnetometer as measurement (6), gyroscope as control (3), state orientation (4).

    Undisturbed trials train, one of them validates, disturbed trials test. ``window`` and ``stride`` are in samples of
    3.5 ms; steps have ``every`` samples each, whose means are measurement and control. The initial attitude has an
    error of 5 degrees about each axis, which its covariance states.
    """
    length = in_steps(window, every, "window")
    step = in_steps(stride or window, every, "stride")
    groups = {"train": tuple(name for name in TRAIN if name not in VALIDATION), "val": VALIDATION, "test": TEST}
    parts = []
    for kind, names in groups.items():
        recordings = trials(names, folder=None if folder is None else Path(folder))
        windows = [part for trial in recordings for part in coarse(trial, every).windows(length, step)]
        parts.append(_records(f"broad {kind}", windows, dtype))
    return Protocol(protocol, "broad", seed, subset(Split(*parts), (train, val, test), seed))


def _records(name: str, windows: list[Recording], dtype: torch.dtype) -> Records:
    """Windows whose first orientation is known, with errors of the initial attitude."""
    known = [window for window in windows if window.truth_mask is not None and bool(window.truth_mask[0])]
    if not known:
        raise DataError(f"{name}: no window begins with a known orientation; set data.window to fewer samples")

    def stack(part: str) -> Tensor:
        return torch.stack([getattr(window, part) for window in known])

    truth = stack("truth").to(dtype)
    observations, mask, dt = stack("observations").to(dtype), stack("mask"), stack("dt").to(dtype)
    dt[:, 0] = 0.0
    generator = torch.Generator().manual_seed(START_SEED)
    error = START * torch.randn(len(known), 3, generator=generator, dtype=torch.float64).to(dtype)
    start = Gaussian(reader.LAYOUT.boxplus(truth[:, 0], error), START**2 * torch.eye(3, dtype=dtype))
    # a rate that was not measured is taken as zero: the filter's covariance does not know of the gap
    rate = torch.where(mask[..., :3], observations[..., :3], 0.0)
    spans = tuple(window.span for window in known)
    return Records(name, observations[..., 3:], truth, mask[..., 3:], dt, rate, start, reader.LAYOUT, spans)
