"""EuRoC MAV under two protocols: inertial navigation from a given initial state.

``paper`` pools windows of ten sequences and splits them at random although they overlap; the true initial state is
given. ``strict`` splits by sequence, windows do not overlap, and the given initial state has an error of the size that
its covariance states.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fwnkf import Gaussian
from fwnkf.core import rotation
from fwnkf.data.protocols import Protocol, ProtocolName, Records, Split
from fwnkf.data.recording import Recording
from fwnkf.data.sets import catalogue
from fwnkf.errors import ConfigError, DataError

TEN = (
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
STRICT = {
    "train": ("MH_01_easy", "MH_03_medium", "MH_05_difficult", "V2_01_easy", "V2_03_difficult"),
    "val": ("V1_02_medium",),
    "test": ("MH_02_easy", "MH_04_difficult", "V1_01_easy", "V1_03_difficult", "V2_02_medium"),
}
"""The split by sequence that AirIO uses, one of its training sequences held back for validation."""
TILTED = "V1_01_easy"
"""The official orientation of this sequence is tilted against gravity; the authors of OpenVINS corrected it."""
WINDOW, STRIDE = 200, 50
START = (0.01, 0.01, float(np.deg2rad(0.5)))
"""Standard deviations of the given position (m), velocity (m/s) and attitude (rad) in ``strict``."""
START_SEED = 20260601
"""Draws the errors of the given initial states in ``strict``, the same for every method."""


def recordings(names: Iterable[str], folder: str | Path | None = None) -> dict[str, Recording]:
    """Sequences with the official ground truth, by name."""
    return {one.source: one for one in catalogue.load("euroc", folder, sequences=tuple(names))}


def euroc(
    protocol: ProtocolName,
    *,
    seed: int = 0,
    horizon: float = 1.0,
    folder: str | Path | None = None,
    dtype: torch.dtype = torch.float64,
    sequences: Mapping[str, Recording] | None = None,
) -> Protocol:
    """Inertial navigation on EuRoC: observations are the IMU, truth is position, velocity and quaternion.

    ``paper``: windows of 200 samples every 50 of ten sequences, pooled and split at random; initial state given.
    ``strict``: windows of ``horizon`` seconds that do not overlap, split by sequence; the initial position, velocity
    and attitude have random errors of 1 cm, 1 cm/s and 0.5 degrees (standard deviations), stated by the prior.
    ``sequences`` are recordings read before.
    """
    names = TEN if protocol == "paper" else tuple(name for group in STRICT.values() for name in group)
    if sequences is None:
        sequences = recordings(names, folder)
    if protocol == "paper":
        windows = [window for name in names for window in sequences[name].windows(WINDOW, STRIDE)]
        whole = inertial_records("euroc", windows, (0.0, 0.0, 0.0), dtype)
        order = torch.from_numpy(np.random.default_rng(seed).permutation(len(whole)))
        tenth = len(whole) // 10
        parts = order.split([len(whole) - 2 * tenth, tenth, tenth])
        return Protocol(protocol, "euroc", seed, Split(*(whole.take(rows) for rows in parts)), difference="raw")
    groups = []
    for kind, group in STRICT.items():
        windows = []
        for name in group:
            length = round(horizon * sequences[name].rate) + 1
            windows += sequences[name].windows(length, length)
        groups.append(inertial_records(f"euroc {kind}", windows, START, dtype))
    return Protocol(protocol, "euroc", seed, Split(*groups), difference="raw")


def inertial_records(
    name: str, windows: list[Recording], std: tuple[float, float, float], dtype: torch.dtype
) -> Records:
    """Windows with known truth throughout; initial states with errors of the stated standard deviations."""
    known = [
        window
        for window in windows
        if window.truth is not None and window.truth_mask is not None and bool(window.truth_mask.all())
    ]
    if not known:
        raise DataError(f"{name}: no window has truth throughout; read sequences that come with ground truth")
    layout = known[0].layout
    if layout is None:
        raise ConfigError(f"{name}: the windows have no layout; read them with the reader of the data set")

    def stack(part: str) -> Tensor:
        return torch.stack([getattr(window, part) for window in known])

    truth = stack("truth").to(dtype)
    deviations = torch.tensor([value for value in std for _ in range(3)], dtype=dtype)
    drawn = torch.from_numpy(np.random.default_rng(START_SEED).standard_normal((len(known), 9))).to(dtype)
    initial = layout.boxplus(truth[:, 0], drawn * deviations) if any(std) else truth[:, 0]
    return Records(
        name,
        stack("observations").to(dtype),
        truth,
        stack("mask"),
        stack("dt").to(dtype),
        None,
        Gaussian(initial, deviations.square().diag()),
        layout,
        tuple(window.span for window in known),
    )


def corrected_truth(official: Recording, folder: str | Path | None = None) -> Recording | None:
    """The tilted sequence with the corrected 20 Hz pose, on the samples of the official one; None if it is not there.

    Between two poses it is interpolated, linearly and along the shortest arc.
    """
    try:
        (corrected,) = catalogue.load("euroc", folder, sequences=(TILTED,), truth="corrected", trim=False)
    except DataError:
        return None  # not part of the official archive
    assert official.epoch_ns is not None
    assert corrected.epoch_ns is not None
    offset = (official.epoch_ns - corrected.epoch_ns) / 1e9
    first = int(torch.searchsorted(corrected.time, offset - 0.25 / official.rate))
    part = slice(first, first + len(official))
    assert corrected.truth is not None
    assert corrected.truth_mask is not None
    if float((corrected.time[part] - offset - official.time).abs().max()) > 1e-6:
        raise DataError(f"{TILTED}: the samples of the two readings do not match; read the folder again")
    return replace(official, truth=corrected.truth[part], truth_mask=corrected.truth_mask[part])


def with_corrected_truth(test: Records, corrected: Recording) -> Records:
    """The windows of the tilted sequence with the corrected truth, and the same errors of the initial state."""
    truth, known = corrected.truth, corrected.truth_mask
    assert truth is not None
    assert known is not None
    rows = [
        row
        for row, span in enumerate(test.spans)
        if span.source == TILTED and bool(known[span.start : span.stop].all())
    ]
    part = test.take(rows)
    right = torch.stack([truth[span.start : span.stop] for span in part.spans]).to(part.truth)
    error = part.layout.boxminus(part.start.mean, part.truth[:, 0])
    initial = Gaussian(part.layout.boxplus(right[:, 0], error), part.start.cov)
    return replace(part, name=f"{part.name}, corrected truth", truth=right, start=initial)


def vertical_difference(official: Recording, corrected: Recording) -> dict[str, float]:
    """The angle between the verticals of two truths as seen from the body, in degrees: mean and standard deviation."""
    up = []
    for recording in (official, corrected):
        assert recording.truth is not None
        up.append(rotation.to_matrix(recording.truth[:, 6:])[:, 2])
    angle = torch.rad2deg((up[0] * up[1]).sum(-1).clamp(-1.0, 1.0).acos())[corrected.truth_mask]
    return {"mean": float(angle.mean()), "std": float(angle.std())}


def by_source(records: Records) -> dict[str, list[int]]:
    """The rows of each sequence, by its name."""
    rows: dict[str, list[int]] = {}
    for row, span in enumerate(records.spans):
        rows.setdefault(span.source, []).append(row)
    return rows
