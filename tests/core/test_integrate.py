"""Discretisation of linear systems beside integrals computed with many digits, from steps far below to far above τ."""

from __future__ import annotations

import functools
import math

import mpmath
import pytest
import torch
from torch import Tensor

import fwnkf
from fwnkf.core.integrate import MOST_DOUBLINGS, discretize, discretize_with

SYSTEMS: dict[str, tuple[list[list[float]], list[list[float]]]] = {
    "integrating": ([[0, 1], [0, 0]], [[0, 0], [0, 0.5]]),
    "decaying velocity": ([[0, 1], [0, -1]], [[0, 0], [0, 1]]),
    "oscillating": ([[0, 1], [-1, -0.1]], [[0, 0], [0, 1]]),
    "stiff": ([[-1000, 0], [1, -0.01]], [[1, 0], [0, 0]]),
    "stiff and mixed": ([[-501, 499], [499, -501]], [[1, 0], [0, 2]]),
    "two rates": ([[-0.5, 0], [0, -50]], [[1, 0.2], [0.2, 1]]),
    "unstable": ([[0, 1], [4, 0]], [[0, 0], [0, 1]]),
    "three integrators": ([[0, 1, 0], [0, 0, 1], [0, 0, 0]], [[0, 0, 0], [0, 0, 0], [0, 0, 1]]),
}
RATIOS = [10.0**power for power in range(-6, 7)]
"""Length of the step over the time constant of one second."""


@functools.cache
def exact(name: str, dt: float) -> tuple[Tensor, Tensor]:
    """``F`` and ``Q`` with many digits: ``vec Q`` is linear in time, so one exponential of size ``n² + 1`` holds it."""
    drift, density = SYSTEMS[name]
    n = len(drift)
    with mpmath.workdps(120):
        A = mpmath.matrix(drift)
        big = mpmath.zeros(n * n + 1)
        for i in range(n):
            for j in range(n):
                for k in range(n):
                    big[i * n + j, k * n + j] += A[i, k]
                    big[i * n + j, i * n + k] += A[j, k]
                big[i * n + j, n * n] = density[i][j]
        F, whole = mpmath.expm(A * mpmath.mpf(dt)), mpmath.expm(big * mpmath.mpf(dt))
        return (
            torch.tensor([[float(F[i, j]) for j in range(n)] for i in range(n)], dtype=torch.float64),
            torch.tensor([[float(whole[i * n + j, n * n]) for j in range(n)] for i in range(n)], dtype=torch.float64),
        )


def assert_exact(name: str, dt: float, F: Tensor, Q: Tensor) -> None:
    F_exact, Q_exact = exact(name, dt)
    eps = torch.finfo(F.dtype).eps
    if float(Q_exact.abs().max()) > 0.1 * torch.finfo(F.dtype).max:
        return  # an unstable system leaves the range of the dtype
    drift = torch.tensor(SYSTEMS[name][0], dtype=torch.float64)
    # rounding of A or dt alone turns an oscillation, or changes a slow motion beside a fast one, by ε ‖A‖ dt
    growth = 1 + dt * float(torch.linalg.matrix_norm(drift, 2))
    std = Q_exact.diagonal().sqrt()
    error = (Q.double() - Q_exact).abs() / (std[:, None] * std)
    assert float(error.max()) <= 30 * eps * min(growth, 1e3), f"Q over {dt}"
    assert float((F.double() - F_exact).abs().max()) <= 30 * eps * growth * max(1.0, float(F_exact.abs().max()))
    assert torch.equal(Q, Q.mT)
    assert float(torch.linalg.eigvalsh(Q.double() / (std[:, None] * std)).min()) >= -10 * eps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SYSTEMS)
def test_noise_over_any_step_is_exact(name: str, dtype: torch.dtype) -> None:
    A, S = (torch.tensor(item, dtype=dtype) for item in SYSTEMS[name])
    for dt in torch.tensor(RATIOS, dtype=dtype):
        F, _, Q = discretize(A, S[:, :1], S, dt)
        assert_exact(name, float(dt), F, Q)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tau", [1.0, 0.1])
