"""Reader of UIP-DB: six body-worn sensors, each an IMU and an ultra-wideband radio that measures the distances.

Two forms are supported: the processed form of the authors, ``train.pt`` and ``test.pt``, each with all sequences of
some subjects (``raw_train.pt`` and ``raw_test.pt`` if they have the samples before sensor fusion as well); and one
``.npz`` file per session with acceleration and orientation of two of the six sensors and all 15 measured ranges,
without ground truth.

Conventions. Sensors, in this order: left wrist, right wrist, left knee, right knee, head, root. Time stamps are frame
numbers at 60 Hz. Accelerations are in m/s² with gravity removed. Ranges are in metres, the upper triangle of the 6×6
matrix row by row; they are measured at 20 Hz and repeated for three frames.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.layout import Layout
from ...errors import DataError
from ...shapes import Bool, Float
from .._interpolate import continuous_signs
from ..recording import Channel, Recording
from . import _checks as checks
from ._files import file_digest, read_npz, read_pt

SENSORS = ("left_wrist", "right_wrist", "left_knee", "right_knee", "head", "root")
PAIRS = tuple(combinations(range(6), 2))
RATE = 60.0
LAYOUT = Layout.parse([("distance", "euclidean", 15)])
RANGE_LIMIT = 100.0
"""m; far beyond any distance on one body, including the errors of the radio."""
SEQUENCE_LIMIT = 10_000
PROCESSED = ("train.pt", "test.pt", "raw_train.pt", "raw_test.pt")
RAW = {"f_acc_raw": "accel_raw", "gyro_raw": "gyro_raw"}
"""Lists of samples before sensor fusion, which some processed files have, and what they are called here.

