"""Blocks of IMU samples: against the loop over samples, closed forms, and steps one by one."""

from __future__ import annotations

import math

import pytest
import torch

import fwnkf
from fwnkf.core import rotation
from fwnkf.core.preprocess import Inputs
from fwnkf.errors import ConfigError, ShapeError
from fwnkf.metrics.orientation import error_quaternion, inclination_error
from fwnkf.preprocess import PreintegratedIMU, PreintegratedIMUConfig
from fwnkf.preprocess.preintegration import hold_last, preintegrate
from fwnkf.systems import Handheld, HandheldConfig, Lorenz, LorenzConfig

from ..hand import RATE, SWAY_HERTZ, SWAY_METRES, swaying_hand
from ..tolerances import assert_close, assert_same_bits

BLOCK = 24


def tilt_filter(block: int = BLOCK, delay: float = 0.0) -> fwnkf.Filter:
    model = fwnkf.build("ekf", system=Handheld(HandheldConfig(dt=block / RATE)).double())
    config = PreintegratedIMUConfig(sample_rate=RATE, block=block, delay=delay)
    model.preprocess = PreintegratedIMU(config, model.system)
    return model


def inputs_of(imu: torch.Tensor) -> Inputs:
    return tilt_filter().preprocessed(Inputs(imu, torch.ones_like(imu), None, None))


def test_a_block_is_the_loop_over_its_samples(generator):
    gyro, force = torch.randn(2, 3, BLOCK, 3, generator=generator, dtype=torch.float64)
    dt = torch.rand(3, BLOCK, generator=generator, dtype=torch.float64) / RATE
    block = preintegrate(gyro, force, dt)
    for i in range(3):
        q, total = torch.tensor([1.0, 0, 0, 0]).double(), torch.zeros(3).double()
        for rate, f, step in zip(gyro[i], force[i], dt[i], strict=True):
            total = total + rotation.to_matrix(rotation.multiply(q, rotation.exp(rate * step / 2))) @ f
            q = rotation.multiply(q, rotation.exp(rate * step))
        seconds = dt[i].sum()
        assert_close(rotation.exp(block.rate[i] * seconds), q)
        assert_close(block.rotations[i, -1], q)
        halfway = rotation.to_matrix(rotation.exp(block.rate[i] * seconds / 2))
        assert_close(halfway @ block.force[i], total / BLOCK)


def test_vibration_along_a_turning_axis_averages_out_in_the_frame_that_does_not_turn():
    """A spinning sensor under constant gravity: the mean of the samples is shorter, the preintegrated force is not."""
    rate = torch.tensor([2 * math.pi * 5, 0.0, 0.0]).double()
    t = (torch.arange(BLOCK).double() + 0.5) / RATE
    gravity = torch.tensor([0.0, 0.0, 9.81]).double()
    force = rotation.to_matrix(rotation.exp(rate * t.unsqueeze(-1))).mT @ gravity
    dt = torch.full((BLOCK,), 1 / RATE).double()
    assert_close(preintegrate(rate.expand(BLOCK, 3), force, dt).force.norm(), gravity.norm())
    assert float(force.mean(0).norm()) < 8.0


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_rest_and_speed_are_those_of_the_motion():
    motion = swaying_hand(40.0)
    inputs = inputs_of(motion.samples[None, :, :6])
    assert inputs.u is not None
    resting, speed = inputs.weight[0, :, 3] > 0, inputs.u[0, :, 6]
    seconds = torch.arange(1, len(speed) + 1) * BLOCK / RATE
    assert not resting[seconds < 1.49].any()
    assert resting[(seconds > 1.6) & (seconds < 4)].all()
    assert not resting[seconds > 4.2].any()
    expected = SWAY_METRES * 2 * math.pi * SWAY_HERTZ * math.sqrt((1 + 0.25) / 3 / 2)
    assert float(speed[seconds < 3.5].max()) < 0.01
    # two high-pass filters and a leaky integral attenuate by some per cent
    assert float(speed[-100:].mean()) == pytest.approx(expected, rel=0.1)
    assert_close(inputs.y[0, :, 6:], inputs.u[0, :, :3])
    assert bool((inputs.weight[0, :, :3] == 1).all())


def test_steps_give_the_bits_of_the_run():
    imu = swaying_hand(3.0).samples[None, :, :6].expand(2, -1, -1)
    model = tilt_filter()
    run = model.run(imu)
    state, means = model.init(2, model.initial_belief(imu)), []
    for k in range(run.mean.shape[1]):
        state, out = model.step(state, imu[:, k * BLOCK : (k + 1) * BLOCK])
        means.append(out.mean)
    assert_same_bits(run.mean, torch.stack(means, 1))


def test_gravity_is_separated_from_a_swaying_hand():
    motion = swaying_hand(10.0)
    imu = motion.samples[None, :, :6]
    model = tilt_filter()
    path = model.preprocess.orientation(imu, model.run(imu))[0]
    error = inclination_error(error_quaternion(path, motion.truth))[int(5 * RATE) :]
    by_force = inclination_error(error_quaternion(rotation.tilt(imu[0, :, 3:]), motion.truth))
    assert math.degrees(float(error.square().mean().sqrt())) < 0.5
    assert math.degrees(float(by_force.max())) > 10


