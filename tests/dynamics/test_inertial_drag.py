"""The strapdown with velocity from rotor drag: Jacobians, detection of flight, velocities, streaming."""

from __future__ import annotations

import pytest
import torch

import fwnkf
from fwnkf.core import linearize
from fwnkf.core.preprocess import Inputs
from fwnkf.errors import ConfigError
from fwnkf.preprocess import RotorDrag, RotorDragConfig
from fwnkf.systems import CalibratedStrapdown, CalibratedStrapdownConfig, DragStrapdown, DragStrapdownConfig
from fwnkf.systems.inertial_drag import axes_of

from ..tolerances import assert_close
from .test_inertial_calibrated import states

DOUBLE = torch.float64


def tilted_rotors(generator, **options):
    """A system with tilted rotors and no coefficient zero."""
    system = DragStrapdown(DragStrapdownConfig(**options)).double()
    with torch.no_grad():
        system.axes.copy_(axes_of(torch.tensor([0.9, 0.1, -0.4], dtype=DOUBLE)))
        system.drag.copy_(torch.randn(2, 6, generator=generator, dtype=DOUBLE))
        system.calibration.add_(0.1 * torch.randn(system.calibration.shape, generator=generator, dtype=DOUBLE))
    return system


def with_drag(model):
    """A filter that reads raw samples of an IMU."""
    model.preprocess = RotorDrag(RotorDragConfig(), model.system)
    return model


def measurements(system, imu):
    """Velocities and weights of whole recordings, made sample by sample."""
    model = with_drag(fwnkf.build("ekf", system=system))
    return model.preprocessed(Inputs(imu, torch.ones_like(imu), None, None))


def in_flight(generator, batch=2, length=200):
    """Gravity with the vibration of rotors, and slow rotation."""
    noise = torch.tensor([0.02] * 3 + [1.5] * 3, dtype=DOUBLE) * torch.randn(
        batch, length, 6, generator=generator, dtype=DOUBLE
    )
    t = torch.arange(length, dtype=DOUBLE) * 0.005
    return noise + torch.stack([(3 * t).sin(), 0 * t, 0 * t, 9.81 + 0 * t, 0 * t, 0 * t], -1)


def test_the_jacobians_are_those_of_differentiation(generator):
    system = tilted_rotors(generator, sites=2)
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


def test_tilt_is_a_correction_of_gravity_in_the_state(generator):
    """Against the calibrated system with the same correction of gravity as a constant."""
    system = DragStrapdown(DragStrapdownConfig()).double()
    constant = CalibratedStrapdown(CalibratedStrapdownConfig()).double()
    tilt = torch.tensor([0.3, -0.2], dtype=DOUBLE)
    with torch.no_grad():
        constant.calibration[0, 6:8] = tilt
    x, u = states(constant, generator), torch.randn(6, 12, generator=generator, dtype=DOUBLE)
    more = torch.cat((x, tilt.expand(6, -1), torch.zeros(6, 2, dtype=DOUBLE)), -1)
    moved = system.transition(more, u, None)
    assert_close(moved[:, :16], constant.transition(x, u, None), "rounding")
    assert (moved[:, 16:] == more[:, 16:]).all()
    assert_close(system.process_noise(None)[:15, :15], constant.process_noise(None), "rounding")
    assert (system.process_noise(None)[15:] == 0).all()


def test_the_axis_of_the_rotors_becomes_the_first_axis(generator):
    for thrust in torch.randn(5, 3, generator=generator, dtype=DOUBLE):
        axes = axes_of(thrust)
        assert_close(axes @ thrust, torch.tensor([1.0, 0, 0], dtype=DOUBLE) * thrust.norm(), "algebra")
        assert_close(axes @ axes.mT, torch.eye(3, dtype=DOUBLE), "algebra")
        assert torch.linalg.det(axes) > 0


def test_drag_gives_back_the_velocity_that_made_it(generator):
    """Forces written out from ``f = -K v + C α + d`` in leaning axes, against the velocity they came from."""
    system = tilted_rotors(generator, block=5)
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
    assert_close(system.features(imu[None])[0] @ system.drag.mT, velocity, "algebra")


def on_the_ground(length=200):
    return torch.tensor([0, 0, 0, 9.81, 0, 0], dtype=DOUBLE).expand(2, length, -1)


def by_hand(length=200):
    """Moved about with the rotors off."""
    t = torch.arange(length, dtype=DOUBLE) * 0.005
    moved = torch.stack([(9 * t).sin(), 0 * t, 0 * t, 0 * t, 3 * (7 * t).sin(), 0 * t], -1)
    return on_the_ground(length) + moved


def test_it_tells_flying_from_standing_and_from_a_hand(generator):
    system = tilted_rotors(generator)
    flying, standing = system.modes(in_flight(generator))
    assert flying.all()
    assert not standing.any()
    flying, standing = system.modes(on_the_ground())
    assert not flying.any()
    assert standing[:, 4:].all()
    assert not standing[:, :4].any()
    for mode in system.modes(by_hand()):
        assert not mode.any()


