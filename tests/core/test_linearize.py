"""Jacobians against autograd and finite differences; second-order terms and sigma points against references."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from filterpy.kalman import MerweScaledSigmaPoints, unscented_transform
from torch.utils.checkpoint import checkpoint

from fwnkf import Layout
from fwnkf.core import linearize
from fwnkf.systems.lorenz import Lorenz, LorenzConfig

from .. import systems
from ..tolerances import assert_close


def random_state(layout, generator, batch=4):
    origin = layout.origin(torch.zeros((), dtype=torch.float64)).expand(batch, -1)
    return layout.boxplus(origin, torch.randn(batch, layout.tangent_size, generator=generator, dtype=torch.float64))


def finite_differences(function, x, domain, image, h=1e-5):
    columns = []
    for row in torch.eye(domain.tangent_size, dtype=x.dtype) * h:
        step = row.expand(len(x), -1)
        forward, backward = (function(domain.boxplus(x, sign * step)) for sign in (1, -1))
        centre = function(x)
        columns.append((image.boxminus(forward, centre) - image.boxminus(backward, centre)) / (2 * h))
    return torch.stack(columns, -1)


@pytest.mark.parametrize("make", [systems.pendulum, systems.attitude, systems.wave])
def test_jacobians_are_finite_differences_on_the_manifold(generator, make):
    system = make()
    x = random_state(system.layout, generator)
    u = torch.randn(4, system.control_dim, generator=generator, dtype=torch.float64)
    dt = torch.rand(4, generator=generator, dtype=torch.float64) * 0.1

    def move(z):
        return system.transition(z, u, dt)

    value, F = system.linearize_transition(x, u, dt)
    assert torch.equal(value, move(x))
    assert_close(F, finite_differences(move, x, system.layout, system.layout), "finite_difference")
    value, H = system.linearize_observation(x)
    assert torch.equal(value, system.observe(x))
    expected = finite_differences(system.observe, x, system.layout, system.observation_layout)
    assert_close(H, expected, "finite_difference")


def test_jacobians_in_flat_space_are_autograds(generator):
    system = systems.wave()
    x = random_state(system.layout, generator)
    _, H = system.linearize_observation(x)
    for item in range(4):
        assert_close(H[item], torch.autograd.functional.jacobian(system.observe, x[item]), "rounding")


def test_jacobians_written_by_hand_agree_with_differentiation(generator):
    by_hand, by_machine = systems.analytic_pendulum(), systems.pendulum()
    x = random_state(by_hand.layout, generator)
    u = torch.randn(4, 1, generator=generator, dtype=torch.float64)
    dt = torch.rand(4, generator=generator, dtype=torch.float64)
    for mine, theirs in (
        (by_machine.linearize_transition(x, u, dt), by_hand.linearize_transition(x, u, dt)),
        (by_machine.linearize_observation(x), by_hand.linearize_observation(x)),
    ):
        assert_close(mine[0], theirs[0], "rounding")
        assert_close(mine[1], theirs[1], "rounding")


@pytest.mark.parametrize("make", [systems.pendulum, systems.attitude, systems.wave])
def test_forward_and_reverse_mode_jacobians_agree(generator, monkeypatch, make):
    system = make()
    x = random_state(system.layout, generator)
    eager = (*system.linearize_transition(x, None, None), *system.linearize_observation(x))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    traced = (*system.linearize_transition(x, None, None), *system.linearize_observation(x))
    for mine, theirs in zip(traced, eager, strict=True):
        assert_close(mine, theirs, "rounding")


def in_place(x):
    out = torch.zeros(x.shape, dtype=x.dtype)
    out[:, 0] = x[:, 0] * x[:, 1]
    out[:, 1] = x[:, 1].sin()
    return out


FUNCTIONS = {
    "plain": lambda x: torch.stack((x[:, 0] * x[:, 1], x[:, 1].sin()), -1),
    "in place": in_place,
    "without a batched form": lambda x: x.sin() * (1 + 0 * torch.rand(x.shape)),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_jacobians_under_checkpointing_are_those_without(generator, function):
    """All columns at once, or one by one where the function has an operation that cannot be batched."""
    layout = Layout.euclidean(2)

    def differentiated(x):
        return linearize.jacobian(function, x, layout, layout)[1]

    x = random_state(layout, generator).requires_grad_()
    mine, theirs = checkpoint(differentiated, x, use_reentrant=False), differentiated(x)
    assert_close(mine, theirs, "rounding")
    gradients = [torch.autograd.grad(jacobian.square().sum(), x)[0] for jacobian in (mine, theirs)]
    assert_close(*gradients, "rounding")


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_jacobians_need_no_gradient_mode(generator, mode):
    system = systems.attitude()
    x = random_state(system.layout, generator)
    expected = system.linearize_transition(x, None, None)[1]
    with mode():
        F = system.linearize_transition(x, None, None)[1]
    assert torch.equal(F, expected)
    assert not F.requires_grad


def test_jacobians_can_be_differentiated(generator):
    """Training through an EKF needs the gradient of the Jacobian itself."""
    system = systems.attitude()
    x = random_state(system.layout, generator, 2).requires_grad_()
    u = torch.randn(2, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, u: system.linearize_transition(x, u, None), (x, u), fast_mode=True)
    assert torch.autograd.gradcheck(system.linearize_observation, (x,), fast_mode=True)


@pytest.mark.parametrize(("alpha", "beta", "kappa"), [(0.5, 2.0, 0.0), (1.0, 0.0, 0.0), (1.0, 2.0, 1.5)])
def test_sigma_points_and_moments_are_filterpys(rng, alpha, beta, kappa):
    n, m = 3, 2
    theirs = MerweScaledSigmaPoints(n, alpha, beta, kappa)
    rule = linearize.sigma_rule(n, alpha, beta, kappa)
    mean = rng.standard_normal((4, n))
    root = rng.standard_normal((4, n, n))
    cov = root @ root.swapaxes(-1, -2) + 0.1 * np.eye(n)
    points, _, ok = linearize.sigma_points(torch.as_tensor(mean), torch.as_tensor(cov), Layout.euclidean(n), rule)
    assert bool(ok.all())
    seen = torch.stack((points[..., 0].sin() * points[..., 1], points[..., 2] ** 2), -1)
    centre, deviations, spread = linearize.sigma_moments(seen, Layout.euclidean(m), rule)
    cross = linearize.sigma_cross(points - torch.as_tensor(mean)[:, None], deviations, rule)
    for item in range(4):
        sigmas = theirs.sigma_points(mean[item], cov[item])
        assert_close(points[item], sigmas)
        images = np.stack((np.sin(sigmas[:, 0]) * sigmas[:, 1], sigmas[:, 2] ** 2), -1)
        m_mean, m_cov = unscented_transform(images, theirs.Wm, theirs.Wc, np.zeros((m, m)))
        assert_close(centre[item], m_mean)
        assert_close(spread[item], m_cov)
        assert_close(cross[item], np.einsum("s,si,sj->ij", theirs.Wc, sigmas - mean[item], images - m_mean))


@pytest.mark.parametrize("layout", [systems.Pendulum.layout, systems.Attitude.layout], ids=["angle", "quaternion"])
def test_sigma_points_preserve_mean_and_covariance_where_angles_wrap(generator, layout):
    """Sigma points about θ = π or an arbitrary rotation have the mean and covariance they were computed from."""
    mean = random_state(layout, generator)
    if layout is systems.Pendulum.layout:
        mean = torch.cat((torch.full((4, 1), 3.1415).double(), mean[:, 1:]), -1)
    root = 0.2 * torch.randn(4, layout.tangent_size, layout.tangent_size, generator=generator, dtype=torch.float64)
    cov = root @ root.mT + 0.01 * torch.eye(layout.tangent_size, dtype=torch.float64)
    rule = linearize.sigma_rule(layout.tangent_size, 1.0, 0.0, 0.0)
    points = linearize.sigma_points(mean, cov, layout, rule).points
    centre, _, spread = linearize.sigma_moments(points, layout, rule)
    assert_close(layout.boxminus(centre, mean), torch.zeros(4, layout.tangent_size).double())
    assert_close(spread, cov)


def test_weighted_deviations_from_the_manifold_mean_sum_to_zero(generator):
    """Points that are not symmetric about the first: the weighted deviations from the mean must sum to zero."""
    layout = systems.Attitude.layout
    rule = linearize.sigma_rule(6, 1.0, 0.0, 0.0)
    start = random_state(layout, generator)
    points = layout.boxplus(
        start.unsqueeze(1).expand(-1, 13, -1), 0.3 * torch.randn(4, 13, 6, generator=generator, dtype=torch.float64)
    )
    _, deviations, _ = linearize.sigma_moments(points, layout, rule, iterations=20)
    total = rule.mean_weight * deviations[:, 0] + rule.side_weight * deviations[:, 1:].sum(1)
    assert_close(total, torch.zeros(4, 6).double())
    _, deviations, _ = linearize.sigma_moments(points, layout, rule)  # as the filter uses it: two iterations
    total = rule.mean_weight * deviations[:, 0] + rule.side_weight * deviations[:, 1:].sum(1)
    assert total.abs().max() < 1e-3


def test_second_order_correction_of_a_quadratic_is_exact(rng):
    """``E = f(m) + ½ tr(C_k P)`` and ``cov = J P Jᵀ + ½ tr(C_k P C_l P)``, the moments of a quadratic of a Gaussian."""
    n, outputs, batch = 3, 2, 4
    root = rng.normal(size=(batch, n, n))
    mean, cov = rng.normal(size=(batch, n)), root @ root.transpose(0, 2, 1)
    curves = rng.normal(size=(outputs, n, n))
    curves = curves + curves.transpose(0, 2, 1)
    slope = rng.normal(size=(outputs, n))

    def function(x):
        return x @ torch.as_tensor(slope).mT + 0.5 * torch.einsum("bi,kij,bj->bk", x, torch.as_tensor(curves), x)

    correction = linearize.second_order_correction(
        function, torch.as_tensor(mean), torch.as_tensor(cov), Layout.euclidean(n), Layout.euclidean(outputs)
    )
    assert_close(correction.shift, 0.5 * np.einsum("kij,bji->bk", curves, cov))
    assert_close(correction.cov, 0.5 * np.einsum("kij,bjl,mlo,boi->bkm", curves, cov, curves, cov))


def test_second_order_correction_matches_monte_carlo(rng):
    """A million samples through Lorenz, where ``z`` is very uncertain and multiplies ``x``."""
    system = Lorenz(LorenzConfig()).double()
    mean = torch.tensor([[0.5, 1.0, 22.0]], dtype=torch.float64)
    factor = torch.tensor([[[0.5, 0, 0], [0.2, 0.4, 0], [-0.5, 0.3, 5.0]]], dtype=torch.float64)
    dt = torch.full((1,), 0.02, dtype=torch.float64)
    moved, F = system.linearize_transition(mean, None, dt)
    correction = linearize.second_order_correction(
        lambda x: system.transition(x, None, dt.expand(len(x))), mean, factor @ factor.mT, system.layout, system.layout
    )
    draws = mean + torch.as_tensor(rng.normal(size=(1_000_000, 3))) @ factor[0].mT
    rest = system.transition(draws, None, dt.expand(len(draws))) - moved - (draws - mean) @ F[0].mT
    for item in (1, 2):  # x is linear in the state; the remaining difference is of third order
        torch.testing.assert_close(correction.cov[0, item, item], rest.var(0)[item], rtol=0.05, atol=0)
        torch.testing.assert_close(correction.shift[0, item], rest.mean(0)[item], rtol=0.05, atol=0)
    torch.testing.assert_close(correction.cov[0, 1, 2], rest.mT.cov()[1, 2], rtol=0.05, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_second_order_correction_of_a_known_state_is_zero_and_differentiable(dtype):
    system = Lorenz(LorenzConfig()).to(dtype)
    mean = torch.tensor([[0.5, 1.0, 22.0]], dtype=dtype, requires_grad=True)
    cov = torch.zeros(1, 3, 3, dtype=dtype, requires_grad=True)
    correction = linearize.second_order_correction(
        lambda x: system.transition(x, None, None), mean, cov, system.layout, system.layout
    )
    torch.testing.assert_close(correction.shift, torch.zeros_like(correction.shift), atol=1e-5, rtol=0)
    torch.testing.assert_close(correction.cov, torch.zeros_like(correction.cov), atol=1e-9, rtol=0)
    (correction.cov.sum() + correction.shift.sum()).backward()
    assert bool(mean.grad.isfinite().all())
    assert bool(cov.grad.isfinite().all())


def test_second_order_correction_is_zero_for_an_indefinite_covariance():
    cov = torch.stack((torch.eye(2), -torch.eye(2)))
    correction = linearize.second_order_correction(
        torch.square, torch.ones(2, 2), cov, Layout.euclidean(2), Layout.euclidean(2)
    )
    assert float(correction.shift[0].abs().min()) > 0.5
    assert not correction.shift[1].any()
    assert not correction.cov[1].any()


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (0.5, 2.0)])
def test_statistical_linearization_conditions_as_the_unscented_update(rng, alpha, beta):
    """The linear map and its residual covariance reproduce the weighted covariances of the points."""
    root = rng.standard_normal((3, 3))
    P = root @ root.T + 0.1 * np.eye(3)
    theirs, rule = MerweScaledSigmaPoints(3, alpha, beta, 0.0), linearize.sigma_rule(3, alpha, beta, 0.0)
    drawn = linearize.sigma_points(torch.zeros(1, 3).double(), torch.as_tensor(P)[None], Layout.euclidean(3), rule)
    x = drawn.points[0].numpy()
    y = np.stack((np.sin(x[:, 0]) + x[:, 1], x[:, 2] ** 2), -1)
    deviations = y - theirs.Wm @ y
    A, leftover = (
        item[0].numpy() for item in linearize.statistical_linearization(drawn, torch.as_tensor(deviations)[None], rule)
    )
    assert_close(A @ P, np.einsum("s,si,sj->ij", theirs.Wc, deviations, x))
    assert_close(A @ P @ A.T + leftover, np.einsum("s,si,sj->ij", theirs.Wc, deviations, deviations))


def test_the_residual_of_a_linear_function_is_below_rounding_in_float32():
    """As a difference of covariances it would be of the size of their rounding, and negative half of the time."""
    P = 1e6 * torch.tensor([[[2.0, 1.9], [1.9, 2.0]]])
    rule = linearize.sigma_rule(2, 1.0, 0.0, 0.0)
    drawn = linearize.sigma_points(torch.zeros(1, 2), P, Layout.euclidean(2), rule)
    H = torch.tensor([[1.0, 0.3], [0.7, -2.0]])
    A, leftover = linearize.statistical_linearization(drawn, drawn.points @ H.mT, rule)
    torch.testing.assert_close(A[0], H, rtol=1e-5, atol=1e-5)
    assert float(leftover.abs().max()) < 1e-6
    assert float(torch.linalg.eigvalsh(leftover.double()).min()) >= 0
