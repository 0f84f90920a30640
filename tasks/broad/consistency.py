"""NEES and coverage of tilt and heading on trials of BROAD."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fwnkf.core import rotation
from fwnkf.data.recording import Recording
from fwnkf.metrics.consistency import coverage, nees
from fwnkf.metrics.orientation import error_quaternion, tilt_vector
from fwnkf.shapes import Float
from tasks.broad.trials import BLOCK, scored, truth_of


def tilt_consistency(
    data: Sequence[Recording], cov: Float[Tensor, "N K 3 3"], paths: Float[Tensor, "N T 4"]
) -> dict[str, float]:
    """NEES and 95 % coverage of the tilt: its error about the two horizontal axes, after each step in movement.

    ``cov`` is that of the orientation in the sensor frame.
    """
    errors, covs = [], []
    for trial, P, path in zip(data, cov, paths, strict=True):
        steps, ends = block_ends(trial, len(P))
        R = rotation.to_matrix(path[ends])
        errors.append(tilt_vector(error_quaternion(path[ends], truth_of(trial)[ends])))
        covs.append((R @ P[steps] @ R.mT)[..., :2, :2])
    return _summary("tilt", torch.cat(errors), torch.cat(covs))


def heading_consistency(
    data: Sequence[Recording], variance: Float[Tensor, "N K"], paths: Float[Tensor, "N T 4"]
) -> dict[str, float]:
    """NEES and 95 % coverage of the heading after each step in movement."""
    errors, variances = [], []
    for trial, var, path in zip(data, variance, paths, strict=True):
        steps, ends = block_ends(trial.slice(0, len(trial) - 1), len(var))
        # the heading after a step is that of the sample after it
        error = error_quaternion(path[ends + 1], truth_of(trial)[ends + 1])
        errors.append(2 * torch.atan(error[:, 3] / error[:, 0]))
        variances.append(var[steps])
    error = torch.cat(errors).unsqueeze(-1)
    finite = error[:, 0].isfinite()  # the optical orientation of that sample may be missing
    return _summary("heading", error[finite], torch.cat(variances)[finite, None, None])


def block_ends(trial: Recording, steps: int) -> tuple[Tensor, Tensor]:
    """The steps of a filter after which the orientation counts, and the index of the last sample of each."""
    ends = torch.arange(1, min(steps, len(trial) // BLOCK) + 1) * BLOCK - 1
    counted = scored(trial)[ends]
    return counted.nonzero().flatten(), ends[counted]


def _summary(name: str, error: Tensor, cov: Tensor) -> dict[str, float]:
    return {
        f"nees_{name}": float(nees(error, cov).mean()),
        f"coverage_{name}": float(coverage(error, cov).overall),
    }
