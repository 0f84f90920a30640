"""Learning of the attitude filter of ``euroc-gyro``: constants by least squares, then a network on what they leave.

Everything is learned from the error of rotation increments. In the world frame the errors of consecutive blocks of
samples add up, and with the true orientation each is linear in the correction of the rate: the error over any number of
blocks is a difference of sums, so that increments of several lengths cost one pass.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fwnkf.core import rotation
from fwnkf.core.gaussian import matvec
from fwnkf.data.recording import Recording
from fwnkf.preprocess.corrected_imu import CorrectedIMU, CorrectedIMUConfig
from fwnkf.shapes import Float
from tasks.euroc.protocol import TILTED, corrected_truth, recordings

TRAIN = ("MH_01_easy", "MH_03_medium", "MH_05_difficult", "V1_02_medium", "V2_01_easy", "V2_03_difficult")
TEST = ("MH_02_easy", "MH_04_difficult", "V1_01_easy", "V1_03_difficult", "V2_02_medium")
"""The split of the papers on gyroscope denoising."""
RATE = 200.0
GRAVITY = 9.81
WINDOW = 1000
"""Samples of the increments that constants are fitted to: 5 s."""
CONSTANTS = {"bias": 1, "bias_3x3": 4, "bias_3x3_g": 7}
"""What is fitted, and the number of features of its correction: 1, then the rate, then the force."""


@dataclass(frozen=True)
class Flight:
    """One sequence: raw samples, and the true orientation and velocity at each."""

    name: str
    imu: Float[Tensor, "T 6"]
    orientation: Float[Tensor, "T 4"]
    velocity: Float[Tensor, "T 3"]

    def __len__(self) -> int:
        return len(self.imu)


@dataclass(frozen=True)
class Constants:
    """``A`` and ``b`` of the calibrated sample ``A (y - b)``."""

    matrix: Float[Tensor, "6 6"]
    bias: Float[Tensor, " 6"]

    def __call__(self, imu: Float[Tensor, "*B 6"]) -> Float[Tensor, "*B 6"]:
        return matvec(self.matrix, imu - self.bias)


@dataclass(frozen=True)
class Practice:
    """How the network is trained."""

    steps: int = 200
    batch: int = 16
    window: int = 1024
    """Blocks of a training window; those of the network's memory do not count."""
    rate: float = 3e-3
    decay: float = 0.05
    lengths: tuple[int, ...] = (4, 32, 128)
    """Blocks of the increments whose error is the loss."""
    scales: tuple[float, ...] = (0.1, 0.25, 0.5)
    """Degrees: an error of this size counts as ordinary, a much larger one hardly more."""
    noise: float = 0.05
    """Added to the network's inputs, in their standard deviations."""
    average: float = 0.99
    """Of the exponential mean of the weights, which is what is kept."""
    reach: float = 0.01
    """rad/s; the size of a correction."""
    flight_bias: bool = True
    """Whether each training flight has a bias of its own: the network then learns what varies within a flight, and the
    filter estimates the bias. Without, the network has to tell the bias of a flight from its samples."""


def flights(names: Sequence[str], folder: str | Path | None = None) -> list[Flight]:
    """Sequences with the official ground truth."""
    by_name = recordings(names, folder)
    return [_flight(by_name[name]) for name in names]


def corrected_flight(folder: str | Path | None = None) -> Flight | None:
    """The sequence whose official orientation is wrong, with the corrected one; None if that file is not there."""
    official = recordings((TILTED,), folder)[TILTED]
    corrected = corrected_truth(official, folder)
    if corrected is None:
        return None
    return replace(_flight(official), name=f"{TILTED}, corrected", orientation=_truth(corrected)[:, 6:])


def _truth(recording: Recording) -> Tensor:
    assert recording.truth is not None
    return recording.truth


def _flight(recording: Recording) -> Flight:
    truth = _truth(recording)
    return Flight(recording.source, recording.observations, truth[:, 6:], truth[:, 3:6])


# ---- errors of increments -------------------------------------------------------------------------------------------


def block_errors(flight: Flight, imu: Float[Tensor, "T 6"], block: int) -> tuple[Tensor, Tensor]:
    """World-frame error of the rotation over each block of samples, and the true orientation after it.

    The first sample is at the time of the first orientation; the sample after it turns to the second.
    """
    steps = (len(flight) - 1) // block
    turns = rotation.exp(imu[1 : 1 + steps * block, :3] / RATE).unflatten(0, (steps, block))
    total = rotation.cumulative(turns)[:, -1]
    truth = flight.orientation[: 1 + steps * block : block]
    true = rotation.multiply(rotation.conjugate(truth[:-1]), truth[1:])
    after = rotation.to_matrix(truth[1:])
    return matvec(after, rotation.log(rotation.multiply(rotation.conjugate(total), true))), after


