"""The best estimator of each form for one disturbance: free numbers searched for the least error, or the least loss.

Responses are scalar functions of frequency. With ``M(z) = H (zI - F)⁻¹ F`` and the gain ``K`` of an assumed ratio of
``R`` to ``Q``, ``L = M K`` is the open loop from the innovation to the predicted measurement, and

    predicted measurement = LΦ / (1 + LΦ) · y,        estimate = (L + HK) Φ / (1 + LΦ) · y,

with ``Φ = 1`` for a plain filter. So a search costs some thousand complex numbers an evaluation. What it finds is
scored by the Lyapunov equation wherever the disturbance has a model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache, partial
from typing import NamedTuple

import numpy as np
from scipy.interpolate import RectBivariateSpline  # type: ignore[import-untyped]
from scipy.linalg import solve_toeplitz  # type: ignore[import-untyped]
from scipy.optimize import least_squares, minimize  # type: ignore[import-untyped]

from tasks.when.linear import (
    Complex,
    Estimator,
    after,
    error_variance,
    followed,
    kalman,
    response,
    riccati,
    shaped,
    spectral_error,
)
from tasks.when.problem import (
    RATE,
    SWEEP_SECONDS,
    WHITE,
    Array,
    Disturbance,
    Model,
    Oscillator,
    frequencies,
    motion,
    motion_covariance,
    motion_spectrum,
    with_states,
)

POLE_RADIUS = 0.9999
"""Bound on the poles of ``Φ``, near one, so that a narrow notch can be learned."""
TAPS = 400
"""Of the FIR filter: 4 s, several times the memory of the motion."""
RECORD = 100
"""Samples of a training record; the paper's spectral loss grows with the root of it, its squared error does not."""
POINTS = 400
"""Frequencies of a search, about; of each line as many again."""
DIFFERENCE = 1e-6
LARGEST = 14.0
"""Of the logarithm of a factor of R."""
Params = Array


class Found(NamedTuple):
    """Error of one estimator, what it states of it, and the numbers that were found."""

    variance: float
    stated: float
    numbers: tuple[float, ...] = ()