def test_between_steps_the_gyroscope_without_its_bias_carries_on():
    """With the truth and the bias as estimates, the orientation at every sample is the truth, rest included."""
    motion = swaying_hand(6.0)
    bias = torch.tensor([0.001, -0.002, 0.003]).double()
    imu = motion.samples[None, :, :6].clone()
    model = tilt_filter()
    trajectory = model.run(imu)
    ends = motion.truth[BLOCK - 1 :: BLOCK][: trajectory.mean.shape[1]]
    mean = trajectory.mean.clone()
    mean[0, :, 6:10], mean[0, :, 10:13] = ends, bias
    imu[..., :3] += bias
    path = model.preprocess.orientation(imu, trajectory._replace(mean=mean), start=motion.truth[:1])[0]
    apart = rotation.distance(path, motion.truth)
    assert float(apart[BLOCK:].max()) < 2e-5  # the bias alone rotates by 3e-4 in a block
    assert len(path) % BLOCK != 0  # the samples after the last whole block are there too


def test_the_delay_is_compensated():
    motion = swaying_hand(6.0)
    late = motion.samples[None, :, :6]
    plain, model = tilt_filter(), tilt_filter(delay=0.01)
    trajectory = model.run(late)
    expected = rotation.extrapolate(plain.preprocess.orientation(late, trajectory), late[..., :3], 0.01)
    assert_same_bits(model.preprocess.orientation(late, trajectory), expected)
    other = model.preprocess.orientation(late, trajectory, delay=0.0)
    assert_same_bits(other, plain.preprocess.orientation(late, trajectory))


def test_samples_of_given_length_are_those_of_the_rate():
    imu = swaying_hand(2.0).samples[None, :, :6]
    model = tilt_filter()
    dt = torch.full(imu.shape[:2], 1 / RATE).double()
    trajectory = model.run(imu, dt=dt)
    assert_close(trajectory.mean, model.run(imu).mean)
    path = model.preprocess.orientation(imu, trajectory)
    assert_close(model.preprocess.orientation(imu, trajectory, dt), path)


def test_one_sample_a_block_works_too():
    imu = swaying_hand(0.3).samples[None, :, :6]
    model = tilt_filter(block=1)
    trajectory = model.run(imu)
    assert trajectory.mean.shape[1] == imu.shape[1]
    assert_close(model.preprocess.orientation(imu, trajectory), trajectory.mean[..., 6:10])


def test_missing_samples_hold_the_last_value():
    imu = swaying_hand(6.0).samples[None, :, :6]
    held, mask = imu.clone(), torch.ones_like(imu, dtype=torch.bool)
    mask[0, 1000:1003, :3], mask[0, BLOCK * 50] = False, False
    held[0, 1000:1003, :3], held[0, BLOCK * 50] = held[0, 999, :3], held[0, BLOCK * 50 - 1]
    hidden = torch.where(mask, imu, torch.nan)
    model = tilt_filter()
    assert_same_bits(model.run(hidden, mask=mask).mean, model.run(held).mean)
    nothing = hold_last(torch.zeros(1, 2, 1), torch.zeros(1, 2, 1), torch.full((1, 1), 7.0))
    assert nothing.flatten().tolist() == [7.0, 7.0]


def test_a_recording_that_starts_without_samples_starts_level():
    imu = swaying_hand(2.0).samples[None, :, :6].clone()
    imu[:, :BLOCK] = torch.nan
    belief = tilt_filter().initial_belief(imu)
    assert belief is not None
    assert belief.mean[0, 6:10].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert bool(tilt_filter().run(imu).mean.isfinite().all())


def test_save_and_load_give_the_same_bits(tmp_path):
    imu = swaying_hand(1.5).samples[None, :, :6]
    model = tilt_filter(delay=0.002)
    loaded = fwnkf.load(fwnkf.save(model, tmp_path / "tilt"))
    a, b = model.run(imu), loaded.run(imu)
    assert_same_bits(a.mean, b.mean)
    assert_same_bits(model.preprocess.orientation(imu, a), loaded.preprocess.orientation(imu, b))
    state = fwnkf.load_state(loaded, fwnkf.dump_state(model, a.state))
    assert_same_bits(loaded.run(imu, state=state).mean, model.run(imu, state=a.state).mean)


def test_what_does_not_fit_is_refused():
    system = Handheld(HandheldConfig(dt=0.1))
    with pytest.raises(ConfigError, match=r"step is 0\.1 s"):
        PreintegratedIMU(PreintegratedIMUConfig(sample_rate=100.0, block=24), system)
    with pytest.raises(ConfigError, match="orientation and a gyro_bias"):
        PreintegratedIMU(PreintegratedIMUConfig(), Lorenz(LorenzConfig()))
    model = tilt_filter()
    imu = swaying_hand(2.0).samples[None, :, :6]
    with pytest.raises(ShapeError, match="give the samples of the run"):
        model.preprocess.orientation(imu[:, : 4 * BLOCK], model.run(imu))
