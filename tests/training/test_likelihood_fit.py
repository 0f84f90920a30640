"""An encoder trained by the likelihood of the innovations: it gains where the noise changes, and can only add."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor

import fwnkf
from fwnkf.errors import ConfigError
from fwnkf.filters.base import PriorAt
from fwnkf.training.likelihood_fit import fit_encoder, training_records, with_encoder

DECAY, QUIET, LOUD = 0.98, 0.1, 1.0


def simulate(regime: str, count: int, steps: int, seed: int) -> tuple[Tensor, Tensor]:
    """A first-order process of unit variance with noise that is loud where it is positive, or at random times."""
    generator = torch.Generator().manual_seed(seed)

    def normal() -> Tensor:
        return torch.randn(count, steps, 1, generator=generator, dtype=torch.float64)

    drive = math.sqrt(1 - DECAY**2) * normal()
    x = [drive[:, 0] / math.sqrt(1 - DECAY**2)]
    for t in range(1, steps):
        x.append(DECAY * x[-1] + drive[:, t])
    state = torch.stack(x, 1)
    switches = torch.rand(count, steps, 1, generator=generator) < 0.02
    loud = state > 0 if regime == "motion" else switches.cumsum(1) % 2 == 1
    return state + torch.where(loud, LOUD, QUIET) * normal(), loud


def fitted(y: Tensor, held_out: float = 0.25) -> fwnkf.identify.Fit:
    one = torch.ones(1, 1, dtype=torch.float64)
    return fwnkf.fit(fwnkf.build("kf", F=DECAY * one, H=one, Q=one, R=one), y, held_out=held_out)


@torch.no_grad()
def nis(model: fwnkf.Filter, y: Tensor, where: Tensor) -> float:
    track = model.run(y)
    return float((track.innovation.square() / track.innovation_cov[..., 0])[where].mean())


def check_gain(regime: str, count: int, length: int, **options: int) -> None:
    y, loud = simulate(regime, count, length, seed=0)
    result = fitted(y)
    encoder = fit_encoder(result, **options)
    report = encoder.report
    assert report.used
    assert report.gain > 2 * report.standard_error
    assert report.gain == pytest.approx(report.after.log_likelihood - report.before.log_likelihood)
    assert result.report.held_out is not None
    assert report.before.log_likelihood == pytest.approx(result.report.held_out.log_likelihood, abs=1e-9)
    assert report.before.nis == pytest.approx(result.report.held_out.nis, abs=1e-9)
    rows = slice(count - report.after.records, count)
    for where in (loud[rows], ~loud[rows]):
        before, after = (abs(math.log(nis(model, y[rows], where))) for model in (result.filter, encoder.filter))
        assert after < before


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_noise_that_changes_with_the_motion():
    check_gain("motion", 40, 150, hidden=8, steps=42)


@pytest.mark.slow
@pytest.mark.parametrize("regime", ["motion", "time"])
def test_noise_that_changes(regime: str):
    check_gain(regime, 80, 400, hidden=16, steps=400)


def test_training_that_only_loses_leaves_the_fitted_filter():
    y, _ = simulate("motion", 6, 40, seed=1)
    result = fitted(y)
    # Adam's first step moves every weight by the rate: log-variances by their bound, so that nothing fits any more
    encoder = fit_encoder(result, hidden=2, steps=2, learning_rate=1e3)
    assert encoder.report.gain == 0.0
    assert not encoder.report.used
    assert encoder.filter is result.filter
    assert "left without it" in encoder.report.lines()[-1]


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_what_the_fit_has_determined_does_not_move():
    y, _ = simulate("motion", 6, 60, seed=2)
    y[1, 20:30] = math.nan  # a gap
    y[2, 50:] = math.nan  # a shorter record
    system = fwnkf.build("kf", F=torch.full((1, 1), DECAY), H=torch.eye(1), Q=torch.eye(1), R=torch.eye(1)).system
    result = fwnkf.fit(system.double(), y, oscillators=1, held_out=0.25)
    start = with_encoder(result.filter, 4)
    given = {name: value.clone() for name, value in result.filter.state_dict().items()}
    expected, track = result.filter.run(y), start.run(y)
    for name in ("mean", "cov", "innovation", "innovation_cov"):
        torch.testing.assert_close(getattr(track, name), getattr(expected, name), rtol=1e-12, atol=1e-12)
    trained = fit_encoder(result, hidden=4, steps=4)
    assert math.isfinite(trained.report.after.log_likelihood)
    final = trained.filter.state_dict()
    same = [name for name in given if name != "head_bias"]
    assert same
    assert all(torch.equal(final[name], given[name]) for name in same)


@pytest.mark.parametrize("prior_at", ["first_measurement", "before_first_step"])
def test_records_of_the_training_start_where_the_fit_starts(prior_at: PriorAt):
    y, _ = simulate("motion", 4, 20, seed=4)
    result = fitted(y)
    data = dataclasses.replace(result.fitted_records, prior_at=prior_at)
    records = training_records(result.filter, data)
    assert not records.truth.isfinite().any()
    expected = result.filter.run(**data.first(20)).innovation
    innovation = with_encoder(result.filter, 2).run(**{**records.inputs(), "dt": None}).innovation
    torch.testing.assert_close(innovation, expected, rtol=1e-12, atol=1e-12)


def test_faults_are_named():
    y, _ = simulate("motion", 3, 20, seed=3)
    with pytest.raises(ConfigError, match="one held out to test; there are 3 to fit and 0 held out"):
        fit_encoder(fitted(y, 0.0))
    with pytest.raises(ConfigError, match="at least one unit"):
        fit_encoder(fitted(y), hidden=0)
    with pytest.raises(ConfigError, match="one training step, not 16 and 0"):
        fit_encoder(fitted(y), steps=0)
    with pytest.raises(ConfigError, match="this is a ukf"):
        with_encoder(fwnkf.build("ukf", system=fitted(y).filter.system), 4)
    with pytest.raises(ConfigError, match="networks already"):
        with_encoder(with_encoder(fitted(y).filter, 4), 4)


def test_a_filter_on_the_system_of_a_kalman_filter_can_be_loaded(tmp_path):
    """Its config has options of the filter, which the system does not know."""
    model = with_encoder(fwnkf.build("kf", F=torch.eye(1), H=torch.eye(1), Q=torch.eye(1), R=torch.eye(1)), 2)
    y = torch.randn(2, 5, 1, generator=torch.Generator().manual_seed(0))
    assert torch.equal(fwnkf.load(fwnkf.save(model, tmp_path / "saved")).run(y).mean, model.run(y).mean)