class Bench:
    """One disturbance, with what all searches about it share; ``q`` and ``r`` multiply the assumed noises."""

    def __init__(self, disturbance: Disturbance, q: float = 1.0, r: float = 1.0) -> None:
        self.disturbance = disturbance
        self.true, self.assumed = motion(), motion(q, r)
        self.omega, self.weight = frequencies(disturbance, POINTS)
        self.signal = motion_spectrum(self.omega)
        self.noise = disturbance.spectrum(self.omega) + WHITE**2
        self.total = self.signal + self.noise
        self.coherence = np.sqrt(self.signal / self.total)

    @cached_property
    def delay(self) -> Complex:
        """``z⁻¹`` at every frequency."""
        return np.exp(-1j * self.omega)

    @cached_property
    def open_loop(self) -> Complex:
        """``M(z)``."""
        F, H = self.assumed.F, self.assumed.H
        turn = np.eye(len(F)) / self.delay[:, None, None] - F
        rows = np.linalg.solve(np.swapaxes(turn, 1, 2), np.broadcast_to(H.T, (len(turn), len(F), 1)))[..., 0]
        return (rows @ F).astype(np.complex128)

    @cached_property
    def truth(self) -> Model | None:
        """Motion and disturbance as one model; a sweeping line has none."""
        return None if self.disturbance.kind == "sweep" else with_states(self.true, self.disturbance.oscillators())

    # ---- what a search evaluates ------------------------------------------------------------------------------------

    def gains(self, log_r: Array) -> Array:
        """Gains for factors ``exp(log_r)`` of the assumed ``R``."""
        factor = np.exp(np.clip(log_r, -LARGEST, LARGEST))
        return riccati(self.assumed.F, self.assumed.Q, self.assumed.H, self.assumed.R * factor)[1]

    def plain(self, log_r: Array) -> Complex:
        """Responses of filters without ``Φ``."""
        return self.closed(self.gains(log_r), np.ones((1, len(self.omega)), complex))[0]

    def closed(self, K: Array, phi: Complex) -> tuple[Complex, Complex]:
        """Responses from measurement to estimate, and to predicted measurement."""
        L = K @ self.open_loop.T
        loop = phi / (1 + L * phi)
        return (L + K[:, :1]) * loop, L * loop

    def section(self, b: Array, a: Array) -> Complex:
        """Responses of biquads, coefficients along the last axis."""
        d = self.delay
        return (b[..., 0:1] + b[..., 1:2] * d + b[..., 2:3] * d * d) / (1 + a[..., 0:1] * d + a[..., 1:2] * d * d)

    def residuals(self, G: Complex) -> Array:
        """Numbers whose sum of squares is the error variance."""
        signal, noise = np.sqrt(self.signal * self.weight), np.sqrt(self.noise * self.weight)
        return np.concatenate(((1 - G.real) * signal, G.imag * signal, G.real * noise, G.imag * noise), -1)

    def error(self, G: Complex) -> Array:
        """The error variance itself."""
        return spectral_error(G, self.signal, self.noise, self.weight)

    # ---- scoring ----------------------------------------------------------------------------------------------------

    def score(self, estimator: Estimator, numbers: Iterable[float] = ()) -> Found:
        """The error of an estimator: by its Lyapunov equation, or by spectra where there is no model."""
        if self.truth is not None:
            variance = error_variance(self.truth, estimator)
        elif np.all(np.abs(np.linalg.eigvals(estimator.A)) < 1):
            G = response(estimator, self.omega)
            variance = float(spectral_error(G, self.signal, self.noise, self.weight))
        else:
            variance = math.inf
        return Found(variance, estimator.stated, tuple(map(float, numbers)))

    def with_r(self, log_r: float) -> Model:
        """The assumed model with another ``R``."""
        return self.assumed._replace(R=self.assumed.R * math.exp(min(max(log_r, -LARGEST), LARGEST)))


# ---- the estimators -------------------------------------------------------------------------------------------------


def as_assumed(bench: Bench) -> Found:
    """The filter of white noise with ``Q`` and ``R`` as they were assumed."""
    return bench.score(kalman(bench.assumed))


def best_r(bench: Bench) -> Found:
    """The filter of white noise with the best constant ``R``."""
    found = least_sum_of_squares(lambda p: bench.residuals(bench.plain(p[:, 0])), [[x] for x in (0.0, 3.0, 6.0)])
    return bench.score(kalman(bench.with_r(found[0])), found)


def low_pass(bench: Bench, *, free_r: bool = True) -> Found:
    """A Butterworth low-pass of second order before the filter; cutoff and ``R`` are free."""

    def residuals(p: Params) -> Array:
        return bench.residuals(bench.section(*butterworth(p[:, 0])) * bench.plain(_log_r(p, 1, free_r)))

    best = best_r(bench).numbers[0]  # with a cutoff near Nyquist the filter alone, so never worse than that
    starts = [[math.log(hz), *_free(free_r, x)] for hz in (2.0, 10.0, 48.0) for x in (0.0, best)]
    found = least_sum_of_squares(residuals, starts)
    b, a = butterworth(found[None, 0])
    return bench.score(after((b[0], a[0]), kalman(bench.with_r(_log_r(found[None], 1, free_r)[0]))), found)


