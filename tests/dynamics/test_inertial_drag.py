"""The strapdown that reads velocity off drag: right Jacobians, modes and velocities, and causal."""

from __future__ import annotations

import pytest
import torch

import fwnkf
from fwnkf.core import linearize
from fwnkf.errors import ConfigError
from fwnkf.systems import CalibratedStrapdown, CalibratedStrapdownConfig, DragStrapdown, DragStrapdownConfig
from fwnkf.systems.inertial_drag import axes_of

from ..tolerances import assert_close
from .test_inertial_calibrated import states

DOUBLE = torch.float64


def leaning(generator, **options):
    """A system whose rotors lean and whose coefficients are none of them zero."""
    system = DragStrapdown(DragStrapdownConfig(**options)).double()
    with torch.no_grad():
        system.axes.copy_(axes_of(torch.tensor([0.9, 0.1, -0.4], dtype=DOUBLE)))
        system.drag.copy_(torch.randn(2, 6, generator=generator, dtype=DOUBLE))
        system.calibration.add_(0.1 * torch.randn(system.calibration.shape, generator=generator, dtype=DOUBLE))
    return system


def in_flight(generator, batch=2, length=200):
    """Gravity with the shaking of rotors, and slow turning."""
    noise = torch.tensor([0.02] * 3 + [1.5] * 3, dtype=DOUBLE) * torch.randn(
        batch, length, 6, generator=generator, dtype=DOUBLE
    )
    t = torch.arange(length, dtype=DOUBLE) * 0.005
    return noise + torch.stack([(3 * t).sin(), 0 * t, 0 * t, 9.81 + 0 * t, 0 * t, 0 * t], -1)


def test_the_jacobians_are_those_of_differentiation(generator):
    system = leaning(generator, sites=2)
    x, u = states(system, generator), torch.randn(6, 14, generator=generator, dtype=DOUBLE)
    dt = 0.05 * torch.rand(6, generator=generator, dtype=DOUBLE)
    for step in (dt, None):
        moved, F = system.linearize_transition(x, u, step)
        expected = linearize.jacobian(lambda z: system.transition(z, u, step), x, system.layout, system.layout)  # noqa: B023
        assert_close(moved, expected[0], "rounding")
        assert_close(F, expected[1], "algebra")
    seen, H = system.linearize_observation(x)
    expected = linearize.jacobian(system.observe, x, system.layout, system.observation_layout)
    assert_close(seen, expected[0], "rounding")
    assert_close(H, expected[1], "algebra")


def test_tilt_is_a_calibration_of_gravity_that_the_state_holds(generator):
    """Against the calibrated system, told the same acceleration as a correction of gravity."""
    system = DragStrapdown(DragStrapdownConfig()).double()
    told = CalibratedStrapdown(CalibratedStrapdownConfig()).double()
    tilt = torch.tensor([0.3, -0.2], dtype=DOUBLE)
    with torch.no_grad():
        told.calibration[0, 6:8] = tilt
    x, u = states(told, generator), torch.randn(6, 12, generator=generator, dtype=DOUBLE)
    more = torch.cat((x, tilt.expand(6, -1), torch.zeros(6, 2, dtype=DOUBLE)), -1)
    moved = system.transition(more, u, None)
    assert_close(moved[:, :16], told.transition(x, u, None), "rounding")
    assert (moved[:, 16:] == more[:, 16:]).all()
    assert_close(system.process_noise(None)[:15, :15], told.process_noise(None), "rounding")
    assert (system.process_noise(None)[15:] == 0).all()


def test_the_axis_of_the_rotors_becomes_the_first_axis(generator):
    for thrust in torch.randn(5, 3, generator=generator, dtype=DOUBLE):
        axes = axes_of(thrust)
        assert_close(axes @ thrust, torch.tensor([1.0, 0, 0], dtype=DOUBLE) * thrust.norm(), "algebra")
        assert_close(axes @ axes.mT, torch.eye(3, dtype=DOUBLE), "algebra")
        assert torch.linalg.det(axes) > 0


