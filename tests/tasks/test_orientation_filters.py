"""Wrappers of published orientation filters: frames and starts."""

from __future__ import annotations

import sys

import pytest
import torch

import fwnkf
from fwnkf.core import rotation
from fwnkf.errors import ConfigError
from tasks import orientation_filters

RATE = 100.0
METHODS = {
    "vqf": lambda *sensors: orientation_filters.vqf(*sensors, rate=RATE),
    "madgwick": lambda *sensors: orientation_filters.madgwick(*sensors, rate=RATE, gain=0.1),
    "mahony": lambda *sensors: orientation_filters.mahony(*sensors, rate=RATE, gains=(0.74, 0.0012)),
}


def turning(seconds: float = 20.0) -> tuple[torch.Tensor, ...]:
    """A slow turn about all axes without noise or acceleration: the three sensors, and the orientation."""
    time = torch.arange(0, seconds, 1 / RATE, dtype=torch.float64)
    gyro = 0.3 * torch.stack((torch.sin(time), torch.cos(0.7 * time), torch.sin(0.4 * time)), -1)
    start = rotation.exp(torch.tensor([0.2, -0.3, 1.0], dtype=torch.float64))
    orientation = rotation.integrate(start, gyro, 1 / RATE)
    to_body = rotation.to_matrix(orientation).mT
    accel = to_body @ torch.tensor([0.0, 0.0, 9.81], dtype=torch.float64)
    mag = to_body @ torch.tensor([0.0, 20.0, -40.0], dtype=torch.float64)  # north is y: east-north-up
    return gyro, accel, mag, orientation


@pytest.mark.parametrize("name", METHODS)
def test_with_a_magnetometer_the_world_is_east_north_up(name) -> None:
    pytest.importorskip("vqf" if name == "vqf" else "ahrs")
    gyro, accel, mag, orientation = turning()
    error = rotation.distance(METHODS[name](gyro, accel, mag), orientation)[500:]
    assert float(error.max()) < 0.02


@pytest.mark.parametrize("name", METHODS)
def test_without_a_magnetometer_the_vertical_is_right(name) -> None:
    pytest.importorskip("vqf" if name == "vqf" else "ahrs")
    gyro, accel, _, _ = turning()
    estimate = METHODS[name](gyro, accel)
    up = (rotation.to_matrix(estimate) @ accel.unsqueeze(-1)).squeeze(-1) / 9.81
    assert float(up[500:, :2].norm(dim=-1).max()) < 0.02


def test_a_missing_package_names_the_extra(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "vqf", None)
    with pytest.raises(ConfigError, match=r"fwnkf\[rivals\]"):
        orientation_filters.vqf(torch.zeros(2, 3), torch.ones(2, 3), rate=RATE)


def test_the_gravity_ekf_follows_a_turn() -> None:
    gyro, accel, _, orientation = turning(8.0)
    model = fwnkf.build("ekf", system=orientation_filters.gravity_attitude(1.0, 1 / RATE))
    start = torch.cat((orientation[0], torch.zeros(3).double()))
    prior = fwnkf.Gaussian(start, 0.01 * torch.eye(6).double())
    track = model.run(accel[None], u=gyro[None], prior=prior, prior_at="before_first_step")
    up = (rotation.to_matrix(track.mean[0, :, :4]) @ accel.unsqueeze(-1)).squeeze(-1) / 9.81
    assert float(up[:, :2].norm(dim=-1).max()) < 0.02