def fit_constants(train: Sequence[Flight], kind: str = "bias_3x3_g") -> Constants:
    """Least squares on increments of rotation (gyroscope) and of velocity (the accelerometer's bias)."""
    features = CONSTANTS[kind]
    normal, right = torch.zeros(3 * features, 3 * features).double(), torch.zeros(3 * features).double()
    force_normal, force_right = torch.zeros(3, 3).double(), torch.zeros(3).double()
    for flight in train:
        error, after = block_errors(flight, flight.imu, 1)
        seen = torch.cat((torch.ones_like(flight.imu[1:, :1]), flight.imu[1:]), -1)[:, :features]
        slopes = torch.einsum("tij,tf->tijf", after, seen / RATE).flatten(2)
        _accumulate(normal, right, _summed(error), _summed(slopes))
        gravity = flight.imu.new_tensor([0.0, 0.0, -GRAVITY])
        change = flight.velocity.diff(dim=0) - (matvec(after, flight.imu[1:, 3:]) + gravity) / RATE
        _accumulate(force_normal, force_right, _summed(change), _summed(-after / RATE))
    theta = torch.linalg.solve(normal, right).unflatten(0, (3, features))
    matrix, offset = torch.eye(6).double(), torch.zeros(6).double()
    matrix[:3, : features - 1] += theta[:, 1:]
    offset[:3] = theta[:, 0]
    offset[3:] = -torch.linalg.solve(force_normal, force_right)
    return Constants(matrix, -torch.linalg.solve(matrix, offset))


def _summed(values: Float[Tensor, "T *n"]) -> Float[Tensor, "K *n"]:
    whole = len(values) // WINDOW
    return values[: whole * WINDOW].unflatten(0, (whole, WINDOW)).sum(1)


def _accumulate(normal: Tensor, right: Tensor, error: Tensor, slopes: Tensor) -> None:
    normal += torch.einsum("kij,kil->jl", slopes, slopes)
    right += torch.einsum("kij,ki->j", slopes, error)


# ---- the network ----------------------------------------------------------------------------------------------------


def train_network(
    train: Sequence[Flight], constants: Constants, config: CorrectedIMUConfig, seed: int, practice: Practice
) -> CorrectedIMU:
    """The preprocessing with constants and a network trained on increments of several lengths.

    The loss of an increment's error ``v`` is ``log(1 + |v|² / 2s²)``: truth that is wrong for a moment counts little.
    """
    torch.manual_seed(seed)
    unit = CorrectedIMU(config)
    block, seconds = config.block, config.block / RATE
    inputs, errors, frames = [], [], []
    for flight in train:
        calibrated = constants(flight.imu)
        error, after = block_errors(flight, calibrated, block)
        inputs.append(calibrated[1 : 1 + len(error) * block].reshape(len(error), -1).float())
        errors.append(error.float())
        frames.append(after.float())
    samples = torch.cat(inputs).unflatten(-1, (block, 6))
    shift, scale = (statistic.repeat(block) for statistic in (samples.mean((0, 1)), samples.std((0, 1))))
    network = unit.network
    assert network is not None
    network.normalize(shift, scale, torch.full((3,), practice.reach))
    mean = copy.deepcopy(network)
    names = sorted({flight.name for flight in train})  # parts of a flight share its bias
    flight_of = torch.tensor([names.index(flight.name) for flight in train])
    biases = nn.Parameter(torch.zeros(len(names), 3), requires_grad=practice.flight_bias)
    groups: list[dict[str, Any]] = [
        {"params": network.parameters()},
        {"params": [biases], "weight_decay": 0.0, "lr": 10 * practice.rate},
    ]
    optimizer = torch.optim.AdamW(groups, practice.rate, weight_decay=practice.decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, [practice.rate, 10 * practice.rate], total_steps=practice.steps, pct_start=0.1
    )
    generator = torch.Generator().manual_seed(seed)
    shares = torch.tensor([float(len(error)) for error in errors])
    window = min(practice.window, *(len(error) - 1 for error in errors))
    for step in range(practice.steps):
        places = []
        for i in torch.multinomial(shares, practice.batch, True, generator=generator).tolist():
            first = int(torch.randint(0, len(errors[i]) - window, (1,), generator=generator))
            places.append((i, slice(first, first + window)))
        x, error, frame = (torch.stack([part[i][at] for i, at in places]) for part in (inputs, errors, frames))
        x = x + practice.noise * scale * torch.randn(x.shape, generator=generator)
        own = practice.reach * biases[flight_of[[i for i, _ in places]]].unsqueeze(1)
        left = (error - matvec(frame, network(x) + own) * seconds)[:, min(network.memory, window // 2) :]
        sums = nn.functional.pad(left.cumsum(1), (0, 0, 1, 0))
        loss = torch.stack(
            [
                torch.log1p((sums[:, n:] - sums[:, :-n]).square().sum(-1) / (2 * math.radians(size) ** 2)).mean()
                for n, size in zip(practice.lengths, practice.scales, strict=True)
            ]
        ).sum()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            keep = min(practice.average, (1 + step) / (10 + step))
            for kept, now in zip(mean.parameters(), network.parameters(), strict=True):
                kept.lerp_(now, 1 - keep)
    network.load_state_dict(mean.state_dict())
    unit = unit.double().eval()
    unit.matrix.copy_(constants.matrix)
    unit.bias.copy_(constants.bias)
    return unit


@torch.no_grad()
def corrected_rates(unit: CorrectedIMU, flight: Flight) -> Float[Tensor, "K N 3"]:
    """The corrected rate of the samples after the first, in whole blocks."""
    samples = unit.calibrated(flight.imu[1:])
    added = unit.corrections(flight.imu[None, 1:])[0]
    blocks = samples[: len(added) * unit.block, :3].unflatten(0, (len(added), unit.block))
    return blocks + added.unsqueeze(1)


def integrated(flight: Flight, rates: Float[Tensor, "K N 3"]) -> Float[Tensor, "K 4"]:
    """The orientation after each block by the rates alone, from the true one at the first sample."""
    turns = rotation.cumulative(rotation.exp(rates / RATE))[:, -1]
    return rotation.cumulative(torch.cat((flight.orientation[:1], turns)))[1:]
