"""Status bits of failed steps, and the error that names stream and step."""

from __future__ import annotations

import pytest
import torch

import fwnkf
from fwnkf.errors import NumericalFailureError

from .systems import linear_matrices


def test_raise_for_status_names_the_first_stream_and_step():
    kf = fwnkf.build("kf", **linear_matrices(torch.float32))
    y = torch.zeros(3, 6, 2)
    assert kf.run(y).raise_for_status().mean.shape == (3, 6, 3)
    y[1, 4, 0] = torch.inf
    y[2, 2, 1] = torch.nan
    trajectory = kf.run(y)
    assert trajectory.status.nonzero().tolist() == [[1, 4], [2, 2]]
    with pytest.raises(NumericalFailureError, match=r"stream left wheel, step 4: .*NON_FINITE_OBSERVATION.*; 2 step"):
        trajectory.raise_for_status(["hub", "left wheel", "right wheel"])
    with pytest.raises(NumericalFailureError, match="stream number 1, step 4"):
        trajectory.raise_for_status()


def test_an_indefinite_covariance_sets_the_status():
    kf = fwnkf.build("kf", **linear_matrices(torch.float32))
    prior = fwnkf.Gaussian(torch.zeros(2, 3), torch.stack((torch.eye(3), -50 * torch.eye(3))))
    trajectory = kf.run(torch.ones(2, 2, 2), prior=prior)
    assert trajectory.status[:, 0].tolist() == [fwnkf.Status.OK, fwnkf.Status.FACTORIZATION_FAILED]
    assert torch.equal(trajectory.mean[1, 0], trajectory.prior_mean[1, 0])
    with pytest.raises(NumericalFailureError, match=r"stream number 1, step 0: .*FACTORIZATION_FAILED"):
        trajectory.raise_for_status()
