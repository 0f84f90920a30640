"""The magnetometer in the tilt filter's frame: as by the tilt filter alone, with delays and missing samples."""

from __future__ import annotations

import math

import pytest
import torch

import fwnkf
from fwnkf.core.preprocess import Inputs
from fwnkf.errors import ConfigError
from fwnkf.metrics.orientation import error_quaternion, total_error
from fwnkf.preprocess import TiltCompensatedMagnetometer, TiltCompensatedMagnetometerConfig
from fwnkf.preprocess.magnetometer import leveled_field
from fwnkf.systems import Heading, HeadingConfig

from ..hand import FIELD, RATE, swaying_hand
from ..tolerances import assert_close, assert_same_bits
from .test_preintegration import BLOCK, tilt_filter


def heading_filter(delay: float = 0.0, **options: float) -> fwnkf.Filter:
    config = HeadingConfig(field=tuple(FIELD.tolist()), dt=BLOCK / RATE, **options)
    model = fwnkf.build("ekf", system=Heading(config).double())
    settings = TiltCompensatedMagnetometerConfig(delay=delay)
    model.preprocess = TiltCompensatedMagnetometer(settings, model.system, tilt_filter(delay=0.002))
    return model


def test_the_field_is_that_of_the_tilt_filters_own_run():
    samples = swaying_hand(5.0).samples[None]  # one second of it moves
    model = heading_filter(delay=0.015)
    inputs = model.preprocessed(Inputs(samples, torch.ones_like(samples), None, None))
    tilt = model.preprocess.inner
    imu = samples[..., :6]
    path = tilt.preprocess.orientation(imu, tilt.run(imu))
    steps = inputs.y.shape[1]
    blocks = [item[:, : steps * BLOCK].unflatten(1, (steps, BLOCK)) for item in (path, *samples.split(3, -1))]
    expected = leveled_field(blocks[0], blocks[1], blocks[3], torch.ones_like(blocks[3]), 0.015)
    assert_close(inputs.y, expected.field)
    assert inputs.u is not None
    assert_close(inputs.u[..., 1:], expected.orientation)


def test_a_delayed_field_is_level_if_its_delay_is_known():
    motion = swaying_hand(8.0, magnetometer_delay=0.02)
    blocks = [item[: 80 * BLOCK].unflatten(0, (80, BLOCK)) for item in (motion.truth, *motion.samples.split(3, -1))]
    weight = torch.ones_like(blocks[3])
    leveled = leveled_field(blocks[0], blocks[1], blocks[3], weight, 0.02)
    assert_close(leveled.field, FIELD.expand(80, 3))
    assert float((leveled_field(blocks[0], blocks[1], blocks[3], weight, 0.0).field - FIELD).abs().max()) > 0.2


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_orientation_of_a_swaying_hand_is_found():
    motion = swaying_hand(10.0)
    samples = motion.samples[None]
    model = heading_filter()
    path = model.preprocess.orientation(samples, model.run(samples))[0]
    error = error_quaternion(path, motion.truth)[int(6 * RATE) :]
    assert math.degrees(float(total_error(error).square().mean().sqrt())) < 1.0


def test_steps_give_the_bits_of_the_run():
    samples = swaying_hand(3.0).samples[None]
    model = heading_filter()
    run = model.run(samples)
    state, means = model.init(1, model.initial_belief(samples)), []
    for k in range(run.mean.shape[1]):
        state, out = model.step(state, samples[:, k * BLOCK : (k + 1) * BLOCK])
        means.append(out.mean)
    assert_same_bits(run.mean, torch.stack(means, 1))


def test_missing_fields_are_left_out():
    samples = swaying_hand(1.0).samples[None]
    mask = torch.ones_like(samples, dtype=torch.bool)
    mask[0, 3 * BLOCK : 4 * BLOCK, 6:], mask[0, 5 * BLOCK, 7] = False, False
    hidden = torch.where(mask, samples, torch.nan)
    model = heading_filter()
    inputs = model.preprocessed(Inputs(torch.where(mask, hidden, 0.0), mask.double(), None, None))
    weight = inputs.weight[0, :, 0]
    assert weight[3] == 0
    assert float(weight.sum()) == len(weight) - 1
    assert float((inputs.y[0, 5] - FIELD).abs().max()) < 0.1
    mask[0, :BLOCK, 6:] = False
    belief = model.initial_belief(hidden, mask=mask)
    assert belief is not None
    assert float(belief.cov[0, 0, 0]) == pytest.approx(math.pi**2 / 3)


def test_save_and_load_carry_the_tilt_filter(tmp_path):
    samples = swaying_hand(1.5).samples[None]
    model = heading_filter(delay=0.01)
    loaded = fwnkf.load(fwnkf.save(model, tmp_path / "heading"))
    a, b = model.run(samples), loaded.run(samples)
    assert_same_bits(a.mean, b.mean)
    assert_same_bits(model.preprocess.orientation(samples, a), loaded.preprocess.orientation(samples, b))
    assert loaded.preprocess.inner.preprocess.config.delay == 0.002


def test_what_does_not_fit_is_refused():
    config = TiltCompensatedMagnetometerConfig()
    with pytest.raises(ConfigError, match="inner filter"):
        TiltCompensatedMagnetometer(config, Heading(HeadingConfig()))
    with pytest.raises(ConfigError, match=r"steps of 0\.5 s"):
        TiltCompensatedMagnetometer(config, Heading(HeadingConfig(dt=0.5)), tilt_filter())
    with pytest.raises(ConfigError, match="system"):
        TiltCompensatedMagnetometer(config, None, tilt_filter())
