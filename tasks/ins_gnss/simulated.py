"""NaveGo's drive with its noise drawn anew: the IMU that its reference implies, and the error model of its sensor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.signal import lfilter  # type: ignore[import-untyped]

from fwnkf.core import rotation
from fwnkf.core.gaussian import matvec
from fwnkf.navigation.recording import NavigationRecording
from fwnkf.navigation.timeline import Array, Readings
from fwnkf.systems import NavigationConfig, NavigationMotion, NavigationMotionConfig
from fwnkf.types import Gaussian

STATED = 3.0
"""NaveGo states static biases as limits; they are drawn with a third of them as standard deviation."""


@dataclass(frozen=True)
class Drive:
    """The drive without noise, and the numbers of its error model."""

    recording: NavigationRecording
    clean: Array
    """Rate and force of every interval of the reference."""
    imu: Any
    gnss: Any


def ideal_imu(motion: NavigationMotion, time: Array, position: Array, velocity: Array, orientation: Array) -> Array:
    """The rates and forces that carry a state of the motion to the next one, ``[T - 1, 6]``."""
    motion = motion.double()
    q, v = torch.from_numpy(orientation), torch.from_numpy(velocity)
    h = torch.from_numpy(np.diff(time))[:, None]
    mean = 0.5 * (v[1:] + v[:-1])
    turn = motion.earth_rate + motion.transport(v[:-1])
    start = rotation.multiply(rotation.exp(-h * turn), q[:-1])
    rate = rotation.log(rotation.multiply(rotation.conjugate(start), q[1:])) / h
    halfway = rotation.multiply(rotation.exp(-0.5 * h * turn), q[:-1])
    middle = rotation.to_matrix(rotation.multiply(halfway, rotation.exp(0.5 * h * rate)))
    down = torch.eye(3, dtype=torch.float64)[2]
    gravity = motion.gravity * (1 + 2 * float(motion.curvature[0]) * torch.from_numpy(position[:-1, 2:])) * down
    force = (v[1:] - v[:-1]) / h - gravity + torch.linalg.cross(2 * motion.earth_rate + motion.transport(mean), mean)
    return torch.cat((rate, matvec(middle.mT, force)), -1).numpy()


def drive(recording: NavigationRecording, imu: Any, gnss: Any) -> Drive:
    """The drive from its reference."""
    truth = recording.truth
    assert truth is not None
    assert truth.position is not None
    assert truth.velocity is not None
    assert truth.orientation is not None
    latitude, _, height = recording.origin
    motion = NavigationMotion(NavigationMotionConfig(latitude=latitude, height=height))
    clean = ideal_imu(motion, truth.time, truth.position, truth.velocity, truth.orientation)
    return Drive(recording, clean, imu, gnss)


def config(of: Drive) -> NavigationConfig:
    """The error model as the filter takes it: nothing is fitted, because it is stated."""
    imu, gnss = of.imu, of.gnss
    step = float(np.median(np.diff(imu.t)))
    latitude, _, height = of.recording.origin
    gyro, accelerometer = float(imu.gb_corr[0]), float(imu.ab_corr[0])
    return NavigationConfig(
        latitude=latitude,
        height=height,
        gyro_density=float(imu.g_std[0]) * math.sqrt(step),
        accelerometer_density=float(imu.a_std[0]) * math.sqrt(step),
        gyro_walk=float(imu.gb_dyn[0]) * math.sqrt(2 / gyro),
        accelerometer_walk=float(imu.ab_dyn[0]) * math.sqrt(2 / accelerometer),
        drift_seconds=0.5 * (gyro + accelerometer),
        gnss_position_std=float(gnss.stdm[0]),
        gnss_height_std=float(gnss.stdm[2]),
        gnss_velocity_std=float(gnss.stdv[0]),
        gnss_climb_std=float(gnss.stdv[2]),
    )


def redrawn(of: Drive, seed: int) -> tuple[NavigationRecording, Gaussian]:
    """The drive with other noise, and the first belief: the first fix, and an alignment with NaveGo's error."""
    rng = np.random.default_rng(seed)
    truth, imu, gnss = of.recording.truth, of.imu, of.gnss
    assert truth is not None
    assert truth.position is not None
    assert truth.velocity is not None
    assert truth.orientation is not None
    count, step = len(of.clean), float(np.median(np.diff(imu.t)))

    def errors(static: float, dynamic: float, seconds: float, white: float) -> Array:
        decay = math.exp(-step / seconds)
        first = dynamic * rng.standard_normal((1, 3))
        noise = dynamic * math.sqrt(1 - decay**2) * rng.standard_normal((count, 3))
        walk = lfilter([1.0], [1.0, -decay], noise, axis=0, zi=decay * first)[0]
        return static * rng.standard_normal(3) + walk + white * rng.standard_normal((count, 3))

    gyro = errors(float(imu.gb_sta[0]) / STATED, float(imu.gb_dyn[0]), float(imu.gb_corr[0]), float(imu.g_std[0]))
    force = errors(float(imu.ab_sta[0]) / STATED, float(imu.ab_dyn[0]), float(imu.ab_corr[0]), float(imu.a_std[0]))
    samples = Readings(truth.time[1:], of.clean + np.concatenate((gyro, force), 1))
    fixes, speeds = (
        Readings(
            gnss.t,
            np.stack([np.interp(gnss.t, truth.time, part) for part in values.T], -1)
            + std * rng.standard_normal((len(gnss.t), 3)),
        )
        for values, std in ((truth.position, gnss.stdm.astype(float)), (truth.velocity, gnss.stdv))
    )
    begin = truth.time[1]
    first = int(np.searchsorted(gnss.t, begin))
    error = rng.standard_normal(3) * imu.ini_align_err
    place = int(np.searchsorted(truth.time, gnss.t[first]))
    turned = rotation.multiply(torch.from_numpy(truth.orientation[place]), rotation.exp(torch.from_numpy(error)))
    mean = np.concatenate((fixes.values[first], speeds.values[first], turned.numpy(), np.zeros(12)))
    bias = [float(imu.gb_sta[0]) / STATED] * 3 + [float(imu.ab_sta[0]) / STATED] * 3
    drift = [float(imu.gb_dyn[0])] * 3 + [float(imu.ab_dyn[0])] * 3
    stds = np.concatenate((gnss.stdm.astype(float), gnss.stdv, imu.ini_align_err, bias, drift))
    kept = {"gnss_position": fixes, "gnss_velocity": speeds}
    # what the belief was made of is not measured again
    kept = {name: Readings(item.time[first + 1 :], item.values[first + 1 :]) for name, item in kept.items()}
    made = NavigationRecording("NaveGo, redrawn", samples, kept, of.recording.origin, truth=truth)
    return made, Gaussian(torch.from_numpy(mean)[None], torch.from_numpy(np.diag(stds**2))[None])
