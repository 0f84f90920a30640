"""A Phantom 4 RTK with four IMUs: each of them, and their mean."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from fwnkf.navigation.recording import NavigationRecording
from fwnkf.navigation.timeline import Readings
from fwnkf.systems import earth
from tasks.ins_gnss.recordings import folder

PATHS = ("horizontal_path_9",)
ORIGIN = (32.0, 35.0, 50.0)
"""Somewhere in the country of the recording: positions are relative."""
IMUS = 4


def quadrotor(path: str, numbers: tuple[int, ...]) -> NavigationRecording:
    """One path with one IMU, or the mean of several."""
    base = folder() / "navigation" / "real_quad_rtk" / path
    samples = []
    for number in numbers:
        table = np.genfromtxt(base / f"IMU_{number}.csv", delimiter=",", skip_header=1)
        # x forward, y left, z up, in degrees a second
        body = np.concatenate((np.deg2rad(table[:, 7:10]), table[:, 4:7]), 1) * np.tile([1.0, -1.0, -1.0], 2)
        samples.append((table[:, 0], body))
    time = samples[0][0]
    means = [np.stack([np.interp(time, stamps, column) for column in body.T], -1) for stamps, body in samples]
    fixes = np.genfromtxt(base / "GT.csv", delimiter=",", skip_header=1)
    place = earth.geodetic(fixes[:, 7:10], ORIGIN)
    label = "mean of four IMUs" if len(numbers) > 1 else f"IMU {numbers[0]}"
    imu = Readings(time, np.mean(means, 0))
    return NavigationRecording.from_fixes(f"{path}, {label}", imu, Readings(fixes[:, 0], place))


_CHOICES = {**{f"IMU {number}": (number,) for number in range(1, IMUS + 1)}, "mean of four IMUs": (1, 2, 3, 4)}
RECORDINGS: dict[str, Callable[[], NavigationRecording]] = {
    f"quadrotor {path.removeprefix('horizontal_')}, {label}": partial(quadrotor, path, numbers)
    for path in PATHS
    for label, numbers in _CHOICES.items()
}
"""By name: each path with each IMU, and with their mean."""
