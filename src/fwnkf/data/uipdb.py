"""UIP-DB: six body-worn sensors, each an IMU and an ultra-wideband radio, with the distances between all of them.

Two forms are read. The authors' processed form is ``train.pt`` and ``test.pt``, each all sequences of some subjects;
it is read without running the program such a file contains. The part at hand is one ``.npz`` a session, with
acceleration and orientation of two of the six sensors and all 15 measured ranges, and no truth.

Conventions. Sensors, in this order: left wrist, right wrist, left knee, right knee, head, root. 60 frames a second;
stamps are frame numbers. Accelerations are in m/s² with gravity removed. Ranges are in metres, the upper triangle of
the 6×6 matrix row by row; they arrive at 20 Hz and are held for three frames.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.layout import Layout
from ..errors import DataError
from ..shapes import Bool, Float
from . import _checks as checks
from ._files import file_digest, read_npz, read_pt
from ._interpolate import continuous_signs
from .recording import Channel, Recording

SENSORS = ("left_wrist", "right_wrist", "left_knee", "right_knee", "head", "root")
PAIRS = tuple(combinations(range(6), 2))
RATE = 60.0
LAYOUT = Layout.parse([("distance", "euclidean", 15)])
RANGE_LIMIT = 100.0
"""m: ten times what fits between two sensors on one body, with room for a radio's worst error."""
SEQUENCE_LIMIT = 10_000
CONVENTIONS = (
    "Sensors: left wrist, right wrist, left knee, right knee, head, root. Observations: acceleration (m/s², gravity "
    "removed), then the 15 ranges (m), upper triangle of the 6×6 matrix. 60 frames a second; stamps are frame numbers."
)
_RANGES = tuple(Channel(f"range_{SENSORS[a]}_{SENSORS[b]}", "m") for a, b in PAIRS)


def _acceleration(sensors: tuple[str, ...]) -> tuple[Channel, ...]:
    return tuple(Channel(f"accel_{sensor}_{axis}", "m/s²") for sensor in sensors for axis in "xyz")


def read_session(path: str | Path, *, mask_held: bool = True) -> Recording:
    """One session from its ``.npz``: observations 21 (2 accelerations, 15 ranges), no truth.

    Args:
        mask_held: a range that repeats the frame before exactly is no new measurement and is masked; so are ranges a
            radio lost. With False every frame counts.

    ``extras`` holds ``orientation`` ``[T, 2, 4]``, quaternions ``(w, x, y, z)`` of left wrist and root as estimated by
    the sensors, with continuous signs.
    """
    path = Path(path)
    arrays = read_npz(path, ("acc", "quat_xyzw", "uwb15"))
    T = len(arrays["uwb15"]) if arrays["uwb15"].ndim else 0
    for name, shape in (("acc", (T, 2, 3)), ("quat_xyzw", (T, 2, 4)), ("uwb15", (T, 15))):
        if arrays[name].shape != shape or T < 2:
            raise DataError(f"{path}, array {name}: shape {arrays[name].shape}, wanted {shape} with two rows or more")
    with np.errstate(invalid="ignore"):  # a NaN of any kind is found below
        acc, quaternion, ranges = (
            torch.from_numpy(arrays[name].astype("float64")) for name in ("acc", "quat_xyzw", "uwb15")
        )
    wxyz = quaternion[..., [3, 0, 1, 2]]
    turned = []
    for sensor in range(2):
        q, finite = checks.unit_quaternions(wxyz[:, sensor], lambda row, _: f"{path}, quat_xyzw, frame {row}")
        turned.append(continuous_signs(q, finite)[0])
    observations, mask, notes = _observations(acc.flatten(1), ranges, mask_held, str(path))
    return Recording(
        path.stem.removeprefix("processed_"), torch.arange(T, dtype=torch.float64) / RATE, observations,
        (*_acceleration(("left_wrist", "root")), *_RANGES), mask,
        conventions=CONVENTIONS, notes=notes, digest=file_digest(path),
        extras={"orientation": torch.stack(turned, 1)},
    )  # fmt: skip


def read_processed(path: str | Path, *, mask_held: bool = True) -> list[Recording]:
    """Every sequence of ``train.pt`` or ``test.pt``: observations 33 (6 accelerations, 15 ranges), truth 15 distances.

    ``extras`` holds ``orientation`` ``[T, 6, 3, 3]`` (rotation matrices), ``pose`` ``[T, 24, 3]`` (axis angle) and
    ``translation`` ``[T, 3]`` in metres.
    """
    path = Path(path)
    content = read_pt(path)
    keys = ("acc", "ori", "pose", "tran", "vuwb", "uwb_gt", "fnames")
    if not isinstance(content, dict) or any(not isinstance(content.get(key), list) for key in keys):
        raise DataError(f"{path}: wanted a dict of lists {', '.join(keys)}; this is another file")
    count = len(content["fnames"])
    if any(len(content[key]) != count for key in keys) or not 0 < count <= SEQUENCE_LIMIT:
        raise DataError(f"{path}: its lists have different lengths: { {key: len(content[key]) for key in keys} }")
    digest = file_digest(path)
    if sum(x.numel() for key in keys[:-1] for x in content[key] if isinstance(x, Tensor)) * 2 > path.stat().st_size:
        raise DataError(f"{path}: its tensors hold more numbers than the file has room for; it is damaged")
    return [
        _processed(path, {key: content[key][index] for key in keys}, index, mask_held, digest) for index in range(count)
    ]


