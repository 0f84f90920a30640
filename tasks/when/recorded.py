"""One recorded channel: the searches of the linear map on measured spectra, scored by running on other recordings.

The motion is the signal of :func:`fwnkf.identify.fit_channel`, a slope that white noise drives, fitted without truth
beside lines. Time is counted in samples, as if every recording had ``RATE`` samples a second, so that the parts of
:mod:`tasks.when.search` serve as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from scipy.signal import csd, fftconvolve, welch  # type: ignore[import-untyped]

from fwnkf.identify.channels import ChannelModel, fit_channel
from tasks.dido.fir import apply_fir, choose_ridge, fit_fir
from tasks.when import search, summary
from tasks.when.cells import WEIGHT
from tasks.when.linear import Complex, Estimator, kalman
from tasks.when.problem import RATE, Array, Disturbance, Model
from tasks.when.search import Bench, Found

LINES = 3
TAPS = 200
LONGEST = 60_000
"""Samples of an impulse response."""
PIECE = 4096
PARTS, MOST_PIECES = 5, 8
RIDGES = (1e-4, 1e-10, 1e-8, 1e-6, 1e-2)


class Pair(NamedTuple):
    """A channel ``[T]`` and what it should have measured."""

    measured: Array
    true: Array


class Channel(NamedTuple):
    """Recordings of one channel, to learn from and to score on."""

    rate: float
    train: Sequence[Pair]
    test: Sequence[Pair]
    lowest_hz: float
    """Below it there is no disturbance."""


class Recorded(Bench):
    """What searches about a recorded channel share, in units of the standard deviation of its truth."""

    def __init__(self, channel: Channel) -> None:
        scale = math.sqrt(np.mean(np.concatenate([pair.true - pair.true.mean() for pair in channel.train]) ** 2))
        self.train, self.test = (
            [Pair(*((each - each.mean()) / scale for each in pair)) for pair in part]
            for part in (channel.train, channel.test)
        )
        self.scale = scale
        omega, measured, true, cross = spectra(self.train, PIECE if channel.rate < 2000 else 2 * PIECE)
        samples = sum(len(pair.measured) for pair in self.train)
        self.found = fit_channel(
            torch.from_numpy(omega), torch.from_numpy(measured), rate=RATE, samples=samples, lines=LINES,
            lowest_hz=channel.lowest_hz * RATE / channel.rate,
        )  # fmt: skip
        whole = model_of(self.found)
        first = slice(0, 2)
        self.true = self.assumed = Model(
            whole.F[first, first], whole.Q[first, first], whole.H[:, first], whole.R, whole.c[:, first]
        )
        keep = slice(1, None)  # a level has no spectrum at frequency zero
        self.omega, self.signal, self.total, self.cross = omega[keep], true[keep], measured[keep], cross[keep]
        self.weight = np.full(len(self.omega), 1 / len(self.omega))
        self.coherence = np.clip(np.abs(self.cross) / np.sqrt(self.signal * self.total), 0.0, 1.0)
        self.noise = self.total + self.signal - 2 * self.cross.real
        inside = self.omega > 2 * math.pi * channel.lowest_hz / channel.rate
        centre = self.omega[inside][np.argmax(self.noise[inside])] * RATE / (2 * math.pi)
        self.disturbance = Disturbance("band", float(centre), 0.3, 1.0)

    @cached_property
    def truth(self) -> Model | None:
        """There is none."""
        return None

    def residuals(self, G: Complex) -> Array:
        """Numbers whose sum of squares is the error variance, but for a constant."""
        off = (G - self.cross / self.total) * np.sqrt(self.total * self.weight)
        return np.concatenate((off.real, off.imag), -1)

    def error(self, G: Complex) -> Array:
        """The error variance on the recordings to learn from."""
        least = np.sum((self.signal - np.abs(self.cross) ** 2 / self.total) * self.weight)
        return np.sum(self.residuals(G) ** 2, -1) + max(float(least), 0.0)

    def score(self, estimator: Estimator, numbers: object = ()) -> Found:
        """The error variance on the recordings to score on, in their unit."""
        if not np.all(np.abs(np.linalg.eigvals(estimator.A)) < 1):
            return Found(math.inf, math.nan)
        response = impulse_response(estimator)
        return self.scored(lambda y: fftconvolve(y, response)[: len(y)], numbers)

    def scored(self, estimate: Callable[[Array], Array], numbers: object = ()) -> Found:
        """The same of any function of measurements."""
        errors = [(estimate(pair.measured) - pair.true)[PIECE // 4 :] for pair in self.test]
        variance = float(np.mean(np.concatenate(errors) ** 2)) * self.scale**2
        return Found(variance, math.nan, tuple(map(float, numbers)))  # type: ignore[call-overload]


def spectra(pairs: Sequence[Pair], segment: int) -> tuple[Array, Array, Array, Complex]:
    """Frequencies in radians per sample, densities of measurement and truth, and ``E[s y*]``, two-sided."""
    shares = np.array([len(pair.measured) for pair in pairs], float)
    shares /= shares.sum()
    segment = min([segment, *(len(pair.measured) for pair in pairs)])
    found = []
    for share, (y, s) in zip(shares, pairs, strict=True):
        hz, measured = welch(y, 1.0, nperseg=segment)
        found.append(
            [
                share * density / 2
                for density in (measured, welch(s, 1.0, nperseg=segment)[1], csd(y, s, 1.0, nperseg=segment)[1])
            ]
        )
    measured, true, cross = (sum(parts) for parts in zip(*found, strict=True))
    return 2 * math.pi * hz, measured, true, cross


def model_of(channel: ChannelModel) -> Model:
    """Signal and lines of a fitted channel as states."""
    F, H, Q, R = (matrix.numpy() for matrix in channel.matrices())
    return Model(F, Q, H, float(R[0, 0]), np.eye(1, len(F)))


def impulse_response(estimator: Estimator) -> Array:
    """Until it has died out."""
    A, row = estimator.A, estimator.C[0]
    state = estimator.B[:, 0]
    found = [float(estimator.D[0, 0])]
    while len(found) < LONGEST and (len(found) < 100 or np.abs(state).max() > 1e-9):
        found.append(float(row @ state))
        state = A @ state
    return np.array(found)


# ---- the estimators -------------------------------------------------------------------------------------------------


def raw(bench: Recorded) -> Found:
    """The measurement itself."""
    return bench.scored(lambda y: y)


def fitted(bench: Recorded) -> Found:
    """Lines as noise states, as many as lower the BIC of the spectrum of the measurements."""
    return bench.score(kalman(model_of(bench.found)))


def fir(bench: Recorded) -> Found:
    """The FIR filter of least squares against the truth; its ridge is chosen on parts left out."""
    cut = [
        [each[: len(each) // PIECE * PIECE].reshape(-1, PIECE) for each in pair]
        for pair in bench.train
        if len(pair.true) >= PIECE
    ]
    y, s = (torch.from_numpy(np.concatenate(part))[..., None] for part in zip(*cut, strict=True))
    parts = min(PARTS, len(y))
    size = parts * min(len(y) // parts, MOST_PIECES)
    left_out = (each[:size].reshape(parts, -1, 1) for each in (y, s))
    ridge = choose_ridge(*left_out, taps=TAPS, ridges=RIDGES).ridge if parts > 1 else RIDGES[0]
    weights = fit_fir(y, s, taps=TAPS, ridge=ridge)
    return bench.scored(lambda y: apply_fir(weights, torch.from_numpy(y)[None, :, None])[0, :, 0].numpy())


ESTIMATORS: dict[str, Callable[[Recorded], Found]] = {
    summary.RAW: raw,
    summary.BEST_R: search.best_r,
    summary.LOW_PASS: search.low_pass,
    summary.NOTCH: search.notch,
    summary.FITTED: fitted,
    summary.PHI: search.phi,
    summary.PHI_TWO: search.phi_of_two,
    summary.TRAINED: search.states_trained,
    summary.SPECTRAL: lambda bench: search.phi(bench, spectral=WEIGHT),
    summary.FIR: fir,
}
