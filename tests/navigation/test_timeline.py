"""Steps of sensors with different rates and delays, and the IMU between them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fwnkf.core import rotation
from fwnkf.errors import DataError
from fwnkf.navigation.timeline import Readings, preintegrated, steps


def test_preintegration_agrees_with_integration_of_every_sample() -> None:
    """Coning: rates whose axes change within a step. The product of rotations of all samples is the reference."""
    rng = np.random.default_rng(0)
    time = 0.002 * np.arange(1, 101)
    phase = 2 * np.pi * 9.0 * time
    gyro = np.stack((0.8 * np.cos(phase), 0.8 * np.sin(phase), 0.3 + 0 * phase), -1)
    force = rng.normal(0, 1, (100, 3)) + np.array([0.0, 0.0, -9.8])
    ends = np.array([0.0, 0.1, 0.2])
    u = torch.from_numpy(preintegrated(time, np.concatenate((gyro, force), 1), ends))
    for number, part in enumerate((slice(0, 50), slice(50, 100)), 1):
        turns = rotation.exp(0.002 * torch.from_numpy(gyro[part]))
        path = rotation.cumulative(turns)
        angle = rotation.log(path[-1])
        before = torch.cat((torch.tensor([[1.0, 0, 0, 0]], dtype=torch.float64), path[:-1]))
        middle = rotation.multiply(before, rotation.exp(0.001 * torch.from_numpy(gyro[part])))
        gained = (rotation.to_matrix(middle) @ torch.from_numpy(force[part])[..., None])[..., 0].sum(0) * 0.002
        plain = torch.from_numpy(gyro[part].sum(0) * 0.002)
        assert float((0.1 * u[number, :3] - angle).norm()) < 0.05 * float((plain - angle).norm())
        halfway = rotation.to_matrix(rotation.exp(0.05 * u[number, :3]))
        made = halfway @ (0.1 * u[number, 3:])
        assert float((made - gained).norm()) < 1e-3


def test_a_delay_puts_a_measurement_where_it_was_measured() -> None:
    time = 0.005 * np.arange(400)
    imu = Readings(time, np.zeros((400, 6)))
    fixes = Readings(np.array([0.5, 1.0, 1.5]), np.arange(9.0).reshape(3, 3), delay=0.13)
    height = Readings(np.array([0.3, 0.87]), np.array([[1.0], [2.0]]))
    found = steps(imu, {"gnss_position": fixes, "barometer": height}, 0.1, 1.9)
    there = np.isfinite(found.sensor("gnss_position")).all(1)
    np.testing.assert_allclose(found.time[there], [0.37, 0.87, 1.37])
    np.testing.assert_allclose(found.sensor("gnss_position")[there], fixes.values)
    both = there & np.isfinite(found.sensor("barometer")[:, 0])
    assert found.time[both] == pytest.approx([0.87])  # at the same time in the same step
    assert found.dt.max() <= 0.1 + 1e-9
    assert found.dt.sum() == pytest.approx(1.8)


def test_means_keep_gaps_and_do_not_invent_values() -> None:
    values = np.arange(20.0)[:, None]
    values[7] = np.nan
    mean = Readings(0.01 * np.arange(20), values).averaged(20.0)
    assert len(mean.time) == 4
    assert np.isnan(mean.values[1, 0])
    assert mean.values[0, 0] == pytest.approx(2.0)


def test_an_imu_that_is_not_there_is_an_error_with_times() -> None:
    with pytest.raises(DataError, match=r"between 5\.000 and 6\.000"):
        steps(Readings(np.arange(3.0), np.zeros((3, 6))), {}, 5.0, 6.0)
