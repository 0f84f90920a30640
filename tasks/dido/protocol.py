"""The flights of DIDO as two tasks: ``denoise`` (clean rate and force of a vibrating IMU) and ``attitude``.

Both put a flight on a grid of 400 Hz by linear interpolation, both train on flights 0, 4, 8, 12 in the order of their
names. Tests are the other flights but for those of a take-off that is trained on: some recordings of one take-off were
cut in two and continue each other within milliseconds. Flight 7 is continued by training flight 8 and is not scored.

``denoise``. Truth is the smoothed derivative of the motion capture's pose: cubic Savitzky-Golay filters over 41 samples
for the attitude, 61 for the position, which give angular rate and specific force in the IMU frame. The first 12,000
samples count. The mean difference between IMU and truth is taken off each flight for every method alike, as a bias is
not what is asked. Gravity is taken off the z axis of the force.

``attitude``. Gyroscope and accelerometer of the whole flight, initial attitude unknown: every method may start from the
tilt of the first second, in which the drone hovers, and is scored from there on. No magnetometer, so heading is
arbitrary and only the inclination counts. The frames of motion capture and IMU differ by a constant that the training
flights give: their mean gyroscope and accelerometer difference from the truth is taken off for every method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.signal import savgol_filter  # type: ignore[import-untyped]
from torch import Tensor

from fwnkf.core import rotation
from fwnkf.core.layout import Layout
from fwnkf.data.protocols import Protocol, Records, Split
from fwnkf.data.recording import Recording, Span
from fwnkf.data.sets import catalogue, dido
from fwnkf.errors import DataError
from fwnkf.shapes import Float
from fwnkf.types import Gaussian

RATE = 400.0
SAMPLES = 12_000
FLIGHTS = 16
TRAIN = (0, 4, 8)
VALIDATION = (12,)
TAKE_OFFS = ((5, 6), (7, 8), (9, 10))
"""Flights that are parts of one recording; :func:`take_offs` finds them by their stamps."""
SAME_TAKE_OFF = 1.0
"""Seconds: a flight that begins so soon after another one ended is its continuation."""
OTHERS = tuple(i for i in range(FLIGHTS) if i not in (*TRAIN, *VALIDATION))
CONTINUED = tuple(i for i in OTHERS if any(i in group and {*group} & {*TRAIN, *VALIDATION} for group in TAKE_OFFS))
"""Flights of a take-off that is trained on: not scored."""
TEST = tuple(i for i in OTHERS if i not in CONTINUED)
ATTITUDE_WINDOW, POSITION_WINDOW, DEGREE = 41, 61, 3
GRAVITY = 9.81
AXES = ("gyro_x", "gyro_y", "gyro_z", "force_x", "force_y", "force_z")
LAYOUT = Layout.parse([("rate", "euclidean", 3), ("force", "euclidean", 3)])


@dataclass(frozen=True, eq=False)
class Flight:
    """One flight on the grid: what the IMU measures, and what it should have measured by motion capture."""

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
    stamps: Float[Tensor, " S"] | None = None
    """Seconds of the samples as recorded, before they are put on the grid."""
    samples: Float[Tensor, "S 6"] | None = None

    def __len__(self) -> int:
        return len(self.imu)


def take_offs(recordings: Mapping[str, Recording]) -> list[tuple[int, ...]]:
    """Flights, by their number in the order of names, that continue each other by their stamps."""
    names = sorted(recordings)
    begins = np.array([recordings[name].epoch_ns for name in names]) / 1e9
    ends = begins + np.array([float(recordings[name].time[-1]) for name in names])
    groups: list[list[int]] = []
    for flight in np.argsort(begins).tolist():
        if groups and 0 <= begins[flight] - ends[groups[-1][-1]] < SAME_TAKE_OFF:
            groups[-1].append(flight)
        else:
            groups.append([flight])
    return sorted(tuple(sorted(group)) for group in groups if len(group) > 1)


def flight(recording: Recording) -> Flight:
    """A recording on the grid with its smoothed truth."""
    if recording.truth is None or recording.truth_mask is None or not bool(recording.truth_mask.all()):
        raise DataError(f"{recording.name}: this task needs the pose at every sample")
    if not bool(recording.mask.all()):
        raise DataError(f"{recording.name}: this task needs the IMU at every sample")
    grid = np.arange(0.0, recording.time.numpy()[-1], 1 / RATE)

    def on_grid(values: Tensor) -> Tensor:
        return interpolate(torch.from_numpy(grid), recording.time, values)

    def smooth(values: Tensor, window: int, derivative: int = 0) -> Tensor:
        derived = savgol_filter(values.numpy(), window, DEGREE, deriv=derivative, delta=1 / RATE, axis=0)
        return torch.from_numpy(derived)

    pose = on_grid(recording.truth)
    q = rotation.normalize(pose[:, 3:])
    smoothed = rotation.normalize(smooth(q, ATTITUDE_WINDOW))
    turning = smooth(q, ATTITUDE_WINDOW, 1)
    rate = 2 * rotation.multiply(rotation.conjugate(smoothed), turning)[:, 1:]
    velocity, acceleration = (smooth(pose[:, :3], POSITION_WINDOW, order) for order in (1, 2))
    felt = acceleration + torch.tensor([0.0, 0.0, GRAVITY], dtype=torch.float64)
    force = (rotation.to_matrix(smoothed).mT @ felt.unsqueeze(-1)).squeeze(-1)
    clean = torch.cat((rate, force), -1)
    return Flight(
        recording.name, on_grid(recording.observations), clean, q, velocity, recording.digest, recording.time,
        recording.observations,
    )  # fmt: skip


def interpolate(at: Float[Tensor, " T"], time: Float[Tensor, " S"], values: Float[Tensor, "S c"]) -> Tensor:
    """Columns linearly interpolated at given instants."""
    columns = [np.interp(at.numpy(), time.numpy(), column) for column in values.numpy().T]
    return torch.from_numpy(np.stack(columns, -1))


def flights(indices: Sequence[int], folder: str | Path | None = None) -> list[Flight]:
    """Flights by their number in the order of names, read from ``$FWNKF_DATA`` unless a folder is given."""
    place = catalogue.folder_of("dido") if folder is None else Path(folder)
    folders = dido.find(place)
    names = sorted(folders)
    if len(names) != FLIGHTS:
        raise DataError(f"{place}: {len(names)} flights, this task has {FLIGHTS}. {catalogue.info('dido').manual}")
    return [flight(dido.read(folders[names[i]])) for i in indices]


def denoise_records(name: str, group: Sequence[Flight], samples: int = SAMPLES) -> Records:
    """Flights as records: ``y`` the IMU less the flight's constant bias, ``truth`` rate and force; z less gravity."""
    imu = torch.stack([one.imu[:samples] for one in group]) - offsets(group).unsqueeze(1)
    truth = torch.stack([one.clean[:samples] for one in group]) - weight()
    dt = torch.full(imu.shape[:2], 1 / RATE, dtype=torch.float64)
    dt[:, 0] = 0.0
    return Records(
        name, imu, truth, torch.ones_like(imu, dtype=torch.bool), dt, None,
        Gaussian(torch.zeros(6, dtype=torch.float64), torch.eye(6, dtype=torch.float64)), LAYOUT,
        tuple(Span(one.name, one.digest, 0, samples) for one in group),
    )  # fmt: skip


