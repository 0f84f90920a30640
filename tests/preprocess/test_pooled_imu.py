"""A raw IMU as observation and control: against blocks averaged by hand, with gaps, and through a filter."""

from __future__ import annotations

import pytest
import torch

import fwnkf
from fwnkf.core import rotation
from fwnkf.core.preprocess import Inputs
from fwnkf.errors import ConfigError
from fwnkf.preprocess.pooled_imu import PooledIMU, PooledIMUConfig
from fwnkf.systems.multirotor import Multirotor, MultirotorConfig

from ..tolerances import assert_close


def multirotor_filter(block: int = 4) -> fwnkf.Filter:
    system = Multirotor(MultirotorConfig(dt=0.01 * block, initial_offset=(0.1, -0.1))).double()
    model = fwnkf.build("ekf", system=system)
    config = PooledIMUConfig(block=block, observed=(3, 4), control=tuple(range(6)))
    model.preprocess = PooledIMU(config, system, bias=torch.linspace(-0.1, 0.1, 6).double())
    return model.double()


def raw_samples(generator, steps: int = 80) -> torch.Tensor:
    imu = 0.1 * torch.randn(2, steps, 6, generator=generator, dtype=torch.float64)
    imu[..., 5] += 9.81
    return imu


def test_a_filter_on_raw_samples_is_the_filter_on_pooled_ones(generator) -> None:
    model, imu = multirotor_filter(), raw_samples(generator)
    pooled = (imu - torch.linspace(-0.1, 0.1, 6).double()).unflatten(1, (-1, 4)).mean(2)
    bare = fwnkf.build("ekf", system=model.system)
    prior = model.initial_belief(imu)
    expected = bare.run(pooled[..., 3:5], u=pooled, prior=prior, prior_at="before_first_step")
    assert_close(model.run(imu).mean, expected.mean)


def test_the_first_second_gives_the_tilt(generator) -> None:
    model, imu = multirotor_filter(), raw_samples(generator, 400)
    belief = model.initial_belief(imu)
    force = (imu[:, :100] - torch.linspace(-0.1, 0.1, 6).double()).mean(1)[:, 3:]
    assert_close(belief.mean[:, 3:7], rotation.tilt(force))
    assert_close(belief.mean[:, 10:], torch.tensor([0.1, -0.1], dtype=torch.float64).expand(2, 2))


def test_a_control_channel_without_samples_keeps_its_last_value(generator) -> None:
    model, imu = multirotor_filter(), raw_samples(generator)
    present = torch.ones_like(imu, dtype=torch.bool)
    present[:, 40:48, 0] = False  # two whole blocks of one gyroscope axis
    weight = present.double()
    inputs = model.preprocessed(Inputs(torch.where(present, imu, 0.0), weight, None, None))
    assert_close(inputs.u[:, 10, 0], inputs.u[:, 9, 0])
    assert_close(inputs.u[:, 11, 0], inputs.u[:, 9, 0])
    assert not torch.equal(inputs.u[:, 12, 0], inputs.u[:, 9, 0])
    assert bool(model.run(torch.where(present, imu, torch.nan), mask=present).mean.isfinite().all())


def test_a_saved_filter_keeps_its_preprocessing(generator, tmp_path) -> None:
    model, imu = multirotor_filter(), raw_samples(generator)
    fwnkf.save(model, tmp_path / "filter")
    assert torch.equal(fwnkf.load(tmp_path / "filter").run(imu).mean, model.run(imu).mean)


def test_channels_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="channels are 0 to 5"):
        PooledIMU(PooledIMUConfig(observed=(6,)))
    with pytest.raises(ConfigError, match="observes 2 channels and takes 6"):
        PooledIMU(PooledIMUConfig(), Multirotor(MultirotorConfig()))
    with pytest.raises(ConfigError, match="initial_offset"):
        MultirotorConfig(initial_offset=(0.0,))
