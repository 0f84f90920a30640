"""Draws of a motion and of the disturbances of its measurement."""

from __future__ import annotations

import math

import numpy as np

from tasks.when.linear import lyapunov
from tasks.when.problem import RATE, SWEEP_SECONDS, Array, Disturbance, Model, with_states

NOTHING = Model(np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((1, 0)), 0.0, np.zeros((1, 0)))
"""A motion without states, so that a draw is of the disturbance alone."""


def drawn(
    base: Model, disturbance: Disturbance, records: int, steps: int, generator: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Motion and measurements ``[records, steps]`` from the stationary distribution, and the frequency at each step.

    The frequency ``[steps]``, in radians per sample, is that of a sweeping line, which all records share.
    """
    swept = disturbance.kind == "sweep"
    model = with_states(base, (disturbance.line,) if swept else disturbance.oscillators())
    size = len(model.F)
    tiny = 1e-14 * np.eye(size)
    x = generator.standard_normal((records, size)) @ np.linalg.cholesky(lyapunov(model.F, model.Q) + tiny).T
    root = np.linalg.cholesky(model.Q + tiny).T
    F, period = model.F.copy(), round(SWEEP_SECONDS * RATE)
    phase = (np.arange(1, steps + 1) + generator.integers(period)) % period / period
    low, high = disturbance.limits
    omega = low + (high - low) * (1 - np.abs(2 * phase - 1))
    signal, measured = [], []
    for t in range(steps):
        signal.append(x @ model.c[0])
        measured.append(x @ model.H[0] + math.sqrt(model.R) * generator.standard_normal(records))
        if swept:
            cosine, sine = math.cos(omega[t]), math.sin(omega[t])
            F[-2:, -2:] = disturbance.line.radius * np.array([[cosine, -sine], [sine, cosine]])
        x = x @ F.T + generator.standard_normal((records, size)) @ root
    return np.array(signal).T, np.array(measured).T, omega
