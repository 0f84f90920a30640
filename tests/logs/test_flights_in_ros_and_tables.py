"""A simulated flight comes back from every format of ROS and from tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fwnkf.data.flights import Flight, flight
from fwnkf.logs import open_log

from .writers.ros import write_mcap, write_ros1, write_ros2
from .writers.tables import write_csv, write_parquet

WRITERS = {"mcap": write_mcap, "ros1": write_ros1, "ros2": write_ros2, "csv": write_csv, "parquet": write_parquet}


@pytest.fixture(scope="module")
def simulated() -> Flight:
    return flight(seed=3, seconds=10.0)


@pytest.mark.parametrize("name", WRITERS)
def test_signals_come_back(tmp_path: Path, simulated: Flight, name: str) -> None:
    log = open_log(WRITERS[name](tmp_path, simulated))
    assert log.notes == ()
    imu = log.signal("imu")
    assert np.array_equal(imu.stack(), np.concatenate([simulated.gyro, simulated.accel], 1))
    assert np.allclose(np.diff(imu.time), np.diff(simulated.imu_time), rtol=0, atol=3e-9)
    if imu.received is not None:
        assert np.allclose(np.diff(imu.received), np.diff(simulated.received), rtol=0, atol=3e-9)
    rotor, motor = log.signal("rotor"), log.signal("motor")
    if name in ("csv", "parquet"):
        assert np.allclose(rotor.columns["rotor_2"][[0, -1]], simulated.rotor[[0, -1], 1], rtol=0.05)
    else:
        assert np.allclose(rotor.stack(), simulated.rotor, rtol=1e-14)
        assert np.array_equal(motor.stack(), simulated.motor)
        pose = log.signal("pose")
        assert np.array_equal(pose.stack(), np.concatenate([simulated.position, simulated.orientation], 1))
