"""DIDO as two tasks: ``denoise`` (clean force and rate from a vibrating IMU) and ``attitude`` (the vertical).

Both put a flight on a grid of 400 Hz by linear interpolation, both train on flights 0, 4, 8, 12 in the order of their
names and test on the other twelve; flight 12 is the one held back where a choice has to be made.

``denoise``. Truth is the smoothed derivative of the motion capture's pose: cubic Savitzky-Golay filters over 41 samples
for the attitude, 61 for the position, which give angular rate and specific force in the IMU frame. The first 12,000
samples count. The mean difference between IMU and truth is taken off each flight for every method alike, for a bias is
not what is asked. Gravity is taken off the z axis of the force.

``attitude``. Gyroscope and accelerometer of the whole flight, initial attitude unknown: every method may start from the
tilt of the first second, in which the drone hovers, and is scored from there on. No magnetometer, so heading is
arbitrary and only the inclination counts. The frames of motion capture and IMU differ by a constant that the training
flights tell: their mean gyroscope and accelerometer difference from the truth is taken off for every method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fwnkf.core import rotation
from fwnkf.core.layout import Layout
from fwnkf.data import catalogue, dido
from fwnkf.data.protocols import Protocol, Split, Records
from fwnkf.data.recording import Recording, Span
from fwnkf.errors import DataError
from fwnkf.shapes import Float
from fwnkf.types import Gaussian

RATE = 400.0
SAMPLES = 12_000
FLIGHTS = 16
TRAIN = (0, 4, 8)
VALIDATION = (12,)
TEST = tuple(i for i in range(FLIGHTS) if i % 4)
ATTITUDE_WINDOW, POSITION_WINDOW, DEGREE = 41, 61, 3
GRAVITY = 9.81
AXES = ("gyro_x", "gyro_y", "gyro_z", "force_x", "force_y", "force_z")
LAYOUT = Layout.parse([("rate", "euclidean", 3), ("force", "euclidean", 3)])


@dataclass(frozen=True, eq=False)
class Flight:
    """One flight on the grid: what the IMU says, and what motion capture says it should have said."""

    name: str
    imu: Float[Tensor, "T 6"]
    """Gyroscope (rad/s) and accelerometer (m/s²)."""
    clean: Float[Tensor, "T 6"]
    """Angular rate and specific force from the smoothed pose."""
    orientation: Float[Tensor, "T 4"]
    """Quaternion from IMU to world, as measured."""
    velocity: Float[Tensor, "T 3"]
    """In the world frame, from the smoothed position."""
    digest: str

    def __len__(self) -> int:
        return len(self.imu)


def savgol(values: np.ndarray, window: int, degree: int, derivative: int = 0, dt: float = 1.0) -> np.ndarray:
    """Savitzky-Golay: the derivative of the polynomial fitted around each sample; ends use the first and last fit.

    >>> savgol(np.arange(9.0)[:, None] ** 2, 5, 2, 1)[:, 0].round(6).tolist()
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0]
    """
    half = window // 2
    if window % 2 == 0 or degree >= window or len(values) < window:
        raise DataError(f"savgol: window {window} must be odd, above degree {degree}, and fit {len(values)} samples")
    place = np.arange(-half, half + 1.0)
    to_polynomial = np.linalg.pinv(np.vander(place / half, degree + 1, increasing=True))  # [degree + 1, window]

    def at(where: np.ndarray) -> np.ndarray:
        """Weights of the window's samples for the derivative at places within it."""
        rows = np.zeros((len(where), degree + 1))
        for power in range(derivative, degree + 1):
            factor = np.prod(np.arange(power - derivative + 1.0, power + 1.0))
            rows[:, power] = factor * (where / half) ** (power - derivative)
        return np.asarray(rows @ to_polynomial / (half * dt) ** derivative)

    windows = np.lib.stride_tricks.sliding_window_view(values, window, axis=0)
    middle = np.einsum("tcw,w->tc", windows, at(np.zeros(1))[0])
    first, last = at(place[:half]) @ values[:window], at(place[half + 1 :]) @ values[-window:]
    return np.concatenate((first, middle, last))


