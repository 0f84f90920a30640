"""The nonlinear system of the map: a pendulum that random torques drive, and filters of it, many at once.

The pendulum swings at 1 Hz, as fast as the motion of the linear system, and far enough that the angle is no longer
proportional to what is measured: the direction ``(sin θ, -cos θ)`` of its tip, 100 times a second, in each channel with
white noise and a disturbance. Amplitudes are over the RMS of ``sin θ``, so that cells are those of the linear map.

A search runs one filter with many sets of numbers over the same records. Filters here take a set for each of their
lanes, arrays ``[P]``, and run all sets on all records ``[B]`` side by side. Tests compare them with those of the
library.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.signal import lfilter  # type: ignore[import-untyped]
from scipy.special import ive  # type: ignore[import-untyped]

from tasks.when.problem import MOTION_HZ, STEP, WHITE, Array, Disturbance
from tasks.when.simulation import NOTHING, drawn

SPEED = 2 * math.pi * MOTION_HZ
"""Angular frequency of small swings."""
DAMPING = 0.2
HEAT = 0.5
"""Variance of the angular rate over ``SPEED²``; angles are distributed about as ``exp(cos θ / HEAT)``."""
TORQUE = 4 * DAMPING * SPEED**3 * HEAT * STEP
"""Variance of the rate's process noise in one step, which keeps that distribution."""
RMS = math.sqrt(HEAT * ive(1, 1 / HEAT) / ive(0, 1 / HEAT))
"""Of ``sin θ`` under that distribution: some 0.6."""
CHANNELS = 2
BURN_IN = 1000
FIRST = np.diag([HEAT, HEAT * SPEED**2])
"""Covariance of the state that filters begin with, hanging at rest."""


class Records(NamedTuple):
    """Angles ``[T, B]``, measurements ``[T, 2, B]``, and the frequency of a sweeping line ``[T, B]`` (rad/sample)."""

    theta: Array
    y: Array
    omega: Array

    @property
    def tip(self) -> Array:
        """What would be measured without noise."""
        return observe(self.theta)


def transition(x: Array) -> Array:
    """One Euler step of ``θ̈ = -ω₀² sin θ - 2ζω₀ θ̇``, angle and rate along the first axis."""
    theta, rate = x
    return np.stack((theta + STEP * rate, rate - STEP * (SPEED**2 * np.sin(theta) + 2 * DAMPING * SPEED * rate)))


def observe(theta: Array) -> Array:
    """Direction of the tip, channels before the last axis."""
    return np.stack((np.sin(theta), -np.cos(theta)), -2)