def notch(bench: Bench, *, free_r: bool = True) -> Found:
    """A notch before the filter; centre, width and ``R`` are free."""

    def residuals(p: Params) -> Array:
        return bench.residuals(bench.section(*notch_sections(p[:, 0], p[:, 1])) * bench.plain(_log_r(p, 2, free_r)))

    centre, best = bench.disturbance.hz, best_r(bench).numbers[0]
    widths = (1e-3, 0.05, 1.0) if bench.disturbance.kind == "tone" else (1e-3, 0.2 * centre, 2.0 * centre)
    starts = [[math.log(centre), math.log(w), *_free(free_r, x)] for w in widths for x in (0.0, best)]
    found = least_sum_of_squares(residuals, starts)
    b, a = notch_sections(found[None, 0], found[None, 1])
    notched = bench.score(after((b[0], a[0]), kalman(bench.with_r(_log_r(found[None], 2, free_r)[0]))), found)
    # a search over spectra does not see that a notch far below all motion is not stable in double precision
    return min(notched, best_r(bench) if free_r else as_assumed(bench), key=lambda one: one.variance)


def phi(bench: Bench, *, spectral: float | None = None, free_r: bool = True) -> Found:
    """``Φ`` of one biquad on the innovation; all its coefficients and ``R`` are free.

    Without ``spectral`` it is searched for the least error: the ``Φ`` that any amount of training on squared error can
    reach. With it, the paper's loss with that weight ``λ`` on the spectral term is minimised instead; infinity is the
    spectral term alone.
    """

    return _phi(bench, 1, _phi_starts(bench, free_r), spectral, free_r)


def phi_of_two(bench: Bench) -> Found:
    """``Φ`` of two biquads for the least error, started from the best of one."""
    one = phi(bench).numbers
    identities = ((0.0, 0.0, 0.0, 0.0, 0.0), (-0.5, 0.3, 0.0, -0.5, 0.3))
    return _phi(bench, 2, [[*one[:5], *second, one[5]] for second in identities], None, True)


def _phi(bench: Bench, sections: int, starts: Sequence[Sequence[float]], spectral: float | None, free_r: bool) -> Found:
    def responses(p: Params) -> tuple[Complex, Complex, Array]:
        b, a = stable_sections(p[:, : 5 * sections].reshape(len(p), sections, 5))
        K = bench.gains(_log_r(p, 5 * sections, free_r))
        cascade = np.prod([bench.section(b[:, k], a[:, k]) for k in range(sections)], 0)
        too_far = np.maximum(loop_radius(bench, K, b, a) - 0.99999, 0)
        return *bench.closed(K, cascade), too_far

    def residuals(p: Params, penalty: float) -> Array:
        estimate, _, too_far = responses(p)
        return np.concatenate((bench.residuals(estimate), penalty * too_far[:, None]), -1)

    def loss(p: Params) -> Array:
        estimate, predicted, too_far = responses(p)
        term = spectral_loss(bench, predicted)
        if math.isinf(spectral or 0.0):
            return np.log(term) + 100 * too_far
        return np.log(bench.error(estimate) + (spectral or 0.0) * term) + 100 * too_far

    for penalty in (1e2, 1e4):  # spectra know no causality: an unstable loop can look like a good one
        # all starts: that of the least first error led to a minimum 1.17 times as high for a weak tone
        found = least_sum_of_squares(partial(residuals, penalty=penalty), starts, tried=len(starts))
        if not responses(found[None])[2].any():
            break
    if spectral is not None:
        found = least(loss, [list(found), starts[0]])
    b, a = stable_sections(found[: 5 * sections].reshape(sections, 5))
    model = bench.with_r(_log_r(found[None], 5 * sections, free_r)[0])
    return bench.score(shaped(model, tuple(zip(b, a, strict=True))), found)


def notch_following(bench: Bench) -> Found:
    """A notch that is told the frequency of a sweeping line, before the filter; width and ``R`` are free.

    The line sweeps slowly beside the memory of the notch, so the error is the mean over the line at rest at several
    frequencies of its range.
    """
    one = bench.disturbance
    places = np.linspace(1 - one.width, 1 + one.width, 9) * one.hz
    benches = [Bench(Disturbance("tone", hz, 0.0, one.std)) for hz in places]

    def scores(p: Params) -> list[Found]:
        model, found = bench.with_r(p[1]), []
        for hz, at in zip(places, benches, strict=True):
            b, a = notch_sections(np.log([hz]), p[None, 0])
            found.append(at.score(after((b[0], a[0]), kalman(model))))
        return found

    def mean(p: Params) -> float:
        return float(np.mean([found.variance for found in scores(p)]))

    best = minimize(mean, [math.log(0.3 * one.hz), 0.0], method="Nelder-Mead", options={"maxiter": 60}).x
    return Found(mean(best), scores(best)[0].stated, tuple(map(float, best)))


