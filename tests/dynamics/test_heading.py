"""Heading from a magnetometer: automatic Jacobians, and a drift and a magnet that are known."""

from __future__ import annotations

import math

import pytest
import torch

import fwnkf
from fwnkf.core import rotation
from fwnkf.core.system import System
from fwnkf.preprocess.magnetometer import leveled_field
from fwnkf.systems import Heading, HeadingConfig

from ..hand import FIELD, RATE, swaying_hand
from ..tolerances import assert_close

BLOCK = 24


def test_jacobians_are_those_of_automatic_differentiation(generator):
    system = Heading(HeadingConfig()).double()
    x = torch.randn(3, 13, generator=generator, dtype=torch.float64)
    x = torch.cat((x[:, :9], rotation.normalize(x[:, 9:])), -1)
    q = rotation.normalize(torch.randn(3, 4, generator=generator, dtype=torch.float64))
    for u in (None, torch.cat((torch.tensor([[0.0], [1.0], [5.0]]).double(), q), -1)):
        for dt in (None, torch.tensor([0.02, 0.05, 0.1]).double()):
            mean, F = system.linearize_transition(x, u, dt)
            expected, slope = System.linearize_transition(system, x, u, dt)
            assert_close(mean, expected)
            assert_close(F.expand_as(slope), slope)
            assert system.process_noise(dt).shape[-2:] == (12, 12)
    seen, H = system.linearize_observation(x)
    expected, slope = System.linearize_observation(system, x)
    assert_close(seen, expected)
    assert_close(H, slope)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
@pytest.mark.parametrize(("std", "low", "high"), [(3.0, 0.0, 1.0), (1e-3, 3.0, 30.0)])
def test_drift_and_hard_iron_are_estimated(std, low, high):
    """The truth as tilt filter's frame, rotated away ever further: 29 degrees at the start, 35 at the end."""
    motion = swaying_hand(50.0)
    steps = len(motion.time) // BLOCK
    angle = 0.5 + 2e-3 * motion.time
    drift = rotation.exp(torch.stack((torch.zeros_like(angle), torch.zeros_like(angle), angle), -1))
    path, gyro, _, field = (
        item[: steps * BLOCK].unflatten(0, (steps, BLOCK))
        for item in (rotation.multiply(drift, motion.truth), *motion.samples.split(3, -1))
    )
    field = field + torch.tensor([3.0, -2.0, 1.0]).double()
    leveled = leveled_field(path, gyro, field, torch.ones_like(field), 0.0)
    options = {"field": tuple(FIELD.tolist()), "dt": BLOCK / RATE, "disturbance_std": 0.1, "hard_iron_std": std}
    model = fwnkf.build("ekf", system=Heading(HeadingConfig(**options)).double())
    u = torch.cat((gyro.norm(dim=-1).mean(-1, keepdim=True), leveled.orientation), -1)
    heading = model.run(leveled.field[None], u[None]).mean[0, :, 0]
    error = rotation.wrap(heading + angle[BLOCK - 1 :: BLOCK][:steps])[-100:]
    assert low < math.degrees(float(error.abs().max())) < high


def test_the_initial_belief_points_to_the_field():
    system = Heading(HeadingConfig(field=tuple(FIELD.tolist()))).double()
    turn = rotation.exp(torch.tensor([0.0, 0.0, -0.7]).double())
    y = (rotation.to_matrix(turn) @ FIELD).reshape(1, 1, 3)
    belief = system.initial_belief(y, torch.ones_like(y), None)
    assert float(belief.mean[0, 0]) == pytest.approx(0.7, abs=1e-6)
    assert_close(system.observe(belief.mean), y[:, 0], "batch")
    assert_close(belief.cov[0].diagonal(), system.motion.initial_variances())
    unknown = system.initial_belief(y, torch.zeros_like(y), None)
    assert float(unknown.cov[0, 0, 0]) == pytest.approx(math.pi**2 / 3)
