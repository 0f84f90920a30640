"""The comparison with simpler filters after training: what does not pay is not in the saved filter."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import fwnkf
from fwnkf.errors import ConfigError
from fwnkf.evaluation.evaluate import Estimate, estimate
from fwnkf.evaluation.rows import record_errors
from fwnkf.metrics.accuracy import mse, residual
from fwnkf.training.experiments import parse_experiment
from fwnkf.training.fit import fit, prepare_filter, read_record
from fwnkf.training.ladder import climb, compare, pick, without_idle
from fwnkf.training.setup import load_data

DATA = {"name": "lorenz", "protocol": "strict", "train": 40, "val": 30, "test": 4, "dtype": "float64"}
pytestmark = pytest.mark.unchecked("trains, which other tests do with checks")


def experiment(**filter_section):
    section = {"name": "fwnkf", "equations": False, **filter_section}
    trainer = {"steps": 2, "validate_every": 1, "batch_size": 8, "loggers": []}
    return parse_experiment({"data": DATA, "filter": section, "trainer": trainer})


@pytest.fixture(scope="module")
def climbed(tmp_path_factory):
    """A network that has hardly been trained, where a regression is nearly exact."""
    fitted = fit(
        experiment(options={"residual": {"width": 8}, "encoder": {"units": 4}}), tmp_path_factory.mktemp("run")
    )
    return climb(fitted)


def test_a_regression_that_is_better_is_kept_instead_of_the_network(climbed):
    fitted, ladder = climbed
    assert ladder.chosen == "regression"
    figures = {rung.name: rung.mse for rung in ladder.rungs}
    assert list(figures)[:3] == ["hold", "mean", "regression"]
    assert figures["regression"] < 0.1 * min(figures["untrained"], figures["mean"], figures["hold"])
    val = fitted.data.split.val
    saved = fwnkf.load(fitted.folder / "best")
    error = mse(residual(val.layout, estimate(saved, val).mean, val.truth))
    assert float(error) == pytest.approx(figures["regression"], rel=1e-9)
    assert fwnkf.load(fitted.folder / "trained").config.residual is not None


def test_what_was_tried_is_in_the_record_of_the_run(climbed):
    fitted, ladder = climbed
    record = read_record(fitted.folder)
    assert record["kept"] == "regression"
    assert [row["name"] for row in record["ladder"]] == [rung.name for rung in ladder.rungs]
    assert all(row["worse"] >= 0 for row in record["ladder"])


def test_climbing_again_compares_the_same_trained_filter(climbed):
    fitted, ladder = climbed
    _, again = climb(fitted)
    assert [rung.mse for rung in again.rungs] == [rung.mse for rung in ladder.rungs]


def test_a_simpler_filter_is_kept_only_where_records_cannot_tell_it_from_the_best():
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(3, 400, generator=generator)
    equal = 1 + noise * torch.tensor([[0.01], [0.01], [0.01]])
    assert pick(equal, [True, True, True])[0] == 0
    assert pick(equal, [False, True, True])[0] == 1
    # half a percent worse in every record is told apart, ten percent in few records is too much to accept
    assert pick(torch.stack((1.005 * equal[1], equal[1])), [True, True])[0] == 1
    wild = torch.ones(2, 4)
    wild[0] = torch.tensor([1.0, 1.0, 1.0, 1.4])
    assert pick(wild, [True, True])[0] == 1


def test_a_filter_that_is_lost_is_not_chosen():
    val = load_data(experiment()).split.val
    known = fwnkf.build("ekf", system=val.system)
    lost = Estimate(torch.full_like(val.truth, torch.nan))
    assert torch.isinf(record_errors(val, lost.mean)).all()
    ladder = compare(iter([("ekf", known)]), val, {"lost": lost})
    assert ladder.chosen == "ekf"


def test_records_without_a_known_state_do_not_count():
    val = load_data(experiment()).split.val
    truth = val.truth.clone()
    truth[:5] = torch.nan
    truth[5, 3:] = torch.nan
    errors = record_errors(replace(val, truth=truth), val.truth + 2.0)
    assert errors.shape == (len(val) - 5,)
    torch.testing.assert_close(errors, torch.full_like(errors, 4.0))


def test_networks_are_added_to_the_regression_of_an_experiment():
    options = experiment(regression={"degree": [1, 2]}, options={"residual": {"width": 8}})
    data = load_data(options)
    model = prepare_filter(options, data.split.train)
    assert model.system.motion.config.degree == 2
    few = data.split.val.take(range(4))
    expected = estimate(fwnkf.build("ekf", system=model.system), few)
    torch.testing.assert_close(estimate(model, few).mean, expected.mean, rtol=1e-9, atol=1e-9)


def test_parts_that_do_nothing_before_training_are_not_in_the_untrained_filter():
    options = experiment(regression={"degree": 2}, options={"residual": {"width": 8}, "encoder": {"units": 4}})
    train = load_data(options).split.train
    model = prepare_filter(options, train)
    kept = without_idle(model, train)
    assert (kept.config.residual, kept.config.encoder) == (None, None)
    with torch.no_grad():
        model.residual.out.weight.fill_(0.1)
    assert without_idle(model, train).config.residual is not None


def test_an_unknown_option_of_the_regression_is_named():
    options = experiment(regression={"degre": 2})
    with pytest.raises(ConfigError, match=r"filter\.regression: degre: there are control_products, degree"):
        prepare_filter(options, load_data(options).split.train)