def flight(sequence: Recording) -> Flight:
    """A recording on the grid with its smoothed truth."""
    if sequence.truth is None or sequence.truth_mask is None or not bool(sequence.truth_mask.all()):
        raise DataError(f"{sequence.name}: this task needs the pose at every sample")
    if not bool(sequence.mask.all()):
        raise DataError(f"{sequence.name}: this task needs the IMU at every sample")
    time = sequence.time.numpy()
    grid = np.arange(0.0, time[-1], 1 / RATE)

    def on_grid(values: Tensor) -> np.ndarray:
        return np.stack([np.interp(grid, time, column) for column in values.numpy().T], -1)

    pose = on_grid(sequence.truth)
    q = rotation.normalize(torch.from_numpy(pose[:, 3:]))
    smooth = rotation.normalize(torch.from_numpy(savgol(q.numpy(), ATTITUDE_WINDOW, DEGREE)))
    turning = torch.from_numpy(savgol(q.numpy(), ATTITUDE_WINDOW, DEGREE, 1, 1 / RATE))
    rate = 2 * rotation.multiply(rotation.conjugate(smooth), turning)[:, 1:]
    velocity, acceleration = (savgol(pose[:, :3], POSITION_WINDOW, DEGREE, n, 1 / RATE) for n in (1, 2))
    felt = torch.from_numpy(acceleration) + torch.tensor([0.0, 0.0, GRAVITY], dtype=torch.float64)
    force = (rotation.to_matrix(smooth).mT @ felt.unsqueeze(-1)).squeeze(-1)
    clean = torch.cat((rate, force), -1)
    imu = torch.from_numpy(on_grid(sequence.observations))
    return Flight(sequence.name, imu, clean, q, torch.from_numpy(velocity), sequence.digest)


def flights(indices: Sequence[int], folder: str | Path | None = None) -> list[Flight]:
    """Flights by their number in the order of names, read from ``$FWNKF_DATA`` unless a folder is given."""
    place = catalogue.folder_of("dido") if folder is None else Path(folder)
    found = dido.find(place)
    names = sorted(found)
    if len(names) != FLIGHTS:
        raise DataError(
            f"{place}: {len(names)} flights, this task is made of {FLIGHTS}. {catalogue.info('dido').manual}"
        )
    return [flight(dido.read(found[names[i]])) for i in indices]


def denoise_task(name: str, group: Sequence[Flight], samples: int = SAMPLES) -> Records:
    """Flights as records: ``y`` the IMU less the flight's constant bias, ``truth`` rate and force; z less gravity."""
    weight = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, GRAVITY], dtype=torch.float64)
    imu = torch.stack([one.imu[:SAMPLES] for one in group])
    truth = torch.stack([one.clean[:SAMPLES] for one in group])
    imu = imu - (imu - truth).mean(1, keepdim=True)  # over all samples of the protocol, also when fewer are wanted
    y, truth = (imu - weight)[:, :samples], (truth - weight)[:, :samples]
    dt = torch.full(y.shape[:2], 1 / RATE, dtype=torch.float64)
    dt[:, 0] = 0.0
    return Records(
        name, y, truth, torch.ones_like(y, dtype=torch.bool), dt, None,
        Gaussian(torch.zeros(6, dtype=torch.float64), torch.eye(6, dtype=torch.float64)), LAYOUT,
        tuple(Span(one.name, one.digest, 0, samples) for one in group),
    )  # fmt: skip


def denoise(folder: str | Path | None = None) -> Protocol:
    """The whole ``denoise`` protocol: three flights to train on, one to choose by, twelve to test on."""
    parts = {"train": TRAIN, "val": VALIDATION, "test": TEST}
    tasks = [denoise_task(f"dido {part}", flights(group, folder)) for part, group in parts.items()]
    return Protocol("strict", "dido", 0, Split(*tasks))
