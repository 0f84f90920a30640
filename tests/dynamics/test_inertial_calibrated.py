"""The calibrated strapdown and its preprocessing: untrained it is the classical one, with the right Jacobians."""

from __future__ import annotations

import pytest
import torch

import fwnkf
from fwnkf.core import linearize, rotation
from fwnkf.core.preprocess import Inputs
from fwnkf.errors import ConfigError
from fwnkf.preprocess import StrapdownIMU, StrapdownIMUConfig
from fwnkf.systems import CalibratedStrapdown, CalibratedStrapdownConfig, Strapdown, StrapdownConfig

from ..tolerances import assert_close


def states(system, generator, batch=6):
    origin = system.layout.origin(torch.zeros((), dtype=torch.float64)).expand(batch, -1)
    apart = 0.6 * torch.randn(batch, system.layout.tangent_size, generator=generator, dtype=torch.float64)
    return system.layout.boxplus(origin, apart)


def with_imu(model):
    """A filter that reads raw samples of an IMU."""
    model.preprocess = StrapdownIMU(StrapdownIMUConfig(), model.system)
    return model


def perturbed(generator, **options):
    """A system whose learned numbers all differ from their initial values."""
    system = CalibratedStrapdown(CalibratedStrapdownConfig(**options)).double()
    with torch.no_grad():
        for parameter in system.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return system


@pytest.mark.parametrize("sites", [0, 3])
def test_untrained_it_is_the_classical_mechanisation(generator, sites):
    system = CalibratedStrapdown(CalibratedStrapdownConfig(sites=sites)).double()
    classical = Strapdown(StrapdownConfig()).double()
    x, u = states(system, generator), torch.randn(6, 12 + sites, generator=generator, dtype=torch.float64)
    for ours, theirs in zip(
        system.linearize_transition(x, u, None), classical.linearize_transition(x, u[:, :6], None), strict=True
    ):
        assert (ours == theirs).all()


@pytest.mark.parametrize("sites", [0, 3])
def test_the_jacobians_are_those_of_differentiation(generator, sites):
    system = perturbed(generator, sites=sites)
    x, u = states(system, generator), torch.randn(6, 12 + sites, generator=generator, dtype=torch.float64)
    dt = 0.05 * torch.rand(6, generator=generator, dtype=torch.float64)
    for step in (dt, None):
        moved, F = system.linearize_transition(x, u, step)
        expected = linearize.jacobian(lambda z: system.transition(z, u, step), x, system.layout, system.layout)  # noqa: B023
        assert_close(moved, expected[0], "rounding")
        assert_close(F, expected[1], "algebra")
    seen, H = system.linearize_observation(x)
    expected = linearize.jacobian(system.observe, x, system.layout, system.observation_layout)
    assert_close(seen, expected[0], "rounding")
    assert_close(H, expected[1], "algebra")


def test_a_true_calibration_undoes_a_false_sensor(generator):
    """A sensor with known faults in a tilted room, against the classical system on what a perfect one would read."""
    system = CalibratedStrapdown(CalibratedStrapdownConfig(biases=False)).double()
    classical = Strapdown(StrapdownConfig(biases=False)).double()
    rate, force = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    gyro_bias, force_bias, tilt = 0.1 * torch.randn(3, 3, generator=generator, dtype=torch.float64)
    scale = torch.eye(3, dtype=torch.float64) + 0.05 * torch.randn(3, 3, generator=generator, dtype=torch.float64)
    read = torch.cat((rate + gyro_bias, torch.linalg.solve(scale, (force + force_bias).mT).mT), -1)
    with torch.no_grad():
        system.calibration[0, :9] = torch.cat((gyro_bias, force_bias, tilt))
        system.calibration[0, 19:] = (scale - torch.eye(3, dtype=torch.float64)).flatten()
    x = states(classical, generator, 5)
    # what pulls in the world is a force in the body, seen from halfway through the step
    halfway = rotation.to_matrix(rotation.multiply(x[:, 6:], rotation.exp(0.5 * 0.005 * rate)))
    pulled = force + (halfway.mT @ tilt.unsqueeze(-1)).squeeze(-1)
    expected = classical.transition(x, torch.cat((rate, pulled), -1), None)
    assert_close(system.transition(x, torch.cat((read, read), -1), None), expected, "algebra")