def weight() -> Float[Tensor, " 6"]:
    """What gravity adds to the channels of a drone that hovers."""
    return torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, GRAVITY], dtype=torch.float64)


def offsets(group: Sequence[Flight]) -> Float[Tensor, "N 6"]:
    """What the protocol takes off the IMU of each flight: its bias over all samples that count, and gravity."""
    return torch.stack([(one.imu - one.clean)[:SAMPLES].mean(0) for one in group]) + weight()


def jittered_records(group: Sequence[Flight], *, share: float, seed: int, samples: int = SAMPLES) -> Records:
    """Flights sampled anew at instants moved by up to ``share`` of the step either way, with ``dt`` between them.

    The raw samples are interpolated at those instants, and so is the truth, which is smooth.
    """
    generator = torch.Generator().manual_seed(seed)
    regular = torch.arange(samples, dtype=torch.float64) / RATE
    values, truths, steps = [], [], []
    for one in group:
        if one.stamps is None or one.samples is None:
            raise DataError(f"{one.name}: the samples as recorded are needed to sample a flight anew")
        moved = share * (2 * torch.rand(samples, generator=generator, dtype=torch.float64) - 1) / RATE
        instants = (regular + moved).clamp_min(0.0).sort().values
        values.append(interpolate(instants, one.stamps, one.samples))
        truths.append(interpolate(instants, torch.arange(len(one), dtype=torch.float64) / RATE, one.clean) - weight())
        steps.append(torch.cat((torch.full((1,), 1 / RATE, dtype=torch.float64), instants.diff())))
    y = torch.stack(values) - offsets(group).unsqueeze(1)
    return Records(
        "jittered", y, torch.stack(truths), torch.ones_like(y, dtype=torch.bool), torch.stack(steps), None,
        Gaussian(torch.zeros(6, dtype=torch.float64), torch.eye(6, dtype=torch.float64)), LAYOUT,
        tuple(Span(one.name, one.digest, 0, samples) for one in group),
    )  # fmt: skip


def denoise(folder: str | Path | None = None) -> Protocol:
    """The whole ``denoise`` protocol: four flights to train on, the last of them to choose by, eleven to test on."""
    parts = {"train": TRAIN, "val": VALIDATION, "test": TEST}
    records = [denoise_records(f"dido {part}", flights(group, folder)) for part, group in parts.items()]
    return Protocol("strict", "dido", 0, Split(*records))
