"""Write recordings as logs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..logs.ros_write import McapFile
from .recording import Recording

__all__ = ["write_mcap"]

Array = NDArray[np.float64]


def write_mcap(recording: Recording, path: str | Path) -> Path:
    """Write a recording as an MCAP file with messages of ROS 2.

    Gyroscope and accelerometer are in ``/imu``, a magnetometer in ``/mag`` (tesla, as ROS has it), the truth in
    ``/truth`` where it is known. Values are stored as they are, NaN where they were not measured; stamps are rounded to
    nanoseconds.

    Args:
        recording: with a gyroscope or an accelerometer.
        path: the file.

    Returns:
        The file.

    Raises:
        DataError: the recording has neither.

    >>> import tempfile, torch
    >>> from fwnkf.data.log_recording import recording
    >>> from fwnkf.data.recording import Channel
    >>> from fwnkf.logs import open_log
    >>> channels = tuple(Channel(f"gyro_{axis}", "rad/s") for axis in "xyz")
    >>> rates = torch.randn(100, 3).double()
    >>> walk = Recording("walk", torch.arange(100).double() / 64, rates, channels, rates.isfinite())
    >>> log = open_log(write_mcap(walk, Path(tempfile.mkdtemp()) / "walk.mcap"))
    >>> torch.equal(recording(log).observations[:, :3], rates)
    True
    """
    path = Path(path)
    start = recording.epoch_ns or 0
    stamps = start + np.round(recording.time.numpy() * 1e9).astype(np.int64)
    values = np.where(recording.mask.numpy(), recording.observations.numpy(), np.nan)
    places = {channel.name: index for index, channel in enumerate(recording.channels)}

    def vector(name: str) -> Array | None:
        names = [f"{name}_{axis}" for axis in "xyz"]
        return values[:, [places[item] for item in names]] if all(item in places for item in names) else None

    gyro, accel, mag = vector("gyro"), vector("accel"), vector("mag")
    if gyro is None and accel is None:
        names = ", ".join(places)
        raise DataError(f"recording {recording.name!r} has neither gyro_x … nor accel_x …, but {names}; rename them")
    missing = np.full((len(stamps), 3), np.nan)
    zero, unknown = np.zeros((len(stamps), 9)), np.zeros((len(stamps), 9))
    unknown[:, 0] = -1.0
    turn = np.tile([0.0, 0.0, 0.0, 1.0], (len(stamps), 1))
    imu = [turn, unknown, missing if gyro is None else gyro, zero, missing if accel is None else accel, zero]
    with McapFile(path) as file:
        file.write("/imu", "sensor_msgs/msg/Imu", stamps, np.concatenate(imu, 1), frame="imu")
        if mag is not None:
            file.write(
                "/mag", "sensor_msgs/msg/MagneticField", stamps, np.concatenate([mag * 1e-6, zero], 1), frame="imu"
            )
        if recording.truth is not None and recording.truth_mask is not None:
            rows = recording.truth_mask.numpy()
            file.write("/truth", "geometry_msgs/msg/PoseStamped", stamps[rows], _pose(recording)[rows])
    return path


def _pose(recording: Recording) -> Array:
    """Position and orientation (x, y, z, w) of the truth; NaN for a part that it does not have."""
    assert recording.truth is not None
    assert recording.layout is not None
    pose = np.full((len(recording), 7), np.nan)
    for part, values in zip(recording.layout.parts, recording.layout.split(recording.truth), strict=True):
        if part.kind == "quaternion":
            pose[:, 3:] = values.numpy()[:, [1, 2, 3, 0]]
        elif part.size == 3 and part.name in ("p", "position"):
            pose[:, :3] = values.numpy()
    return pose
