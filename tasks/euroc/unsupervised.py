"""The filter of EuRoC ``strict`` fitted to the IMU of training flights alone.

Axes of the rotors and the gyroscope's bias are means; drag and all noise come from the likelihood of the specific force
across the rotor axis. Flights are cut into windows that start from a belief as wide as flight itself. The fit steps
once a block of samples, ten times faster than the filter, whose noise densities do not depend on the step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fwnkf import Filter, Gaussian
from fwnkf.core import rotation
from fwnkf.core.gaussian import matvec
from fwnkf.data.protocols import Records
from fwnkf.data.recording import Recording
from fwnkf.errors import DataError
from fwnkf.identify.likelihood import Predictions
from fwnkf.shapes import Float
from fwnkf.systems import DragStrapdown, DragStrapdownConfig
from fwnkf.systems.inertial_calibrated import CALIBRATION
from fwnkf.systems.inertial_drag import axes_of
from tasks.euroc.drag import Drag, DragNoise
from tasks.euroc.fitting import Fit, noise_state_filter
from tasks.euroc.scores import BATCH
from tasks.innovations import Constants, fit_constants, measured_nis
from tasks.interface import Say

START: Constants = {
    "drag": 0.3, "white_2": 0.15, "white_3": 0.15, "correlated": 0.1, "seconds": 1.0, "gyro_density": 1e-3,
    "accelerometer_density": 0.02,
}  # fmt: skip
"""Drag in 1/s; its noise in m/s² of specific force, white along the second and third axis, and correlated over seconds;
densities of the sensors."""
OFFSET = 0.05
"""m/s², standard deviation of the force across at rest from flight to flight."""
WALKS = {"gyro_walk": 2e-5, "accelerometer_walk": 3e-3}
"""The data sheet's; a window is too short to say more."""
BIAS_STD = (0.003, 0.1)
"""rad/s, m/s², of the biases from flight to flight."""
LEVEL_STD, SPEED_STD = math.radians(10.0), 1.0
"""Of a multirotor in flight about hovering: the belief a window starts from."""
WINDOW_BLOCKS, WINDOWS = 160, 5
"""Windows of 8 s, and how many of each flight."""
DELAY_WITHIN_BLOCK, DELAY = 1.0, 0.5
"""A step of the fit uses the mean of the block it ends with; the filter interpolates half-way between two samples."""
ITERATIONS = 7


class Windows(NamedTuple):
    """Windows in flight, one step a block: features of drag, controls, and the belief at the start."""

    features: Float[Tensor, "N K 6"]
    u: Float[Tensor, "N K 12"]
    weight: Float[Tensor, "N K 5"]
    prior: Gaussian


class Known(NamedTuple):
    """What means say: the axes of the rotors and the bias of the gyroscope."""

    axes: Float[Tensor, "3 3"]
    gyro_bias: Float[Tensor, " 3"]


def means(recordings: Sequence[Recording]) -> Known:
    """The axis of the rotors by the mean force in flight, the gyroscope's bias by its mean on the ground."""
    system = DragStrapdown(DragStrapdownConfig()).double()
    force, rate = [], []
    for recording in recordings:
        imu = recording.observations.double()[None]
        blocks, modes = system.blocks(imu)[0], system.modes(imu)
        force.append(blocks[modes.flying[0], 3:].mean(0))
        rate.append(blocks[modes.standing[0], :3])
    ground = torch.cat(rate)
    if not len(ground):
        raise DataError("no recording stands still anywhere; the bias of the gyroscope is measured on the ground")
    return Known(axes_of(torch.stack(force).mean(0)), ground.mean(0))


