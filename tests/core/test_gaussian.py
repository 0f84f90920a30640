"""Gaussian algebra against dense numpy conditioning, scipy densities and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

import fwnkf
from fwnkf.core import gaussian
from fwnkf.core.gaussian import DiagonalNoise, FullNoise, condition

from ..tolerances import assert_close

FORMS = ["cholesky", "unrolled", "sequential"]
SIZES = [(3, 1), (4, 3), (2, 4), (6, 6)]


def spd(rng, size, batch=()):
    root = rng.standard_normal((*batch, size, size))
    return root @ root.swapaxes(-1, -2) / size + 0.1 * np.eye(size)


def problem(rng, n, m, form, batch=5):
    """Prior covariance, innovation, map, noise and a random mask with an empty and a full row."""
    P, H = spd(rng, n, (batch,)), rng.standard_normal((batch, m, n))
    R = spd(rng, m)
    if form == "sequential":
        R = np.diag(np.diag(R))
    innovation = rng.standard_normal((batch, m))
    mask = rng.random((batch, m)) < 0.6
    mask[0], mask[1] = False, True
    tensors = [torch.as_tensor(x) for x in (P, innovation, H)]
    noise = DiagonalNoise(torch.as_tensor(R).diagonal()) if form == "sequential" else FullNoise(torch.as_tensor(R))
    return (P, innovation, H, R, mask), (*tensors, noise, torch.as_tensor(mask, dtype=torch.float64))


def dense_condition(P, innovation, H, R, mask):
    """Correction and covariance of x given the unmasked channels, from the joint covariance of (x, y)."""
    rows = np.flatnonzero(mask)
    H, R = H[rows], R[np.ix_(rows, rows)]
    n = len(P)
    joint = np.block([[P, P @ H.T], [H @ P, H @ P @ H.T + R]])
    K = joint[:n, n:] @ np.linalg.inv(joint[n:, n:])
    return K @ innovation[rows], P - K @ joint[n:, :n]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("n", "m"), SIZES)
def test_condition_equals_dense_conditioning_on_the_unmasked_channels(rng, form, n, m):
    (P, innovation, H, R, mask), tensors = problem(rng, n, m, form)
    update = condition(*tensors, form)
    assert bool(update.ok.all())
    for item in range(len(P)):
        correction, cov = dense_condition(P[item], innovation[item], H[item], R, mask[item])
        assert_close(update.correction[item], correction)
        assert_close(update.cov[item], cov)
        assert_close(update.innovation_cov[item], H[item] @ P[item] @ H[item].T + R)


@pytest.mark.parametrize("form", FORMS)
def test_condition_with_one_map_for_the_batch_and_no_mask(rng, form):
    (P, innovation, H, R, _), (tP, tinnovation, tH, noise, _) = problem(rng, 4, 3, form)
    update = condition(tP, tinnovation, tH[0], noise, None, form)
    for item in range(len(P)):
        correction, cov = dense_condition(P[item], innovation[item], H[0], R, np.ones(3, bool))
        assert_close(update.correction[item], correction)
        assert_close(update.cov[item], cov)


def test_auto_is_one_of_the_forms_and_sequential_refuses_full_noise(rng):
    for m in (gaussian.UNROLL_LIMIT, gaussian.UNROLL_LIMIT + 1):
        _, tensors = problem(rng, 3, m, "cholesky")
        assert_close(condition(*tensors).cov, condition(*tensors, "cholesky").cov)
    with pytest.raises(TypeError, match="DiagonalNoise"):
        condition(*tensors, "sequential")


def test_masked_values_have_no_effect(rng):
    for form in FORMS:
        _, (P, innovation, H, noise, weight) = problem(rng, 4, 3, form)
        moved = innovation + 1e6 * (1 - weight)
        first, second = (condition(P, x * weight, H, noise, weight, form) for x in (innovation, moved))
        assert torch.equal(first.correction, second.correction)
        assert torch.equal(first.cov, second.cov)


def test_propagate_is_the_dense_product_and_exactly_symmetric(rng):
    P, F, Q = spd(rng, 5, (7,)), rng.standard_normal((7, 5, 5)), spd(rng, 5)
    moved = gaussian.propagate(*(torch.as_tensor(x) for x in (P, F, Q)))
    assert_close(moved, np.einsum("bij,bjk,blk->bil", F, P, F) + Q)
    assert torch.equal(moved, moved.mT)


def worst_eigenvalue(P):
    """The least eigenvalue of a batch, relative to the largest of its item, in float64."""
    eigenvalues = torch.linalg.eigvalsh(P.double())
    return (eigenvalues[:, 0] / eigenvalues[:, -1]).min()


# Sequential updates pass through covariances that are worse conditioned than the first and the last.
RATIOS = [("cholesky", 1e8), ("unrolled", 1e8), ("sequential", 1e5)]


@pytest.mark.parametrize(("form", "ratio"), RATIOS)
def test_an_update_stays_positive_in_float32_at_extreme_ratios(rng, form, ratio):
    """Three of four directions measured, at P/R = ratio and 1/ratio; the short form P - K S Kᵀ fails here."""
    H = torch.as_tensor(rng.standard_normal((500, 3, 4)), dtype=torch.float32)
    noise = DiagonalNoise(torch.ones(3)) if form == "sequential" else FullNoise(torch.eye(3))
    for scale in (ratio, 1 / ratio):
        P = torch.as_tensor(spd(rng, 4, (500,)) * scale, dtype=torch.float32)
        update = condition(P, torch.zeros(500, 3), H, noise, None, form)
        assert bool(update.ok.all())
        assert torch.equal(update.cov, update.cov.mT)
        assert worst_eigenvalue(update.cov) >= -1e-6
        if scale > 1:
            K, S, _ = gaussian.gain(P, H, noise)
            assert worst_eigenvalue(P - K @ S @ K.mT) < -1e-6


@pytest.mark.parametrize(("form", "ratio"), RATIOS)
def test_repeated_updates_stay_definite_in_float32_at_extreme_ratios(rng, form, ratio):
    """Everything measured, twenty times: the covariance falls by nine orders and stays definite."""
    P = torch.as_tensor(spd(rng, 4, (200,)) * ratio, dtype=torch.float32)
    H = torch.as_tensor(np.eye(4) + 0.2 * rng.standard_normal((200, 4, 4)), dtype=torch.float32)
    noise = DiagonalNoise(torch.ones(4)) if form == "sequential" else FullNoise(torch.eye(4))
    information = torch.linalg.inv(P.double())
    for _ in range(20):
        update = condition(P, torch.zeros(200, 4), H, noise, None, form)
        assert bool(update.ok.all())
        P = update.cov
        assert worst_eigenvalue(P) > 0
        information = information + H.double().mT @ H.double()
    size = torch.diagonal(P, dim1=-2, dim2=-1).sum(-1).double()
    exact = torch.diagonal(torch.linalg.inv(information), dim1=-2, dim2=-1).sum(-1)
    assert_close((exact / size).float(), torch.ones(200), "conditioned")


def test_joseph_is_the_error_covariance_of_any_gain(rng):
    """Not only of the optimal one: compared with the covariance of (I - K H) e - K v written out."""
    P, H, R, K = spd(rng, 3), rng.standard_normal((2, 3)), spd(rng, 2), rng.standard_normal((3, 2))
    error = np.hstack([np.eye(3) - K @ H, -K])
    joint = np.block([[P, np.zeros((3, 2))], [np.zeros((2, 3)), R]])
    tP, tK, tH, tR = (torch.as_tensor(x) for x in (P, K, H, R))
    assert_close(gaussian.joseph(tP, tK, tH, FullNoise(tR)), error @ joint @ error.T)


@pytest.mark.parametrize("masked", [False, True])
def test_log_prob_is_scipys(rng, masked):
    cov, residual = spd(rng, 4, (6,)), rng.standard_normal((6, 4))
    mask = rng.random((6, 4)) < 0.6 if masked else np.ones((6, 4), bool)
    mask[0], mask[1] = not masked, True
    weight = torch.as_tensor(mask, dtype=torch.float64) if masked else None
    logs, ok = gaussian.log_prob(torch.as_tensor(residual), torch.as_tensor(cov), weight)
    assert bool(ok.all())
    for item in range(6):
        rows = np.flatnonzero(mask[item])
        expected = 0.0
        if len(rows):
            density = multivariate_normal(np.zeros(len(rows)), cov[item][np.ix_(rows, rows)])
            expected = density.logpdf(residual[item, rows])
        assert_close(logs[item], np.float64(expected))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("form", FORMS)
def test_an_indefinite_innovation_covariance_sets_ok_false_and_skips_the_update(form, dtype):
    """The belief of the failed items is unchanged, nothing is NaN, and the other item is updated."""
    P = torch.eye(3, dtype=dtype).repeat(3, 1, 1)
    P[1] = -50 * P[1]
    P[2] = -1e30 * P[2]
    H = torch.eye(2, 3, dtype=dtype)
    variance = torch.ones(2, dtype=dtype)
    noise = DiagonalNoise(variance) if form == "sequential" else FullNoise(variance.diag())
    innovation = torch.full((3, 2), 7.0, dtype=dtype)
    update = condition(P, innovation, H, noise, None, form)
    assert update.ok.tolist() == [True, False, False]
    for part in update[:3]:
        assert bool(part.isfinite().all())
    assert_close(update.correction[0], torch.tensor([3.5, 3.5, 0.0], dtype=dtype))
    assert torch.equal(update.correction[1:], torch.zeros(2, 3, dtype=dtype))
    assert torch.equal(update.cov[1:], P[1:])


@pytest.mark.parametrize("form", FORMS)
def test_a_failed_item_does_not_change_the_gradient_of_the_others(form):
    """The gradient of a batch with one indefinite item is finite, and that of the good item as if it were alone."""
    noise = DiagonalNoise(torch.ones(2)) if form == "sequential" else FullNoise(torch.eye(2))
    H, innovation = torch.eye(2, 3), torch.ones(2, 2)

    def gradient(P):
        P = P.clone().requires_grad_()
        update = condition(P, innovation[: len(P)], H, noise, None, form)
        (update.correction.sum() + update.cov.sum()).backward()
        return P.grad

    both = torch.stack((torch.eye(3), -50 * torch.eye(3)))
    assert bool(gradient(both).isfinite().all())
    assert_close(gradient(both)[0], gradient(both[:1])[0])


@pytest.mark.parametrize("form", ["cholesky", "sequential"])
def test_only_unmasked_channels_must_be_definite(form):
    """A masked channel with a negative variance neither fails the item nor changes it.

    The unrolled form requires it of all channels: this saves an operation per channel, and ``R`` is definite anyway.
    """
    variance = torch.tensor([1.0, -5.0], dtype=torch.float64)
    noise = DiagonalNoise(variance) if form == "sequential" else FullNoise(variance.diag())
    P, H = torch.eye(2, dtype=torch.float64)[None], torch.eye(2, dtype=torch.float64)
    innovation, weight = torch.ones(1, 2, dtype=torch.float64), torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    update = condition(P, innovation * weight, H, noise, weight, form)
    assert bool(update.ok.all())
    assert_close(update.correction, torch.tensor([[0.5, 0.0]], dtype=torch.float64))


@pytest.mark.parametrize("form", FORMS)
def test_gradients_of_condition(rng, form):
    _, (P, innovation, H, noise, weight) = problem(rng, 3, 2, form, batch=3)
    root = torch.linalg.cholesky(P)

    def function(root, innovation, H, R):
        packed = DiagonalNoise(R) if form == "sequential" else FullNoise(R @ R.mT)
        update = condition(root @ root.mT, innovation, H, packed, weight, form)
        return update.correction, update.cov, update.innovation_cov

    R = noise.variance if form == "sequential" else torch.linalg.cholesky(noise.cov)
    inputs = [x.clone().requires_grad_() for x in (root, innovation, H, R)]
    assert torch.autograd.gradcheck(function, inputs)


def test_safe_cholesky_never_returns_nan():
    nan = torch.full((2, 2), torch.nan)
    factor, ok = gaussian.safe_cholesky(torch.stack((torch.eye(2) * 4, -torch.eye(2), nan)))
    assert ok.tolist() == [True, False, False]
    assert torch.equal(factor[0], 2 * torch.eye(2))
    assert torch.equal(factor[1:], torch.eye(2).expand(2, 2, 2))


@pytest.mark.parametrize("form", ["unrolled", "cholesky"])
@pytest.mark.parametrize("difference", [0.0, 1e-4, 1e-2, 1.0])
def test_nearly_equal_sensors_are_never_silently_wrong(form: gaussian.SolveForm, difference: float):
    """In float32 the second pivot of S is a small difference of large numbers, and with it the gain."""
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(300, 2, 2, generator=generator, dtype=torch.float64)
    H = torch.tensor([[1.0, 0.0], [1.0, difference]], dtype=torch.float64)
    P = (root @ root.mT + 1e-3 * torch.eye(2)).float()
    flagged = 0
    for variance in (1e-2, 1e-4, 1e-6, 1e-8):
        noise = gaussian.DiagonalNoise(torch.full((2,), variance))
        exact = gaussian.DiagonalNoise(noise.variance.double())
        S = H @ P.double() @ H.mT + gaussian.dense(exact)
        drawn = torch.randn(300, 2, 1, generator=generator, dtype=torch.float64)
        innovation = (torch.linalg.cholesky(S) @ drawn).squeeze(-1).float()
        found = gaussian.condition(P, innovation, H.float(), noise, form=form)
        # the scalar updates need no pivots
        wanted = gaussian.condition(P.double(), innovation.double(), H, exact, form="sequential")
        std = wanted.cov.diagonal(dim1=-2, dim2=-1).sqrt()
        wrong = ((found.correction - wanted.correction).abs() > 0.1 * std).any(-1)
        wrong |= (found.cov.diagonal(dim1=-2, dim2=-1).clamp_min(0).sqrt() / std - 1).abs().amax(-1) > 0.01
        assert not (wrong & found.ok & found.precise).any()
        alarms = float((~found.precise).double().mean())  # few where nothing is wrong
        assert alarms <= {1e-2: 0.0, 1e-4: 0.05}.get(variance, 1.0)
        flagged += int((~found.precise).sum())
    assert flagged > 0 or difference == 1.0


@pytest.mark.parametrize("form", ["auto", "unrolled", "cholesky", "sequential", "square_root"])
@pytest.mark.parametrize("variance", [1e-9, 1e-6, 1e-2])
def test_a_masked_channel_does_not_cancel_the_update_of_its_twin(form, variance: float):
    """What the elimination leaves of a channel that repeats another one is zero, or negative by rounding."""
    one, prior = torch.ones(1, 1), fwnkf.Gaussian(torch.zeros(1), torch.eye(1))
    twins = fwnkf.KF(F=one, H=torch.ones(2, 1), Q=0 * one, R=variance * torch.eye(2), solve=form)
    alone = fwnkf.KF(F=one, H=one, Q=0 * one, R=variance * one, solve=form)
    _, wanted = alone.update(alone.init(1, prior), torch.tensor([[3.0]]))
    assert wanted.status.item() == 0
    for mask in ([True, False], [False, True]):
        measured = torch.tensor([mask])
        y = torch.where(measured, 3.0, torch.nan)
        _, out = twins.update(twins.init(1, prior), y, mask=measured)
        assert out.status.item() == 0
        assert_close(out.mean, wanted.mean, "algebra")
        assert_close(out.cov, wanted.cov, "algebra")
