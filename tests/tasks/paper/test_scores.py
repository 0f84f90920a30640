"""Scores against the definitions of the paper's public code, written out with numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fwnkf.core.layout import Layout
from fwnkf.data.protocols import Records
from fwnkf.evaluation.evaluate import Estimate
from fwnkf.types import Gaussian
from tasks.paper.scores import BLOCKS, block_errors, paired, scores


def records(truth: torch.Tensor, layout: Layout) -> Records:
    count, steps, n = truth.shape
    start = Gaussian(torch.zeros(n), torch.eye(n))
    y = truth[..., :1]
    return Records(
        "r", y, truth, torch.ones_like(y, dtype=torch.bool), torch.ones(count, steps), None, start, layout, ()
    )


def test_figures_are_those_of_the_public_code():
    generator = np.random.default_rng(0)
    truth = generator.normal(3.0, [1.0, 5.0], size=(6, 20, 2))
    mean = truth + generator.normal(0.0, 0.3, size=truth.shape)
    figures = scores(records(torch.tensor(truth), Layout.euclidean(2)), Estimate(torch.tensor(mean)))
    e, x = (mean - truth).ravel(), truth.ravel()
    assert figures["mse"] == pytest.approx((e**2).mean())
    assert figures["mae"] == pytest.approx(np.abs(e).mean())
    assert figures["rmse"] == pytest.approx(np.sqrt((e**2).mean()))
    assert figures["nrmse"] == pytest.approx(np.sqrt((e**2).mean()) / x.std())
    assert figures["r2"] == pytest.approx(1 - (e**2).sum() / ((x - x.mean()) ** 2).sum())


def test_angles_are_compared_as_numbers_in_the_tables_and_along_the_arc_beside_them():
    layout = Layout.parse([("theta", "angle", 1)])
    truth, mean = torch.full((1, 1, 1), 3.0, dtype=torch.float64), torch.full((1, 1, 1), -3.0, dtype=torch.float64)
    figures = scores(records(truth, layout), Estimate(mean))
    assert figures["mse"] == pytest.approx(36.0)
    assert figures["mse_arc"] == pytest.approx((2 * np.pi - 6.0) ** 2)


def test_trajectory_errors_are_distances_of_positions():
    layout = Layout.parse([("p", "euclidean", 3), ("v", "euclidean", 3)])
    generator = np.random.default_rng(1)
    truth, mean = generator.normal(size=(2, 4, 30, 6))
    figures = scores(records(torch.tensor(truth), layout), Estimate(torch.tensor(mean)))
    distance = np.linalg.norm((mean - truth)[..., :3], axis=-1)
    assert figures["ate"] == pytest.approx(distance.mean())
    assert figures["ate_max"] == pytest.approx(distance.max(1).mean())


def test_states_without_a_position_have_no_trajectory_error():
    truth = torch.zeros(1, 2, 2)
    assert "ate" not in scores(records(truth, Layout.euclidean(2)), Estimate(truth))


def test_errors_of_blocks_average_to_the_error():
    generator = torch.Generator().manual_seed(0)
    truth = torch.randn(10 * BLOCKS, 5, 2, generator=generator, dtype=torch.float64)
    data, estimated = records(truth, Layout.euclidean(2)), Estimate(torch.zeros_like(truth))
    errors = block_errors(data, estimated)
    assert len(errors) == BLOCKS
    assert np.mean(errors) == pytest.approx(scores(data, estimated)["mse_arc"], rel=1e-3)


def test_pairs_are_rows_of_the_same_records():
    ours = [
        {"seed": 0, "test_digest": "a", "errors": [1.0, 2.0]},
        {"seed": 1, "test_digest": "b", "errors": [9.0, 9.0]},
    ]
    theirs = [
        {"seed": 0, "test_digest": "a", "errors": [2.0, 4.0]},
        {"seed": 1, "test_digest": "c", "errors": [1.0, 1.0]},
    ]
    assert paired(ours, theirs) == (0.5, 0.5, 0.5)
    assert paired(ours, theirs[1:]) is None


def test_seeds_with_the_same_test_records_do_not_narrow_the_interval():
    generator = np.random.default_rng(0)
    a, b = generator.uniform(1, 2, 30).tolist(), generator.uniform(1, 2, 30).tolist()

    def runs(errors, seeds):
        return [{"seed": seed, "test_digest": "a", "errors": errors} for seed in range(seeds)]

    assert paired(runs(a, 3), runs(b, 3)) == pytest.approx(paired(runs(a, 1), runs(b, 1)))


def test_an_interval_holds_the_ratio_of_every_seed():
    ours = [{"seed": seed, "test_digest": "a", "errors": [level] * 30} for seed, level in enumerate((0.8, 0.9, 1.3))]
    theirs = [{"seed": seed, "test_digest": "a", "errors": [1.0] * 30} for seed in range(3)]
    assert paired(ours, theirs) == pytest.approx((1.0, 0.8, 1.3))


def test_an_estimate_that_diverged_is_infinitely_worse():
    finite, diverged = ([{"seed": 0, "test_digest": "a", "errors": [1.0, x]}] for x in (2.0, np.inf))
    assert paired(diverged, finite) == (np.inf, np.inf, np.inf)
    assert paired(finite, diverged) == (0.0, 0.0, 0.0)
    assert paired(diverged, diverged) is None
