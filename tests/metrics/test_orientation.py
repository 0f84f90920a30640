"""Errors of an orientation against closed forms: a pure yaw, a pure tilt, the angle between verticals."""

from __future__ import annotations

import math

import pytest
import torch

from fwnkf.core import rotation
from fwnkf.metrics.orientation import error_quaternion, heading_error, inclination_error, tilt_vector, total_error

from ..tolerances import assert_close


def turn(*rotvec: float) -> torch.Tensor:
    return rotation.exp(torch.tensor(rotvec, dtype=torch.float64))


def random_orientations(count: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return rotation.normalize(torch.randn(count, 4, generator=generator, dtype=torch.float64))


@pytest.mark.parametrize("angle", [0.0, 1e-9, 0.3, 2.0, 3.1])
def test_a_yaw_error_is_all_heading(angle):
    truth = random_orientations(50)
    error = error_quaternion(rotation.multiply(turn(0, 0, angle).expand(50, 4), truth), truth)
    wanted = torch.full((50,), angle, dtype=torch.float64)
    assert_close(inclination_error(error), torch.zeros_like(wanted))
    assert_close(tilt_vector(error), torch.zeros(50, 2, dtype=torch.float64))
    assert_close(heading_error(error), wanted)
    assert_close(total_error(error), wanted)


@pytest.mark.parametrize("angle", [1e-9, 0.3, 2.0, 3.1])
@pytest.mark.parametrize("direction", [0.0, 1.0, 4.0])
def test_a_tilt_error_is_all_inclination(angle, direction):
    truth = random_orientations(50)
    tilted = turn(angle * math.cos(direction), angle * math.sin(direction), 0)
    error = error_quaternion(rotation.multiply(tilted.expand(50, 4), truth), truth)
    wanted = torch.full((50,), angle, dtype=torch.float64)
    assert_close(inclination_error(error), wanted)
    assert_close(heading_error(error), torch.zeros_like(wanted))
    assert_close(total_error(error), wanted)
    along = torch.tensor([math.cos(direction), math.sin(direction)], dtype=torch.float64)
    assert_close(tilt_vector(error), (2 * math.sin(angle / 2) * along).expand(50, 2))


def test_inclination_is_the_angle_between_the_verticals_and_the_parts_make_the_whole():
    estimate, truth = random_orientations(200, 1), random_orientations(200, 2)
    error = error_quaternion(estimate, truth)
    down = rotation.to_matrix(estimate)[:, 2], rotation.to_matrix(truth)[:, 2]
    assert_close(inclination_error(error), (down[0] * down[1]).sum(-1).acos())
    assert_close(2 * (inclination_error(error) / 2).sin(), tilt_vector(error).norm(dim=-1))
    assert_close(total_error(error), rotation.distance(estimate, truth))
    whole = (inclination_error(error) / 2).cos() * (heading_error(error) / 2).cos()
    assert_close((total_error(error) / 2).cos(), whole)


def test_signs_and_lengths_of_quaternions_do_not_matter():
    estimate, truth = random_orientations(100, 1), random_orientations(100, 2)
    error, other = error_quaternion(estimate, truth), error_quaternion(-3 * estimate, truth)
    for part in (inclination_error, heading_error, total_error, tilt_vector):
        assert_close(part(error), part(other))


def test_the_tilt_has_the_covariance_of_the_perturbation(generator):
    """Estimates perturbed in the sensor frame and turned about the vertical: ``R P Rᵀ`` whitens their tilt."""
    truth = random_orientations(20_000)
    P = torch.diag(torch.tensor([1e-4, 4e-4, 9e-4], dtype=torch.float64))
    delta = torch.randn(20_000, 3, generator=generator, dtype=torch.float64) * P.diagonal().sqrt()
    estimate = rotation.multiply(turn(0, 0, 1.2), rotation.multiply(truth, rotation.exp(delta)))
    R = rotation.to_matrix(estimate)
    cov = (R @ P @ R.mT)[:, :2, :2]
    tilt = tilt_vector(error_quaternion(estimate, truth)).unsqueeze(-1)
    squared = (tilt.mT @ torch.linalg.inv(cov) @ tilt).flatten()
    assert float(squared.mean()) == pytest.approx(2.0, abs=0.05)