def test_drag_gives_back_the_velocity_that_made_it(generator):
    """Forces written out from ``f = -K v + C α + d`` in leaning axes, against the velocity they came from."""
    system = leaning(generator, block=5)
    K = torch.tensor([[0.2, 0.01], [-0.02, 0.17]], dtype=DOUBLE)
    C, d = 0.1 * torch.randn(2, 3, generator=generator, dtype=DOUBLE), torch.tensor([0.03, -0.1], dtype=DOUBLE)
    blocks = 12
    velocity = torch.randn(blocks, 2, generator=generator, dtype=DOUBLE)
    rate = torch.randn(blocks, 3, generator=generator, dtype=DOUBLE)
    change = torch.cat((torch.zeros(1, 3, dtype=DOUBLE), rate.diff(dim=0))) / 0.025
    across = -velocity @ K.mT + change @ C.mT + d
    force = torch.cat((torch.full((blocks, 1), 9.8, dtype=DOUBLE), across), -1)
    imu = (torch.cat((rate @ system.axes, force @ system.axes), -1)).repeat_interleave(5, 0)
    with torch.no_grad():
        system.drag.copy_(torch.linalg.solve(K, torch.cat((-torch.eye(2, dtype=DOUBLE), C, d[:, None]), -1)))
    read = system.features(imu[None])[0] @ system.drag.mT
    assert_close(read, velocity, "algebra")


def test_it_tells_flying_from_standing_and_from_a_hand(generator):
    system = leaning(generator)
    flight = in_flight(generator)
    ground = torch.tensor([0, 0, 0, 9.81, 0, 0], dtype=DOUBLE).expand(2, 200, -1)
    t = torch.arange(200, dtype=DOUBLE) * 0.005
    hand = ground + torch.stack([(9 * t).sin(), 0 * t, 0 * t, 0 * t, 3 * (7 * t).sin(), 0 * t], -1)
    flies, stands = system.modes(flight)
    assert flies.all()
    assert not stands.any()
    flies, stands = system.modes(ground)
    assert not flies.any()
    assert stands[:, 4:].all()
    assert not stands[:, :4].any()
    for mode in system.modes(hand):
        assert not mode.any()


def test_a_landing_changes_what_is_seen(generator):
    flight = in_flight(generator)
    ground = torch.tensor([0, 0, 0, 9.81, 0, 0], dtype=DOUBLE).expand(2, 200, -1)
    sight = leaning(generator).sight(torch.cat((flight, ground), 1))
    ends = sight.mask.any(-1)[0].nonzero().flatten()
    assert (ends % 10 == 9).all()
    assert sight.mask[:, 199].tolist() == [[True, True, False, False, False]] * 2
    assert sight.mask[:, 399].tolist() == [[False, False, True, True, True]] * 2
    assert (sight.y[:, 399] == 0).all()


def test_what_it_sees_is_causal(generator):
    system, imu = leaning(generator), in_flight(generator)
    for cut in (97, 100):
        for long, short in zip(system.sight(imu), system.sight(imu[:, :cut]), strict=True):
            assert_close(long[:, :cut].double(), short.double(), "rounding")


def test_a_start_is_as_unsure_as_flights_differ():
    system = DragStrapdown(DragStrapdownConfig()).double()
    with torch.no_grad():
        system.bias_spread.copy_(torch.arange(1.0, 7.0))
        system.tilt_spread.copy_(torch.tensor([7.0, 8.0]))
        system.offset_spread.copy_(torch.tensor([9.0, 10.0]))
    given = fwnkf.Gaussian(torch.eye(10, dtype=DOUBLE)[6], 0.25 * torch.eye(9, dtype=DOUBLE))
    start = system.start(given)
    assert start.mean.tolist() == [0.0] * 6 + [1.0] + [0.0] * 13
    assert start.cov.diagonal().sqrt().tolist() == [0.5] * 9 + list(range(1, 11))


def test_a_system_without_biases_is_refused():
    with pytest.raises(ConfigError, match="biases"):
        DragStrapdown(DragStrapdownConfig(biases=False))


def test_its_filter_comes_back_from_disk(generator, tmp_path):
    system = leaning(generator, still=(0.03, 0.2), variances=(0.5, 0.6, 0.1, 0.2, 0.3))
    with torch.no_grad():
        system.bias_spread.fill_(0.05)
        system.tilt_spread.fill_(0.1)
        system.offset_spread.fill_(0.2)
    model = fwnkf.build("fwnkf", system=system, shaping="noise", hidden=0, shared_shaper=False)
    again = fwnkf.load(fwnkf.save(model, tmp_path / "model"))
    imu, runs = in_flight(generator, length=60), []
    for one in (model, again):
        sight = one.system.sight(imu)
        start = fwnkf.Gaussian(torch.eye(10, dtype=DOUBLE)[6].expand(2, -1), 0.01 * torch.eye(9, dtype=DOUBLE))
        runs.append(one.run(sight.y, sight.u, sight.mask, prior=one.system.start(start)).raise_for_status())
    assert (runs[0].mean == runs[1].mean).all()
    assert (runs[0].cov == runs[1].cov).all()