def find(folder: str | Path) -> dict[str, Path]:
    """Sessions (``.npz``) and processed files (``.pt``) in a folder by name."""
    folder = Path(folder)
    paths = [path for kind in ("*_session*.npz", "train.pt", "test.pt") for path in sorted(folder.glob(kind))]
    return {path.stem.removeprefix("processed_"): path for path in paths}


def read(path: str | Path, *, mask_held: bool = True) -> list[Recording]:
    """Either form, by the end of the name."""
    if Path(path).suffix == ".npz":
        return [read_session(path, mask_held=mask_held)]
    return read_processed(path, mask_held=mask_held)


def _processed(path: Path, item: dict[str, Any], index: int, mask_held: bool, digest: str) -> Recording:
    name = item["fnames"]
    if not isinstance(name, str) or not 0 < len(name) <= 200:
        raise DataError(f"{path}, sequence {index}: its name is {str(name)[:80]!r}")
    where = f"{path}, sequence {index} ({name})"
    T = len(item["vuwb"]) if isinstance(item["vuwb"], Tensor) and item["vuwb"].ndim else 0
    tensors = {}
    shapes = {"acc": (T, 6, 3), "ori": (T, 6, 3, 3), "tran": (T, 3), "vuwb": (T, 6, 6), "uwb_gt": (T, 6, 6)}
    for key, shape in shapes.items():
        tensors[key] = _double(item[key], (shape,), key, where)
    pose = _double(item["pose"], ((T, 24, 3), (T, 72)), "pose", where).reshape(T, 24, 3)
    if T < 2:
        raise DataError(f"{where}: {T} frame(s); wanted two or more")
    rows, columns = torch.tensor(PAIRS).unbind(-1)
    ranges, truth = (tensors[key][:, rows, columns] for key in ("vuwb", "uwb_gt"))
    observations, mask, notes = _observations(tensors["acc"].flatten(1), ranges, mask_held, where)
    uneven = (ranges - tensors["vuwb"][:, columns, rows]).abs() > 1e-3
    if bool(uneven.any()):
        notes += (f"{int(uneven.sum())} range(s) differ by more than 1 mm between the two directions; one is taken",)
    _check_ranges(truth, f"{where}, uwb_gt")
    known = truth.isfinite().all(-1)
    return Recording(
        name, torch.arange(T, dtype=torch.float64) / RATE, observations, (*_acceleration(SENSORS), *_RANGES), mask,
        torch.where(known[:, None], truth, torch.nan), LAYOUT, known, CONVENTIONS, notes, digest,
        {"orientation": tensors["ori"], "pose": pose, "translation": tensors["tran"]}, source=f"{path.stem}/{name}",
    )  # fmt: skip


def _double(value: Any, shapes: tuple[tuple[int, ...], ...], key: str, where: str) -> Tensor:
    if not isinstance(value, Tensor) or tuple(value.shape) not in shapes:
        found = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise DataError(f"{where}: {key} is {found}; wanted a tensor of shape {' or '.join(map(str, shapes))}")
    return value.double().contiguous()


def _observations(
    acceleration: Float[Tensor, "T a"], ranges: Float[Tensor, "T 15"], mask_held: bool, where: str
) -> tuple[Float[Tensor, "T m"], Bool[Tensor, "T m"], tuple[str, ...]]:
    """Accelerations and ranges side by side; what is not finite, not positive or merely held is masked."""
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
        notes.append(f"{int(none.sum())} range(s) are not positive and masked")
    mask_r = mask_r & ~none
    if mask_held:
        held = torch.cat((torch.zeros_like(mask_r[:1]), ranges[1:] == ranges[:-1]))
        mask_r = mask_r & ~held
        notes.append(f"{int(held.sum())} range(s) merely repeat the frame before and are masked")
    return torch.cat((acceleration, ranges), -1), torch.cat((mask_a, mask_r), -1), tuple(notes)


def _check_ranges(ranges: Tensor, where: str) -> None:
    finite = ranges[ranges.isfinite()]
    median = float(finite.median()) if len(finite) else float("nan")
    if not 0.02 <= median <= 20.0:
        raise DataError(f"{where}: the median range is {median:.4g} m, and that on one body; is it in another unit?")
    checks.within(
        ranges, RANGE_LIMIT, "m", lambda row, pair: f"{where}, frame {row}, {_RANGES[pair].name}", "Check it."
    )