@pytest.mark.parametrize("gap", [0.5, 8.0, 20.0, 60.0, 100.0, 1e5])
def test_a_filter_states_the_closed_form_after_a_gap(tau: float, gap: float, dtype: torch.dtype) -> None:
    """Position and a velocity that decays: the variance grows with the gap and nothing overflows."""
    e = math.exp(-gap / tau)
    system = decaying(tau, dtype)
    dt = torch.full((1, 8), 0.01, dtype=dtype)
    dt[0, 5] = gap
    run = fwnkf.EKF(system).run(torch.zeros(1, 8, 1, dtype=dtype), dt=dt)
    before = run.cov[0, 4].double()
    F = torch.tensor([[1.0, tau * (1 - e)], [0.0, e]], dtype=torch.float64)
    Q_pp = tau**2 * (gap - 2 * tau * (1 - e) + tau / 2 * (1 - e * e))
    Q_pv, Q_vv = tau**2 / 2 * (1 - e) ** 2, tau / 2 * (1 - e * e)
    Q = torch.tensor([[Q_pp, Q_pv], [Q_pv, Q_vv]], dtype=torch.float64)
    torch.testing.assert_close(run.prior_cov[0, 5].double(), F @ before @ F.T + Q, rtol=1e-5, atol=1e-7)
    assert run.cov.isfinite().all()
    assert run.mean.isfinite().all()


def decaying(tau: float, dtype: torch.dtype) -> fwnkf.LinearSystem:
    F, Q = [[0.0, 1.0], [0.0, -1 / tau]], [[0.0, 0.0], [0.0, 1.0]]
    return fwnkf.LinearSystem.of(
        F=torch.tensor(F, dtype=dtype), Q=torch.tensor(Q, dtype=dtype), H=torch.tensor([[1.0, 0.0]], dtype=dtype),
        R=torch.tensor([[0.01]], dtype=dtype), continuous=True, dt=0.01,
    )  # fmt: skip


def test_control_over_a_step_is_the_integral() -> None:
    """``x' = -x/τ + u`` settles at ``τ u``; ``x' = u`` moves by ``u dt``."""
    A, B = torch.tensor([[-2.0, 0.0], [0.0, 0.0]]).double(), torch.ones(2, 1).double()
    for dt in RATIOS:
        Gamma = discretize(A, B, torch.zeros(2, 2).double(), torch.tensor(dt, dtype=torch.float64))[1]
        wanted = torch.tensor([[-math.expm1(-2 * dt) / 2], [dt]], dtype=torch.float64)
        torch.testing.assert_close(Gamma, wanted, rtol=1e-13, atol=0.0)


def arguments() -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    A, B, root = (torch.randn(3, k, generator=generator, dtype=torch.float64) for k in (3, 2, 3))
    return A, B, root @ root.T, torch.tensor([0.01, 0.4, 3.0], dtype=torch.float64)


def test_gradients_are_those_of_finite_differences() -> None:
    inputs = tuple(item.clone().requires_grad_() for item in arguments())
    assert torch.autograd.gradcheck(discretize, inputs)


def test_a_batch_of_systems_equals_each_alone() -> None:
    A, B, S, dt = arguments()
    systems = torch.stack((A, 2 * A, -A))
    for given, axes in (((systems, B, S, dt), (0, None, None, None)), ((A, B, S, dt), (None, None, None, 0))):
        mapped = torch.func.vmap(discretize, in_dims=axes)(*given)
        alone = [
            discretize(*(item if axis is None else item[i] for item, axis in zip(given, axes, strict=True)))
            for i in range(3)
        ]
        for together, each in zip(mapped, zip(*alone, strict=True), strict=True):
            torch.testing.assert_close(together, torch.stack(each), rtol=1e-12, atol=1e-12)


def test_with_gradients_inside_vmap_the_number_of_doublings_is_fixed() -> None:
    A, B, S, dt = arguments()

    def loss(scale: Tensor) -> Tensor:
        return discretize(scale * A, B, S, dt)[2].sum()

    scales = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    mapped = torch.func.vmap(torch.func.grad(loss))(scales)
    alone = torch.stack([torch.func.grad(loss)(scale) for scale in scales])
    torch.testing.assert_close(mapped, alone, rtol=1e-10, atol=1e-10)


def test_the_written_out_form_equals_the_operator() -> None:
    A, B, S, dt = arguments()
    for given, wanted in zip(
        discretize_with(A, B, S, 100 * dt, MOST_DOUBLINGS), discretize(A, B, S, 100 * dt), strict=True
    ):
        torch.testing.assert_close(given, wanted, rtol=1e-12, atol=1e-12)
