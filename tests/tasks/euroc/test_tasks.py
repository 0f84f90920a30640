"""The EuRoC tasks: scores against closed forms, cards, and the shipped filters against their results."""

from __future__ import annotations

import math
import os
from functools import partial

import pytest
import torch

import fwnkf
from fwnkf import Gaussian
from fwnkf.data.sets.euroc import LAYOUT
from tasks import cards, results
from tasks.euroc import TASKS, calibration, scores
from tasks.euroc.gyro import OPEN_LOOP, EurocGyro
from tasks.euroc.strict import REFERENCE

from .test_fits import records_of

needs_data = pytest.mark.skipif("FWNKF_DATA" not in os.environ, reason="needs the recordings: set FWNKF_DATA")


@pytest.fixture
def resting():
    """Two windows at rest."""
    y = torch.zeros(2, 11, 6, dtype=torch.float64)
    return records_of(y, LAYOUT.origin(y).expand(2, 11, -1), 0.1)


def test_errors_are_lengths(resting):
    mean = resting.truth.clone()
    mean[:, :, :3] += torch.tensor([3.0, 4.0, 0.0])
    mean[1, -1, 3] += 2.0
    values = scores.errors(resting, mean)
    assert values["rmse_p"] == pytest.approx(5.0)
    assert values["end_v"] == pytest.approx(math.sqrt(2.0))
    assert values["rmse_v"] == pytest.approx(math.sqrt(4.0 / 22))
    assert values["rmse_q"] == 0.0


def test_consistency_is_by_coordinate_and_over_several_sets(resting):
    mean = resting.truth.clone()
    mean[..., 1] += 2.0
    cov = torch.eye(9, dtype=torch.float64).expand(2, 11, 9, 9)
    wrong, right = (resting, Gaussian(mean, cov)), (resting, Gaussian(resting.truth, cov))
    by_axis = scores.consistency_by_axis(wrong)
    assert by_axis["position y"] == {"nees": 4.0, "coverage": 0.0}
    assert by_axis["velocity y"] == {"nees": 0.0, "coverage": 1.0}
    assert scores.position_rmse(wrong, right) == pytest.approx(math.sqrt(2.0))
    assert scores.consistency_of(wrong)["nees"] == pytest.approx(4 / 9)
    assert scores.consistency_of(wrong, right)["nees"] == pytest.approx(2 / 9)


def test_the_likelihood_is_that_of_a_normal_distribution(resting):
    mean = resting.truth.clone()
    mean[..., 0] += 1.5
    cov = 4 * torch.eye(9, dtype=torch.float64).expand(2, 11, 9, 9)
    normal = torch.distributions.Normal(0.0, 2.0)
    expected = (8 * normal.log_prob(torch.tensor(0.0)) + normal.log_prob(torch.tensor(1.5))) / 9
    assert scores.likelihood(resting, Gaussian(mean, cov), 5) == pytest.approx(float(expected))


def test_trajectory_errors_of_a_constant_drift(resting):
    mean = resting.truth.clone()
    mean[..., 0] += 0.5 * torch.arange(11)
    values = scores.trajectory_errors(resting, mean, 4)
    assert values["RPE (m)"] == pytest.approx(2.0)
    assert values["ATE (m)"] == pytest.approx(0.5 * math.sqrt(35.0))  # mean of k² up to ten
    assert values["RPE (deg)"] == 0.0


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_the_card_is_written_from_the_results(task, models):
    folder = models / task.name
    assert (folder / "README.md").read_text() == cards.card(task, results.read(folder))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_learned_numbers_are_those_of_the_shipped_filter(task, models):
    assert task.learned(fwnkf.load(models / task.name)) == results.read(models / task.name).learned


@needs_data
@pytest.mark.parametrize("task", TASKS[:2], ids=lambda task: task.name)
def test_the_shipped_filter_and_its_baselines_on_the_quick_windows(task, models, monkeypatch):
    # calibrations fitted to fewer windows: what error they leave is not compared
    monkeypatch.setattr(calibration, "fit", partial(calibration.fit, most=20))
    shipped = results.read(models / task.name)
    data = task.load(quick=True)
    score = task.evaluate(fwnkf.load(models / task.name), data)
    assert score.metrics == pytest.approx(shipped.quick, rel=1e-6)
    baselines = dict(task.baselines(data, shipped))
    assert list(baselines) == list(shipped.baselines)
    metric = "rmse_p_1s" if task.name == "euroc-strict" else "mse"
    assert score.metrics[metric] < baselines[REFERENCE].metrics[metric] < baselines["hold"].metrics[metric]


@needs_data
def test_the_attitude_filter_and_its_baselines_on_a_part_of_a_flight(models):
    pytest.importorskip("vqf")
    task = EurocGyro()
    shipped, data = results.read(models / task.name), task.load(quick=True)
    score = task.evaluate(fwnkf.load(models / task.name), data)
    assert score.metrics == pytest.approx(shipped.quick, rel=1e-6)
    baselines = dict(task.baselines(data, shipped))
    # the network that is integrated alone is not kept: its figure on whole flights is
    assert set(baselines) == set(shipped.baselines) - {OPEN_LOOP}
    assert score.metrics["aoe_deg"] < baselines["bias"].metrics["aoe_deg"] < baselines["raw"].metrics["aoe_deg"]
