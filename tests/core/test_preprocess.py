"""Preprocessing: a filter with it equals the filter without it on samples preprocessed by hand."""

from __future__ import annotations

import json

import pytest
import torch

import fwnkf
from fwnkf.core.preprocess import Calibration, CalibrationConfig, Inputs
from fwnkf.errors import CheckpointError, ShapeError

from .. import systems
from ..tolerances import assert_close, assert_same_bits

DTYPE = torch.float64


def tracker() -> fwnkf.Filter:
    matrices = systems.continuous_matrices(DTYPE, False)
    return fwnkf.build("ekf", system=fwnkf.LinearSystem.of(**matrices, continuous=True, dt=0.1))


def with_calibration(block: int = 1) -> tuple[fwnkf.Filter, torch.Tensor, torch.Tensor]:
    model = tracker()
    bias, matrix = torch.tensor([0.3, -0.2], dtype=DTYPE), torch.tensor([[2.0, 0.5], [0.0, 3.0]], dtype=DTYPE)
    config = CalibrationConfig(channels=2, block=block)
    model.preprocess = Calibration(config, model.system, bias=bias, matrix=matrix)
    return model, bias, matrix


def test_calibration_is_the_affine_map(generator):
    model, bias, matrix = with_calibration()
    y = torch.randn(3, 20, 2, generator=generator, dtype=DTYPE)
    assert_close(model.run(y).mean, tracker().run((y - bias) @ matrix.mT).mean)


def test_an_output_channel_is_missing_where_an_input_of_it_is_missing(generator):
    """The second channel enters both outputs through the matrix, the first only its own."""
    model, _, _ = with_calibration()
    y = torch.randn(1, 2, generator=generator, dtype=DTYPE)
    for missing, expected in ((0, [0.0, 1.0]), (1, [0.0, 0.0])):
        weight = torch.ones(1, 2, dtype=DTYPE)
        weight[0, missing] = 0
        assert model.preprocess((), Inputs(y, weight, None, None))[1].weight[0].tolist() == expected


def test_masked_samples_do_not_enter_the_mean_of_their_block(generator):
    model, bias, matrix = with_calibration(block=4)
    y = torch.randn(2, 8, 2, generator=generator, dtype=DTYPE)
    mask = torch.ones_like(y, dtype=torch.bool)
    mask[:, 1], mask[0, 4:] = False, False
    hidden = torch.where(mask, y, torch.nan)
    clean = (y - bias) @ matrix.mT
    expected = torch.stack((clean[:, [0, 2, 3]].mean(1), clean[:, 4:].mean(1)), 1)
    shown = torch.ones_like(expected, dtype=torch.bool)
    shown[0, 1] = False
    dt = torch.full((2, 8), 0.025, dtype=DTYPE)
    track = model.run(hidden, mask=mask, dt=dt)
    assert_close(track.mean, tracker().run(expected, mask=shown, dt=torch.full((2, 2), 0.1, dtype=DTYPE)).mean)
    assert not track.status.any()


def test_incomplete_blocks_are_dropped_and_steps_equal_the_run(generator):
    model, _, _ = with_calibration(block=3)
    y = torch.randn(2, 11, 2, generator=generator, dtype=DTYPE)
    run = model.run(y)
    assert run.mean.shape[1] == 3
    state, means = model.init(2), []
    for k in range(3):
        state, out = model.step(state, y[:, 3 * k : 3 * k + 3])
        means.append(out.mean)
    assert_same_bits(run.mean, torch.stack(means, 1))
    with pytest.raises(ShapeError, match=r"wanted \[B, 3, 2\]"):
        model.step(state, y[:, :2])


def test_a_sample_that_is_not_finite_is_reported_for_its_block(generator):
    model, _, _ = with_calibration(block=2)
    y = torch.randn(1, 6, 2, generator=generator, dtype=DTYPE)
    y[0, 3, 0] = torch.inf
    assert model.run(y).status[0].tolist() == [0, int(fwnkf.Status.NON_FINITE_OBSERVATION), 0]


def test_preprocessing_and_covariance_factors_are_saved(tmp_path, generator):
    model, _, _ = with_calibration(block=2)
    plain = model.run(y := torch.randn(2, 10, 2, generator=generator, dtype=DTYPE))
    factors = torch.arange(1.0, 1.0 + model.layout.tangent_size, dtype=DTYPE)
    model.calibrate_covariance(factors)
    loaded = fwnkf.load(fwnkf.save(model, tmp_path / "filter"))
    assert_same_bits(loaded.run(y).mean, plain.mean)
    ratio = torch.diagonal(loaded.run(y).cov, dim1=-2, dim2=-1) / torch.diagonal(plain.cov, dim1=-2, dim2=-1)
    assert_close(ratio, factors.expand_as(ratio))
    with pytest.raises(ShapeError, match="positive factors"):
        model.calibrate_covariance(-factors)


def test_files_of_format_1_are_read(tmp_path):
    """Filters saved by 0.1.0 have no preprocessing."""
    folder = fwnkf.save(tracker(), tmp_path / "filter")
    description = json.loads((folder / "config.json").read_text())
    del description["preprocess"], description["covariance_scale"]
    (folder / "config.json").write_text(json.dumps(description | {"format": 1}))
    assert fwnkf.load(folder).preprocess is None
    (folder / "config.json").write_text(json.dumps(description | {"format": 7}))
    with pytest.raises(CheckpointError, match="format 7"):
        fwnkf.load(folder)