def simulate(disturbance: Disturbance, records: int, steps: int, seed: int) -> Records:
    """Records from the stationary distribution; both channels have a disturbance of their own."""
    generator = np.random.default_rng(seed)
    x = np.linalg.cholesky(FIRST) @ generator.standard_normal((2, records))
    theta = np.empty((steps, records))
    for t in range(-BURN_IN, steps):
        if t >= 0:
            theta[t] = x[0]
        x = transition(x)
        x[1] += math.sqrt(TORQUE) * generator.standard_normal(records)
    noise = NOTHING._replace(R=WHITE**2)
    groups = records if disturbance.kind == "sweep" else 1  # a line is at another frequency in each record
    drawn_noise = [drawn(noise, disturbance, CHANNELS * records // groups, steps, generator) for _ in range(groups)]
    noises = np.concatenate([measured.T.reshape(steps, CHANNELS, -1) for _, measured, _ in drawn_noise], -1)
    omega = np.stack([omega for *_, omega in drawn_noise], -1)
    return Records(theta, observe(theta) + RMS * noises, omega)


@dataclass(frozen=True)
class Lanes:
    """Numbers of ``P`` filters. Channels share them."""

    r: Array
    """Variance of the white noise ``[P]``."""
    q: Array
    """Factor of the process noise ``[P]``."""
    front: tuple[Array, Array] | None = None
    """Biquads ``b [P, 3], a [P, 2]`` that measurements pass before the filter."""
    phi: tuple[Array, Array] | None = None
    """Biquads that innovations pass before the gain; the covariance is that without them, as in the paper."""
    parts: Sequence[tuple[Array, Array, Array]] = ()
    """Oscillators as noise states in each channel: frequencies (Hz), full widths (Hz), standard deviations, ``[P]``."""
    omega: Array | None = None
    """Frequency of the one oscillator at each step ``[T, B]``, if it is told."""


class Track(NamedTuple):
    """Estimates of all lanes: angle, predicted angle and its variance ``[T, P, B]``, and log-likelihoods ``[P]``."""

    theta: Array
    predicted: Array
    variance: Array
    log_likelihood: Array


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def run(lanes: Lanes, y: Array, skip: int = 0) -> Track:
    """Extended Kalman filters over records ``[T, 2, B]``; the first steps may be left out of the likelihood.

    A filter that diverges ends in numbers that are not finite."""
    steps, _, records = y.shape
    count = len(lanes.r)
    measured = y[:, :, None] if lanes.front is None else _passed(lanes.front, y)
    A, C, added = _noise(lanes.parts, count)
    k = len(A)
    n = 2 + k
    F = np.zeros((n, n, count, records))
    F[2:, 2:] = A[..., None]
    Q = np.zeros((n, n, count, 1))
    Q[1, 1] = lanes.q[:, None] * TORQUE
    Q[2:, 2:] = added[..., None]
    F[0, 0], F[0, 1], F[1, 1] = 1.0, STEP, 1 - STEP * 2 * DAMPING * SPEED
    H = np.zeros((CHANNELS, n, count, records))
    H[:, 2:] = C[..., None]
    R = lanes.r[:, None]
    x = np.zeros((n, count, records))
    P = np.zeros((n, n, count, records))
    P[:2, :2] = FIRST[..., None, None]
    P[2:, 2:] = np.eye(k)[..., None, None]  # oscillators have unit variance, their outputs the standard deviation
    memory = np.zeros((2, CHANNELS, count, records))
    theta, predicted, variance = (np.empty((steps, count, records)) for _ in range(3))
    density = np.zeros(count)
    for t in range(steps):
        if t:  # the first belief is that before the first measurement
            F[1, 0] = -STEP * SPEED**2 * np.cos(x[0])
            if lanes.omega is not None:
                F[2:, 2:] = _turned(A, lanes.omega[t - 1])
            moved = transition(x[:2])
            x = np.concatenate((moved, np.einsum("ijpb,jpb->ipb", F[2:, 2:], x[2:])))
            P = np.einsum("ijpb,kjpb->ikpb", np.einsum("ijpb,jkpb->ikpb", F, P), F) + Q
        predicted[t] = x[0]
        H[0, 0], H[1, 0] = np.cos(x[0]), np.sin(x[0])
        PH = np.einsum("ijpb,cjpb->icpb", P, H)
        S = np.einsum("cipb,idpb->cdpb", H, PH)
        s00, s11, s01 = S[0, 0] + R, S[1, 1] + R, S[0, 1]
        determinant = s00 * s11 - s01 * s01
        K = np.stack((PH[:, 0] * s11 - PH[:, 1] * s01, PH[:, 1] * s00 - PH[:, 0] * s01), 1) / determinant
        expected = np.stack((np.sin(x[0]), -np.cos(x[0])))
        innovation = measured[t] - expected - np.einsum("cipb,ipb->cpb", H[:, 2:], x[2:])
        if t >= skip:
            v0, v1 = innovation
            distance = (s11 * v0 * v0 - 2 * s01 * v0 * v1 + s00 * v1 * v1) / determinant
            density -= 0.5 * np.sum(np.log(determinant) + distance, -1)
        if lanes.phi is not None:
            innovation, memory = _shaped(lanes.phi, innovation, memory)
        x = x + np.einsum("icpb,cpb->ipb", K, innovation)
        P = P - np.einsum("icpb,kcpb->ikpb", K, PH)
        P = 0.5 * (P + P.swapaxes(0, 1))
        theta[t], variance[t] = x[0], P[0, 0]
    return Track(theta, predicted, variance, density)


def _passed(front: tuple[Array, Array], y: Array) -> Array:
    """Measurements ``[T, 2, P, B]`` behind biquads, as if the first sample had always been there."""
    b, a = front
    found = [
        lfilter(b[p], [1.0, *a[p]], y - y[:1], axis=0) + y[:1] * b[p].sum() / (1 + a[p].sum()) for p in range(len(b))
    ]
    return np.stack(found, 2)


def _shaped(phi: tuple[Array, Array], value: Array, memory: Array) -> tuple[Array, Array]:
    """One sample through biquads in the transposed direct form II."""
    b, a = (coefficients.T[..., None] for coefficients in phi)
    out = b[0] * value + memory[0]
    return out, np.stack((b[1] * value - a[0] * out + memory[1], b[2] * value - a[1] * out))


def _noise(parts: Sequence[tuple[Array, Array, Array]], count: int) -> tuple[Array, Array, Array]:
    """Transition ``[k, k, P]``, output ``[2, k, P]`` and process noise of oscillators in both channels."""
    k = 2 * CHANNELS * len(parts)
    A, C, Q = np.zeros((k, k, count)), np.zeros((CHANNELS, k, count)), np.zeros((k, k, count))
    for j, (hz, width, std) in enumerate(parts):
        radius, omega = np.exp(-math.pi * width * STEP), 2 * math.pi * hz * STEP
        cosine, sine = radius * np.cos(omega), radius * np.sin(omega)
        for channel in range(CHANNELS):
            at = 2 * (CHANNELS * j + channel)
            A[at, at], A[at, at + 1], A[at + 1, at], A[at + 1, at + 1] = cosine, -sine, sine, cosine
            C[channel, at] = std
            Q[at, at] = Q[at + 1, at + 1] = 1 - radius**2
    return A, C, Q


def _turned(A: Array, omega: Array) -> Array:
    """Oscillators with their radius and other frequencies ``[B]``: ``[k, k, P, B]``."""
    turn = np.array([[np.cos(omega), -np.sin(omega)], [np.sin(omega), np.cos(omega)]])
    blocks = np.zeros((*A.shape[:2], len(omega)))
    for at in range(0, len(A), 2):
        blocks[at : at + 2, at : at + 2] = turn
    return np.hypot(A[0, 0], A[1, 0])[:, None] * blocks[:, :, None]
