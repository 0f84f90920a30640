"""Small recordings in the form of each published set, made from one smooth flight whose every number is known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.io
import torch
from scipy.spatial.transform import Rotation

GRAVITY = np.array([0.0, 0.0, 9.80665])
EPOCH_NS = 1403636579758555392


@dataclass(frozen=True)
class Flight:
    """A circle with changing attitude, at given seconds: truth, and what an ideal IMU would measure."""

    time: np.ndarray
    position: np.ndarray
    velocity: np.ndarray
    quaternion: np.ndarray  # (w, x, y, z), one sign throughout
    gyro: np.ndarray
    accel: np.ndarray


def flight(time: np.ndarray) -> Flight:
    angle, speed = 1.1 * time, 1.1
    position = np.stack((np.cos(angle), np.sin(angle), 1.0 + 0.2 * np.sin(2 * time)), -1)
    velocity = np.stack((-speed * np.sin(angle), speed * np.cos(angle), 0.4 * np.cos(2 * time)), -1)
    acceleration = np.stack((-(speed**2) * np.cos(angle), -(speed**2) * np.sin(angle), -0.8 * np.sin(2 * time)), -1)

    def attitude(t: np.ndarray) -> Rotation:
        return Rotation.from_euler("zyx", np.stack((0.9 * t, 0.3 * np.sin(1.7 * t), 0.4 * np.cos(1.3 * t)), -1))

    turn, h = attitude(time), 1e-5
    gyro = (attitude(time - h).inv() * attitude(time + h)).as_rotvec() / (2 * h)
    xyzw = turn.as_quat()
    signs = np.cumprod(np.concatenate(([1.0], np.where((xyzw[1:] * xyzw[:-1]).sum(-1) < 0, -1.0, 1.0))))
    quaternion = (xyzw * signs[:, None])[:, [3, 0, 1, 2]]
    return Flight(time, position, velocity, quaternion, gyro, turn.inv().apply(acceleration + GRAVITY))


def flipped(quaternion: np.ndarray, every: int = 25) -> np.ndarray:
    """The same rotations with the sign changed every so often, as the published files have it."""
    return quaternion * np.where(np.arange(len(quaternion)) // every % 2, -1.0, 1.0)[:, None]


def rows(stamps: list[str], *columns: np.ndarray, form: str = "%.9f", separator: str = ",") -> list[str]:
    table = np.concatenate(columns, -1)
    return [separator.join((stamp, *(form % x for x in row))) for stamp, row in zip(stamps, table, strict=True)]


EUROC_IMU_HEADER = "#timestamp [ns]," + ",".join(
    [f"w_RS_S_{a} [rad s^-1]" for a in "xyz"] + [f"a_RS_S_{a} [m s^-2]" for a in "xyz"]
)
EUROC_TRUTH_HEADER = "#timestamp, " + ", ".join(
    [f"p_RS_R_{a} [m]" for a in "xyz"]
    + [f"q_RS_{a} []" for a in "wxyz"]
    + [f"v_RS_R_{a} [m s^-1]" for a in "xyz"]
    + [f"b_w_RS_S_{a} [rad s^-1]" for a in "xyz"]
    + [f"b_a_RS_S_{a} [m s^-2]" for a in "xyz"]
)


def euroc(
    folder: Path, samples: int = 120, *, shift_ns: int = 0, lead: int = 10, biases: bool = True, jump: int | None = None
) -> Flight:
    """A sequence folder; the IMU starts ``lead`` samples before the truth and ends as many after it."""
    stamps = EPOCH_NS + 5_000_000 * np.arange(samples)
    imu = flight((stamps - EPOCH_NS) / 1e9)
    truth_stamps = stamps[lead : samples - lead] + shift_ns
    truth = flight((truth_stamps - EPOCH_NS) / 1e9)
    position = truth.position.copy()
    if jump is not None:
        position[jump:] += [0.05, 0.0, 0.0]
    bias = np.tile([0.001, 0.002, 0.003, 0.01, 0.02, 0.03], (len(truth_stamps), 1)) * (1.0 if biases else np.nan)
    for name, lines, end in (
        ("imu0", [EUROC_IMU_HEADER, *rows([str(s) for s in stamps], imu.gyro, imu.accel, form="%.17g")], "\r\n"),
        (
            "state_groundtruth_estimate0",
            [
                EUROC_TRUTH_HEADER,
                *rows(
                    [str(s) for s in truth_stamps], position, flipped(truth.quaternion), truth.velocity, bias,
                    form="%.9f", separator=", ",
                ),
            ],
            "\n",
        ),
    ):  # fmt: skip
        path = folder / "mav0" / name / "data.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((end.join(lines) + end).encode())
    return imu


def dido(folder: Path, samples: int = 120, *, lead: int = 0) -> Flight:
    """A flight folder with irregular steps; the stamps of the poses are rounded otherwise than those of the IMU."""
    rng = np.random.default_rng(7)
    micro = 1645458383129590 + np.concatenate(([0], np.cumsum(rng.integers(300, 4600, samples - 1))))
    flown = flight((micro - micro[0]) / 1e6)
    folder.mkdir(parents=True, exist_ok=True)
    seconds = [f"{s // 1_000_000}.{s % 1_000_000:06d}" for s in micro]
    lines = ["# timestamp,accel_x,accel_y,accel_z,gyro_x,gyro_y,gyro_z", *rows(seconds, flown.accel, flown.gyro)]
    (folder / "imu_data.csv").write_text("\n".join(lines) + "\n")
    inner = slice(lead, samples - lead)
    poses = rows([str(s - 1) for s in micro[inner]], flown.position[inner], flipped(flown.quaternion[inner]))
    (folder / "groundTruthPoses.csv").write_text("\n".join(poses) + "\n")
    return flown


def broad(path: Path, samples: int = 120, *, compressed: bool = True) -> Flight:
    """A trial with a few rows without optical reference."""
    moved = flight(np.arange(samples) / 285.7142857142857)
    quaternion, position = flipped(moved.quaternion), moved.position.copy()
    quaternion[20:27] = np.nan
    position[22:24] = np.nan
    north = Rotation.from_quat(moved.quaternion[:, [1, 2, 3, 0]]).inv().apply([0.0, 18.0, -45.0])
    path.parent.mkdir(parents=True, exist_ok=True)
    scipy.io.savemat(
        path,
        {
            "imu_gyr": moved.gyro, "imu_acc": moved.accel, "imu_mag": north,
            "opt_quat": quaternion, "opt_pos": position,
            "movement": (np.arange(samples) > 30)[:, None].astype(np.uint8), "sampling_rate": 285.7142857142857,
            "info": "a miniature, not a recording",
        },
        do_compression=compressed,
    )  # fmt: skip
    return moved


def ranges(samples: int) -> np.ndarray:
    """Fifteen ranges at 60 Hz, new every third frame, float32 as published."""
    time = (np.arange(samples) // 3 * 3) / 60.0
    return (0.8 + 0.05 * np.arange(15) + 0.1 * np.sin(time[:, None] * (1 + 0.1 * np.arange(15)))).astype(np.float32)


def session(path: Path, samples: int = 90, *, compressed: bool = True) -> dict[str, np.ndarray]:
    moved = flight(np.arange(samples) / 60.0)
    xyzw = flipped(moved.quaternion)[:, [1, 2, 3, 0]]
    arrays = {
        "acc": np.stack((moved.gyro, 0.5 * moved.gyro), 1).astype(np.float32),
        "quat_xyzw": np.stack((xyzw, xyzw), 1).astype(np.float32),
        "uwb15": ranges(samples),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    (np.savez_compressed if compressed else np.savez)(path, **arrays)
    return arrays


def processed(path: Path, samples: tuple[int, ...] = (60, 45)) -> dict[str, list]:
    """A ``.pt`` as the authors write it."""
    content: dict[str, list] = {key: [] for key in ("acc", "ori", "pose", "tran", "vuwb", "uwb_gt", "fnames")}
    upper = np.triu_indices(6, 1)
    for number, T in enumerate(samples):
        moved = flight(np.arange(T) / 60.0)
        matrix = np.zeros((T, 6, 6), np.float32)
        matrix[:, upper[0], upper[1]] = ranges(T)
        matrix += matrix.transpose(0, 2, 1)
        turn = Rotation.from_quat(moved.quaternion[:, [1, 2, 3, 0]]).as_matrix()
        content["acc"].append(torch.tensor(np.tile(moved.gyro[:, None], (1, 6, 1)), dtype=torch.float32))
        content["ori"].append(torch.tensor(np.tile(turn[:, None], (1, 6, 1, 1)), dtype=torch.float32))
        content["pose"].append(torch.zeros(T, 24, 3))
        content["tran"].append(torch.tensor(moved.position, dtype=torch.float32))
        content["vuwb"].append(torch.tensor(matrix))
        content["uwb_gt"].append(torch.tensor(matrix) + 0.01)
        content["fnames"].append(f"0{number}_session1_{number}")
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, path)
    return content
