"""The official files of UIP-DB as the paper's table uses them: acceleration, rotation and distances of six sensors.

The state is what the sensors' own fusion computed and the optical distances: accelerations and rotations relative to
the root in its frame, as ``loader/uipdp_dataset.py`` of the FW-NKF authors forms them, and 15 distances in metres. The
measurement is the accelerometer and gyroscope before fusion and the 15 ranges. The authors divide the ranges, not the
distances, by the first range from head to root; here both are in metres.

What the paper leaves open, and what is chosen here:

- *RMSE and MAE* follow its Eq. (metrics), the sum over components: its MAE is larger than its RMSE, which a mean over
  components cannot be. Its MAE of distances is 4.8 times its RMSE; for Gaussian errors that ratio is ``√(2n/π)``, which
  points to all ``n = 36`` entries of the matrix instead of 15 pairs. :func:`scores` reports 15 pairs, and 36 entries
  under the names with ``_36``.
- *ρ* is not defined in the paper nor in its public code. Here it is the root mean square over steps and sensors of the
  angle between estimated and true rotation, in radians.
- *Windows, the initial state and the split of validation records* are not stated. Here: windows of ``window`` frames
  that do not overlap, the initial state given in ``paper``, with an error in ``strict``; validation by windows drawn
  from the training subjects in ``paper``, by a subject in ``strict``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fwnkf import Gaussian
from fwnkf.core import rotation
from fwnkf.core.layout import Layout
from fwnkf.data.protocols import Protocol, ProtocolName, Records, Split
from fwnkf.data.recording import Recording
from fwnkf.data.sets import catalogue, uipdb
from fwnkf.errors import DataError
from fwnkf.metrics.accuracy import mae_paper, raw_difference, residual, rmse_paper
from fwnkf.shapes import Float

SENSORS = len(uipdb.SENSORS)
ROOT = uipdb.SENSORS.index("root")
LAYOUT = Layout.parse(
    [
        ("acceleration", "euclidean", 3 * SENSORS),
        *((f"rotation_{name}", "quaternion", 4) for name in uipdb.SENSORS),
        ("distance", "euclidean", len(uipdb.PAIRS)),
    ]
)
VALIDATION = "04"
"""The subject that validates in ``strict``."""
START = (0.5, float(np.deg2rad(5.0)), 0.1)
"""Standard deviations of the initial acceleration (m/s²), rotation (rad) and distance (m) in ``strict``."""
START_SEED = 20260601
"""Draws the errors of the initial states, the same for every method."""


def recordings(kind: str, folder: str | Path | None = None) -> list[Recording]:
    """The sequences of ``train`` or ``test``, from the file with the samples before fusion."""
    place = catalogue.folder_of("uipdb") if folder is None else Path(folder)
    files = uipdb.find(place)
    path = files.get(f"raw_{kind}", files.get(kind))
    if path is None:
        raise DataError(f"{place}: neither raw_{kind}.pt nor {kind}.pt is there. {catalogue.info('uipdb').manual}")
    sequences = uipdb.read_processed(path)
    for recording in sequences:
        if missing := [name for name in uipdb.RAW.values() if name not in recording.extras]:
            raise DataError(
                f"{path}: sequence {recording.name} has no {', '.join(missing)} (lists {', '.join(uipdb.RAW)} of the "
                f"file): estimating acceleration and rotation needs the samples before fusion. Ask the authors for "
                f"raw_{kind}.pt, or set data.files: part"
            )
    return sequences


def states(recording: Recording) -> Float[Tensor, "T n"]:
    """Accelerations and rotations relative to the root in its frame, those of the root itself, and distances."""
    assert recording.truth is not None
    acceleration = recording.observations[:, : 3 * SENSORS].unflatten(-1, (SENSORS, 3))
    turned = recording.extras["orientation"]
    root = turned[:, ROOT : ROOT + 1]
    others = torch.arange(SENSORS) != ROOT
    relative = acceleration - acceleration[:, ROOT : ROOT + 1] * others.to(acceleration).unsqueeze(-1)
    local = (root.mT @ relative.unsqueeze(-1)).squeeze(-1)
    rotations = torch.where(others[:, None, None], root.mT @ turned, turned)
    quaternions = torch.stack([signed(from_matrix(rotations[:, i])) for i in range(SENSORS)], 1)
    return torch.cat((local.flatten(1), quaternions.flatten(1), recording.truth), -1)


def from_matrix(matrix: Float[Tensor, "T 3 3"]) -> Float[Tensor, "T 4"]:
    """Unit quaternions of rotation matrices: the largest component from the diagonal, the others from the rest."""
    m = matrix
    trace = m.diagonal(dim1=-2, dim2=-1).sum(-1)
    squared = torch.stack((1 + trace, *(1 + 2 * m[:, i, i] - trace for i in range(3))), -1)  # 4 w², 4 x², 4 y², 4 z²
    products = {
        (0, 1): m[:, 2, 1] - m[:, 1, 2], (0, 2): m[:, 0, 2] - m[:, 2, 0], (0, 3): m[:, 1, 0] - m[:, 0, 1],
        (1, 2): m[:, 1, 0] + m[:, 0, 1], (1, 3): m[:, 0, 2] + m[:, 2, 0], (2, 3): m[:, 2, 1] + m[:, 1, 2],
    }  # fmt: skip
    outer = torch.diag_embed(squared)
    for (i, j), value in products.items():
        outer[:, i, j] = outer[:, j, i] = value
    largest = squared.argmax(-1)
    return rotation.normalize(outer[torch.arange(len(m)), largest])


def signed(q: Float[Tensor, "T 4"]) -> Float[Tensor, "T 4"]:
    """The same rotations with signs that do not jump from one step to the next."""
    flips = torch.where((q[1:] * q[:-1]).sum(-1) < 0, -1.0, 1.0).to(q)
    return q * torch.cat((flips.new_ones(1), flips)).cumprod(0).unsqueeze(-1)


def measurements(recording: Recording) -> tuple[Tensor, Tensor]:
    """Samples before fusion and ranges, and where there is a measurement."""
    raw = torch.cat([recording.extras[name].flatten(1) for name in uipdb.RAW.values()], -1)
    y = torch.cat((raw, recording.observations[:, 3 * SENSORS :]), -1)
    mask = torch.cat((raw.isfinite(), recording.mask[:, 3 * SENSORS :]), -1)
    return torch.where(mask, y, 0.0), mask


def records(
    name: str, sequences: Sequence[Recording], window: int, dtype: torch.dtype, std: Sequence[float]
) -> Records:
    """Windows of the sequences that do not overlap; initial states with errors of these standard deviations."""
    y, mask, truth, spans = [], [], [], []
    for recording in sequences:
        state, (measured, present) = states(recording), measurements(recording)
        for part in recording.windows(window, window):
            rows = slice(part.start, part.start + window)
            if part.truth_mask is not None and bool(part.truth_mask.all()):
                y.append(measured[rows])
                mask.append(present[rows])
                truth.append(state[rows])
                spans.append(part.span)
    if not spans:
        raise DataError(f"{name}: no window of {window} frames has distances throughout; set data.window to fewer")
    truths = torch.stack(truth).to(dtype)
    sizes = (3 * SENSORS, 3 * SENSORS, len(uipdb.PAIRS))
    deviations = torch.cat([torch.full((size,), value, dtype=dtype) for size, value in zip(sizes, std, strict=True)])
    drawn = np.random.default_rng(START_SEED).standard_normal((len(spans), LAYOUT.tangent_size))
    initial = LAYOUT.boxplus(truths[:, 0], torch.from_numpy(drawn).to(dtype) * deviations)
    dt = torch.full(truths.shape[:2], 1 / uipdb.RATE, dtype=dtype)
    dt[:, 0] = 0.0
    start = Gaussian(initial if any(std) else truths[:, 0], deviations.square().diag())
    return Records(name, torch.stack(y).to(dtype), truths, torch.stack(mask), dt, None, start, LAYOUT, tuple(spans))


def official(
    protocol: ProtocolName, window: int, *, seed: int, dtype: torch.dtype, folder: str | Path | None
) -> Protocol:
    """All windows of the official files, in three splits."""
    std = START if protocol == "strict" else (0.0, 0.0, 0.0)
    sequences, testing = recordings("train", folder), recordings("test", folder)
    test = records("uipdb test", testing, window, dtype, std)
    if protocol == "strict":
        groups = {
            "train": [item for item in sequences if not item.name.startswith(VALIDATION)],
            "val": [item for item in sequences if item.name.startswith(VALIDATION)],
        }
        train, val = (records(f"uipdb {kind}", group, window, dtype, std) for kind, group in groups.items())
    else:
        whole = records("uipdb train", sequences, window, dtype, std)
        order = torch.from_numpy(np.random.default_rng(seed).permutation(len(whole)))
        tenth = max(1, len(whole) // 10)
        train, val = whole.take(order[tenth:]), replace(whole.take(order[:tenth]), name="uipdb val")
    return Protocol(protocol, "uipdb", seed, Split(train, val, test))


def scores(mean: Float[Tensor, "N T n"], truth: Float[Tensor, "N T n"]) -> dict[str, float]:
    """The columns of the paper's table: acceleration RMSE and MAE (m/s²), rotation ρ (rad), distance RMSE and MAE (m).

    >>> truth = LAYOUT.origin(torch.zeros(1)).expand(2, 3, -1)
    >>> moved = LAYOUT.boxplus(truth, torch.full((2, 3, LAYOUT.tangent_size), 0.1))
    >>> {name: round(value, 3) for name, value in scores(moved, truth).items() if "_36" not in name}
    {'acceleration_rmse': 0.424, 'acceleration_mae': 1.8, 'rho': 0.173, 'distance_rmse': 0.387, 'distance_mae': 1.5}
    """
    turns = slice(3 * SENSORS, 7 * SENSORS)
    acceleration = raw_difference(mean[..., : 3 * SENSORS], truth[..., : 3 * SENSORS])
    distance = raw_difference(mean[..., 7 * SENSORS :], truth[..., 7 * SENSORS :])
    sensor = Layout.parse([("rotation", "quaternion", 4)])
    turned, actual = (x[..., turns].unflatten(-1, (SENSORS, 4)) for x in (mean, truth))
    angle = residual(sensor, rotation.normalize(turned), actual).norm(dim=-1)
    entries = torch.cat((distance, distance), -1)  # the matrix is symmetric, and zero on its diagonal
    return {
        "acceleration_rmse": float(rmse_paper(acceleration)),
        "acceleration_mae": float(mae_paper(acceleration)),
        "rho": float(angle.square().mean().sqrt()),
        "distance_rmse": float(rmse_paper(distance)),
        "distance_mae": float(mae_paper(distance)),
        "distance_rmse_36": float(rmse_paper(entries)),
        "distance_mae_36": float(mae_paper(entries)),
    }
