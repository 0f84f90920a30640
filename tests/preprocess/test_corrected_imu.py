"""A corrected IMU: the untrained one against the classical filter, steps against whole runs, gaps, rest, saving."""

from __future__ import annotations

import pytest
import torch

import fwnkf
from fwnkf.core import rotation
from fwnkf.core.preprocess import Inputs
from fwnkf.errors import ConfigError
from fwnkf.preprocess import CorrectedIMU, CorrectedIMUConfig
from fwnkf.preprocess.preintegration import preintegrate
from fwnkf.systems import GravityAttitude, GravityAttitudeConfig, Lorenz, LorenzConfig

from ..tolerances import assert_close

BLOCK, RATE = 4, 100.0
BIAS = torch.linspace(-0.1, 0.1, 6).double()
MATRIX = (torch.eye(6) + 0.01 * torch.arange(36.0).reshape(6, 6) / 36).double()


def attitude_filter(generator=None, *, rest: float = 0.002, channels: int = 4) -> fwnkf.Filter:
    """With a generator the network has random weights."""
    config = GravityAttitudeConfig(dt=BLOCK / RATE, rest_rate_std=rest, vertical_std=0.01)
    model = fwnkf.build("ekf", system=GravityAttitude(config).double())
    sizes = CorrectedIMUConfig(sample_rate=RATE, block=BLOCK, channels=channels, taps=3, dilations=(1, 2))
    model.preprocess = CorrectedIMU(sizes, model.system, bias=BIAS, matrix=MATRIX).double()
    if generator is not None:
        with torch.no_grad():
            for parameter in model.preprocess.parameters():
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def raw_samples(generator, steps: int = 80, noise: float = 0.1) -> torch.Tensor:
    imu = noise * torch.randn(2, steps, 6, generator=generator, dtype=torch.float64)
    imu[..., 5] += 9.81
    return torch.linalg.solve(MATRIX, imu.unsqueeze(-1)).squeeze(-1) + BIAS


@torch.no_grad()
@pytest.mark.parametrize("channels", [0, 4])
def test_an_untrained_one_is_the_classical_filter_on_calibrated_samples(generator, channels) -> None:
    model, imu = attitude_filter(rest=0.0, channels=channels), raw_samples(generator)
    samples = ((imu - BIAS) @ MATRIX.mT).unflatten(1, (-1, BLOCK))
    blocks = preintegrate(samples[..., :3], samples[..., 3:], torch.full(samples.shape[:3], 1 / RATE).double())
    bare = fwnkf.build("ekf", system=model.system)
    expected = bare.run(blocks.force, u=blocks.rate)
    track = model.run(imu)
    assert_close(track.mean, expected.mean)
    assert_close(track.cov, expected.cov)


@torch.no_grad()
def test_steps_equal_the_run_and_training_sees_the_same_corrections(generator) -> None:
    model, imu = attitude_filter(generator), raw_samples(generator)
    track = model.run(imu)
    prior = model.initial_belief(imu)
    state, means = model.init(2, prior), []
    for block in imu.split(BLOCK, 1):
        state, out = model.step(state, block)
        means.append(out.mean)
    assert_close(torch.stack(means, 1), track.mean)
    unit = model.preprocess
    inputs = model.preprocessed(Inputs(imu, torch.ones_like(imu), None, None))
    samples = unit.calibrated(imu).unflatten(1, (-1, BLOCK))
    seconds = torch.full(samples.shape[:3], 1 / RATE).double()
    corrections = unit.corrections(imu)
    assert float(corrections.abs().min()) > 0
    assert_close(inputs.u, unit.integrated(samples, corrections, seconds).rate)


@torch.no_grad()
def test_missing_samples_touch_nothing(generator) -> None:
    model, imu = attitude_filter(generator), raw_samples(generator)
    present = torch.rand(imu.shape, generator=generator) > 0.3
    present[:, 24:32] = False  # two whole blocks
    tracks = [model.run(torch.where(present, imu, hidden), mask=present) for hidden in (0.0, 1e6, torch.nan)]
    for track in tracks[1:]:
        assert torch.equal(track.mean, tracks[0].mean)
        assert torch.equal(track.cov, tracks[0].cov)
    weight = present.double()
    inputs = model.preprocessed(Inputs(torch.where(present, imu, 0.0), weight, None, None))
    assert not inputs.weight[:, 6:8].any()


@torch.no_grad()
@pytest.mark.parametrize("noise", [1e-3, 0.1])
def test_whole_sequences_give_what_steps_give(generator, noise) -> None:
    model, imu = attitude_filter(generator), raw_samples(generator, 83, noise)  # a part of a block is left over
    weight = (torch.rand(imu.shape, generator=generator) > 0.1).double()
    stepped = model.preprocessed(Inputs(imu * weight, weight, None, None))
    at_once = model.preprocess.whole(torch.where(weight > 0, imu, torch.nan), weight)
    for one, other in zip(at_once[:3], stepped[:3], strict=True):
        assert_close(one, other)


@torch.no_grad()
def test_the_rate_is_observed_at_rest_and_gives_the_bias(generator) -> None:
    model = attitude_filter()
    still = raw_samples(generator, 800, noise=1e-3)
    extra = torch.tensor([0.004, -0.003, 0.002, 0.0, 0.0, 0.0]).double()
    track = model.run(still + torch.linalg.solve(MATRIX, extra))
    assert float((track.mean[:, -1, 4:7] - extra[:3]).abs().max()) < 2e-4
    shaken = raw_samples(generator, 80)
    for samples, resting in ((still[:, :80], True), (shaken, False)):
        weight = model.preprocessed(Inputs(samples, torch.ones_like(samples), None, None)).weight[..., 3:]
        assert not weight[:, :5].any()  # it has to have been still for a while
        assert bool(weight[:, -1].all()) is resting
    assert rotation.distance(track.mean[0, -1, :4], torch.tensor([1.0, 0, 0, 0]).double()) < 0.01


@torch.no_grad()
def test_a_saved_one_gives_the_same(generator, tmp_path) -> None:
    model, imu = attitude_filter(generator), raw_samples(generator)
    fwnkf.save(model, tmp_path / "filter")
    assert torch.equal(fwnkf.load(tmp_path / "filter").run(imu).mean, model.run(imu).mean)


def test_systems_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="takes 0 control inputs"):
        CorrectedIMU(CorrectedIMUConfig(), Lorenz(LorenzConfig()))
    with pytest.raises(ConfigError, match="three values"):
        GravityAttitudeConfig(bias_std=(0.1,))
