"""Noise states from the spectrum of innovations: a start for the likelihood fit, without any true state.

The innovations of a first filter are the measurements through a known transfer function, so their spectrum gives that
of the measurements, without the leakage that a moving signal causes. A linear model states the same spectrum in closed
form; Whittle's likelihood compares the two in milliseconds, so that many starts can be tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..core import oscillators
from ..core.riccati import frequency_response, steady_state
from ..filters.base import Filter
from ..filters.fwnkf import FrequencyWeightedNeuralKalmanFilter
from ..filters.parts.lines import LineStates
from ..shapes import Float
from .likelihood import DIFFERENCE, Likelihood, Local, StepMatrices, linearized, maximise
from .parameters import Parameters
from .selection import learned_parameters

SEGMENT = 4096
DRIFT_RADII = (0.9, 0.98, 0.996)
RADII = (0.6, 0.9, 0.98, 0.998)
AMPLITUDES = (0.5, 2.0, 8.0)
GRID = 10
PEAKS = 3
TRIED = 4
"""Starts beside the best drift that are optimised, of all that are evaluated."""
NEAR = 20.0
"""Difference of Whittle's log-likelihood within which the exact one decides."""
ITERATIONS = 40
KEPT = 16
"""Responses of motions that are kept: as many as a gradient in the constants of a system needs."""
SMALL = 1e-14
"""Frequency of drift, in radians per step: zero but for the logit that stores it."""


class MeasuredSpectra(NamedTuple):
    """Cross-spectra of the measurements, over bins whose weights sum to one."""

    omega: Float[Tensor, " f"]
    weight: Float[Tensor, " f"]
    density: Tensor
    """Complex, ``[f, m, m]``."""
    whiteness: Float[Tensor, " f"]
    """Spectrum of the first filter's innovations over what it states, averaged over channels."""
    samples: float
    at: Float[Tensor, "1 n"]
    """The state at which a nonlinear system is linearised."""
    dt: Float[Tensor, "1"] | None


@torch.no_grad()
def measured_spectra(likelihood: Likelihood, raw: Float[Tensor, " p"]) -> MeasuredSpectra:
    """The spectra of measurements from the innovations of a filter with the parameters ``raw``."""
    data, model = likelihood.data, likelihood.model
    sums = likelihood.gather(_spectrum_sums, raw)
    total = [sum(items[1:], items[0]) for items in list(zip(*sums, strict=True))[:4]]
    power, pieces, share, samples = total
    segment = min(SEGMENT, sums[0].steps)
    power = power / pieces / (share / pieces).clamp_min(1e-3)
    omega = 2 * math.pi * torch.arange(1, len(power) + 1, dtype=raw.dtype) / segment
    likelihood.parameters.install(raw)
    at = model.layout.origin(raw).unsqueeze(0) if model.layout.flat else data.prior.mean[:1]
    dt = likelihood.dt
    if dt is None and data.dt is not None:
        dt = data.dt[:, 1:].median().reshape(1)
    linear = linearized(model, at, dt)
    steady = steady_state(*linear)
    _, response = frequency_response(linear.F, linear.H, steady.gain, omega)
    whiteness = torch.linalg.solve(steady.innovation_cov.to(power.dtype), power)
    inverse = torch.linalg.inv(response)
    weight = torch.full_like(omega, 1 / len(omega))
    return MeasuredSpectra(
        omega,
        weight,
        inverse @ power @ inverse.mH,
        whiteness.diagonal(dim1=-2, dim2=-1).real.mean(-1),
        samples,
        at,
        dt,
    )


class _SpectrumSums(NamedTuple):
    """Of the innovations of some records, over pieces of them."""

    power: Tensor
    pieces: int
    share: Tensor
    """Of measurements that are present, times the pieces: records have as many pieces each."""
    samples: float
    steps: int