def states_told(bench: Bench) -> Found:
    """Noise states with the true disturbance, on the assumed ``Q`` and ``R``: the oracle if those are right.

    Of a sweeping line they are told the frequency at every step.
    """
    if bench.disturbance.kind == "sweep":
        variance = followed(bench.true, bench.disturbance, round(SWEEP_SECONDS * RATE))
        return Found(variance, variance)
    return bench.score(kalman(with_states(bench.assumed, bench.disturbance.oscillators())))


def states_trained(bench: Bench) -> Found:
    """Two oscillators as noise states whose numbers, and ``R``, are searched for the least error, as those of ``Φ``."""
    one, half = bench.disturbance, bench.disturbance.hz * bench.disturbance.width
    slow = one.kind in ("drift", "pink")

    def model(p: Params) -> Model:
        parts = tuple(
            Oscillator(0.0 if slow else min(math.exp(p[3 * k + 2]), 0.49 * RATE), min(math.exp(p[3 * k]), RATE),
                       math.exp(p[3 * k + 1]))
            for k in range(2)
        )  # fmt: skip
        return with_states(bench.with_r(p[-1]), parts)

    def residuals(p: Params) -> Array:
        return np.stack([bench.residuals(_response_or_none(model(row), bench.omega)) for row in p])

    spread = (0.1, 10.0) if slow else (one.hz - 0.5 * half, one.hz + 0.5 * half)
    widths = spread if slow else (half, half)
    start = [
        number
        for hz, width in zip(spread, widths, strict=True)
        for number in (math.log(width), math.log(0.7 * one.std), math.log(hz))
    ]
    found = least_sum_of_squares(residuals, [[*start, 0.0], [*start, 2.0]])
    return bench.score(kalman(model(found)), found)


def _response_or_none(model: Model, omega: Array) -> Complex:
    """Response of a model's filter; NaN where a search has come to numbers for which there is none."""
    try:
        return response(kalman(model), omega)
    except np.linalg.LinAlgError:
        return np.full(len(omega), np.nan, complex)


def fir(bench: Bench, taps: int = TAPS) -> Found:
    """The FIR filter of least error, from the normal equations: what least squares on endless truth would give."""
    lags = np.arange(float(taps))
    signal = motion_covariance(lags)
    measured = signal + bench.disturbance.covariance(lags)
    measured[0] += WHITE**2
    weights = solve_toeplitz(measured, signal)
    return Found(float(signal[0] - weights @ signal), math.nan)


# ---- parts of estimators --------------------------------------------------------------------------------------------


def butterworth(log_hz: Array) -> tuple[Array, Array]:
    """Low-passes of second order with cutoffs in Hz, below Nyquist."""
    t = np.tan(math.pi * np.minimum(np.exp(log_hz), 0.49 * RATE) / RATE)
    scale = 1 / (1 + math.sqrt(2) * t + t * t)
    b = (t * t * scale)[:, None] * np.array([1.0, 2.0, 1.0])
    return b, np.stack((2 * (t * t - 1) * scale, (1 - math.sqrt(2) * t + t * t) * scale), -1)


