"""Reader of DIDO: quadrotor flights with strong rotor vibration, IMU and motion capture at about 400 Hz.

The official flights are HDF5 files (``ts``, ``acc``, ``gyr``, ``gt_p``, ``gt_q``); they are read here after conversion
to two tables per flight, ``imu_data.csv`` and ``groundTruthPoses.csv``.

Time. Both tables use the same clock: the IMU in seconds, the pose in microseconds, row by row the same instant rounded
to 1 µs. Rows within 2 µs are therefore matched without interpolation. Steps are irregular, 0.2 to 19 ms with a median
of 2.44 ms (410 Hz) and a mean rate of 400.0 Hz.

Conventions. World frame: z up, aligned with gravity. The quaternion ``(w, x, y, z)`` rotates from the IMU frame to the
world frame; at rest the accelerometer measures +9.81 m/s² along z. The files contain no velocity.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ...core.layout import Layout
from ...errors import DataError
from .._interpolate import continuous_signs, resample
from ..recording import Recording
from . import _checks as checks
from ._files import Column, Table, joint_digest, read_table
from .euroc import CHANNELS

LAYOUT = Layout.parse([("p", "euclidean", 3), ("q", "quaternion", 4)])
CONVENTIONS = (
    "State: position p (m) of the IMU in the world frame, z up, and the quaternion q (w, x, y, z) from IMU to world. "
    "Observations in the IMU frame: angular rate (rad/s), specific force (m/s²). One clock for both, irregular steps."
)
IMU_FILE, POSE_FILE = "imu_data.csv", "groundTruthPoses.csv"
MAX_GAP = 0.05
"""s; the ground truth is not interpolated across a longer gap."""
TOLERANCE = 2e-6
"""s; time stamps of the two tables that differ by less are the same instant."""

_IMU = (
    *(Column(f"accel_{axis}", "m/s^2", (f"acc_{axis}",)) for axis in "xyz"),
    *(Column(f"gyro_{axis}", "rad/s") for axis in "xyz"),
)
_POSE = (
    *(Column(f"p_{axis}", "m", (f"pos_{axis}",)) for axis in "xyz"),
    *(Column(f"q_{axis}", "", (f"quat_{axis}",)) for axis in "wxyz"),
)


def read(folder: str | Path, *, trim: bool = True) -> Recording:
    """Read one flight from its folder: observations 6 (gyroscope, accelerometer), state 7.

    With ``trim``, only samples between the first and the last pose are kept.
    """
    folder = Path(folder)
    imu = read_table(folder / IMU_FILE, _IMU, 10**9, "s")
    pose = read_table(folder / POSE_FILE, _POSE, 1000, "µs")
    for table, unit in ((imu, "seconds"), (pose, "microseconds")):
        step = float(np.median(np.diff(table.stamps_ns))) / 1e9
        if not 1e-5 <= step <= 1.0:
            raise DataError(f"{table.path}: the median step is {step:g} s; time stamps must be in {unit}")
    tolerance = round(TOLERANCE * 1e9)
    inside = np.ones(len(imu.stamps_ns), dtype=bool)
    if trim:
        inside = imu.stamps_ns >= pose.stamps_ns[0] - tolerance
        inside &= imu.stamps_ns <= pose.stamps_ns[-1] + tolerance
    if int(inside.sum()) < 2:
        raise DataError(
            f"{imu.path} and {pose.path} do not overlap in time: they belong to different flights, or the unit of one "
            "is wrong (IMU seconds, pose microseconds)"
        )
    first = int(np.flatnonzero(inside)[0])
    stamps = imu.stamps_ns[inside]
    time = torch.from_numpy((stamps - stamps[0]) / 1e9)
    values = torch.from_numpy(imu.values[inside])
    accel, gyro = values[:, :3], values[:, 3:]
    checks.within(
        accel, checks.ACCELERATION_LIMIT, "m/s²", lambda row, column: imu.place(row + first, column), "Is it in g?"
    )
    checks.within(
        gyro, checks.GYRO_LIMIT, "rad/s", lambda row, column: imu.place(row + first, column + 3), "Is it in degrees?"
    )
    checks.gravity(accel, str(imu.path))
    observations = torch.cat((gyro, accel), -1)
    mask, notes = checks.measured(observations, "the IMU", str(imu.path), time)

    state, flips = _state(pose)
    onto, known = resample(pose.stamps_ns, state, LAYOUT, stamps, round(MAX_GAP * 1e9), tolerance)
    if int(known.sum()) < 2:
        raise DataError(f"{pose.path} has no valid ground truth at the times of {imu.path}; rows are missing")
    q, _ = continuous_signs(onto[:, 3:], known)
    checks.rotation_rate(time, gyro, q, known, str(imu.path))
    if flips:
        notes.append(f"{flips} sign flip(s) of the quaternion made continuous")
    if trim and not bool(known.all()):
        notes.append(
            f"no ground truth for {int((~known).sum())} sample(s): rows missing or more than {MAX_GAP} s apart"
        )
    return Recording(
        folder.resolve().name, time, observations, CHANNELS, mask, torch.cat((onto[:, :3], q), -1), LAYOUT, known,
        CONVENTIONS, tuple(notes), joint_digest((imu.digest, pose.digest)), {}, int(stamps[0]),
    )  # fmt: skip


def find(folder: str | Path) -> dict[str, Path]:
    """Flights in a folder, up to four levels deep, by name."""
    folder = Path(folder)
    tables = [path for depth in ("*", "*/*", "*/*/*", "*/*/*/*") for path in folder.glob(f"{depth}/{IMU_FILE}")]
    return {path.parent.name: path.parent for path in sorted(tables)}


def _state(pose: Table) -> tuple[torch.Tensor, int]:
    values = torch.from_numpy(pose.values)
    checks.within(values[:, :3], checks.POSITION_LIMIT, "m", pose.place, "Is it in millimetres?")
    q, finite = checks.unit_quaternions(values[:, 3:], lambda row, column: pose.place(row, column + 3))
    q, flips = continuous_signs(q, finite)
    seconds = torch.from_numpy(np.diff(pose.stamps_ns) / 1e9)
    speed = values[:, :3].diff(dim=0).norm(dim=-1) / seconds
    good = speed[speed.isfinite()]
    if len(good) == 0 or float(good.median()) > checks.SPEED_LIMIT:
        raise DataError(
            f"{pose.path}: the position moves faster than {checks.SPEED_LIMIT:g} m/s; is it in millimetres?"
        )
    return torch.cat((values[:, :3], q), -1), flips
