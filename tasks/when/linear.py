"""Linear estimators of constant coefficients, and their error in closed form.

Truth, disturbance and estimator together are one linear system driven by white noise, so the error variance follows
from one Lyapunov equation, solved by doubling. The same error is ``mean(|1 - G|² S_s + |G|² S_n)`` over frequencies,
with the response ``G`` from the measurement to the estimate; that form also holds for a disturbance that is known by
its spectrum alone, and is what searches evaluate many times.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.when.problem import Array, Disturbance, Model, with_states

Complex = NDArray[np.complex128]
DOUBLINGS = 40
UNSTABLE = 1e12
"""Variance beyond which a doubling has met an unstable system."""


class Estimator(NamedTuple):
    """``ξ⁺ = A ξ + B y``, ``ŝ = C ξ + D y``, and the error variance that the filter itself states."""

    A: Array
    B: Array
    C: Array
    D: Array
    stated: float = math.nan


def lyapunov(A: Array, Q: Array) -> Array:
    """``X = A X Aᵀ + Q`` by doubling; infinite where ``A`` is not stable.

    Each round doubles the number of steps that are summed, so that a memory of hours takes as long as one of seconds.
    """
    X, power = Q, A
    for _ in range(DOUBLINGS):
        with np.errstate(over="ignore", invalid="ignore"):
            added = power @ X @ power.T
            X, power = X + added, power @ power
        if not np.all(np.isfinite(X)) or np.trace(X) > UNSTABLE * max(np.trace(Q), 1e-12):
            return np.full_like(Q, np.inf)
        if np.abs(added).max() <= 1e-16 * np.abs(X).max():
            return X
    return np.full_like(Q, np.inf)


def riccati(F: Array, Q: Array, H: Array, R: Array) -> tuple[Array, Array]:
    """Prior covariances ``P`` and gains ``K`` of the steady state, for any number of measurement variances at once."""
    size = len(F)
    R = np.atleast_1d(R)
    G = (H.T @ H)[None] / R[:, None, None]
    A, P, eye = np.broadcast_to(F.T, (len(R), size, size)), np.broadcast_to(Q, (len(R), size, size)), np.eye(size)
    for _ in range(DOUBLINGS):
        left = np.linalg.solve(eye + G @ P, np.concatenate((A, G), -1))
        WA, WG = left[..., :size], left[..., size:]
        step = np.swapaxes(A, -1, -2) @ P @ WA
        G, P, A = G + A @ WG @ np.swapaxes(A, -1, -2), P + step, A @ WA
        P = 0.5 * (P + np.swapaxes(P, -1, -2))
        if np.abs(step).max() <= 1e-15 * np.abs(P).max():
            break
    K = (P @ H.T)[..., 0] / (np.einsum("oi,pij,oj->p", H, P, H) + R)[:, None]
    return P, K


def kalman(model: Model) -> Estimator:
    """The Kalman filter of a model in its steady state; its estimate is the posterior mean of ``s``."""
    P, gains = riccati(model.F, model.Q, model.H, np.array([model.R]))
    K = gains[0][:, None]
    keep = np.eye(len(model.F)) - K @ model.H
    posterior = keep @ P[0]
    stated = float((model.c @ posterior @ model.c.T)[0, 0])
    return Estimator(model.F @ keep, model.F @ K, model.c @ keep, model.c @ K, stated)


def after(first: tuple[Array, Array], second: Estimator) -> Estimator:
    """An estimator behind a biquad ``(b, a)`` with three and two coefficients, ``a₀ = 1``."""
    A, B, C, D = biquad_states(*first)
    return Estimator(
        np.block([[A, np.zeros((len(A), len(second.A)))], [second.B @ C, second.A]]),
        np.vstack([B, second.B * D]),
        np.hstack([second.D @ C, second.C]),
        second.D * D,
        second.stated,
    )


def shaped(model: Model, sections: tuple[tuple[Array, Array], ...]) -> Estimator:
    """The Kalman filter whose innovation passes ``Φ``, a cascade of biquads, before the gain (Algorithm 2).

    As in :mod:`fwnkf.core.shaped`: ``x̂ = x̂⁻ + K (Φ ∗ Δy)``, with the gain and the stated covariance of white noise.
    """
    A, B, C, D = biquad_states(*sections[0])
    for b, a in sections[1:]:
        A2, B2, C2, D2 = biquad_states(b, a)
        A = np.block([[A, np.zeros((len(A), 2))], [B2 @ C, A2]])
        B, C, D = np.vstack([B, B2 * D]), np.hstack([D2 * C, C2]), D * D2
    P, gains = riccati(model.F, model.Q, model.H, np.array([model.R]))
    K = gains[0][:, None]
    F, H, c = model.F, model.H, model.c
    keep = np.eye(len(F)) - D * K @ H
    stated = float((c @ (np.eye(len(F)) - K @ H) @ P[0] @ c.T)[0, 0])
    return Estimator(
        np.block([[F @ keep, F @ K @ C], [-B @ H, A]]),
        np.vstack([D * F @ K, B]),
        np.hstack([c @ keep, c @ K @ C]),
        D * c @ K,
        stated,
    )


def biquad_states(b: Array, a: Array) -> tuple[Array, Array, Array, float]:
    """A biquad as a system of two states."""
    A = np.array([[-a[0], -a[1]], [1.0, 0.0]])
    C = np.array([[b[1] - b[0] * a[0], b[2] - b[0] * a[1]]])
    return A, np.array([[1.0], [0.0]]), C, float(b[0])


def response(estimator: Estimator, omega: Array) -> Complex:
    """``G(e^{jω})`` from the measurement to the estimate."""
    turn = np.exp(1j * omega)[:, None, None] * np.eye(len(estimator.A)) - estimator.A
    inner: Complex = np.linalg.solve(
        turn, np.broadcast_to(estimator.B.astype(complex), (len(omega), *estimator.B.shape))
    )
    found: Complex = (estimator.C @ inner + estimator.D)[:, 0, 0]
    return found


def error_variance(truth: Model, estimator: Estimator) -> float:
    """Variance of ``s - ŝ`` in the steady state, from the Lyapunov equation of truth and estimator together."""
    if not np.all(np.abs(np.linalg.eigvals(estimator.A)) < 1):
        return math.inf
    n = len(truth.F)
    zero = np.zeros((n, len(estimator.A)))
    A = np.block([[truth.F, zero], [estimator.B @ truth.H, estimator.A]])
    Q = np.block([[truth.Q, zero], [zero.T, truth.R * estimator.B @ estimator.B.T]])
    X = lyapunov(A, Q)
    if not np.all(np.isfinite(X)):
        return math.inf
    g = np.hstack([truth.c - estimator.D @ truth.H, -estimator.C])
    return float((g @ X @ g.T + truth.R * estimator.D**2)[0, 0])


def spectral_error(G: Complex, signal: Array, noise: Array, weight: Array) -> Array:
    """The same variance from spectra; ``G`` may have leading axes."""
    return np.sum((np.abs(1 - G) ** 2 * signal + np.abs(G) ** 2 * noise) * weight, -1)


def followed(base: Model, disturbance: Disturbance, steps: int) -> float:
    """Error variance of the Kalman filter that is told the frequency of a sweeping line at every step.

    The Riccati recursion over two sweeps, of which the second is averaged. No simulation: the covariance of a filter
    that is told its model is its error covariance.
    """
    low, high = disturbance.limits
    phase = np.arange(2 * steps) % steps / steps
    omega = low + (high - low) * (1 - np.abs(2 * phase - 1))
    line = with_states(base, (disturbance.line,))
    r = disturbance.line.radius
    P, total = np.diag([1.0, 40.0, 1.0, 1.0]), 0.0
    F = line.F.copy()
    for t in range(2 * steps):
        cosine, sine = r * math.cos(omega[t]), r * math.sin(omega[t])
        F[2:, 2:] = [[cosine, -sine], [sine, cosine]]
        P = F @ P @ F.T + line.Q
        column = P @ line.H.T
        P = P - column @ column.T / (float((line.H @ column)[0, 0]) + line.R)
        P = 0.5 * (P + P.T)
        total += P[0, 0] if t >= steps else 0.0
    return total / steps