Names and shapes are those that ``loader/uipdp_dataset.py`` of the FW-NKF authors reads.
"""
CONVENTIONS = (
    "Sensors: left wrist, right wrist, left knee, right knee, head, root. Observations: acceleration (m/s², gravity "
    "removed), then the 15 ranges (m), upper triangle of the 6×6 matrix. Time stamps are frame numbers at 60 Hz."
)
_RANGES = tuple(Channel(f"range_{SENSORS[a]}_{SENSORS[b]}", "m") for a, b in PAIRS)


def _acceleration(sensors: tuple[str, ...]) -> tuple[Channel, ...]:
    return tuple(Channel(f"accel_{sensor}_{axis}", "m/s²") for sensor in sensors for axis in "xyz")


def read_session(path: str | Path, *, mask_held: bool = True) -> Recording:
    """Read one session from its ``.npz`` file: observations 21 (2 accelerations, 15 ranges), no ground truth.

    Args:
        mask_held: mask ranges that repeat the previous frame exactly: they are not new measurements.

    ``extras`` holds ``orientation`` ``[T, 2, 4]``, quaternions ``(w, x, y, z)`` of left wrist and root as estimated by
    the sensors, with continuous signs.
    """
    path = Path(path)
    arrays = read_npz(path, ("acc", "quat_xyzw", "uwb15"))
    T = len(arrays["uwb15"]) if arrays["uwb15"].ndim else 0
    for name, shape in (("acc", (T, 2, 3)), ("quat_xyzw", (T, 2, 4)), ("uwb15", (T, 15))):
        if arrays[name].shape != shape or T < 2:
            raise DataError(
                f"{path}, array {name}: shape {arrays[name].shape}, expected {shape} with at least two rows"
            )
    with np.errstate(invalid="ignore"):  # signaling NaNs are masked below
        acc, quaternion, ranges = (
            torch.from_numpy(arrays[name].astype("float64")) for name in ("acc", "quat_xyzw", "uwb15")
        )
    wxyz = quaternion[..., [3, 0, 1, 2]]
    orientations = []
    for sensor in range(2):
        q, finite = checks.unit_quaternions(wxyz[:, sensor], lambda row, _: f"{path}, quat_xyzw, frame {row}")
        orientations.append(continuous_signs(q, finite)[0])
    observations, mask, notes = _observations(acc.flatten(1), ranges, mask_held, str(path))
    return Recording(
        path.stem.removeprefix("processed_"), torch.arange(T, dtype=torch.float64) / RATE, observations,
        (*_acceleration(("left_wrist", "root")), *_RANGES), mask,
        conventions=CONVENTIONS, notes=notes, digest=file_digest(path),
        extras={"orientation": torch.stack(orientations, 1)},
    )  # fmt: skip


def read_processed(path: str | Path, *, mask_held: bool = True) -> list[Recording]:
    """Read all sequences of ``train.pt`` or ``test.pt``: observations 33 (6 accelerations, 15 ranges), 15 distances.

    ``extras`` holds ``orientation`` ``[T, 6, 3, 3]`` (rotation matrices), ``pose`` ``[T, 24, 3]`` (axis angle) and
    ``translation`` ``[T, 3]`` in metres; where the file has them, ``accel_raw`` and ``gyro_raw``, the samples from
    which acceleration and orientation were computed, ``[T, 6, 3]`` (or ``[T, 6, 3, 3]``) in the units of the file.
    """
    path = Path(path)
    content = read_pt(path)
    keys: tuple[str, ...] = ("acc", "ori", "pose", "tran", "vuwb", "uwb_gt", "fnames")
    if not isinstance(content, dict) or any(not isinstance(content.get(key), list) for key in keys):
        raise DataError(f"{path}: expected a dict of lists {', '.join(keys)}")
    keys += tuple(key for key in RAW if isinstance(content.get(key), list))
    count = len(content["fnames"])
    if any(len(content[key]) != count for key in keys) or not 0 < count <= SEQUENCE_LIMIT:
        raise DataError(f"{path}: the lists have different lengths: { {key: len(content[key]) for key in keys} }")
    # expanded tensors share their memory: a small file could describe terabytes
    if sum(x.numel() for key in keys for x in content[key] if isinstance(x, Tensor)) * 2 > path.stat().st_size:
        raise DataError(f"{path}: the tensors have more elements than the file can hold; it is damaged")
    digest = file_digest(path)
    return [
        _processed(path, {key: content[key][index] for key in keys}, index, mask_held, digest) for index in range(count)
    ]


def find(folder: str | Path) -> dict[str, Path]:
    """Sessions (``.npz``) and processed files (``.pt``) in a folder by name."""
    folder = Path(folder)
    paths = [path for kind in ("*_session*.npz", *PROCESSED) for path in sorted(folder.glob(kind))]
    return {path.stem.removeprefix("processed_"): path for path in paths}


def read(path: str | Path, *, mask_held: bool = True) -> list[Recording]:
    """Read a file of either form, by its suffix."""
    if Path(path).suffix == ".npz":
        return [read_session(path, mask_held=mask_held)]
    return read_processed(path, mask_held=mask_held)


def _processed(path: Path, item: dict[str, Any], index: int, mask_held: bool, digest: str) -> Recording:
    name = item["fnames"]
    if not isinstance(name, str) or not 0 < len(name) <= 200:
        raise DataError(f"{path}, sequence {index}: the name is not a text of at most 200 characters")
    where = f"{path}, sequence {index} ({name})"
    T = len(item["vuwb"]) if isinstance(item["vuwb"], Tensor) and item["vuwb"].ndim else 0
    tensors = {}
    shapes = {"acc": (T, 6, 3), "ori": (T, 6, 3, 3), "tran": (T, 3), "vuwb": (T, 6, 6), "uwb_gt": (T, 6, 6)}
    for key, shape in shapes.items():
        tensors[key] = _double(item[key], (shape,), key, where)
    pose = _double(item["pose"], ((T, 24, 3), (T, 72)), "pose", where).reshape(T, 24, 3)
    if T < 2:
        raise DataError(f"{where}: {T} frame(s); expected at least two")
    rows, columns = torch.tensor(PAIRS).unbind(-1)
    ranges, truth = (tensors[key][:, rows, columns] for key in ("vuwb", "uwb_gt"))
    observations, mask, notes = _observations(tensors["acc"].flatten(1), ranges, mask_held, where)
    unequal = (ranges - tensors["vuwb"][:, columns, rows]).abs() > 1e-3
    if bool(unequal.any()):
        notes += (f"{int(unequal.sum())} range(s) differ by more than 1 mm between the two directions; one is used",)
    _check_ranges(truth, f"{where}, uwb_gt")
    known = truth.isfinite().all(-1)
    extras = {"orientation": tensors["ori"], "pose": pose, "translation": tensors["tran"]}
    for key, extra in RAW.items():
        if key in item:
            extras[extra] = _double(item[key], ((T, 6, 3), (T, 6, 3, 3)), key, where)
    return Recording(
        name, torch.arange(T, dtype=torch.float64) / RATE, observations, (*_acceleration(SENSORS), *_RANGES), mask,
        torch.where(known[:, None], truth, torch.nan), LAYOUT, known, CONVENTIONS, notes, digest,
        extras, source=f"{path.stem}/{name}",
    )  # fmt: skip


def _double(value: Any, shapes: tuple[tuple[int, ...], ...], key: str, where: str) -> Tensor:
    if not isinstance(value, Tensor) or tuple(value.shape) not in shapes:
        actual = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise DataError(f"{where}: {key} is {actual}; expected a tensor of shape {' or '.join(map(str, shapes))}")
    # a copy in any case: the tensors of read_pt are views of the mapped file
    return value.to(torch.float64, copy=True, memory_format=torch.contiguous_format)


def _observations(
    acceleration: Float[Tensor, "T a"], ranges: Float[Tensor, "T 15"], mask_held: bool, where: str
) -> tuple[Float[Tensor, "T m"], Bool[Tensor, "T m"], tuple[str, ...]]:
    """Accelerations and ranges in one tensor; values that are not finite, not positive or held are masked."""
    checks.within(
        acceleration, checks.ACCELERATION_LIMIT, "m/s²", lambda row, _: f"{where}, acc, frame {row}", "Check the unit."
    )
    _check_ranges(ranges, where)
    time = torch.arange(len(ranges), dtype=torch.float64) / RATE
    mask_a, notes = checks.measured(acceleration, "the acceleration", where, time)
    mask_r, missing = checks.measured(ranges, "the ranges", where, time)
    notes += missing
    none = mask_r & (ranges <= 0)
    if bool(none.any()):
        notes.append(f"{int(none.sum())} range(s) are not positive and are masked")
    mask_r = mask_r & ~none
    if mask_held:
        held = torch.cat((torch.zeros_like(mask_r[:1]), ranges[1:] == ranges[:-1]))
        mask_r = mask_r & ~held
        notes.append(f"{int(held.sum())} range(s) repeat the previous frame and are masked")
    return torch.cat((acceleration, ranges), -1), torch.cat((mask_a, mask_r), -1), tuple(notes)


def _check_ranges(ranges: Tensor, where: str) -> None:
    finite = ranges[ranges.isfinite()]
    median = float(finite.median()) if len(finite) else float("nan")
    if not 0.02 <= median <= 20.0:
        raise DataError(f"{where}: the median range is {median:.4g} m, implausible for one body; check the unit")
    checks.within(
        ranges, RANGE_LIMIT, "m", lambda row, pair: f"{where}, frame {row}, {_RANGES[pair].name}", "Check the unit."
    )
