"""Arrays as a log: the same signals, errors and blocks as a file gives."""

from __future__ import annotations

import numpy as np
import pytest

from fwnkf.errors import DataError
from fwnkf.logs.log import Stream
from fwnkf.logs.memory import MemoryLog


def log() -> MemoryLog:
    time = np.arange(10) / 5
    gyro = {f"gyro_{axis}": np.arange(10.0) + k for k, axis in enumerate("xyz")}
    streams = [Stream("gyro", time, gyro, role="gyro"), Stream("notes", time[:3], {"depth": np.ones(3)})]
    return MemoryLog(streams, name="dive", airborne=[(0.2, 1.4)])


def test_streams_with_a_role_are_signals_and_others_are_topics():
    one = log()
    assert [source.name for source in one.sources()] == ["gyro"]
    assert one.signal("gyro").units == {"gyro_x": "rad/s", "gyro_y": "rad/s", "gyro_z": "rad/s"}
    assert list(one.topics) == ["gyro", "notes"]
    assert one.topics["notes"].count == 3
    assert one.airborne() == ((0.2, 1.4),)
    assert one.seconds == pytest.approx(1.8)


def test_blocks_hold_all_samples_in_order():
    parts = [block["gyro"] for block in log().blocks({"gyro": ["gyro_y"]}, samples=4)]
    assert [len(part) for part in parts] == [4, 4, 2]
    assert np.concatenate([part.columns["gyro_y"] for part in parts]).tolist() == list(np.arange(1.0, 11.0))


def test_what_is_not_there_is_named():
    with pytest.raises(DataError, match="no topic 'accel'; there are: gyro, notes"):
        log().read("accel")
    with pytest.raises(DataError, match="notes has no width; fields: depth"):
        log().read("notes", ["width"])
    with pytest.raises(DataError, match="the same name"):
        MemoryLog([Stream("imu", np.zeros(1), {}), Stream("imu", np.zeros(1), {})])