def test_modes_are_those_of_the_definition(generator):
    """Against vibration and motion written out with loops over blocks, near the thresholds."""
    system = tilted_rotors(generator, block=4, recent=3, flying=2.0, still=(0.1, 1.0))
    size = 0.4 + 0.8 * torch.rand(1, 240, 1, generator=generator, dtype=DOUBLE)
    noise = torch.tensor([0.2] * 3 + [1.0] * 3, dtype=DOUBLE)
    imu = size * noise * torch.randn(1, 240, 6, generator=generator, dtype=DOUBLE)
    second = torch.zeros(240, dtype=DOUBLE)
    for t in range(2, 240):
        second[t] = (imu[0, t, 3:] - 2 * imu[0, t - 1, 3:] + imu[0, t - 2, 3:]).square().sum()
    means = [imu[0, 4 * k : 4 * k + 4].mean(0) for k in range(60)]
    vibration = [second[4 * k : 4 * k + 4].mean().sqrt() for k in range(60)]
    expected = []
    for k in range(60):
        part = torch.stack(means[max(0, k - 2) : k + 1])
        rate, force = (part.var(0, correction=0)[i : i + 3].sum().sqrt() for i in (0, 3))
        stands = bool(rate < 0.1) and bool(force < 1.0) and k >= 4
        flies = bool(torch.stack(vibration[max(0, k - 2) : k + 1]).mean() > 2.0) and not stands
        expected.append([flies, stands])
    assert torch.stack(tuple(system.modes(imu)), -1)[0].tolist() == expected
    assert all(0 < sum(mode) < 60 for mode in zip(*expected, strict=True))  # both kinds occur


@pytest.mark.parametrize("length", [400, 397])
def test_sample_by_sample_is_the_whole_recording(generator, length):
    """The streaming form against features and modes of whole recordings, through a landing and a hand."""
    system = tilted_rotors(generator)
    imu = torch.cat((in_flight(generator, length=150), on_the_ground(150), by_hand(100)), 1)[:, :length]
    inputs = measurements(system, imu)
    flying, standing = system.modes(imu)
    across = system.features(imu) @ system.drag.mT
    ends = torch.arange(across.shape[1]) * 10 + 9
    weight = torch.cat((flying.unsqueeze(-1).expand(-1, -1, 2), standing.unsqueeze(-1).expand(-1, -1, 3)), -1)
    assert (inputs.weight[:, ends] == weight).all()
    assert_close(inputs.y[:, ends, :2], across * flying.unsqueeze(-1), "algebra")
    assert not inputs.y[..., 2:].any()
    between = torch.ones(length, dtype=torch.bool)
    between[ends] = False
    assert not inputs.weight[:, between].any()
    assert flying.any()
    assert standing.any()


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_stepping_gives_the_run(generator):
    system = tilted_rotors(generator, variances=(0.5, 0.6, 0.1, 0.2, 0.3))
    model = with_drag(fwnkf.FWNKF(system, noise=fwnkf.Lines(shared=True)))
    imu = torch.cat((in_flight(generator, length=60), on_the_ground(60)), 1)
    prior = fwnkf.Gaussian(torch.eye(10, dtype=DOUBLE)[6], 0.01 * torch.eye(9, dtype=DOUBLE))
    whole = model.run(imu, prior=prior)
    state = model.init(2, prior)
    for t in range(120):
        state, out = (model.step if t else model.update)(state, imu[:, t])
        assert (out.mean == whole.mean[:, t]).all()
        if t == 55:  # within a block, and within the memory of the last blocks
            state = fwnkf.load_state(model, fwnkf.dump_state(model, state))


def test_a_landing_changes_what_is_measured(generator):
    inputs = measurements(tilted_rotors(generator), torch.cat((in_flight(generator), on_the_ground()), 1))
    assert inputs.weight[:, 199].tolist() == [[1.0, 1.0, 0.0, 0.0, 0.0]] * 2
    assert inputs.weight[:, 399].tolist() == [[0.0, 0.0, 1.0, 1.0, 1.0]] * 2
    assert (inputs.y[:, 399] == 0).all()


def test_a_prior_is_completed_by_biases_tilt_and_offset():
    system = DragStrapdown(DragStrapdownConfig()).double()
    with torch.no_grad():
        system.bias_std.copy_(torch.arange(1.0, 7.0))
        system.tilt_std.copy_(torch.tensor([7.0, 8.0]))
        system.offset_std.copy_(torch.tensor([9.0, 10.0]))
    prior = fwnkf.Gaussian(torch.eye(10, dtype=DOUBLE)[6], 0.25 * torch.eye(9, dtype=DOUBLE))
    complete = system.complete_prior(prior)
    assert complete.mean.tolist() == [0.0] * 6 + [1.0] + [0.0] * 13
    assert complete.cov.diagonal().sqrt().tolist() == [0.5] * 9 + list(range(1, 11))


def test_a_system_without_biases_is_refused():
    with pytest.raises(ConfigError, match="biases"):
        DragStrapdown(DragStrapdownConfig(biases=False))


def test_a_system_without_drag_is_refused():
    with pytest.raises(ConfigError, match="drag_strapdown"):
        RotorDrag(RotorDragConfig(), CalibratedStrapdown(CalibratedStrapdownConfig()))


def test_its_filter_comes_back_from_disk(generator, tmp_path):
    system = tilted_rotors(generator, still=(0.03, 0.2), variances=(0.5, 0.6, 0.1, 0.2, 0.3))
    with torch.no_grad():
        system.bias_std.fill_(0.05)
        system.tilt_std.fill_(0.1)
        system.offset_std.fill_(0.2)
    model = with_drag(fwnkf.FWNKF(system, noise=fwnkf.Lines()))
    loaded = fwnkf.load(fwnkf.save(model, tmp_path / "model"))
    prior = fwnkf.Gaussian(torch.eye(10, dtype=DOUBLE)[6].expand(2, -1), 0.01 * torch.eye(9, dtype=DOUBLE))
    imu = in_flight(generator, length=60)
    before, after = (one.run(imu, prior=prior).raise_for_status() for one in (model, loaded))
    assert (before.mean == after.mean).all()
    assert (before.cov == after.cov).all()
