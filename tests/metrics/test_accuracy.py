"""Accuracy metrics against closed forms and scipy, and the effect of failed estimates."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from scipy.stats import norm

from fwnkf.core.layout import Layout
from fwnkf.core.trajectory import Trajectory
from fwnkf.errors import ConfigError, DataError, ShapeError
from fwnkf.metrics import accuracy as acc
from fwnkf.metrics.consistency import coverage
from fwnkf.types import Gaussian

from ..tolerances import assert_close

ERRORS = ("mse", "mse_paper", "rmse", "mae", "mae_paper", "nrmse_rms", "nrmse_std", "mse_from_10")
UNCHECKED = pytest.mark.unchecked("the shape checker raises first")
POSE = Layout.parse([("p", "euclidean", 3), ("q", "quaternion", 4), ("theta", "angle", 1)])


def flat_case(rng: np.random.Generator, shape: tuple[int, ...] = (4, 30, 3)) -> tuple[np.ndarray, np.ndarray]:
    truth = rng.standard_normal(shape) * np.array([1.0, 2.0, 5.0]) + np.array([0.0, -1.0, 20.0])
    return truth + 0.3 * rng.standard_normal(shape), truth


def poses(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    q = Rotation.random(math.prod(shape), random_state=rng).as_quat()[:, [3, 0, 1, 2]].reshape(*shape, 4)
    rest = rng.standard_normal((*shape, 3)), rng.uniform(-np.pi, np.pi, (*shape, 1))
    return torch.from_numpy(np.concatenate((rest[0], q, rest[1]), -1))


def test_residual_is_the_shortest_difference_by_scipy(rng):
    estimate, truth = poses(rng, 5, 7), poses(rng, 5, 7)
    error = acc.residual(POSE, estimate, truth)
    q_hat, q = (Rotation.from_quat(x[..., [4, 5, 6, 3]].reshape(-1, 4).numpy()) for x in (estimate, truth))
    turn = np.exp(1j * (estimate[..., 7] - truth[..., 7]).numpy())
    assert_close(error[..., :3], estimate[..., :3] - truth[..., :3])
    assert_close(error[..., 3:6].reshape(-1, 3), torch.from_numpy((q.inv() * q_hat).as_rotvec()))
    assert_close(error[..., 6], torch.from_numpy(np.angle(turn)))
    assert_close(acc.raw_difference(estimate, truth), estimate - truth)


def test_metrics_equal_numpy(rng):
    estimate, truth = flat_case(rng)
    e = estimate - truth
    error, x = torch.from_numpy(e), torch.from_numpy(truth)
    norm2 = np.linalg.norm(e, axis=-1)
    expected = {
        acc.mse: np.mean(e**2),
        acc.mse_paper: np.mean(norm2**2),
        acc.rmse: np.sqrt(np.mean(e**2)),
        acc.rmse_paper: np.sqrt(np.mean(norm2**2)),
        acc.mae: np.mean(np.abs(e)),
        acc.mae_paper: np.mean(np.linalg.norm(e, 1, axis=-1)),
    }
    for metric, value in expected.items():
        assert_close(metric(error), torch.tensor(value), "rounding")
    assert_close(acc.mse_paper(error), 3 * acc.mse(error), "rounding")
    rms = np.sqrt(np.mean(np.linalg.norm(truth, axis=-1) ** 2))
    assert_close(acc.nrmse_rms(error, x), torch.tensor(np.sqrt(np.mean(norm2**2)) / rms), "rounding")
    assert_close(acc.nrmse_std(error, x), torch.tensor(np.sqrt(np.mean(e**2)) / truth.std()), "rounding")
    spread = truth.reshape(-1, 3).var(0)
    shares = 1 - (e**2).reshape(-1, 3).mean(0) / spread  # R² of each dimension, weighted by its variance
    assert_close(acc.r2(error, x), torch.tensor((shares * spread).sum() / spread.sum()), "rounding")
    assert_close(acc.by_dimension(error), torch.from_numpy((e**2).mean((0, 1))), "rounding")
    assert_close(acc.by_step(error), torch.from_numpy((e**2).mean((0, 2))), "rounding")
    assert_close(acc.by_step(error[0]), torch.from_numpy((e[0] ** 2).mean(1)), "rounding")
    assert_close(acc.mse(acc.from_step(error, 10)), acc.by_step(error)[10:].mean(), "rounding")


def test_trivial_estimates_have_known_scores(rng):
    truth = torch.from_numpy(flat_case(rng)[1])
    zero, mean = torch.zeros_like(truth), truth.mean((0, 1)).expand_as(truth)
    assert_close(acc.nrmse_rms(zero - truth, truth), torch.tensor(1.0, dtype=torch.float64), "rounding")
    assert_close(acc.r2(mean - truth, truth), torch.tensor(0.0, dtype=torch.float64), "rounding")
    overall = truth.mean().expand_as(truth)
    assert_close(acc.nrmse_std(overall - truth, truth), torch.tensor(1.0, dtype=torch.float64), "rounding")
    assert acc.r2(truth - truth, truth) == 1


@UNCHECKED
def test_shapes_do_not_broadcast():
    with pytest.raises(ShapeError, match="differ in shape"):
        acc.residual(Layout.euclidean(2), torch.zeros(3, 2), torch.zeros(1, 2))
    with pytest.raises(ShapeError, match="differ in shape"):
        acc.raw_difference(torch.zeros(3, 2), torch.zeros(2))


def test_steps_must_exist():
    with pytest.raises(ShapeError, match="step 5 is not in a trajectory of 5 steps"):
        acc.from_step(torch.zeros(1, 5, 1), 5)


def test_a_row_contains_the_metrics(rng):
    estimate, truth = (torch.from_numpy(x) for x in flat_case(rng))
    cov = 0.09 * torch.eye(3, dtype=torch.float64).expand(4, 30, 3, 3)
    row = acc.summarize(Layout.euclidean(3), (estimate, cov), truth)
    error = estimate - truth
    for name in ("mse", "mse_paper", "rmse", "mae", "mae_paper"):
        assert row[name] == float(getattr(acc, name)(error))
    for name in ("nrmse_rms", "nrmse_std", "r2"):
        assert row[name] == float(getattr(acc, name)(error, truth))
    assert row["mse_from_10"] == float(error[:, 10:].square().mean())
    assert row["nees"] == pytest.approx(float(error.square().mean()) / 0.09, rel=1e-12)
    assert row["coverage95"] == float((error.abs() < 0.3 * norm.ppf(0.975)).double().mean())
    assert row["failures"] == 0
    assert all(type(value) is (int if name == "failures" else float) for name, value in row.items())
    assert row == acc.summarize(Layout.euclidean(3), Gaussian(estimate, cov), truth)
    other = torch.zeros(4, 30, 1)
    whole = Trajectory(estimate, cov, estimate, cov, other, other, other, other.int()[..., 0], None)
    assert row == acc.summarize(Layout.euclidean(3), whole, truth)
    assert "mse_from_5" in acc.summarize(Layout.euclidean(3), whole, truth, late=5)


def test_a_consistent_estimate_on_a_manifold_has_a_consistent_row(rng, generator):
    truth = poses(rng, 50, 40)
    root = 0.1 * torch.randn(7, 7, generator=generator, dtype=torch.float64) + 0.3 * torch.eye(7, dtype=torch.float64)
    delta = torch.randn(50, 40, 7, generator=generator, dtype=torch.float64) @ root.mT
    mean = POSE.boxplus(truth, delta)
    row = acc.summarize(POSE, (mean, (root @ root.mT).expand(50, 40, 7, 7)), truth)
    assert row["mse"] == pytest.approx(float(delta.square().mean()), rel=1e-10)
    assert row["nees"] == pytest.approx(1, abs=0.05)
    assert row["coverage95"] == pytest.approx(0.95, abs=0.01)
    raw = acc.summarize(POSE, (mean, (root @ root.mT).expand(50, 40, 7, 7)), truth, difference="raw")
    assert raw["mse"] == float((mean - truth).square().mean())
    assert (raw["nees"], raw["coverage95"]) == (row["nees"], row["coverage95"])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("column", [0, 4, 7])
def test_one_estimate_that_is_not_finite_makes_the_row_infinite(rng, bad: float, column: int):
    truth = poses(rng, 4, 20)
    cov = torch.eye(7, dtype=torch.float64).expand(4, 20, 7, 7)
    mean = truth.clone()
    mean[1, 15, column] = bad
    mean[1, 16, column] = bad
    mean[3, 12, column] = bad
    for difference in ("shortest", "raw"):
        row = acc.summarize(POSE, (mean, cov), truth, difference=difference)
        assert row["failures"] == 2
        assert {row[name] for name in ERRORS} == {math.inf}
        assert row["r2"] == -math.inf
        assert row["nees"] == math.inf
        assert row["coverage95"] == pytest.approx(1 - 3 / 80)
    error = acc.residual(POSE, mean, truth)
    assert not error.isnan().any()
    bad_dimensions = [3, 4, 5] if column == 4 else [min(column, 6)]
    assert acc.by_dimension(error).isinf().nonzero().flatten().tolist() == bad_dimensions
    assert acc.by_step(error).isinf().nonzero().flatten().tolist() == [12, 15, 16]


def test_the_zero_quaternion_counts_as_a_failure(rng):
    """The logarithm of a zero quaternion is zero, so a collapsed estimate must be treated separately."""
    truth = poses(rng, 1, 3)
    mean = truth.clone()
    mean[0, 1, 3:7] = 0
    row = acc.summarize(POSE, (mean, None), truth)
    assert row["failures"] == 1
    assert row["mse"] == math.inf


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_covariance_that_is_not_finite_affects_consistency_only(rng, bad: float):
    estimate, truth = (torch.from_numpy(x) for x in flat_case(rng))
    cov = torch.eye(3, dtype=torch.float64).repeat(4, 30, 1, 1)
    cov[2, 3, 0, 0] = bad
    row = acc.summarize(Layout.euclidean(3), (estimate, cov), truth)
    assert row["failures"] == 1
    assert row["mse"] == float((estimate - truth).square().mean())
    assert row["nees"] == math.inf
    assert row["coverage95"] <= 1 - 1 / 120


def test_an_indefinite_covariance_gives_an_infinite_nees(rng):
    estimate, truth = (torch.from_numpy(x) for x in flat_case(rng))
    cov = torch.eye(3, dtype=torch.float64).repeat(4, 30, 1, 1)
    cov[2, 3] *= -1
    row = acc.summarize(Layout.euclidean(3), (estimate, cov), truth)
    assert row["nees"] == math.inf
    assert row["failures"] == 0


def test_undefined_metrics_are_nan_and_a_missing_truth_is_an_error(rng):
    estimate, truth = (torch.from_numpy(x) for x in flat_case(rng, (4, 10, 3)))
    row = acc.summarize(Layout.euclidean(3), (estimate, None), truth)
    assert all(math.isnan(row[name]) for name in ("nees", "coverage95", "mse_from_10"))
    assert math.isfinite(row["mse"])
    truth[2, 7, 1] = math.nan
    with pytest.raises(DataError, match=r"trajectory 2 .* step 7"):
        acc.summarize(Layout.euclidean(3), (estimate, None), truth)


def test_a_row_does_not_modify_its_arguments(rng):
    estimate, truth = (torch.from_numpy(x) for x in flat_case(rng))
    estimate[0, 0, 0] = math.nan
    cov = torch.eye(3, dtype=torch.float64).repeat(4, 30, 1, 1)
    copies = estimate.clone(), cov.clone(), truth.clone()
    acc.summarize(Layout.euclidean(3), (estimate, cov), truth)
    for before, after in zip(copies, (estimate, cov, truth), strict=True):
        assert torch.equal(before.nan_to_num(7.0), after.nan_to_num(7.0))


# ------------------------------------------------------------------------------------------------------- counted steps


def counted_steps(rng: np.random.Generator, records: int, steps: int, count: int) -> torch.Tensor:
    """Equally many steps of every record, chosen at random."""
    valid = torch.zeros(records, steps, dtype=torch.bool)
    for record in range(records):
        valid[record, rng.choice(steps, count, replace=False)] = True
    return valid


@pytest.mark.parametrize("difference", ["shortest", "raw"])
@pytest.mark.parametrize("late", [10, 3, 25])
def test_uncounted_steps_are_treated_as_removed(rng, generator, difference: str, late: int):
    truth = poses(rng, 5, 40)
    mean = POSE.boxplus(truth, 0.3 * torch.randn(5, 40, 7, generator=generator, dtype=torch.float64))
    root = torch.randn(5, 40, 7, 7, generator=generator, dtype=torch.float64)
    cov = root @ root.mT + torch.eye(7, dtype=torch.float64)
    mean[2, 7], cov[3, 11] = math.nan, math.nan  # counted in some draws only
    for _ in range(5):
        valid = counted_steps(rng, 5, 40, 25)
        cut = [x[valid].unflatten(0, (5, 25)) for x in (mean, cov, truth)]
        expected = acc.summarize(POSE, (cut[0], cut[1]), cut[2], difference=difference, late=late)
        unknown = [x.clone() for x in (mean, cov, truth)]
        for x in unknown:
            x[~valid] = math.nan
        for inputs in ((mean, cov, truth), unknown):
            row = acc.summarize(POSE, (inputs[0], inputs[1]), inputs[2], difference=difference, late=late, valid=valid)
            assert row == pytest.approx(expected, rel=1e-12, nan_ok=True)
    assert math.isnan(expected["mse_from_25"] if late == 25 else math.nan)


def test_records_are_weighted_by_their_number_of_counted_steps(rng):
    """Records with different numbers of counted steps, one without any, against explicit sums."""
    estimate, truth = (torch.from_numpy(x) for x in flat_case(rng))
    valid = torch.from_numpy(rng.random((4, 30)) < np.array([[0.9], [0.0], [0.4], [0.2]]))
    truth[~valid] = math.nan
    row = acc.summarize(Layout.euclidean(3), (estimate, None), truth, valid=valid)
    squares, late = [], []
    for record in range(4):
        counted = [t for t in range(30) if valid[record, t]]
        for number, t in enumerate(counted):
            squares.append(float((estimate[record, t] - truth[record, t]).square().mean()))
            late += squares[-1:] if number >= 10 else []
    assert row["mse"] == pytest.approx(np.mean(squares), rel=1e-12)
    assert row["mse_from_10"] == pytest.approx(np.mean(late), rel=1e-12)


def test_all_steps_are_counted_by_default(rng):
    estimate, truth = (torch.from_numpy(x) for x in flat_case(rng))
    cov = torch.eye(3, dtype=torch.float64).expand(4, 30, 3, 3)
    row = acc.summarize(Layout.euclidean(3), (estimate, cov), truth)
    every = torch.ones(4, 30, dtype=torch.bool)
    assert acc.summarize(Layout.euclidean(3), (estimate, cov), truth, valid=every) == row


def test_counted_steps_need_a_true_state_and_must_exist(rng):
    estimate, truth = (torch.from_numpy(x) for x in flat_case(rng))
    valid = torch.ones(4, 30, dtype=torch.bool)
    valid[0], truth[0, 5] = False, math.nan
    acc.summarize(Layout.euclidean(3), (estimate, None), truth, valid=valid)
    truth[3, 9, 2] = math.inf
    with pytest.raises(DataError, match=r"trajectory 3 .* step 9"):
        acc.summarize(Layout.euclidean(3), (estimate, None), truth, valid=valid)
    with pytest.raises(DataError, match="no step is counted"):
        acc.summarize(Layout.euclidean(3), (estimate, None), truth, valid=~valid & False)


@UNCHECKED
def test_valid_has_the_shape_of_the_steps(rng):
    estimate, truth = (torch.from_numpy(x) for x in flat_case(rng))
    for wrong in (torch.ones(30, dtype=torch.bool), torch.ones(4, 30), torch.ones(4, 30, 3, dtype=torch.bool)):
        with pytest.raises(ShapeError, match="valid is"):
            acc.summarize(Layout.euclidean(3), (estimate, None), truth, valid=wrong)


# ------------------------------------------------------------------------------------------------------------ coverage


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_coverage_is_the_probability_of_the_normal_interval(generator, level: float):
    """Errors of 3, 1 and 1/3 times the stated standard deviation, against the normal distribution."""
    scale = torch.tensor([3.0, 1.0, 1 / 3], dtype=torch.float64)
    error = 2 * scale * torch.randn(20_000, 3, generator=generator, dtype=torch.float64)
    result = coverage(error, 4 * torch.eye(3, dtype=torch.float64).expand(20_000, 3, 3), level)
    z = norm.ppf((1 + level) / 2)
    expected = torch.from_numpy(2 * norm.cdf(z / scale.numpy()) - 1)
    assert float((result.by_dimension - expected).abs().max()) < 4 * 0.5 / math.sqrt(20_000)
    assert_close(result.overall, result.by_dimension.mean(), "rounding")


def test_failures_are_not_covered():
    error = torch.tensor([[0.0], [math.nan], [math.inf], [0.0], [0.0], [0.0]])
    cov = torch.tensor([1.0, 1.0, math.inf, math.nan, -1.0, math.inf]).reshape(6, 1, 1)
    assert float(coverage(error, cov).overall) == pytest.approx(1 / 6)
    with pytest.raises(ConfigError, match="between 0 and 1"):
        coverage(error, cov, 95)
