"""EuRoC MAV: a flying IMU with the pose from a laser tracker or motion capture, in the ASL folder layout.

Conventions. World frame R: z up, gravity ``(0, 0, -9.81)``. Body frame S: the IMU (ADIS16448). The state is position
and velocity of S in R and the quaternion ``(w, x, y, z)`` that turns S into R; the accelerometer measures specific
force, ``Rᵀ (a - g)``. One clock, in nanoseconds, for both files.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.layout import Layout
from ..errors import DataError
from ..shapes import Bool, Float
from . import _checks as checks
from ._files import Column, Table, joint_digest, read_table
from ._interpolate import continuous_signs, resample
from .recording import Channel, Recording

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
PAPER = tuple(name for name in SEQUENCES if name != "MH_01_easy")
"""The ten sequences of the paper."""
TRAIN = ("MH_01_easy", "MH_03_medium", "MH_05_difficult", "V1_02_medium", "V2_01_easy", "V2_03_difficult")
TEST = ("MH_02_easy", "MH_04_difficult", "V1_01_easy", "V1_03_difficult", "V2_02_medium")
JUMP_SPEED = 2.0
"""m/s: between two rows of truth the position may move this much faster than its velocity says (1 cm at 200 Hz)."""
MAX_GAP = 0.1
"""s: truth is not interpolated across a longer gap."""

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
    """One sequence from its folder, the one that holds ``mav0``: observations 6, state 10.

    Quaternions are scaled to length one and given continuous signs; truth is put on the stamps of the IMU, linear for
    position, velocity and biases and along the shortest arc for the attitude, or taken bit for bit where stamps agree.

    Args:
        truth: ``"official"``; ``"corrected"`` for the pose by the authors of OpenVINS, which mends the tilted
            orientation of V1_01 (a file ``*corrected*.csv`` in a folder beside ``mav0``); ``"none"``; or the path of
            any table with the same columns.
        trim: keep only samples between the first and the last row of truth.
        mask_jumps: seconds before and after a jump of the position in which the truth counts as unknown.

    ``extras`` holds ``gyro_bias`` and ``accel_bias`` (NaN where the file has none) and ``jump``, true at the first
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
            raise DataError(f"{path} does not exist; read with truth='none' for the measurements alone")
    elif truth == "corrected":
        path = _corrected(base.parent)
    else:
        path = Path(truth)
    return _sequence(name, imu, read_table(path, _TRUTH, 1, "ns"), trim, mask_jumps)


def find(folder: str | Path) -> dict[str, Path]:
    """Sequences below a folder by name, also inside ``machine_hall`` and its like as the archives have them."""
    folder = Path(folder)
    tables = [path for depth in ("*", "*/*") for path in sorted(folder.glob(f"{depth}/mav0/imu0/data.csv"))]
    return {path.parents[2].name: path.parents[2] for path in reversed(tables)}


def _corrected(folder: Path) -> Path:
    found = sorted(folder.glob("*/*corrected*.csv")) + sorted(folder.glob("*corrected*.csv"))
    if not found:
        raise DataError(
            f"{folder} has no '*corrected*.csv' beside mav0; the authors of OpenVINS publish one for V1_01 "
            "(https://docs.openvins.com/gs-datasets.html). Put it there, or give its path as truth"
        )
    return found[0]


