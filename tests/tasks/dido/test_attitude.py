"""The attitude task: Jacobians, a simulated drone whose constants are known, and errors of a known covariance."""

from __future__ import annotations

import math

import pytest
import torch

from fwnkf.core import linearize, rotation
from fwnkf.core.trajectory import Trajectory
from fwnkf.systems.multirotor import Multirotor, MultirotorConfig
from tasks.dido import attitude, attitude_baselines, attitude_filter
from tasks.dido.protocol import RATE, Flight

from ...tolerances import assert_close

DRAG, BIAS = 0.3, (0.01, -0.02, 0.005, 0.1, -0.05, 0.2)


def flight_of(imu: torch.Tensor, q: torch.Tensor, velocity: torch.Tensor, clean: torch.Tensor | None = None) -> Flight:
    return Flight("simulated", imu, imu if clean is None else clean, q, velocity, "")


def accelerating(pitch: float = 0.1, steps: int = 4000) -> Flight:
    """Thrust along z, and drag: the drone speeds up because it is pitched, and the force across z is drag alone."""
    q = torch.tensor([math.cos(pitch / 2), 0.0, math.sin(pitch / 2), 0.0], dtype=torch.float64).expand(steps, 4)
    speed, forces, speeds = 0.0, [], []
    for _ in range(steps):
        forces.append([-DRAG * speed, 0.0, 9.81 * math.cos(pitch)])
        speeds.append([speed, 0.0, 0.0])
        speed += (9.81 * math.sin(pitch) - DRAG * speed) / RATE
    clean = torch.cat((torch.zeros(steps, 3), torch.tensor(forces)), -1).double()
    velocity = (rotation.to_matrix(q) @ torch.tensor(speeds).double().unsqueeze(-1)).squeeze(-1)
    return flight_of(clean + torch.tensor(BIAS, dtype=torch.float64), q, velocity, clean)


def test_the_multirotors_jacobians_are_those_of_its_functions(generator) -> None:
    system = Multirotor(MultirotorConfig(dt=0.05)).double()
    origin = system.layout.origin(torch.zeros(1, dtype=torch.float64)).expand(4, -1)
    x = system.layout.boxplus(origin, 0.5 * torch.randn(4, 11, generator=generator, dtype=torch.float64))
    u = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    mean, F = system.linearize_transition(x, u, None)
    by_hand = linearize.jacobian(lambda z: system.transition(z, u, None), x, system.layout, system.layout)
    assert_close(mean, by_hand[0])
    assert_close(F, by_hand[1])
    predicted, H = system.linearize_observation(x)
    theirs = linearize.jacobian(system.observe, x, system.layout, system.observation_layout)
    assert_close(predicted, theirs[0])
    assert_close(H.expand_as(theirs[1]), theirs[1])


def test_constants_of_a_simulated_drone_are_found() -> None:
    flight = accelerating()
    # a second axis that moves: the regression needs velocity along y too
    generator = torch.Generator().manual_seed(0)
    sway = 0.5 * torch.randn(len(flight), 1, generator=generator).double()
    world = rotation.to_matrix(flight.orientation) @ torch.tensor([[0.0], [1.0], [0.0]]).double()
    moving = flight.velocity + world.squeeze(-1) * sway
    clean, imu = flight.clean.clone(), flight.imu.clone()
    clean[:, 4:5] -= DRAG * sway
    imu[:, 4:5] -= DRAG * sway - 0.07
    constants = attitude_filter.fit_constants([flight_of(imu, flight.orientation, moving, clean)])
    assert constants.drag == pytest.approx(DRAG, rel=1e-6)
    # a constant offset is taken for a bias of the accelerometer: nothing of it is left
    assert constants.bias == pytest.approx([*BIAS[:4], BIAS[4] + 0.07, BIAS[5]], abs=1e-6)
    assert constants.offset == pytest.approx([0.0, 0.0], abs=1e-6)


def test_a_drone_that_speeds_up_is_pitched_and_only_a_drag_model_knows() -> None:
    flight = accelerating()
    constants = attitude_filter.DroneConstants(BIAS, DRAG, (0.0, 0.0))
    level = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64).expand(len(flight), 4)
    by_gravity = attitude_baselines.inclination(flight, level)
    for noise_states in (True, False):
        model = attitude_filter.new_filter(constants, noise_states=noise_states)
        score = attitude.Attitude().evaluate(attitude_filter.on_raw_samples(model, constants), [flight])
        # both start level, wrong by the whole pitch
        assert score.metrics["inclination_deg"] < 0.8 * by_gravity
    assert by_gravity == pytest.approx(math.degrees(0.1), rel=1e-6)
    # integration keeps the start it is given, which the drag of the first second has moved a little
    assert attitude_baselines.errors("strapdown", [flight], constants, 0.0)["simulated"] > 0.8 * by_gravity


def test_consistency_of_the_tilt_is_that_of_errors_drawn_from_the_stated_covariance(generator) -> None:
    steps = 4000
    q = rotation.exp(torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)).expand(steps, 4)
    root = 0.01 * torch.tensor([[1.0, 0.0, 0.0], [0.5, 2.0, 0.0], [0.3, -0.4, 3.0]], dtype=torch.float64)
    delta = torch.randn(steps, 3, generator=generator, dtype=torch.float64) @ root.mT
    truth = rotation.multiply(q, rotation.exp(delta)).repeat_interleave(attitude_filter.POOL, 0)
    heading = rotation.exp(torch.tensor([0.0, 0.0, 2.0], dtype=torch.float64))
    mean, cov = torch.zeros(steps, 12).double(), torch.zeros(steps, 11, 11).double()
    mean[:, 3:7] = rotation.multiply(heading, q)  # the heading is arbitrary and must not matter
    cov[:, 3:6, 3:6] = root @ root.mT
    track = Trajectory(mean, cov, mean, cov, mean, mean, cov, torch.zeros(steps, dtype=torch.int64), None)
    blank = torch.zeros(len(truth), 6).double()
    ratios = attitude.tilt_consistency(flight_of(blank, truth, blank[:, :3]), track)
    for axis in attitude.AXES:
        assert ratios[f"nees_{axis}"] == pytest.approx(1.0, abs=0.08)
        assert ratios[f"coverage_{axis}"] == pytest.approx(0.95, abs=0.015)


def test_training_starts_from_its_seed(monkeypatch) -> None:
    monkeypatch.setattr(attitude_filter, "ITERATIONS", 2)
    flight = accelerating(steps=16 * 80)
    constants = attitude_filter.DroneConstants(BIAS, DRAG, (0.0, 0.0))
    drags = [
        attitude_filter.train_filter([flight], constants, seed, lambda text: None, noise_states=False).system.drag
        for seed in (0, 0, 1)
    ]
    assert torch.equal(drags[0], drags[1])
    assert not torch.equal(drags[0], drags[2])