def notch_sections(log_hz: Array, log_width: Array) -> tuple[Array, Array]:
    """Notches with zeros on the unit circle and gain one at frequency zero."""
    cosine = np.cos(2 * math.pi * np.minimum(np.exp(log_hz), 0.499 * RATE) / RATE)
    r = np.exp(-math.pi * np.minimum(np.exp(log_width), RATE) / RATE)
    a = np.stack((-2 * r * cosine, r * r), -1)
    scale = (1 + a.sum(-1)) / (2 - 2 * cosine)
    return scale[:, None] * np.stack((np.ones_like(cosine), -2 * cosine, np.ones_like(cosine)), -1), a


def stable_sections(raw: Array) -> tuple[Array, Array]:
    """Biquads with poles inside the bound for every value, in the parametrisation of :mod:`fwnkf.core.iir`."""
    a2 = np.tanh(raw[..., 1])
    a1 = (1 + a2) * np.tanh(raw[..., 0])
    b = np.concatenate((raw[..., 2:3] + 1, raw[..., 3:]), -1)
    return b, np.stack((POLE_RADIUS * a1, POLE_RADIUS**2 * a2), -1)


def loop_radius(bench: Bench, K: Array, b: Array, a: Array) -> Array:
    """Spectral radius of filter and ``Φ`` together; a loop of stable parts need not be stable."""
    F, H = bench.assumed.F, bench.assumed.H
    count, sections = a.shape[:2]
    size = 2 * sections
    A, B = np.zeros((count, size, size)), np.zeros((count, size, 1))
    C, D = np.zeros((count, 1, size)), np.ones(count)
    for k in range(sections):  # what enters section k is C σ + D r
        rows = slice(2 * k, 2 * k + 2)
        A[:, 2 * k] += C[:, 0]
        A[:, 2 * k, rows] -= a[:, k]
        A[:, 2 * k + 1, 2 * k] = 1
        B[:, 2 * k, 0] = D
        C = C * b[:, k, 0, None, None]
        C[:, 0, rows] += b[:, k, 1:] - b[:, k, :1] * a[:, k]
        D = D * b[:, k, 0]
    gain = (K @ F.T)[..., None]
    top = np.concatenate((F - D[:, None, None] * gain * H, gain @ C), -1)
    matrix = np.concatenate((top, np.concatenate((-B @ H, A), -1)), -2)
    return np.abs(np.linalg.eigvals(matrix)).max(-1)


def spectral_loss(bench: Bench, predicted: Complex) -> Array:
    """Expected spectral loss of the paper for long records: ``E |  |ŷ_ω| - |s_ω|  |``, mean over ``[0, π/2]``.

    Fourier coefficients of stationary signals are complex normal and independent. Their coherence is that of signal
    and measurement, whatever the filter, so the loss depends on the magnitude of its response alone.
    """
    inside = bench.omega <= 0.5 * math.pi
    signal, total, coherence = (each[inside] for each in (bench.signal, bench.total, bench.coherence))
    weight = bench.weight[inside] / bench.weight[inside].sum()
    ratio = np.abs(predicted[:, inside]) * np.sqrt(total / signal)
    expected = _rayleigh_table().ev(np.log(np.clip(ratio, 1e-4, 1e6)), np.broadcast_to(coherence, ratio.shape))
    return math.sqrt(RECORD) * np.sum(weight * np.sqrt(signal) * expected, -1)


@lru_cache(maxsize=1)
def _rayleigh_table() -> RectBivariateSpline:
    """``E |g |u| - |v||`` of unit complex normal ``u, v`` by log ``g`` and their coherence."""
    nodes, weights = np.polynomial.legendre.leggauss(48)
    share, share_weight = 0.5 * (nodes + 1), 0.5 * weights
    radius = np.sqrt(-np.log1p(-share))  # quantiles of Rayleigh's distribution
    angles = np.linspace(0, math.pi, 25)[:-1] + math.pi / 48
    logs, coherences = np.linspace(math.log(1e-4), math.log(1e6), 160), np.linspace(0, 1, 41)
    table = np.empty((len(logs), len(coherences)))
    for j, c in enumerate(coherences):
        rest = math.sqrt(max(1 - c * c, 0.0))
        v = np.abs(c * radius[:, None, None] + rest * radius[None, :, None] * np.exp(1j * angles))
        joint = share_weight[:, None, None] * share_weight[None, :, None] / len(angles)
        for i, g in enumerate(np.exp(logs)):
            table[i, j] = np.sum(joint * np.abs(g * radius[:, None, None] - v))
    return RectBivariateSpline(logs, coherences, table)


