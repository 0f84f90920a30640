"""Where a navigation filter starts: level by the accelerometer, and the heading by trying all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from ..core import rotation
from ..systems import Navigation
from ..types import Gaussian
from .recording import NavigationRecording
from .timeline import Array

HEADINGS = 12
"""Headings that are tried: they lie closer together than the standard deviation that a filter starts with."""
SEARCHED = 15.0
"""Seconds at the beginning among which the calmest one is looked for."""
GRAVITY = 9.81
STANDING = 0.5
"""Speed by GNSS below which a vehicle may stand (m/s)."""


@dataclass(frozen=True)
class Uncertainty:
    """Standard deviations of a first belief."""

    tilt: float = 0.1
    """Roll and pitch of a vehicle in motion (rad)."""
    level: float = 0.03
    """Roll and pitch of one that stands (rad): the bias of an accelerometer over gravity."""
    heading: float = 0.3
    """Between two headings that are tried (rad)."""
    gyro_bias: float = 0.02
    """rad/s."""
    accelerometer_bias: float = 0.3
    """m/s²."""
    scale: float = 0.01


def calm_moment(recording: NavigationRecording, begin: float, end: float) -> float:
    """The beginning of the second with the least rotation and with a force closest to gravity."""
    best, found = math.inf, begin
    last = min(begin + SEARCHED, end - 1.0)
    for moment in np.arange(begin, max(last, begin) + 1e-9, 0.5):
        mean, _ = recording.second(float(moment))
        # a rate of 0.1 rad/s is as bad as a force that is off by 1 m/s²
        cost = 10.0 * float(np.linalg.norm(mean[:3])) + abs(float(np.linalg.norm(mean[3:])) - GRAVITY)
        cost += 0.02 * (float(moment) - begin)
        if cost < best:
            best, found = cost, float(moment)
    return found


def first_beliefs(
    system: Navigation, recording: NavigationRecording, moment: float, uncertainty: Uncertainty | None = None
) -> Gaussian:
    """Beliefs at a moment, one for each heading that is tried.

    Position and velocity are those of GNSS, by a straight line through the fixes around the moment.

    Args:
        system: that of the filter.
        recording: the sensors.
        moment: when the filter starts (s).
        uncertainty: standard deviations; by default those of a small vehicle.

    Returns:
        Means ``[headings, n]`` and covariances.
    """
    sure = Uncertainty() if uncertainty is None else uncertainty
    mean, still = recording.second(moment)
    config = system.config
    position, position_std = _at(recording, "gnss_position", moment)
    velocity, velocity_std = _at(recording, "gnss_velocity", moment)
    if velocity is None:
        velocity, velocity_std = _slope(recording, moment)
    if position is None:
        position, position_std = np.zeros(3), 100.0
    # a car on a smooth road shakes no more than one that stands
    still = still and float(np.linalg.norm(velocity)) < STANDING
    if still:
        velocity, velocity_std = np.zeros(3), 0.1
    # roll and pitch from the force, which points up at rest
    force = mean[3:]
    roll = math.atan2(-force[1], -force[2])
    pitch = math.atan2(force[0], math.hypot(force[1], force[2]))
    angle = sure.level if still else sure.tilt
    headings = 2 * math.pi * np.arange(HEADINGS) / HEADINGS
    half = 0.5 * torch.tensor(headings)
    yaw = torch.stack((half.cos(), 0 * half, 0 * half, half.sin()), -1)
    tilt = rotation.multiply(_axis(1, pitch), _axis(0, roll))
    orientation = rotation.multiply(yaw, tilt)
    gyro_bias, bias_std = (mean[:3], 0.1 * sure.gyro_bias) if still else (np.zeros(3), sure.gyro_bias)
    numbers = [position, velocity]
    after = [gyro_bias, np.zeros(3)]
    # the heading is uncertain about the vertical, which is where the body frame sees it
    up = rotation.to_matrix(tilt)[2].numpy()
    turn = angle**2 * np.eye(3) + (sure.heading**2 - angle**2) * np.outer(up, up)
    variances = [
        np.diag(np.full(3, position_std**2)),
        np.diag(np.full(3, velocity_std**2)),
        turn,
        np.diag(np.full(3, bias_std**2)),
        np.diag(np.full(3, sure.accelerometer_bias**2)),
    ]
    if config.drift_seconds:
        after.append(np.zeros(6))
        stationary = math.sqrt(0.5 * config.drift_seconds)
        variances += [
            np.diag(np.full(3, (stationary * walk) ** 2)) for walk in (config.gyro_walk, config.accelerometer_walk)
        ]
    if config.scales:
        after.append(np.zeros(6))
        variances.append(np.diag(np.full(6, sure.scale**2)))
    if config.rate:
        after.append(mean[:3] - gyro_bias)
        variances.append(np.diag(np.full(3, 0.1**2)))
    count = len(headings)
    states = torch.cat(
        (
            torch.tensor(np.concatenate(numbers)).expand(count, -1),
            orientation,
            torch.tensor(np.concatenate(after)).expand(count, -1),
        ),
        -1,
    )
    cov = torch.block_diag(*(torch.tensor(block) for block in variances))
    belief = system.complete_prior(Gaussian(states, cov.expand(count, -1, -1)))
    return _with_offset(system, recording, moment, belief)


def _with_offset(system: Navigation, recording: NavigationRecording, moment: float, belief: Gaussian) -> Gaussian:
    """The belief with the offset of the barometer that its first readings have against GNSS."""
    names = [part.name for part in system.layout.parts]
    item = recording.sensors.get("barometer")
    if "barometer_offset" not in names or item is None or not len(item.time):
        return belief
    at = sum(part.size for part in system.layout.parts[: names.index("barometer_offset")])
    near = np.argsort(np.abs(item.measured - moment))[:5]
    mean = belief.mean.clone()
    mean[:, at] = float(np.nanmedian(item.values[near, 0])) + belief.mean[:, 2]
    return Gaussian(mean, belief.cov)


def _axis(number: int, angle: float) -> torch.Tensor:
    turn = torch.zeros(3, dtype=torch.float64)
    turn[number] = angle
    return rotation.exp(turn)


def _at(recording: NavigationRecording, name: str, moment: float) -> tuple[Array | None, float]:
    """A straight line through the readings of a second around a moment, and a cautious standard deviation."""
    if name not in recording.sensors:
        return None, math.nan
    item = recording.sensors[name]
    known = np.isfinite(item.values).all(1)
    time, values = item.measured[known], item.values[known]
    if len(time) == 0:
        return None, math.nan
    near = np.argsort(np.abs(time - moment))[:5]
    gap = float(np.abs(time[near[0]] - moment))
    std = {"gnss_position": 3.0, "gnss_velocity": 0.5}[name] + {"gnss_position": 10.0, "gnss_velocity": 2.0}[name] * gap
    if len(near) < 3 or gap > 1.0:
        return values[near[0]], std
    line = np.polynomial.polynomial.polyfit(time[near] - moment, values[near], 1)
    return line[0], std


def _slope(recording: NavigationRecording, moment: float) -> tuple[Array, float]:
    """The velocity by the fixes of two seconds, where GNSS states none."""
    item = recording.sensors.get("gnss_position")
    if item is None or len(item.time) < 2:
        return np.zeros(3), 10.0
    near = np.argsort(np.abs(item.measured - moment))[: max(3, int(2.0 / np.median(np.diff(item.time))))]
    line = np.polynomial.polynomial.polyfit(item.measured[near] - moment, item.values[near], 1)
    return line[1], 2.0
