"""Reference for linear filters: the joint Gaussian of all states and measurements, conditioned by one dense solve.

There is no recursion: every state is a linear map of independent variables. It is written in numpy and shares no code
with the package.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.stats import multivariate_normal


class Posterior(NamedTuple):
    mean: np.ndarray
    cov: np.ndarray
    prior_mean: np.ndarray
    prior_cov: np.ndarray
    log_likelihood: float
    """Log-likelihood of all measurements."""


class Causes(NamedTuple):
    """Independent variables ``z ~ N(mean, cov)`` and the states ``x_t = maps[t] z + offsets[t]``."""

    mean: np.ndarray
    cov: np.ndarray
    maps: list[np.ndarray]
    offsets: list[np.ndarray]


def block_diagonal(blocks):
    size = sum(len(block) for block in blocks)
    out = np.zeros((size, size))
    at = 0
    for block in blocks:
        out[at : at + len(block), at : at + len(block)] = block
        at += len(block)
    return out


def autoregressive_causes(history_mean, history_cov, coefficients, pushes, Qs):
    """``x_t = Σ_i coefficients[t][i] x_{t-1-i} + pushes[t] + w_t``; ``x_0, x_{-1}, …`` are independent."""
    order, n = len(history_mean), len(history_mean[0])
    steps = len(Qs)
    size = n * (order + steps)
    mean = np.concatenate([*history_mean, np.zeros(n * steps)])
    cov = block_diagonal([*history_cov, *Qs])
    past = [(np.eye(size)[n * i : n * (i + 1)], np.zeros(n)) for i in range(order)]  # newest first
    maps, offsets = [], []
    for t in range(steps):
        A = np.eye(size)[n * (order + t) : n * (order + t + 1)]
        a = np.array(pushes[t])
        for i in range(order):
            A = A + coefficients[t][i] @ past[i][0]
            a = a + coefficients[t][i] @ past[i][1]
        past = [(A, a), *past[:-1]]
        maps.append(A)
        offsets.append(a)
    return Causes(mean, cov, maps, offsets)


class Smoothed(NamedTuple):
    mean: np.ndarray
    cov: np.ndarray
    cross_cov: np.ndarray
    """Of each step with the next."""


def joint_smoothed(causes: Causes, H, R, y, mask, lag=None) -> Smoothed:
    """Belief in every ``x_t`` given the measured channels of all ``y``, or of those up to ``lag`` steps later."""
    steps, m = y.shape
    stacked = np.concatenate([H @ A for A in causes.maps])
    offset = np.concatenate([H @ (A @ causes.mean + a) for A, a in zip(causes.maps, causes.offsets, strict=True)])
    y_cov = stacked @ causes.cov @ stacked.T + np.kron(np.eye(steps), R)

    def belief(count):
        """The causes given the first ``count`` measurements."""
        rows = np.flatnonzero(mask.reshape(-1)[: count * m])
        cross = causes.cov @ stacked[rows].T
        K = np.linalg.solve(y_cov[np.ix_(rows, rows)], cross.T).T
        return causes.mean + K @ (y.reshape(-1)[rows] - offset[rows]), causes.cov - K @ cross.T

    beliefs = [belief(steps if lag is None else min(t + lag + 1, steps)) for t in range(steps)]
    pairs = list(zip(causes.maps, causes.offsets, beliefs, strict=True))
    return Smoothed(
        np.stack([A @ mean + a for A, a, (mean, _) in pairs]),
        np.stack([A @ cov @ A.T for A, _, (_, cov) in pairs]),
        np.stack([A @ cov @ B.T for (A, _, (_, cov)), (B, _, _) in pairwise(pairs)]),
    )


def joint_posterior(causes: Causes, H, R, y, mask) -> Posterior:
    """Belief in every ``x_t`` given the measured channels of ``y_1 … y_t`` (and before ``y_t``)."""
    steps, m = y.shape
    stacked = np.concatenate([H @ A for A in causes.maps])
    y_mean = np.concatenate([H @ (A @ causes.mean + a) for A, a in zip(causes.maps, causes.offsets, strict=True)])
    y_cov = stacked @ causes.cov @ stacked.T + np.kron(np.eye(steps), R)

    def belief(t, count):
        """Belief in x_t given the first ``count`` measurements."""
        rows = np.flatnonzero(mask.reshape(-1)[: count * m])
        A = causes.maps[t]
        cross = A @ causes.cov @ stacked[rows].T
        K = np.linalg.solve(y_cov[np.ix_(rows, rows)], cross.T).T if len(rows) else np.zeros((len(A), 0))
        mean = A @ causes.mean + causes.offsets[t] + K @ (y.reshape(-1)[rows] - y_mean[rows])
        return mean, A @ causes.cov @ A.T - K @ cross.T

    posteriors = [belief(t, t + 1) for t in range(steps)]
    priors = [belief(t, t) for t in range(steps)]
    rows = np.flatnonzero(mask.reshape(-1))
    likelihood = multivariate_normal(y_mean[rows], y_cov[np.ix_(rows, rows)]).logpdf(y.reshape(-1)[rows])
    parts = [np.stack(part) for part in (*zip(*posteriors, strict=True), *zip(*priors, strict=True))]
    return Posterior(*parts, float(likelihood))
