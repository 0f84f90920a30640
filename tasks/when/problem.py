"""A linear motion, and disturbances of its measurement: their spectra, autocovariances and state models.

The motion is a damped random motion of unit RMS with a bandwidth of 1 Hz, ``s̈ + 2ζω₀ṡ + ω₀²s = white``, measured 100
times a second as ``y = s + disturbance + white noise``. Densities are per sample: their mean over all frequencies is
the variance. A disturbance is a sum of oscillators as in :mod:`fwnkf.core.oscillators`; a sweeping line is one whose
frequency goes up and down between two limits, and has a spectrum but no model of constant coefficients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, expm  # type: ignore[import-untyped]

Array = NDArray[np.float64]
Kind = Literal["none", "tone", "band", "drift", "pink", "sweep"]
RATE = 100.0
STEP = 1 / RATE
MOTION_HZ = 1.0
DAMPING = math.sqrt(0.5)
"""At which the half-power frequency of the motion is ``MOTION_HZ``."""
WHITE = 0.1
"""Standard deviation of the white noise, in units of the RMS of the motion."""
TONE_WIDTH = 0.02
"""Full width at half power of a tone and of a sweeping line in Hz: it keeps its phase for some 15 s."""
PINK_TOP = 40.0
PINK_PARTS = 5
SWEEP_SECONDS = 10.0
"""From the lowest frequency to the highest and back."""


class Oscillator(NamedTuple):
    """One part of a disturbance; frequency zero is a process of first order."""

    hz: float
    width: float
    """Full width at half power in Hz."""
    std: float

    @property
    def radius(self) -> float:
        return math.exp(-math.pi * self.width * STEP)

    @property
    def omega(self) -> float:
        return 2 * math.pi * self.hz * STEP


class Model(NamedTuple):
    """States of constant coefficients: ``x⁺ = F x + w``, ``y = H x + v``, and ``s = c x``."""

    F: Array
    Q: Array
    H: Array
    R: float
    c: Array


@dataclass(frozen=True)
class Disturbance:
    """A disturbance of the measurement; ``hz`` is the centre, of a drift and of pink noise the (lowest) corner.

    ``width`` is the full width at half power over the centre, of a sweeping line half the range over the centre.
    """

    kind: Kind
    hz: float
    width: float
    std: float

    def oscillators(self) -> tuple[Oscillator, ...]:
        """The parts; a sweeping line has none, nor has white noise alone."""
        if self.kind == "tone":
            return (self.line,)
        if self.kind == "band":
            return (Oscillator(self.hz, self.width * self.hz, self.std),)
        if self.kind == "drift":
            return (Oscillator(0.0, 2 * self.hz, self.std),)
        if self.kind == "pink":
            corners = np.geomspace(self.hz, PINK_TOP, PINK_PARTS)
            return tuple(Oscillator(0.0, 2 * corner, self.std / math.sqrt(PINK_PARTS)) for corner in corners)
        return ()

    @property
    def line(self) -> Oscillator:
        """The line of a tone or a sweep, at the centre."""
        return Oscillator(self.hz, TONE_WIDTH, self.std)

    @property
    def limits(self) -> tuple[float, float]:
        """Lowest and highest angular frequency of a sweeping line, in radians per sample."""
        return tuple(2 * math.pi * STEP * self.hz * (1 + sign * self.width) for sign in (-1, 1))  # type: ignore[return-value]

    def spectrum(self, omega: Array) -> Array:
        """Power density at angular frequencies in radians per sample."""
        if self.kind == "sweep":
            return self.std**2 * _swept(omega, self.line.radius, *self.limits)
        return sum(
            (part.std**2 * _line(omega, part.radius, part.omega) for part in self.oscillators()), np.zeros_like(omega)
        )

    def covariance(self, lags: Array) -> Array:
        """Autocovariance at lags in samples; of a sweeping line its mean over a sweep."""
        if self.kind == "sweep":
            low, high = self.limits
            middle, half = 0.5 * (low + high), 0.5 * (high - low)
            decay = self.line.radius**lags
            return self.std**2 * decay * np.cos(middle * lags) * np.sinc(half * lags / math.pi)
        shapes = (part.std**2 * part.radius**lags * np.cos(part.omega * lags) for part in self.oscillators())
        return sum(shapes, np.zeros(len(lags)))


def motion(q: float = 1.0, r: float = 1.0) -> Model:
    """The motion measured in white noise, with its process and measurement noise multiplied by ``q`` and ``r``."""
    turn = 2 * math.pi * MOTION_HZ
    F = expm(STEP * np.array([[0.0, 1.0], [-(turn**2), -2 * DAMPING * turn]]))
    stationary = np.diag([1.0, turn**2])
    first = np.array([[1.0, 0.0]])
    return Model(F, q * (stationary - F @ stationary @ F.T), first, r * WHITE**2, first)


def with_states(base: Model, parts: tuple[Oscillator, ...]) -> Model:
    """The same with oscillators added to its measurement."""
    blocks, noises, outputs = [base.F], [base.Q], [base.H]
    for part in parts:
        r, w = part.radius, part.omega
        turn = np.array([[math.cos(w), -math.sin(w)], [math.sin(w), math.cos(w)]]) if part.hz else np.eye(1)
        blocks.append(r * turn)
        noises.append((1 - r * r) * np.eye(len(turn)))
        outputs.append(part.std * np.eye(1, len(turn)))
    size = sum(len(block) for block in blocks)
    c = np.zeros((1, size))
    c[:, : base.c.shape[1]] = base.c
    return Model(block_diag(*blocks), block_diag(*noises), np.hstack(outputs), base.R, c)


def motion_spectrum(omega: Array) -> Array:
    """Power density of the motion."""
    model = motion()
    turn = np.exp(1j * omega)[:, None, None] * np.eye(2) - model.F
    through = np.linalg.solve(np.swapaxes(turn, 1, 2), np.broadcast_to(model.c.T, (len(omega), 2, 1)))[..., 0]
    return np.einsum("fi,ij,fj->f", through, model.Q, through.conj()).real


def motion_covariance(lags: Array) -> Array:
    """Autocovariance of the motion at whole lags ``0, 1, …``."""
    model = motion()
    state = np.array([1.0, 0.0])  # covariance of the state with s, which the transition moves
    found = []
    for _ in lags:
        found.append(state[0])
        state = model.F @ state
    return np.array(found)


def frequencies(disturbance: Disturbance, count: int = 1200) -> tuple[Array, Array]:
    """Angular frequencies from 0 to π that resolve motion and disturbance, and weights of a mean over them."""
    low = np.geomspace(1e-4, 0.5 * RATE, count // 2)
    points = [low, np.linspace(0.0, 0.5 * RATE, count // 4)]
    lines = [part for part in disturbance.oscillators() if part.hz]
    for part in lines:  # a line of Lorentz: equal shares of its power between points
        points.append(part.hz + 0.5 * part.width * np.tan(np.linspace(-1.565, 1.565, count)))
    if disturbance.kind == "sweep":
        edges = np.array(disturbance.limits) * RATE / (2 * math.pi)
        points += [np.linspace(edges[0], edges[1], count // 4)]
        points += [edge + TONE_WIDTH * np.sinh(np.linspace(-8, 8, count // 8)) for edge in edges]
    hz = np.unique(np.clip(np.concatenate(points), 0.0, 0.5 * RATE))
    omega = 2 * math.pi * hz * STEP
    gaps = np.diff(omega)
    weight = np.zeros_like(omega)
    weight[:-1] += 0.5 * gaps
    weight[1:] += 0.5 * gaps
    return omega, weight / math.pi


def _line(omega: Array, r: float, w0: float) -> Array:
    def half(shift: float) -> Array:
        return (1 - r * r) / (1 + r * r - 2 * r * np.cos(omega - shift))

    return 0.5 * (half(w0) + half(-w0))


def _swept(omega: Array, r: float, low: float, high: float) -> Array:
    """The mean of lines over frequencies from ``low`` to ``high``: the integral of a Poisson kernel."""

    def integral(angle: Array) -> Array:
        whole = np.floor((angle + math.pi) / (2 * math.pi))  # tan has poles at odd multiples of π
        return 2 * np.arctan((1 + r) / (1 - r) * np.tan(0.5 * angle)) + 2 * math.pi * whole

    positive = integral(omega - low) - integral(omega - high)
    negative = integral(omega + high) - integral(omega + low)
    return 0.5 * (positive + negative) / (high - low)
