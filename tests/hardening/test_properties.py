"""A small version of the drawn problems; the long one is ``python -m tests.hardening.properties``."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from .properties import FILTERS, STEPS, TARGETS, Problem, converted, draw, many_digits, oracle, run_block

ONE_BY_ONE = ("kf", "arkf", "fwnkf", "fwnkf augmented")


@pytest.mark.parametrize("target", TARGETS)
def test_no_step_is_wrong_without_a_status(target: str) -> None:
    size, blocks = (8, 3) if target in ONE_BY_ONE else (300, 6)
    for block in range(blocks):
        _, verdict = run_block(target, 2024, block, size)
        assert not verdict.wrong.any(), f"block {block}, cases {np.flatnonzero(verdict.wrong)}"


def test_the_harness_finds_a_filter_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same problems without the status: some of them are wrong."""

    def mute(given: dict[str, torch.Tensor], diagonal: bool) -> object:
        run = FILTERS["ekf auto"](given, diagonal)
        return run._replace(status=torch.zeros_like(run.status))

    monkeypatch.setitem(FILTERS, "ekf cholesky", mute)
    found = sum(int(run_block("ekf cholesky", 2024, block, 200)[1].wrong.sum()) for block in range(4))
    assert found > 10


def test_the_oracle_is_the_conditional_of_the_joint_gaussian() -> None:
    """One well-conditioned problem by a dense solve over all states and measurements at once."""
    rng = np.random.default_rng(0)
    n, m = 2, 2
    F, H = rng.standard_normal((n, n)), rng.standard_normal((m, n))
    Q, cov = 0.3 * np.eye(n), np.array([[2.0, 0.5], [0.5, 1.0]])
    R = np.array([[0.5, 0.2], [0.2, 0.4]])
    y, measured = rng.standard_normal((1, STEPS, m)), rng.random((1, STEPS, m)) < 0.7
    mean = rng.standard_normal(n)
    problem = Problem(F[None], H[None], Q[None], R[None], mean[None], cov[None], y, measured)
    found = oracle(problem, None, 1e9)
    # x_t = F^t x_0 + sum of F^(t-k) w_k
    powers = [np.linalg.matrix_power(F, k) for k in range(STEPS)]
    maps = np.zeros((STEPS, n, n * STEPS))
    for t in range(STEPS):
        for k in range(t + 1):
            maps[t, :, k * n : (k + 1) * n] = powers[t - k]
    causes = np.kron(np.eye(STEPS), Q)
    causes[:n, :n] = cov
    start = np.concatenate((mean, np.zeros(n * (STEPS - 1))))
    for t in range(STEPS):
        seen = np.concatenate([(H @ maps[k])[measured[0, k]] for k in range(t + 1)])
        noise = [R[np.ix_(measured[0, k], measured[0, k])] for k in range(t + 1)]
        size = sum(len(block) for block in noise)
        whole, at = np.zeros((size, size)), 0
        for block in noise:
            whole[at : at + len(block), at : at + len(block)] = block
            at += len(block)
        values = np.concatenate([y[0, k][measured[0, k]] for k in range(t + 1)])
        gain = maps[t] @ causes @ seen.T @ np.linalg.inv(seen @ causes @ seen.T + whole)
        np.testing.assert_allclose(found.mean[0, t], maps[t] @ start + gain @ (values - seen @ start), rtol=1e-9)
        posterior = maps[t] @ causes @ maps[t].T - gain @ seen @ causes @ maps[t].T
        np.testing.assert_allclose(found.cov[0, t], posterior, rtol=1e-8, atol=1e-12)


def test_both_precisions_of_the_oracle_agree() -> None:
    problem = draw(np.random.default_rng(3), 3, 2, torch.float32, True, 4)
    gentle = problem._replace(cov=problem.cov * 0 + np.eye(3), R=problem.R * 0 + np.eye(2), Q=problem.Q * 0 + np.eye(3))
    double = oracle(gentle, None, 1e18)
    exact = oracle(converted(gentle, many_digits), None, 1e18)
    np.testing.assert_allclose(np.asarray(double.cov, float), exact.cov.astype(float), rtol=1e-6)