def test_the_delay_reads_between_two_samples(generator):
    system, later = (CalibratedStrapdown(CalibratedStrapdownConfig()).double() for _ in range(2))
    with torch.no_grad():
        later.calibration[0, 9] = 1.0
    x, u = states(system, generator), torch.randn(6, 12, generator=generator, dtype=torch.float64)
    swapped = torch.cat((u[:, 6:], u[:, :6]), -1)
    assert_close(later.transition(x, u, None), system.transition(x, swapped, None), "rounding")


def test_the_control_is_two_samples_and_the_site(generator):
    model = with_imu(fwnkf.build("ekf", system=perturbed(generator, sites=2)))
    imu = torch.randn(3, 43, 6, generator=generator, dtype=torch.float64)
    site = torch.eye(2, dtype=torch.float64)[[0, 1, 0]].unsqueeze(1).expand(-1, 43, -1)
    inputs = model.preprocessed(Inputs(imu, torch.ones_like(imu), site, None))
    assert (inputs.u[:, 1:, :6] == imu[:, :-1]).all()
    assert (inputs.u[:, 0, :6] == imu[:, 0]).all()
    assert (inputs.u[:, :, 6:12] == imu).all()
    assert (inputs.u[:, :, 12:] == site).all()
    assert not inputs.weight.any()
    unknown = model.preprocessed(Inputs(imu, torch.ones_like(imu), None, None))
    assert not unknown.u[:, :, 12:].any()


def test_a_missing_sample_is_replaced_by_the_one_before(generator):
    model = with_imu(fwnkf.build("ekf", system=perturbed(generator)))
    imu = torch.randn(1, 20, 6, generator=generator, dtype=torch.float64)
    held = imu.clone()
    held[:, 7] = held[:, 6]
    held[:, 12, 2] = held[:, 11, 2]
    mask = torch.ones_like(imu, dtype=torch.bool)
    mask[:, 7] = False
    mask[:, 12, 2] = False
    assert (model.run(imu, mask=mask).mean == model.run(held).mean).all()


def test_other_systems_are_refused():
    with pytest.raises(ConfigError, match="calibrated strapdown"):
        StrapdownIMU(StrapdownIMUConfig(), Strapdown(StrapdownConfig()))


def test_its_filter_comes_back_from_disk(generator, tmp_path):
    system = perturbed(generator, sites=2, variances=(0.1, 0.2, 0.3))
    system.bias_std.fill_(0.05)
    model = with_imu(fwnkf.build("ekf", system=system))
    loaded = fwnkf.load(fwnkf.save(model, tmp_path / "model"))
    imu = torch.randn(2, 40, 6, generator=generator, dtype=torch.float64)
    site = torch.eye(2, dtype=torch.float64).unsqueeze(1).expand(-1, 40, -1)
    prior = fwnkf.Gaussian(torch.eye(10, dtype=torch.float64)[6].expand(2, -1), torch.eye(9, dtype=torch.float64))
    before, after = (one.run(imu, u=site, prior=prior).raise_for_status() for one in (model, loaded))
    assert (before.mean == after.mean).all()
    assert (before.cov == after.cov).all()


def test_an_untrained_filter_on_it_is_the_classical_one(generator):
    system = CalibratedStrapdown(CalibratedStrapdownConfig()).double()
    classical = fwnkf.build("ekf", system=Strapdown(StrapdownConfig()).double())
    model = with_imu(fwnkf.FWNKF(system))
    imu = torch.randn(2, 50, 6, generator=generator, dtype=torch.float64)
    prior = fwnkf.Gaussian(system.layout.origin(imu), 0.01 * torch.eye(15, dtype=torch.float64))
    held = torch.cat((imu[:, :1], imu[:, :-1]), 1)
    missing = torch.zeros_like(imu[..., :3])
    ours = model.run(imu, prior=prior)
    theirs = classical.run(missing, held, missing > 0, prior=prior)
    assert_close(ours.mean, theirs.mean, "algebra")
    assert_close(ours.cov, theirs.cov, "algebra")


def test_a_prior_is_completed_by_the_biases():
    system = CalibratedStrapdown(CalibratedStrapdownConfig()).double()
    system.bias_std.copy_(torch.arange(1.0, 7.0))
    prior = fwnkf.Gaussian(torch.eye(10, dtype=torch.float64)[6], 0.25 * torch.eye(9, dtype=torch.float64))
    complete = system.complete_prior(prior)
    assert complete.mean.tolist() == [0.0] * 6 + [1.0] + [0.0] * 9
    assert complete.cov.diagonal().sqrt().tolist() == [0.5] * 9 + list(range(1, 7))
