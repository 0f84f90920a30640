"""Proposition 1 of the paper in numbers: the Fisher information of measurements before and after a linear filter.

For Gaussian noise of covariance ``R`` and a measurement model with Jacobian ``J``, a filter ``Φ`` gives
``J'Φ'(ΦRΦ')⁻¹ΦJ`` instead of ``J'R⁻¹J``. A causal filter with ``Φ₀ ≠ 0`` is a triangular matrix that can be inverted,
which leaves the information as it is; one that drops samples projects ``R^½J``, which cannot make it larger.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

STEPS, STATES = 24, 3
"""Measurements of a record, and numbers of the state they are about."""


class Gain(NamedTuple):
    """Largest ratios of information after a filter to that before, over random draws."""

    draws: int
    inverted: float
    """In any direction of the state, with filters that can be inverted."""
    lost: float
    """In the direction of the largest loss, with filters that also drop one sample in four."""


def information(J: NDArray[np.float64], R: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fisher information of ``y = J x + v`` about ``x``, with noise of covariance ``R``."""
    return np.asarray(J.T @ np.linalg.solve(R, J))


def ratios(J: NDArray[np.float64], R: NDArray[np.float64], phi: NDArray[np.float64]) -> NDArray[np.float64]:
    """Information after the filter relative to that before, by direction, ascending."""
    before, after = information(J, R), information(phi @ J, phi @ R @ phi.T)
    root = np.linalg.cholesky(before)
    half = np.linalg.solve(root, np.linalg.solve(root, after).T)
    return np.asarray(np.linalg.eigvalsh((half + half.T) / 2), np.float64)


def random_filter(generator: np.random.Generator) -> NDArray[np.float64]:
    """The matrix of a stable second-order filter that starts at rest."""
    radius, angle, radius_of_zero, angle_of_zero = generator.uniform((0.1, 0.0, 0.1, 0.0), (0.95, np.pi, 0.95, np.pi))
    poles, zeros = (np.array([1.0, -2 * r * np.cos(a), r * r]) for r, a in
                    ((radius, angle), (radius_of_zero, angle_of_zero)))  # fmt: skip
    response = np.zeros(STEPS)
    for step in range(STEPS):
        response[step] = zeros[step] if step < 3 else 0.0
        response[step] -= sum(poles[k] * response[step - k] for k in (1, 2) if step >= k)
    lags = np.subtract.outer(np.arange(STEPS), np.arange(STEPS))
    return np.where(lags >= 0, response[np.abs(lags)], 0.0)


@functools.cache
def largest_gain(draws: int = 200, seed: int = 0) -> Gain:
    """Random models in random coloured noise behind random filters.

    >>> largest_gain(5).inverted < 1 + 1e-6
    True
    """
    generator = np.random.default_rng(seed)
    inverted, lost = [], []
    for _ in range(draws):
        J = generator.standard_normal((STEPS, STATES))
        colour = random_filter(generator)
        R = colour @ colour.T + generator.uniform(0.01, 1.0) * np.eye(STEPS)
        phi = random_filter(generator)
        inverted.append(ratios(J, R, phi)[-1])
        lost.append(ratios(J, R, phi[np.arange(STEPS) % 4 != 3])[0])
    return Gain(draws, float(max(inverted)), float(max(lost)))