@torch.no_grad()
def _spectrum_sums(likelihood: Likelihood, raw: Float[Tensor, " p"]) -> _SpectrumSums:
    predictions = likelihood.predictions(raw.unsqueeze(0))[0]
    skip = min(predictions.residual.shape[2] // 10, 500)
    innovation, present = predictions.residual[0, :, skip:], predictions.weight[:, skip:]
    segment = min(SEGMENT, innovation.shape[1])
    window = torch.hann_window(segment, periodic=True, dtype=raw.dtype).unsqueeze(-1)
    pieces = innovation.unfold(1, segment, max(1, segment // 2)).flatten(0, 1).mT
    lines = torch.fft.rfft(pieces * window, dim=1)[:, 1:]
    power = torch.einsum("bfi,bfj->fij", lines, lines.conj()) / window.square().sum()
    return _SpectrumSums(
        power, len(pieces), present.mean() * len(pieces), float(present.any(-1).sum()), innovation.shape[1]
    )


def model_density(linear: StepMatrices, omega: Float[Tensor, " f"]) -> Tensor:
    """Complex cross-spectra ``[f, m, m]`` of the measurements under a linear model, ``H W Q W* Hᵀ + R``."""
    delay = torch.exp(-1j * omega)[:, None, None]
    inside = torch.eye(linear.F.shape[-1], dtype=omega.dtype) - delay * linear.F
    H = linear.H.to(inside.dtype)
    W = torch.linalg.solve(inside.mT, H.mT.expand(len(omega), *H.mT.shape)).mT
    return W @ linear.Q.to(W.dtype) @ W.mH + linear.R


class Densities:
    """:func:`model_density` for many models over the same frequencies, of which most differ in their noise alone.

    The response of the motion is kept for as long as its matrices stay, and that of oscillators, whose states move in
    pairs, needs no factorisation.

    Args:
        omega: radians per sample.
        states: number of the coordinates that are not noise states.

    >>> one, omega = torch.eye(1).double(), torch.tensor([0.5]).double()
    >>> linear = StepMatrices(0.5 * one, one, one, one)
    >>> bool(torch.isclose(Densities(omega, 1)(linear), model_density(linear, omega)).all())
    True
    """

    def __init__(self, omega: Float[Tensor, " f"], states: int) -> None:
        self.omega, self.states = omega, states
        self.delay = torch.exp(-1j * omega)[:, None, None]
        self.known: dict[bytes, Tensor] = {}

    def __call__(self, linear: StepMatrices) -> Tensor:
        """Complex cross-spectra ``[f, m, m]``."""
        F, H, Q, R = linear
        n, size = self.states, F.shape[-1]
        pairs = (torch.arange(size) - n).div(2, rounding_mode="floor").where(torch.arange(size) >= n, -1)
        apart = pairs.unsqueeze(-1) != pairs
        if (size - n) % 2 or bool(F[apart].any()) or bool(Q[apart].any()):
            return model_density(linear, self.omega)
        parts = [self._motion(F[:n, :n], H[:, :n])]
        if size > n:
            parts.append(self._oscillators(F[n:, n:], H[:, n:]))
        W = torch.cat(parts, -1)
        return W @ Q.to(W.dtype) @ W.mH + R

    def _motion(self, F: Tensor, H: Tensor) -> Tensor:
        key = F.numpy().tobytes() + H.numpy().tobytes()
        if key not in self.known:
            if len(self.known) >= KEPT:
                self.known.pop(next(iter(self.known)))
            inside = torch.eye(len(F), dtype=F.dtype) - self.delay * F
            right = H.mT.to(inside.dtype).expand(len(self.omega), *H.mT.shape)
            self.known[key] = torch.linalg.solve(inside.mT, right).mT
        return self.known[key]

    def _oscillators(self, F: Tensor, H: Tensor) -> Tensor:
        """``H (I - F / z)⁻¹`` by the inverses of its blocks."""
        at = torch.arange(0, len(F), 2)
        a, b, c, d = F[at, at], F[at, at + 1], F[at + 1, at], F[at + 1, at + 1]
        first, second, z = H[:, at], H[:, at + 1], self.delay
        scale = 1 / ((1 - z * a) * (1 - z * d) - z * z * (b * c))
        rows = first * (1 - z * d) + second * (z * c), first * (z * b) + second * (1 - z * a)
        return torch.stack([row * scale for row in rows], -1).flatten(-2)


def whittle(model: Filter, parameters: Parameters, spectra: MeasuredSpectra, batch: bool) -> Callable[[Tensor], Local]:
    """Whittle's log-likelihood as a function of raw parameters, with gradient and information."""
    densities = Densities(spectra.omega, model.layout.tangent_size)

    def matrices(raw: Tensor) -> StepMatrices:
        parameters.install(raw)
        return linearized(model, spectra.at, spectra.dt)

    if not batch:
        batch = _agrees_in_batches(matrices, parameters)

    @torch.no_grad()
    def local(raw: Tensor) -> Local:
        around = torch.cat((raw.unsqueeze(0), raw + DIFFERENCE * torch.eye(len(raw)).to(raw)))
        rows = zip(*torch.func.vmap(matrices)(around), strict=True) if batch else map(matrices, around)
        values = torch.stack([densities(StepMatrices(*row)) for row in rows])
        parameters.install(raw)  # tensors of a batch do not live longer than vmap
        here = values[0]
        half = 0.5 * spectra.samples * spectra.weight
        solved = torch.linalg.solve if here.shape[-1] > 1 else _divided
        ratio = solved(here, spectra.density)
        log_det = torch.linalg.slogdet(here).logabsdet
        value = -(half * (log_det + ratio.diagonal(dim1=-2, dim2=-1).real.sum(-1))).sum()
        slope = solved(here, (values[1:] - here) / DIFFERENCE)  # f⁻¹ ∂f
        excess = ratio - torch.eye(here.shape[-1]).to(ratio)
        gradient = (half * torch.einsum("pfij,fji->pf", slope, excess).real).sum(-1)
        flat = slope * half.sqrt()[:, None, None]
        information = torch.einsum("pfij,qfji->pq", flat, flat).real
        number = float(value)
        return Local(number if math.isfinite(number) else -math.inf, gradient, information)

    return local


@torch.no_grad()
def _agrees_in_batches(matrices: Callable[[Tensor], StepMatrices], parameters: Parameters) -> bool:
    """Whether a batch of parameter vectors gives the matrices of one after the other; prepares for the one that does.

    Filters whose runs are compiled were never asked.
    """
    raws = parameters.start + torch.tensor([[0.0], [0.1]]).to(parameters.start)
    alone = [torch.stack(items) for items in zip(*map(matrices, raws), strict=True)]
    parameters.as_numbers(False)
    try:
        agrees = all(map(torch.allclose, torch.func.vmap(matrices)(raws), alone))
    except Exception:  # whatever a system does that cannot be batched
        agrees = False
    parameters.as_numbers(not agrees)
    parameters.install(parameters.start)  # tensors of a batch do not live longer than vmap
    return agrees


def _divided(one: Tensor, other: Tensor) -> Tensor:
    """What ``torch.linalg.solve`` gives for matrices of one number, in a tenth of its time."""
    return other / one


class Started(NamedTuple):
    """A filter with noise states from the spectrum, and Whittle's log-likelihood."""

    model: FrequencyWeightedNeuralKalmanFilter
    parameters: Parameters
    raw: Float[Tensor, " p"]
    value: float

    def score(self, samples: float) -> float:
        """The log-likelihood less half the penalty of the BIC: drift has no frequency to learn."""
        return self.value - 0.5 * len(self.raw) * math.log(samples)


def add_oscillator(
    build: Callable[[], FrequencyWeightedNeuralKalmanFilter],
    before: Filter | None,
    learn: tuple[str, ...],
    spectra: MeasuredSpectra,
    batch: bool,
) -> list[Started]:
    """The best of many starts for one more oscillator in each channel, best first.

    A second one is returned if it is nearly as good and of the other kind: drift, or a frequency of its own. Spectra of
    short records do not tell a very low frequency from drift; the exact likelihood does.

    ``build`` makes a filter with one oscillator more than ``before`` has, each with a system of its own. The new
    oscillator starts as drift, on peaks of the spectrum and on a grid of frequencies, narrow and broad.
    """
    whiteness = torch.nn.functional.avg_pool1d(spectra.whiteness[None, None], 5, 1, 2, count_include_pad=False)[0, 0]
    places = [(SMALL, radius) for radius in DRIFT_RADII]
    frequencies = (math.pi * torch.linspace(0.04, 0.94, GRID)).tolist() + _peaks(spectra.omega, whiteness)
    places += [(frequency, radius) for frequency in frequencies for radius in RADII]
    model = build()
    trials = _trials(model, before, places, spectra)
    starts = []
    drifts = len(DRIFT_RADII)
    for _, frequency, radius, amplitude in [max(trials[:drifts]), *sorted(trials[drifts:], reverse=True)[:TRIED]]:
        model = build()
        _set_last(model, before, frequency, radius, amplitude)
        parameters = learned_parameters(model, learn)
        parameters.as_numbers(not batch)
        function = whittle(model, parameters, spectra, batch)
        raw, here = maximise(function, parameters.start, iterations=ITERATIONS)
        parameters.as_numbers(not batch)  # as runs of the filter need them
        starts.append(Started(model, parameters, raw, here.value))
    top = max(starts, key=lambda start: start.score(spectra.samples))
    others = [start for start in starts if len(start.raw) != len(top.raw) and start.value > top.value - NEAR]
    return [top, *sorted(others, key=lambda start: -start.value)[:1]]


@torch.no_grad()
def _trials(
    model: FrequencyWeightedNeuralKalmanFilter,
    before: Filter | None,
    places: Sequence[tuple[float, float]],
    spectra: MeasuredSpectra,
) -> list[tuple[float, float, float, float]]:
    """Whittle's log-likelihood with one more oscillator at each place, frequency, radius, and the best amplitude.

    An oscillator is independent of everything else: its spectrum is added to that of the model without it.
    """
    _set_last(model, before, *places[0], 0.0)
    linear = linearized(model, spectra.at, spectra.dt)
    without, ratio = model_density(linear, spectra.omega), 1.0
    if spectra.dt is not None:
        ratio = float(spectra.dt) / model.system.dt
    amplitudes = torch.tensor(AMPLITUDES).to(spectra.omega)
    trials = []
    for frequency, radius in places:
        pole = torch.tensor([[radius**ratio], [frequency * ratio]]).to(spectra.omega)
        shape = oscillators.spectrum(pole[0], pole[1], torch.ones_like(pole[0]), spectra.omega)
        added = amplitudes.square()[:, None, None] * shape[:, None] * linear.R.diagonal()
        density = without + torch.diag_embed(added)
        log_det = torch.linalg.slogdet(density).logabsdet
        misfit = torch.linalg.solve(density, spectra.density).diagonal(dim1=-2, dim2=-1).real.sum(-1)
        values = -0.5 * spectra.samples * (spectra.weight * (log_det + misfit)).sum(-1)
        best = int(values.argmax())
        trials.append((float(values[best]), frequency, radius, AMPLITUDES[best]))
    return trials


def _set_last(
    model: FrequencyWeightedNeuralKalmanFilter,
    before: Filter | None,
    frequency: float,
    radius: float,
    amplitude: float,
) -> None:
    """Set the oscillators to those of ``before`` and one more."""
    states = model.noise_states
    assert isinstance(states, LineStates)
    lead = states.raw_frequency.shape[0]
    last = [torch.full((lead, 1), value).to(states.amplitude) for value in (frequency, radius, amplitude)]
    if before is not None:
        earlier = before.get_submodule("noise_states")
        assert isinstance(earlier, LineStates)
        known = (earlier.frequency()[:lead], earlier.radius()[:lead], earlier.amplitude.abs())
        last = [torch.cat(pair, -1).detach() for pair in zip(known, last, strict=True)]
    states.set_oscillators(*last)


def _peaks(omega: Tensor, power: Tensor) -> list[float]:
    """The frequencies with the most power, apart from each other."""
    power, peaks = power.clone(), []
    for _ in range(PEAKS):
        top = omega[power.argmax()]
        peaks.append(float(top.clamp(0.005 * math.pi, 0.995 * math.pi)))
        power = torch.where((omega - top).abs() < 0.05 * math.pi, 0.0, power)
    return peaks
