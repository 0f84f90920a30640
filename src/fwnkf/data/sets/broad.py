"""Reader of BROAD: an IMU moved by hand, with optical orientation.

Conventions. World frame: east, north, up. The quaternion ``(w, x, y, z)`` rotates from the IMU frame to the world
frame; the accelerometer measures +9.81 m/s² along the axis that points up. The authors resampled the optical reference
to the samples of the IMU, so time stamps are sample numbers divided by the sampling rate.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.layout import Layout
from ...errors import DataError
from .._interpolate import continuous_signs
from ..recording import Channel, Recording
from . import _checks as checks
from ._files import read_mat

LAYOUT = Layout.parse([("q", "quaternion", 4)])
CHANNELS = (
    *(Channel(f"gyro_{axis}", "rad/s") for axis in "xyz"),
    *(Channel(f"accel_{axis}", "m/s²") for axis in "xyz"),
    *(Channel(f"mag_{axis}", "µT") for axis in "xyz"),
)
CONVENTIONS = (
    "State: quaternion q (w, x, y, z) from IMU to world, world frame east-north-up. Observations in the IMU frame: "
    "angular rate (rad/s), specific force (m/s²), magnetic field (µT). The reference is sampled with the IMU."
)
MAGNETIC_LIMIT = 1e5
"""µT; the magnetometer saturates far below."""
_SIZES = {"imu_gyr": 3, "imu_acc": 3, "imu_mag": 3, "opt_quat": 4, "opt_pos": 3, "movement": 1, "sampling_rate": 1}


def read(path: str | Path) -> Recording:
    """Read one trial from its ``.mat`` file: observations 9 (gyroscope, accelerometer, magnetometer), state 4.

    ``truth_mask`` is False for rows without optical orientation; the signs of the quaternion are made continuous.
    ``extras`` holds ``movement``, the authors' flag of the phases to evaluate, and ``position`` in metres (NaN where
    unknown).
    """
    path = Path(path)
    variables, digest = read_mat(path, tuple(_SIZES))
    arrays = {name: _array(variables, name, columns, path) for name, columns in _SIZES.items()}
    rates = arrays.pop("sampling_rate")
    rate = float(rates[0, 0])
    if len(rates) != 1 or not 1.0 <= rate <= 1e5:
        raise DataError(f"{path}: sampling_rate is {rate!r}; expected one value in Hz")
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) != 1 or lengths["imu_gyr"] < 2:
        raise DataError(f"{path}: the arrays have different lengths, or fewer than two rows: {lengths}")

    def place(name: str) -> checks.Place:
        return lambda row, column: f"{path}, {name}, row {row + 1}, column {column + 1}"

    gyro, accel, mag = arrays["imu_gyr"], arrays["imu_acc"], arrays["imu_mag"]
    checks.within(gyro, checks.GYRO_LIMIT, "rad/s", place("imu_gyr"), "Is it in degrees?")
    checks.within(accel, checks.ACCELERATION_LIMIT, "m/s²", place("imu_acc"), "Is it in g?")
    checks.within(mag, MAGNETIC_LIMIT, "µT", place("imu_mag"), "Is it in nT?")
    checks.within(arrays["opt_pos"], checks.POSITION_LIMIT, "m", place("opt_pos"), "Is it in millimetres?")
    checks.gravity(accel, f"{path}, imu_acc")
    _check_field(mag, path)
    time = torch.arange(len(gyro), dtype=torch.float64) / rate
    observations = torch.cat((gyro, accel, mag), -1)
    mask, notes = checks.measured(observations, "the IMU", str(path), time)

    q, known = checks.unit_quaternions(arrays["opt_quat"], place("opt_quat"))
    if int(known.sum()) < 2:
        raise DataError(f"{path}: opt_quat has fewer than two finite rows; the file is damaged")
    q, flips = continuous_signs(q, known)
    checks.rotation_rate(time, gyro, q, known, f"{path}, imu_gyr")
    if flips:
        notes.append(f"{flips} sign flip(s) of the quaternion made continuous")
    lost = int((~known).sum())
    if lost:
        notes.append(f"the orientation is unknown at {lost} of {len(q)} samples ({lost / len(q):.1%})")
    movement = arrays["movement"][:, 0]
    if not bool(((movement == 0) | (movement == 1)).all()):
        raise DataError(f"{path}: movement must hold 0 and 1 only")
    return Recording(
        path.stem, time, observations, CHANNELS, mask, q, LAYOUT, known, CONVENTIONS, tuple(notes),
        digest, {"movement": movement.bool(), "position": arrays["opt_pos"]},
    )  # fmt: skip


def find(folder: str | Path) -> dict[str, Path]:
    """Trials in a folder, or in its subfolder ``data_mat`` as in the official repository, by name."""
    folder = Path(folder)
    paths = sorted(folder.glob("[0-9][0-9]_*.mat")) or sorted(folder.glob("data_mat/[0-9][0-9]_*.mat"))
    return {path.stem: path for path in paths}


def _array(variables: dict[str, Any], name: str, columns: int, path: Path) -> Tensor:
    value = variables.get(name)
    if not isinstance(value, np.ndarray):
        raise DataError(
            f"{path}: no numeric variable {name!r}; available: {', '.join(sorted(variables))}. "
            "Use the official file from data_mat of https://github.com/dlaidig/broad"
        )
    if value.ndim == 2 and columns == 1 and value.shape[0] == 1:
        value = value.T
    if value.ndim != 2 or value.shape[1] != columns:
        raise DataError(f"{path}: {name} has shape {value.shape}; expected (N, {columns})")
    return torch.from_numpy(np.ascontiguousarray(value, dtype=np.float64))


def _check_field(mag: Tensor, path: Path) -> None:
    lengths = mag.norm(dim=-1)
    finite = lengths[lengths.isfinite()]
    median = float(finite.median()) if len(finite) else float("nan")
    if not 2.0 <= median <= 5000.0:
        raise DataError(
            f"{path}, imu_mag: the median field is {median:.4g} µT, that of the earth is 25 to 65 µT; "
            "the unit may be gauss, tesla or nanotesla, or the columns differ"
        )
