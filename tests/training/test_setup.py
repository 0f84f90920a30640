"""Parts of an experiment: batches, normalisation, memory estimate and truncated gradients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.data import protocols
from fwnkf.errors import ConfigError
from fwnkf.training import memory
from fwnkf.training.batches import Batches, Piece, Plan, Position, gather
from fwnkf.training.config import TrainerSection
from fwnkf.training.experiments import read_experiment
from fwnkf.training.fit import fit, prepare_filter
from fwnkf.training.setup import build_filter, load_data, measure, signature, signature_of_records, statistics

SMALL = ["data.train=12", "data.val=4", "data.test=4", "data.dtype=float64", "trainer.pretrain=0"]


@pytest.fixture(scope="module")
def lorenz():
    return protocols.simulated("lorenz", "strict", train=40, val=2, test=2).split.train


@pytest.fixture(scope="module")
def pendulum():
    return protocols.simulated("pendulum", "strict", train=40, val=2, test=2).split.train


# ---- batches --------------------------------------------------------------------------------------------------------


def test_an_epoch_reads_every_record_once_and_epochs_differ():
    plan = Plan(records=10, length=5, batch_size=4, chunk=None, seed=3)
    rows = torch.cat([plan.at(step).rows for step in range(10)]).tolist()  # four epochs
    epochs = [rows[i : i + 10] for i in range(0, 40, 10)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_the_batch_of_a_step_does_not_depend_on_the_order_of_calls():
    plan = Plan(10, 100, 3, 30, seed=0)
    pieces = [plan.at(step) for step in (7, 0, 7, 23, 7)]
    fresh = Plan(10, 100, 3, 30, seed=0).at(7)
    for piece in (pieces[0], pieces[2], pieces[4]):
        assert torch.equal(piece.rows, fresh.rows)
        assert piece[1:] == fresh[1:]
    assert not torch.equal(Plan(10, 100, 3, 30, seed=1).at(7).rows, fresh.rows)


def test_chunks_cover_the_record_in_order_for_the_same_rows():
    plan = Plan(10, 100, 3, 30, seed=0)
    pieces = [plan.at(step) for step in range(4, 8)]
    assert [(piece.start, piece.stop) for piece in pieces] == [(0, 30), (30, 60), (60, 90), (90, 100)]
    assert all(torch.equal(piece.rows, pieces[0].rows) for piece in pieces)
    assert plan.whole_groups(5) == 8


def test_batches_start_at_the_step_of_the_run(lorenz):
    plan = Plan(len(lorenz), 100, 2, None, seed=0)
    step = [0]
    loader = Batches(lorenz, plan, 5, lambda: Position(step[0]))
    whole = [piece.rows.tolist() for _, piece in loader]
    step[0] = 3
    rest = [piece.rows.tolist() for _, piece in loader]
    assert len(whole) == len(loader) == 5
    assert rest == whole[3:]


# ---- statistics -----------------------------------------------------------------------------------------------------


def test_statistics_equal_numpy_and_skip_missing_values(lorenz):
    truth = lorenz.truth.clone()
    truth[0, :50] = torch.nan
    y = lorenz.y.clone()
    y[1, :, 0] = torch.nan
    records = replace(lorenz, truth=truth, y=y, mask=y.isfinite())
    scales = statistics(records)
    states = truth.numpy()[np.isfinite(truth.numpy()).all(-1)]
    np.testing.assert_allclose(scales.feature_mean, states.mean(0), rtol=1e-10)
    np.testing.assert_allclose(scales.feature_std, states.std(0), rtol=1e-10)
    steps = np.diff(truth.numpy(), axis=1)
    steps = steps[np.isfinite(steps).all(-1)]
    np.testing.assert_allclose(scales.step, np.sqrt((steps**2).mean(0)), rtol=1e-10)
    whole = np.isfinite(y.numpy()).all(-1) & np.isfinite(truth.numpy()).all(-1)
    np.testing.assert_allclose(scales.observation_std, y.numpy()[whole].std(0), rtol=1e-10)


def test_measured_noise_matches_the_simulation(lorenz, pendulum):
    measured = measure(lorenz)
    assert torch.equal(measured.H, torch.eye(2, 3).double())
    np.testing.assert_allclose(measured.R.diagonal(), 0.26, rtol=0.09)  # 4,000 samples: four standard errors
    tip = measure(pendulum)
    np.testing.assert_allclose(
        tip.H[:, :2], [[0, 1], [-1, 0]], atol=0.02
    )  # (sin θ, -cos θ) of the features cos, sin, ω
    np.testing.assert_allclose(tip.R.diagonal(), pendulum.system.measurement_covariance().diagonal(), rtol=0.09)


def test_normalisation_is_saved_with_the_filter_and_does_not_change_the_untrained_filter(tmp_path, lorenz):
    experiment = read_experiment("lorenz", [*SMALL, "trainer.compile=false"])
    scaled = prepare_filter(experiment, lorenz)
    plain = build_filter(experiment, signature_of_records(lorenz), measure(lorenz)).double()
    inputs = {"y": lorenz.y, "mask": lorenz.mask, "dt": lorenz.dt, "prior": lorenz.start}
    with torch.no_grad():
        assert torch.equal(scaled.run(**inputs).mean, plain.run(**inputs).mean)
    fwnkf.save(scaled, tmp_path / "filter")
    loaded = fwnkf.load(tmp_path / "filter")
    assert torch.equal(loaded.get_buffer("encoder.shift"), scaled.get_buffer("encoder.shift"))
    assert float(loaded.get_buffer("encoder.scale").min()) > 1  # Lorenz states vary by more than one


@pytest.mark.parametrize("name", ["lorenz", "pendulum"])
def test_the_signature_without_data_equals_that_of_the_data(name):
    experiment = read_experiment({"data": {"name": name}}, SMALL)
    before, after = signature(experiment.data), signature_of_records(load_data(experiment).split.train)
    assert before.layout == after.layout
    assert (before.observation_dim, before.control_dim, before.dt) == (
        after.observation_dim,
        after.control_dim,
        after.dt,
    )


# ---- gradients and memory -------------------------------------------------------------------------------------------


def test_truncation_limits_the_reach_of_gradients(lorenz):
    """With truncation every k steps, the gradient of step t reaches back to the start of its block only."""
    model = prepare_filter(read_experiment("lorenz", SMALL), lorenz)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)).double())
    batch = gather(lorenz, Piece(torch.arange(3), 0, 20))
    y = batch.y.clone().requires_grad_()
    track = model.run(y, None, batch.mask, batch.dt, batch.prior, truncate=5)
    for step, reach in ((4, 0), (12, 10), (19, 15)):
        (slope,) = torch.autograd.grad(track.mean[:, step].sum(), y, retain_graph=True)
        reached = slope.abs().amax((0, 2)) > 0
        assert reached.nonzero().min() == reach
        assert reached.nonzero().max() == step
    whole = model.run(y, None, batch.mask, batch.dt, batch.prior)
    (slope,) = torch.autograd.grad(whole.mean[:, 19].sum(), y)
    assert (slope.abs().amax((0, 2)) > 0).all()


def test_chunks_with_carried_state_equal_the_whole_record(lorenz):
    model = prepare_filter(read_experiment("lorenz", SMALL), lorenz)
    plan = Plan(len(lorenz), 100, 4, 30, seed=0)
    means, state = [], None
    for step in range(plan.pieces):
        piece = plan.at(step)
        batch = gather(lorenz, piece)
        with torch.no_grad():
            prior = batch.prior if state is None else None
            track = model.run(batch.y, None, batch.mask, batch.dt, prior, state=state)
        state = track.state
        means.append(track.mean)
    rows = plan.at(0).rows
    whole = gather(lorenz, Piece(rows, 0, 100))
    with torch.no_grad():
        expected = model.run(whole.y, None, whole.mask, whole.dt, whole.prior).mean
    assert torch.equal(torch.cat(means, 1), expected)


@pytest.mark.parametrize(("batch_size", "length"), [(8, 60), (16, 100)])
def test_the_memory_estimate_is_within_a_fifth_of_what_autograd_keeps(lorenz, batch_size, length):
    model = prepare_filter(read_experiment("lorenz", SMALL), lorenz)
    options = TrainerSection(batch_size=batch_size)
    estimate = memory.estimate(model, lorenz, Plan(len(lorenz), length, batch_size, None, 0), options)
    assert estimate == pytest.approx(memory.saved_bytes(model, lorenz, batch_size, length), rel=0.2)
    chunked = memory.estimate(model, lorenz, Plan(len(lorenz), length, batch_size, length // 4, 0), options)
    assert chunked == pytest.approx(estimate / 4, rel=0.25)


def test_too_much_memory_is_refused_with_advice():
    with pytest.raises(ConfigError, match=r"above the limit of 1 GB\. Lower trainer\.batch_size.*trainer\.recompute"):
        memory.check(3_000_000_000, TrainerSection(memory_limit=1.0))
    assert "about 0.5 GB" in memory.check(500_000_000, TrainerSection(memory_limit=1.0))


def test_training_can_start_from_a_saved_filter(tmp_path, lorenz):
    experiment = read_experiment("lorenz", SMALL)
    first = prepare_filter(experiment, lorenz)
    with torch.no_grad():
        first.get_parameter("head_bias").add_(1)
    fwnkf.save(first, tmp_path / "saved")
    continued = read_experiment("lorenz", [*SMALL, f"filter.start={tmp_path / 'saved'}"])
    assert torch.equal(prepare_filter(continued, lorenz).get_parameter("head_bias"), first.get_parameter("head_bias"))
    other = read_experiment("lorenz", [*SMALL, f"filter.start={tmp_path / 'saved'}", "filter.options.encoder.units=8"])
    with pytest.raises(ConfigError, match="holds a filter with other options"):
        prepare_filter(other, lorenz)


def test_options_of_parts_are_set_one_by_one(lorenz):
    before = prepare_filter(read_experiment("lorenz", SMALL), lorenz)
    sets = ["filter.options.encoder.units=5", "filter.options.noise={part: lines, count: 2}"]
    changed = prepare_filter(read_experiment("lorenz", [*SMALL, *sets, "filter.options.noise.count=3"]), lorenz)
    assert changed.config.encoder == replace(before.config.encoder, units=5)
    assert changed.config.residual == before.config.residual
    assert changed.config.noise == (fwnkf.Lines(3),)
    listed = ["filter.options.noise=[{part: lines}, {part: drift}]", "filter.options.noise.1.seconds=7"]
    several = prepare_filter(read_experiment("lorenz", [*SMALL, *listed]), lorenz)
    assert several.config.noise == (fwnkf.Lines(), fwnkf.Drift(seconds=7))
    without = prepare_filter(read_experiment("lorenz", [*SMALL, "filter.options.encoder=null"]), lorenz)
    assert without.encoder is None


def test_a_run_folder_that_cannot_be_written_ends_the_run_before_data_are_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr("fwnkf.training.fit.load_data", lambda experiment: pytest.fail("data were loaded"))
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file" / "run", Path("/proc/none/run")):
        with pytest.raises(ConfigError, match="cannot be written"):
            fit(read_experiment("lorenz", SMALL), folder)