def _sequence(name: str, imu: Table, table: Table | None, trim: bool, mask_jumps: float) -> Recording:
    stamps, measurements = imu.stamps_ns, torch.from_numpy(imu.values)
    notes = [] if imu.has_header else [f"{imu.path} has no header; columns taken in the official order"]
    _check_rate(imu)
    if table is not None:
        _check_rate(table)
        if trim:
            inside = (stamps >= table.stamps_ns[0]) & (stamps <= table.stamps_ns[-1])
            if int(inside.sum()) < 2:
                raise DataError(
                    f"{imu.path} and {table.path} do not overlap in time; they belong to different sequences"
                )
            offset = int(np.flatnonzero(inside)[0])
            stamps, measurements = stamps[inside], measurements[torch.from_numpy(inside)]
        else:
            offset = 0
    else:
        offset = 0
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

    state, jumps, found = _state(table, int(stamps[0]))
    notes += found
    onto, known = resample(table.stamps_ns, state, LAYOUT, stamps, round(MAX_GAP * 1e9))
    if int(known.sum()) < 2:
        raise DataError(f"{table.path} has no usable truth on the stamps of {imu.path}; its rows are missing or apart")
    q, _ = continuous_signs(onto[:, 6:], known)
    onto = torch.cat((onto[:, :6], q), -1)
    checks.rotation_rate(time, measurements[:, :3], q, known, str(imu.path))
    unknown = int((~known).sum())
    if unknown and trim:
        notes.append(f"the truth is unknown at {unknown} sample(s): rows missing or more than {MAX_GAP} s apart")
    bias = torch.from_numpy(table.values[:, 10:])
    biases, _ = resample(table.stamps_ns, bias, Layout.euclidean(6), stamps, round(MAX_GAP * 1e9))
    jump = _jump_flags(table, jumps, stamps)
    if mask_jumps > 0.0 and bool(jump.any()):
        moments = time[jump]
        after = torch.searchsorted(moments, time - mask_jumps)  # the first jump that is not too long ago
        near = moments[after.clamp_max(len(moments) - 1)] - time
        known = known & ~((near.abs() <= mask_jumps) & (after < len(moments)))
        onto = torch.where(known[:, None], onto, torch.nan)
        notes.append(f"the truth counts as unknown within {mask_jumps} s of a jump")
    return Recording(
        name, time, measurements, CHANNELS, mask, onto, LAYOUT, known, CONVENTIONS, tuple(notes),
        joint_digest((imu.digest, table.digest)),
        {"gyro_bias": biases[:, :3], "accel_bias": biases[:, 3:], "jump": jump},
        int(stamps[0]),
    )  # fmt: skip


def _check_rate(table: Table) -> None:
    step = float(np.median(np.diff(table.stamps_ns))) / 1e9
    if not 1e-5 <= step <= 1.0:
        raise DataError(f"{table.path}: the median step is {step:g} s; stamps must be in nanoseconds")


def _state(table: Table, origin_ns: int) -> tuple[Float[Tensor, "S 10"], list[int], list[str]]:
    """Position, velocity, quaternion in the order of the layout; rows after which the position jumps; notes."""
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
        notes.append(f"{int((~complete).sum())} row(s) of truth are not finite and count as unknown")
    if table.values[:, 10:].size and not np.isfinite(table.values[:, 10:]).any():
        notes.append("the ground truth has no biases")
    rate = 1e9 / float(np.median(np.diff(table.stamps_ns)))
    if rate < 100.0:
        notes.append(f"the truth comes at {rate:.0f} Hz and is interpolated to the stamps of the IMU")

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
        notes.append(f"{len(rows) - 20} more position jumps; extras['jump'] marks all of them")
    return torch.cat((p, v, q), -1), rows, notes


def _check_velocity(table: Table, p: Tensor, v: Tensor, seconds: Tensor) -> None:
    """Position and velocity must tell of the same speed, or one of them is in another unit."""
    implied = p.diff(dim=0).norm(dim=-1) / seconds
    reported = 0.5 * (v[1:] + v[:-1]).norm(dim=-1)
    good = implied.isfinite() & reported.isfinite()
    a, b = float(implied[good].median()), float(reported[good].median())
    if max(a, b) > 0.1 and not 0.1 <= a / max(b, 1e-12) <= 10.0:
        raise DataError(
            f"{table.path}: position moves at {a:.3g} m/s, reported velocity is {b:.3g} m/s (medians); "
            "one of them is in another unit"
        )


def _jump_flags(table: Table, rows: list[int], stamps: NDArray[np.int64]) -> Bool[Tensor, " T"]:
    flags = torch.zeros(len(stamps), dtype=torch.bool)
    if rows:
        at = np.searchsorted(stamps, table.stamps_ns[np.array(rows) + 1])
        flags[torch.from_numpy(at[at < len(stamps)])] = True
    return flags
