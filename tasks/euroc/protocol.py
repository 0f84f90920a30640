"""EuRoC MAV under both protocols: inertial navigation from a given start.

``paper`` pools windows of ten sequences and splits them at random although they overlap; the initial state is given.
``strict`` splits by sequence, windows do not overlap, and the given start is off by as much as the belief says.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fwnkf.data import catalogue
from fwnkf.data.protocols import Protocol, ProtocolName, Split, Records
from fwnkf.data.recording import Recording
from fwnkf.errors import ConfigError, DataError
from fwnkf.types import Gaussian

EUROC_TEN = (
    "MH_02_easy",
    "MH_03_medium",
    "MH_04_difficult",
    "MH_05_difficult",
    "V1_01_easy",
    "V1_02_medium",
    "V1_03_difficult",
    "V2_01_easy",
    "V2_02_medium",
    "V2_03_difficult",
)
"""The ten sequences of the paper."""
EUROC_STRICT = {
    "train": ("MH_01_easy", "MH_03_medium", "MH_05_difficult", "V2_01_easy", "V2_03_difficult"),
    "val": ("V1_02_medium",),
    "test": ("MH_02_easy", "MH_04_difficult", "V1_01_easy", "V1_03_difficult", "V2_02_medium"),
}
"""The split by sequence that AirIO uses, one of its training sequences held back for validation."""
EUROC_WINDOW, EUROC_STRIDE = 200, 50
EUROC_START = (0.01, 0.01, float(np.deg2rad(0.5)))
"""Standard deviations of the given position (m), velocity (m/s) and attitude (rad) in ``strict``."""
START_SEED = 20260601
"""Draws the errors of the given initial states in ``strict``, the same for every method."""


def euroc(
    protocol: ProtocolName,
    *,
    seed: int = 0,
    horizon: float = 1.0,
    folder: str | Path | None = None,
    dtype: torch.dtype = torch.float64,
) -> Protocol:
    """Inertial navigation on EuRoC: observations are the IMU, truth is position, velocity and quaternion.

    ``paper``: windows of 200 samples every 50 of ten sequences, pooled and split at random; initial state given.
    ``strict``: windows of ``horizon`` seconds that do not overlap, split by sequence; the initial pose and velocity are
    off the truth by 1 cm, 1 cm/s and 0.5 degrees at random, and the belief says so.
    """
    names = EUROC_TEN if protocol == "paper" else tuple(name for group in EUROC_STRICT.values() for name in group)
    sequences = {one.source: one for one in catalogue.load("euroc", folder, sequences=names)}
    if protocol == "paper":
        windows = [w for name in names for w in sequences[name].windows(EUROC_WINDOW, EUROC_STRIDE)]
        whole = inertial_task("euroc", windows, (0.0, 0.0, 0.0), dtype)
        order = torch.from_numpy(np.random.default_rng(seed).permutation(len(whole)))
        tenth = len(whole) // 10
        parts = order.split([len(whole) - 2 * tenth, tenth, tenth])
        return Protocol(protocol, "euroc", seed, Split(*(whole.take(rows) for rows in parts)), difference="raw")
    tasks = []
    for kind, group in EUROC_STRICT.items():
        windows = []
        for name in group:
            length = round(horizon * sequences[name].rate) + 1
            windows += sequences[name].windows(length, length)
        tasks.append(inertial_task(f"euroc {kind}", windows, EUROC_START, dtype))
    return Protocol(protocol, "euroc", seed, Split(*tasks), difference="raw")


def inertial_task(
    name: str, windows: list[Recording], spread: tuple[float, float, float], dtype: torch.dtype
) -> Records:
    """Windows with known truth throughout, started from the truth with the stated standard deviations."""
    known = [w for w in windows if w.truth is not None and w.truth_mask is not None and bool(w.truth_mask.all())]
    if not known:
        raise DataError(f"{name}: no window has truth throughout; are these sequences with ground truth?")
    layout = known[0].layout
    if layout is None:
        raise ConfigError(f"{name}: the windows have no layout")

    def stack(part: str) -> Tensor:
        return torch.stack([getattr(w, part) for w in known])

    truth = stack("truth").to(dtype)
    dt = stack("dt").to(dtype)
    std = torch.tensor([s for s in spread for _ in range(3)], dtype=dtype)
    drawn = torch.from_numpy(np.random.default_rng(START_SEED).standard_normal((len(known), 9))).to(dtype)
    first = layout.boxplus(truth[:, 0], drawn * std) if any(spread) else truth[:, 0]
    return Records(
        name,
        stack("observations").to(dtype),
        truth,
        stack("mask"),
        dt,
        None,
        Gaussian(first, std.square().diag()),
        layout,
        tuple(w.span for w in known),
    )
