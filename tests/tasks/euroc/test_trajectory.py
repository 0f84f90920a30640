"""Errors of trajectories against evo, scipy and closed forms."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.spatial.transform import Rotation

from fwnkf.core import rotation
from fwnkf.errors import ConfigError, ShapeError
from tasks.euroc import trajectory as tra
from tasks.euroc.trajectory import Poses

from ...tolerances import assert_close

metrics = pytest.importorskip("evo.core.metrics")
PoseTrajectory3D = pytest.importorskip("evo.core.trajectory").PoseTrajectory3D

LENGTH = 200


def walk(rng: np.random.Generator, step: float) -> np.ndarray:
    return np.cumsum(step * rng.standard_normal((LENGTH, 3)), 0)


def paths(rng: np.random.Generator, count: int = 3) -> tuple[Poses, Poses]:
    """Random walks and estimates of them that drift, in another frame."""
    estimates, truths = [], []
    for _ in range(count):
        position, turns = walk(rng, 0.1), Rotation.from_rotvec(walk(rng, 0.05))
        frame = Rotation.random(random_state=rng)
        drift = Rotation.from_rotvec(walk(rng, 0.01))
        truths.append(np.hstack((position, turns.as_quat()[:, [3, 0, 1, 2]])))
        moved = frame.apply(position + walk(rng, 0.02)) + rng.standard_normal(3)
        estimates.append(np.hstack((moved, (frame * turns * drift).as_quat()[:, [3, 0, 1, 2]])))
    both = (torch.from_numpy(np.stack(x)) for x in (estimates, truths))
    estimate, truth = (Poses(x[..., :3], x[..., 3:]) for x in both)
    return estimate, truth


def as_evo(poses: Poses, i: int) -> PoseTrajectory3D:
    return PoseTrajectory3D(poses.position[i].numpy(), poses.orientation[i].numpy(), np.arange(LENGTH) * 0.01)


def by_evo(metric: metrics.PE, truth: PoseTrajectory3D, estimate: PoseTrajectory3D) -> dict[str, float]:
    metric.process_data((truth, estimate))
    return metric.get_all_statistics()


@pytest.mark.parametrize("alignment", ["none", "se3"])
def test_ate_is_that_of_evo(rng, alignment: tra.Alignment):
    estimate, truth = paths(rng)
    errors = tra.ate(estimate.position, truth.position, alignment)
    for i in range(3):
        ours, true = as_evo(estimate, i), as_evo(truth, i)
        if alignment == "se3":
            R, t, _ = ours.align(true)
            assert_close(tra.align(estimate.position, truth.position).rotation[i], torch.from_numpy(R))
            assert_close(tra.align(estimate.position, truth.position).translation[i], torch.from_numpy(t))
        expected = by_evo(metrics.APE(metrics.PoseRelation.translation_part), true, ours)
        assert_close(errors.rmse[i], torch.tensor(expected["rmse"], dtype=torch.float64))
        assert_close(errors.mean[i], torch.tensor(expected["mean"], dtype=torch.float64))
        assert_close(errors.maximum[i], torch.tensor(expected["max"], dtype=torch.float64))


def test_alignment_never_reflects(rng):
    """The mirror image of a path fits a reflection best, which is no motion of a rigid body."""
    estimate, truth = paths(rng)
    mirrored = truth.position * torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
    R = tra.align(mirrored, truth.position).rotation
    assert_close(torch.linalg.det(R), torch.ones(3, dtype=torch.float64))
    for i in range(3):
        ours, true = as_evo(Poses(mirrored, estimate.orientation), i), as_evo(truth, i)
        assert_close(R[i], torch.from_numpy(ours.align(true)[0]))


@pytest.mark.parametrize("frames", [1, 7])
@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("alignment", ["none", "se3"])
def test_rpe_is_that_of_evo_whatever_the_alignment(rng, frames: int, overlap: bool, alignment: str):
    estimate, truth = paths(rng)
    errors = tra.rpe(estimate, truth, frames, overlap)
    for i in range(3):
        ours, true = as_evo(estimate, i), as_evo(truth, i)
        if alignment == "se3":
            ours = copy.deepcopy(ours)
            ours.align(true)
        for kind, rmse, mean in (
            (metrics.PoseRelation.translation_part, errors.translation_rmse, errors.translation_mean),
            (metrics.PoseRelation.rotation_angle_rad, errors.rotation_rmse, errors.rotation_mean),
        ):
            expected = by_evo(metrics.RPE(kind, frames, metrics.Unit.frames, all_pairs=overlap), true, ours)
            assert_close(rmse[i], torch.tensor(expected["rmse"], dtype=torch.float64))
            assert_close(mean[i], torch.tensor(expected["mean"], dtype=torch.float64))


def test_rotation_error_is_that_of_evo(rng):
    estimate, truth = paths(rng)
    errors = tra.rotation_error(estimate.orientation, truth.orientation)
    for i in range(3):
        metric = metrics.APE(metrics.PoseRelation.rotation_angle_rad)
        by_evo(metric, as_evo(truth, i), as_evo(estimate, i))
        assert_close(errors[i], torch.from_numpy(metric.error))
    assert_close(tra.rotation_error(-3 * estimate.orientation, truth.orientation), errors)


def test_yaw_alignment_is_the_best_turn_about_the_vertical(rng):
    estimate, truth = paths(rng)
    errors = tra.ate(estimate.position, truth.position, "yaw").rmse
    centred = [x.position - x.position.mean(-2, keepdim=True) for x in (estimate, truth)]
    for i in range(3):
        p, q = (x[i].numpy() for x in centred)

        def cost(angle: float, p: np.ndarray = p, q: np.ndarray = q) -> float:
            return float(np.mean(np.sum((Rotation.from_rotvec([0, 0, angle]).apply(p) - q) ** 2, 1)))

        best = min(minimize_scalar(cost, bounds=(a, a + 1), method="bounded").fun for a in np.arange(-4, 4, 0.5))
        assert_close(errors[i].square(), torch.tensor(best, dtype=torch.float64), "finite_difference")
    turn = rotation.exp(torch.tensor([0.0, 0.0, 2.5], dtype=torch.float64))
    turned = truth.position @ rotation.to_matrix(turn).mT + 3
    assert float(tra.ate(turned, truth.position, "yaw").maximum.max()) < 1e-12
    assert float(tra.ate(turned, truth.position, "none").maximum.min()) > 1


def test_paths_without_a_direction_can_be_aligned():
    """A filter that stands still has no rotation to fit; its error after alignment is the spread of the truth."""
    truth = torch.arange(5, dtype=torch.float64).unsqueeze(-1) * torch.tensor([1.0, 2.0, 2.0], dtype=torch.float64)
    for alignment in ("yaw", "se3"):
        errors = tra.ate(torch.full_like(truth, 7.0), truth, alignment)
        assert_close(errors.rmse, torch.tensor(3 * math.sqrt(2.0), dtype=torch.float64))
    line = truth @ rotation.to_matrix(rotation.exp(torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)))
    assert float(tra.ate(line, truth, "se3").maximum) < 1e-12


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_path_that_is_not_finite_has_an_infinite_error(rng, bad: float):
    estimate, truth = paths(rng)
    position, orientation = estimate.position.clone(), estimate.orientation.clone()
    position[1, 50, 2] = bad
    assert tra.position_error(position, truth.position).isinf().nonzero().tolist() == [[1, 50]]
    for alignment in ("none", "yaw", "se3"):
        whole = tra.ate(position, truth.position, alignment)
        clean = tra.ate(estimate.position, truth.position, alignment)
        for broken, intact in zip(whole, clean, strict=True):
            assert broken[1] == math.inf
            assert_close(broken[::2], intact[::2])
    for lost in (bad, 0.0):
        orientation[2, 20] = lost
        assert tra.rotation_error(orientation, truth.orientation).isinf().nonzero().tolist() == [[2, 20]]
        errors = tra.rpe(Poses(position, orientation), truth, 5)
        assert [x.isinf().tolist() for x in errors] == 2 * [[False, True, True]] + 2 * [[False, False, True]]
        assert not any(x.isnan().any() for x in errors)


def test_a_path_too_short_is_named(rng):
    with pytest.raises(ShapeError, match="no segment of 200"):
        tra.rpe(*paths(rng), LENGTH)


def test_what_cannot_be_scored_is_named(rng):
    estimate, truth = paths(rng)
    with pytest.raises(ShapeError, match="differ in shape"):
        tra.ate(estimate.position[:, :-1], truth.position)
    with pytest.raises(ConfigError, match="sim3"):
        tra.align(estimate.position, truth.position, "sim3")  # type: ignore[arg-type]