# ---- searching ------------------------------------------------------------------------------------------------------


def _free(free_r: bool, value: float) -> list[float]:
    return [value] if free_r else []


def _log_r(p: Params, column: int, free_r: bool) -> Array:
    return p[:, column] if free_r else np.zeros(len(p))


def _phi_starts(bench: Bench, free_r: bool) -> list[list[float]]:
    """The identity, and notches at the disturbance, each with the assumed ``R`` and a larger one."""
    return [
        [*first, *_free(free_r, x)]
        for first in phi_starts(bench.disturbance)
        for x in ((0.0, 4.0) if free_r else (0.0,))
    ]


def phi_starts(disturbance: Disturbance) -> list[list[float]]:
    """Numbers of :func:`stable_sections`: the identity, and a narrow and a wide notch at the disturbance."""
    found = [[0.0] * 5]
    centre = disturbance.hz
    for width in (0.05, 1.0) if disturbance.kind == "tone" else (0.2 * centre, 2.0 * centre):
        b, a = notch_sections(np.log([centre]), np.log([width]))
        a1, a2 = a[0, 0] / POLE_RADIUS, a[0, 1] / POLE_RADIUS**2
        alpha, beta = (np.arctanh(np.clip(x, -0.99999, 0.99999)) for x in (a1 / (1 + a2), a2))
        found.append([float(alpha), float(beta), b[0, 0] - 1, b[0, 1], b[0, 2]])
    return found


def least_sum_of_squares(
    residuals: Callable[[Params], Array], starts: Sequence[Sequence[float]], evaluations: int = 100, tried: int = 2
) -> Params:
    """The least sum of squares from the best of several starts.

    ``residuals`` takes many sets of numbers ``[P, n]`` at once, so that a Jacobian by differences is one batch.
    """
    known: dict[bytes, tuple[Array, Array]] = {}

    def both(p: Params) -> tuple[Array, Array]:
        if p.tobytes() not in known:
            step = DIFFERENCE * np.eye(len(p))
            found = _finite(residuals(np.concatenate((p[None], p + step, p - step))))
            ahead, behind = found[1 : len(p) + 1], found[len(p) + 1 :]
            known.clear()
            known[p.tobytes()] = found[0], (ahead - behind).T / (2 * DIFFERENCE)
        return known[p.tobytes()]

    first = np.sum(_finite(residuals(np.array(starts))) ** 2, -1)
    found = [
        least_squares(lambda p: both(p)[0], starts[k], jac=lambda p: both(p)[1], max_nfev=evaluations)
        for k in np.argsort(first)[:tried]
    ]
    return min(found, key=lambda one: float(one.cost)).x


def least(loss: Callable[[Params], Array], starts: Sequence[Sequence[float]], iterations: int = 80) -> Params:
    """The least loss from several starts, with gradients by differences in one batch."""

    def value_and_gradient(p: Params) -> tuple[float, Array]:
        step = DIFFERENCE * np.eye(len(p))
        values = _finite(loss(np.concatenate((p[None], p + step, p - step))))
        return float(values[0]), (values[1 : len(p) + 1] - values[len(p) + 1 :]) / (2 * DIFFERENCE)

    found = [
        minimize(value_and_gradient, np.array(start), jac=True, method="BFGS", options={"maxiter": iterations})
        for start in starts
    ]
    return min(found, key=lambda one: float(one.fun)).x


def _finite(values: Array) -> Array:
    return np.where(np.isfinite(values), values, 1e3)
