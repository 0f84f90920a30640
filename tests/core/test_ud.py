"""Factors U D Uᵀ: the same as the dense recursion where that is accurate, and accurate in float32 where it is not."""

from __future__ import annotations

import mpmath
import pytest
import torch

import fwnkf
from fwnkf.core import gaussian, ud
from fwnkf.core.gaussian import DiagonalNoise, FullNoise
from fwnkf.types import Status

from ..tolerances import assert_close


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def psd(*shape: int, rank: int | None = None, seed: int = 0) -> torch.Tensor:
    root = normal(*shape, rank or shape[-1], seed=seed)
    return root @ root.mT


@pytest.mark.parametrize("rank", [5, 3, 1])
def test_factors_of_full_and_singular_matrices(rank):
    P = psd(4, 5, rank=rank)
    factors = ud.factor(P)
    assert_close(ud.covariance(factors), P)
    assert bool((factors.tril(-1) == 0).all())
    assert bool((torch.diagonal(factors, dim1=-2, dim2=-1) >= 0).all())
    assert not ud.factor(torch.zeros(2, 3, 3)).any()


@pytest.mark.parametrize("rank", [5, 2])
def test_the_prediction_is_the_dense_one(rank):
    P, F, Q = psd(4, 5), normal(4, 5, 5, seed=1), psd(5, rank=rank, seed=2)
    assert_close(ud.covariance(ud.propagate(ud.factor(P), F, Q)), gaussian.propagate(P, F, Q))
    still = ud.propagate(ud.factor(P), torch.eye(5).double(), torch.zeros(5, 5).double())
    assert_close(ud.covariance(still), P)


@pytest.mark.parametrize("full", [False, True])
def test_the_update_is_the_dense_one(full):
    P, H, innovation = psd(6, 5), normal(3, 5, seed=1), normal(6, 3, seed=2)
    R = psd(3, seed=3) + torch.eye(3).double()
    noise = FullNoise(R) if full else DiagonalNoise(R.diagonal())
    weight = (torch.arange(6)[:, None] >> torch.arange(3) & 1).double()  # the first item has no measurement
    mine, theirs = (
        module.condition(matrix, innovation, H, noise, weight) for module, matrix in ((ud, ud.factor(P)), (gaussian, P))
    )
    assert_close(mine.correction, theirs.correction)
    assert_close(ud.covariance(mine.cov), theirs.cov)
    assert_close(mine.innovation_cov, theirs.innovation_cov)
    assert bool(mine.ok.all())
    assert torch.equal(mine.cov[0], ud.factor(P)[0])


def test_noise_that_is_not_positive_fails_and_changes_nothing():
    factors, H = ud.factor(psd(2, 3)), torch.eye(1, 3).double()
    update = ud.condition(factors, torch.ones(2, 1).double(), H, DiagonalNoise(torch.tensor([[0.0], [1.0]]).double()))
    assert update.ok.tolist() == [False, True]
    assert torch.equal(update.cov[0], factors[0])
    assert not update.correction[0].any()


def wide(solve: str, dtype: torch.dtype) -> fwnkf.KF:
    """A prior variance of 1e6 over a measurement variance of 1e-8."""
    like = torch.zeros((), dtype=dtype)
    return fwnkf.KF(
        F=torch.tensor([[1.0, 0.1, 0.0], [0.0, 1.0, 0.1], [0.0, 0.0, 1.0]]).to(like),
        H=torch.tensor([[1.0, 0.5, 0.3], [0.7, 1.0, -0.2]]).to(like),
        Q=1e-9 * torch.eye(3).to(like),
        R=1e-8 * torch.eye(2).to(like),
        solve=solve,
    )


def run_wide(solve: str, dtype: torch.dtype, scale: float = 1.0) -> fwnkf.Trajectory:
    y = (scale * normal(1, 15, 2)).float().to(dtype)
    eye = torch.eye(3, dtype=dtype)
    with torch.no_grad():
        return wide(solve, dtype).run(y, prior=fwnkf.Gaussian(torch.zeros(3, dtype=dtype), 1e6 * eye))


def exact() -> tuple[torch.Tensor, torch.Tensor]:
    """The filter of :func:`wide` on its float32 numbers, with 60 digits: means and variances."""
    mpmath.mp.dps = 60
    system = wide("auto", torch.float32).system
    F, H, Q, R = (
        mpmath.matrix(item.double().tolist())
        for item in (system.F, system.H, system.Q(), system.measurement_covariance())
    )
    x, P = mpmath.zeros(3, 1), mpmath.diag([1e6] * 3)
    means, variances = [], []
    for t, row in enumerate(normal(1, 15, 2).float()[0].double().tolist()):
        if t:
            x, P = F * x, F * P * F.T + Q
        K = P * H.T * mpmath.inverse(H * P * H.T + R)
        x, P = x + K * (mpmath.matrix(row) - H * x), P - K * H * P
        means.append([float(value) for value in x])
        variances.append([float(P[i, i]) for i in range(3)])
    return torch.tensor(means), torch.tensor(variances)


def test_factors_hold_in_float32_where_the_dense_form_does_not():
    means, variances = exact()
    errors = {}
    for solve in ("cholesky", "unrolled", "sequential", "square_root"):
        track = run_wide(solve, torch.float32)
        error = (track.mean[0] - means).abs().max() / means.abs().max()
        spread = (track.cov[0].diagonal(dim1=-2, dim2=-1) / variances - 1).abs().max()
        errors[solve] = max(float(error), float(spread))
        assert bool(track.status.any()) == (solve != "square_root")  # and the dense forms say so
    assert errors["square_root"] < 1e-3
    assert min(error for solve, error in errors.items() if solve != "square_root") > 0.1


def test_a_status_says_where_no_form_can_help():
    """Measurements of 10 km with a noise of 0.1 mm have not enough digits in float32."""
    status = run_wide("square_root", torch.float32, scale=1e4).status
    assert bool((status == Status.PRECISION_LOST).all())
    assert not run_wide("square_root", torch.float64, scale=1e4).status.any()
    with pytest.warns(RuntimeWarning, match="PRECISION_LOST"):  # the updates were made
        run_wide("square_root", torch.float32, scale=1e4).raise_for_status()


def test_a_wide_prior_alone_is_no_loss_of_precision():
    """Each state is measured by itself: the dense form is accurate, and says nothing."""
    eye = torch.eye(3)
    kf = fwnkf.KF(F=eye, H=eye, Q=0.01 * eye, R=0.01 * eye)
    track = kf.run(normal(1, 5, 3).float(), prior=fwnkf.Gaussian(torch.zeros(3), 1e8 * eye))
    assert not track.status.any()
    assert_close(track.cov[0, 0], 0.01 * eye, "algebra")
