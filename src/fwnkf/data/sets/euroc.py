"""Reader of EuRoC MAV: a flying IMU with the pose from a laser tracker or motion capture, in the ASL folder layout.

Conventions. World frame R: z up, gravity ``(0, 0, -9.81)``. Body frame S: the IMU (ADIS16448). The state is position
and velocity of S in R and the quaternion ``(w, x, y, z)`` that rotates from S to R; the accelerometer measures specific
force, ``Rᵀ (a - g)``. Both files use the same clock, in nanoseconds.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...core.layout import Layout
from ...errors import DataError
from ...shapes import Bool, Float
from .._interpolate import continuous_signs, resample
from ..recording import Channel, Recording
from . import _checks as checks
from ._files import Column, Table, joint_digest, read_table

LAYOUT = Layout.parse([("p", "euclidean", 3), ("v", "euclidean", 3), ("q", "quaternion", 4)])
CHANNELS = (
    *(Channel(f"gyro_{axis}", "rad/s") for axis in "xyz"),
    *(Channel(f"accel_{axis}", "m/s²") for axis in "xyz"),
)
CONVENTIONS = (
    "State: position p (m) and velocity v (m/s) of the IMU in the world frame, z up, and the quaternion q (w, x, y, z) "
    "from IMU to world. Observations in the IMU frame: angular rate (rad/s), specific force (m/s²). One clock for both."
)
SEQUENCES = (
    "MH_01_easy", "MH_02_easy", "MH_03_medium", "MH_04_difficult", "MH_05_difficult", "V1_01_easy", "V1_02_medium",
    "V1_03_difficult", "V2_01_easy", "V2_02_medium", "V2_03_difficult",
)  # fmt: skip
JUMP_SPEED = 2.0
"""m/s; a larger difference between the change of position and the reported velocity is a jump (1 cm at 200 Hz)."""
MAX_GAP = 0.1
"""s; the ground truth is not interpolated across a longer gap."""

_IMU = (
    *(Column(f"w_RS_S_{axis}", "rad s^-1") for axis in "xyz"),
    *(Column(f"a_RS_S_{axis}", "m s^-2") for axis in "xyz"),
)
_TRUTH = (
    *(Column(f"p_RS_R_{axis}", "m", (f"p{axis}",)) for axis in "xyz"),
    *(Column(f"q_RS_{axis}", "", (f"q{axis}",)) for axis in "wxyz"),
    *(Column(f"v_RS_R_{axis}", "m s^-1", (f"v{axis}",)) for axis in "xyz"),
    *(Column(f"b_w_RS_S_{axis}", "rad s^-1", (f"bw{axis}",)) for axis in "xyz"),
    *(Column(f"b_a_RS_S_{axis}", "m s^-2", (f"ba{axis}",)) for axis in "xyz"),
)


def read(
    folder: str | Path, truth: str | Path = "official", *, trim: bool = True, mask_jumps: float = 0.0
) -> Recording:
    """Read one sequence from its folder, which contains ``mav0``: observations 6, state 10.

    Quaternions are normalized and their signs made continuous. The ground truth is interpolated to the time stamps of
    the IMU, linearly for position, velocity and biases and by slerp for the attitude; rows with equal time stamps are
    copied unchanged.

    Args:
        truth: ``"official"``; ``"corrected"`` for the pose by the authors of OpenVINS, which corrects the tilted
            orientation of V1_01 (a file ``*corrected*.csv`` in a folder next to ``mav0``); ``"none"``; or the path of
            a table with the same columns.
        trim: keep only samples between the first and the last row of ground truth.
        mask_jumps: seconds before and after a jump of the position in which the ground truth is masked.

    ``extras`` holds ``gyro_bias`` and ``accel_bias`` (NaN where the file has none) and ``jump``, True at the first
    sample after a jump.
    """
    folder = Path(folder)
    base = folder / "mav0" if (folder / "mav0").is_dir() else folder
    name = folder.resolve().name if folder.name != "mav0" else folder.resolve().parent.name
    imu = read_table(base / "imu0" / "data.csv", _IMU, 1, "ns")
    if truth == "none":
        return _sequence(name, imu, None, False, 0.0)
    if truth == "official":
        path = base / "state_groundtruth_estimate0" / "data.csv"
        if not path.is_file():
            raise DataError(f"{path} does not exist; use truth='none' to read the measurements only")
    elif truth == "corrected":
        path = _corrected(base.parent)
    else:
        path = Path(truth)
    return _sequence(name, imu, read_table(path, _TRUTH, 1, "ns"), trim, mask_jumps)


def find(folder: str | Path) -> dict[str, Path]:
    """Sequences in a folder, or one level deeper as in the official archives (``machine_hall``), by name."""
    folder = Path(folder)
    tables = [path for depth in ("*", "*/*") for path in sorted(folder.glob(f"{depth}/mav0/imu0/data.csv"))]
    return {path.parents[2].name: path.parents[2] for path in reversed(tables)}


def _corrected(folder: Path) -> Path:
    paths = sorted(folder.glob("*/*corrected*.csv")) + sorted(folder.glob("*corrected*.csv"))
    if not paths:
        raise DataError(
            f"{folder} contains no '*corrected*.csv'; the authors of OpenVINS publish one for V1_01 "
            "(https://docs.openvins.com/gs-datasets.html). Copy it there, or pass its path as truth"
        )
    return paths[0]


def _sequence(name: str, imu: Table, table: Table | None, trim: bool, mask_jumps: float) -> Recording:
    stamps, measurements = imu.stamps_ns, torch.from_numpy(imu.values)
    notes = [] if imu.has_header else [f"{imu.path} has no header; the official order of columns is assumed"]
    _check_rate(imu)
    offset = 0
    if table is not None:
        _check_rate(table)
    if table is not None and trim:
        inside = (stamps >= table.stamps_ns[0]) & (stamps <= table.stamps_ns[-1])
        if int(inside.sum()) < 2:
            raise DataError(f"{imu.path} and {table.path} do not overlap in time; they belong to different sequences")
        offset = int(np.flatnonzero(inside)[0])
        stamps, measurements = stamps[inside], measurements[torch.from_numpy(inside)]
    time = torch.from_numpy((stamps - stamps[0]) / 1e9)

    def place(row: int, column: int) -> str:
        return imu.place(row + offset, column)

    checks.within(measurements[:, :3], checks.GYRO_LIMIT, "rad/s", place, "Is it in degrees?")
    checks.within(
        measurements[:, 3:],
        checks.ACCELERATION_LIMIT,
        "m/s²",
        lambda row, column: place(row, column + 3),
        "Is it in g?",
    )
    checks.gravity(measurements[:, 3:], str(imu.path))
    mask, missing = checks.measured(measurements, "the IMU", str(imu.path), time)
    notes += missing
    if table is None:
        return Recording(
            name, time, measurements, CHANNELS, mask, conventions=CONVENTIONS, notes=tuple(notes), digest=imu.digest,
            epoch_ns=int(stamps[0]),
        )  # fmt: skip

    state, jumps, state_notes = _state(table, int(stamps[0]))
    notes += state_notes
    onto, known = resample(table.stamps_ns, state, LAYOUT, stamps, round(MAX_GAP * 1e9))
    if int(known.sum()) < 2:
        raise DataError(f"{table.path} has no valid ground truth at the times of {imu.path}; rows are missing")
    q, _ = continuous_signs(onto[:, 6:], known)
    onto = torch.cat((onto[:, :6], q), -1)
    checks.rotation_rate(time, measurements[:, :3], q, known, str(imu.path))
    unknown = int((~known).sum())
    if unknown and trim:
        notes.append(f"no ground truth for {unknown} sample(s): rows missing or more than {MAX_GAP} s apart")
    bias = torch.from_numpy(table.values[:, 10:])
    biases, _ = resample(table.stamps_ns, bias, Layout.euclidean(6), stamps, round(MAX_GAP * 1e9))
    jump = _jump_flags(table, jumps, stamps)
    if mask_jumps > 0.0 and bool(jump.any()):
        moments = time[jump]
        after = torch.searchsorted(moments, time - mask_jumps)  # the first jump that is recent enough
        near = moments[after.clamp_max(len(moments) - 1)] - time
        known = known & ~((near.abs() <= mask_jumps) & (after < len(moments)))
        onto = torch.where(known[:, None], onto, torch.nan)
        notes.append(f"the ground truth is masked within {mask_jumps} s of a jump")
    return Recording(
        name, time, measurements, CHANNELS, mask, onto, LAYOUT, known, CONVENTIONS, tuple(notes),
        joint_digest((imu.digest, table.digest)),
        {"gyro_bias": biases[:, :3], "accel_bias": biases[:, 3:], "jump": jump},
        int(stamps[0]),
    )  # fmt: skip


def _check_rate(table: Table) -> None:
    step = float(np.median(np.diff(table.stamps_ns))) / 1e9
    if not 1e-5 <= step <= 1.0:
        raise DataError(f"{table.path}: the median step is {step:g} s; time stamps must be in nanoseconds")


def _state(table: Table, origin_ns: int) -> tuple[Float[Tensor, "S 10"], list[int], list[str]]:
    """Position, velocity and quaternion as in the layout; the rows after which the position jumps; notes."""
    values = torch.from_numpy(table.values)
    p, q, v = values[:, :3], values[:, 3:7], values[:, 7:10]
    checks.within(p, checks.POSITION_LIMIT, "m", table.place, "Is it in millimetres?")
    checks.within(v, checks.SPEED_LIMIT, "m/s", lambda row, column: table.place(row, column + 7), "Check the unit.")
    q, _ = checks.unit_quaternions(q, lambda row, column: table.place(row, column + 3))
    state = torch.cat((p, v, q), -1)
    complete = state.isfinite().all(-1)
    if int(complete.sum()) < 2:
        raise DataError(f"{table.path}: fewer than two rows are complete; the file is damaged")
    q, flips = continuous_signs(q, complete)
    notes = [f"{flips} sign flip(s) of the quaternion made continuous"] if flips else []
    if not bool(complete.all()):
        notes.append(f"{int((~complete).sum())} row(s) of ground truth are not finite and are masked")
    if table.values[:, 10:].size and not np.isfinite(table.values[:, 10:]).any():
        notes.append("the ground truth has no biases")
    rate = 1e9 / float(np.median(np.diff(table.stamps_ns)))
    if rate < 100.0:
        notes.append(f"the ground truth is sampled at {rate:.0f} Hz and interpolated to the time stamps of the IMU")

    seconds = torch.from_numpy(np.diff(table.stamps_ns) / 1e9)
    excess = (p.diff(dim=0) - 0.5 * (v[1:] + v[:-1]) * seconds[:, None]).norm(dim=-1)
    speed = excess / seconds
    _check_velocity(table, p, v, seconds)
    rows = [int(row) for row in (speed > JUMP_SPEED).nonzero()[:, 0]]
    for row in rows[:20]:
        at = (int(table.stamps_ns[row + 1]) - origin_ns) / 1e9
        notes.append(
            f"position jump of {float(excess[row]) * 100:.1f} cm at {at:.3f} s: {float(speed[row]):.1f} m/s faster "
            f"than the reported velocity (threshold {JUMP_SPEED:g} m/s)"
        )
    if len(rows) > 20:
        notes.append(f"{len(rows) - 20} more position jumps; see extras['jump']")
    return torch.cat((p, v, q), -1), rows, notes


def _check_velocity(table: Table, p: Tensor, v: Tensor, seconds: Tensor) -> None:
    """The speed derived from the position must match the reported velocity; a factor of ten means another unit."""
    implied = p.diff(dim=0).norm(dim=-1) / seconds
    reported = 0.5 * (v[1:] + v[:-1]).norm(dim=-1)
    good = implied.isfinite() & reported.isfinite()
    a, b = float(implied[good].median()), float(reported[good].median())
    if max(a, b) > 0.1 and not 0.1 <= a / max(b, 1e-12) <= 10.0:
        raise DataError(
            f"{table.path}: the position changes at {a:.3g} m/s, the reported velocity is {b:.3g} m/s (medians); "
            "check their units"
        )


def _jump_flags(table: Table, rows: list[int], stamps: NDArray[np.int64]) -> Bool[Tensor, " T"]:
    flags = torch.zeros(len(stamps), dtype=torch.bool)
    if rows:
        at = np.searchsorted(stamps, table.stamps_ns[np.array(rows) + 1])
        flags[torch.from_numpy(at[at < len(stamps)])] = True
    return flags
