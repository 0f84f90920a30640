"""Orientation from single samples and from the gyroscope: definitions, and the plain loop."""

from __future__ import annotations

import torch

from fwnkf.core import rotation

from ..tolerances import assert_close


def test_tilt_levels_any_force_even_upside_down(generator):
    force = torch.randn(200, 3, generator=generator, dtype=torch.float64)
    force[0], force[1] = torch.tensor([0.0, 0.0, 9.81]), torch.tensor([0.0, 0.0, -9.81])
    q = rotation.tilt(force)
    up = (rotation.to_matrix(q) @ force.unsqueeze(-1)).squeeze(-1)
    assert_close(up[:, 2], force.norm(dim=-1))
    assert_close(q.norm(dim=-1), torch.ones(200, dtype=torch.float64))


def test_compass_puts_the_horizontal_field_onto_north(generator):
    force, field = torch.randn(2, 200, 3, generator=generator, dtype=torch.float64)
    R = rotation.to_matrix(rotation.compass(force, field))
    assert_close((R @ force.unsqueeze(-1))[:, 2, 0], force.norm(dim=-1))
    east, north = (R @ field.unsqueeze(-1))[:, :2, 0].unbind(-1)
    assert_close(east, torch.zeros_like(east))
    assert bool((north > 0).all())


def test_products_and_integration_equal_the_plain_loop(generator):
    gyro = torch.randn(3, 37, 3, generator=generator, dtype=torch.float64)
    steps = rotation.exp(gyro * 0.01)
    q, path = steps[:, 0], [steps[:, 0]]
    for step in steps[:, 1:].unbind(1):
        q = rotation.multiply(q, step)
        path.append(q)
    assert_close(rotation.cumulative(steps), torch.stack(path, 1))
    assert_close(rotation.integrate(steps[0, 0], gyro[0], 0.01), torch.stack(path, 1)[0])


def test_extrapolation_forth_and_back_is_nothing(generator):
    q = rotation.normalize(torch.randn(20, 4, generator=generator, dtype=torch.float64))
    gyro = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    later = rotation.extrapolate(q, gyro, 0.3)
    assert_close(rotation.distance(q, later), 0.3 * gyro.norm(dim=-1))
    assert_close(rotation.extrapolate(later, gyro, -0.3), q)