def windows(recordings: Sequence[Recording], axes: Float[Tensor, "3 3"]) -> Windows:
    """Windows spread evenly over the flight of each recording, each with the vehicle level and at rest on average."""
    system = DragStrapdown(DragStrapdownConfig()).double()
    system.axes.copy_(axes)
    features, controls, flying = [], [], []
    for recording in recordings:
        imu = recording.observations.double()[None]
        blocks, seen, flies = system.blocks(imu)[0], system.features(imu)[0], system.modes(imu).flying[0]
        whole = flies.unfold(0, WINDOW_BLOCKS, 1).all(-1).nonzero().flatten()
        if not len(whole):
            raise DataError(f"{recording.name}: no stretch of {WINDOW_BLOCKS} blocks in flight")
        for begin in whole[torch.linspace(0, len(whole) - 1, WINDOWS).long()].tolist():
            part = slice(begin, begin + WINDOW_BLOCKS)
            features.append(seen[part])
            controls.append(torch.cat((blocks[part], blocks[part]), -1))
            flying.append(flies[part])
    weight = torch.stack(flying).double().unsqueeze(-1) * torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0]).double()
    up = axes[0]  # thrust balances gravity on average
    level = rotation.tilt(up[None]).expand(len(features), 4)
    mean = torch.cat((torch.zeros(len(features), 6).double(), level), -1)
    stds = torch.tensor([1e-3] * 3 + [SPEED_STD] * 3 + [LEVEL_STD] * 3).double()
    return Windows(torch.stack(features), torch.stack(controls), weight, Gaussian(mean, stds.square().diag()))


def as_fit(constants: Mapping[str, float], known: Known, delay: float) -> Fit:
    """The constants in the form of the fit with truth."""
    drag = constants["drag"]
    white = torch.tensor([constants["white_2"], constants["white_3"]], dtype=torch.float64) / drag
    same = torch.ones_like(white)
    calibration = torch.zeros(CALIBRATION, dtype=torch.float64)
    calibration[:3], calibration[9] = known.gyro_bias, delay
    matrix = torch.nn.functional.pad(-torch.eye(2, dtype=torch.float64) / drag, (0, 4))

    noise = DragNoise(white, constants["correlated"] / drag * same, constants["seconds"] * same, OFFSET / drag * same)
    densities = {name: constants[name] for name in ("gyro_density", "accelerometer_density")}
    gyro, accelerometer = BIAS_STD
    biases = {**{f"gyro_{axis}": gyro for axis in "xyz"}, "accelerometer": accelerometer}
    return Fit(calibration, Drag(known.axes, matrix), {**densities, **WALKS, **biases, "tilt": 0.0}, noise)


@torch.no_grad()
def innovations(data: Windows, known: Known, candidates: list[Constants]) -> Predictions:
    """Innovations of specific force: those of velocity times the drag, so that candidates are compared on one scale."""
    residuals, covs = [], []
    for constants in candidates:
        fit = as_fit(constants, known, DELAY_WITHIN_BLOCK)
        config = DragStrapdownConfig()
        model = noise_state_filter(fit, dt=config.block * config.dt)
        model.preprocess = None
        y = torch.nn.functional.pad(matvec(fit.drag.matrix, data.features), (0, 3))
        track = model.run(y, data.u, data.weight.bool(), prior=data.prior)
        residuals.append(track.innovation * constants["drag"])
        covs.append(track.innovation_cov * constants["drag"] ** 2)
    return Predictions(torch.stack(residuals), torch.stack(covs), data.weight)


def fit(recordings: Sequence[Recording], *, say: Say, iterations: int = ITERATIONS) -> tuple[Filter, Constants]:
    """The filter by the likelihood of the recordings, and its constants."""
    known = means(recordings)
    data = windows(recordings, known.axes)
    constants = fit_constants(
        START, lambda candidates: innovations(data, known, candidates), iterations=iterations, say=say
    )
    return noise_state_filter(as_fit(constants, known, DELAY)), constants


@torch.no_grad()
def window_nis(model: Filter, records: Records) -> float:
    """NIS of a filter on windows of the task, over the velocities that were measured."""
    parts = []
    for rows in torch.arange(len(records)).split(BATCH):
        part = records.take(rows)
        track = model.run(part.y, dt=part.dt, prior=part.start)
        assert track.weight is not None
        parts.append((track.innovation, track.innovation_cov, track.weight))
    return measured_nis(*(torch.cat(items) for items in zip(*parts, strict=True)))
