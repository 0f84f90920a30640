"""Models of single channels, fitted to their spectra: a moving signal, white noise, and lines in the noise.

The signal has a slope that white noise drives and that decays, ``ds = v dt``, ``dv = -a v dt + dw``; for ``a → 0`` this
is the model of constant velocity. Its level is free, so that a bias or gravity is part of it. Lines are oscillators
(:mod:`fwnkf.core.oscillators`). Model and measurement meet in Whittle's likelihood of the spectrum, which takes
milliseconds where a run of the filter takes seconds, so that many starts can be tried.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..core import oscillators
from ..core.gaussian import block_diagonal
from ..core.linear import LinearSystem
from ..errors import DataError
from ..filters.base import Filter
from ..filters.factory import build
from ..filters.fwnkf import FrequencyWeightedNeuralKalmanFilter
from ..filters.parts.level import Level
from ..filters.parts.lines import Lines
from ..shapes import Float
from .channel_likelihood import SLOWEST, ChannelLikelihood, width_limits
from .likelihood import maximise

POLE_RADIUS = 0.99999
LEAKED = 3
"""First bins that are not compared: a window leaks the level of the signal into them."""
ITERATIONS = 60
WHITE_SHARE = 0.3
"""Least white noise, as a share of the lowest parts of the spectrum: a model without any would trust single samples."""
STARTS = 3
"""Places tried for one more line."""
SILENT = 1e-4
"""Amplitude over the white noise of an oscillator that a channel does not need."""


@dataclass(frozen=True)
class Line:
    """A line in the noise: its frequency, full width at half power, and standard deviation."""

    hz: float
    bandwidth_hz: float
    std: float


@dataclass(frozen=True)
class ChannelModel:
    """Signal, white noise and lines of one channel sampled at ``rate`` Hz.

    >>> model = ChannelModel(rate=100.0, drive=4.0, decay=1.0, white=0.01, lines=(Line(20.0, 1.0, 0.5),))
    >>> round(float(model.spectrum(torch.tensor([2 * math.pi * 0.2]).double())), 1)
    8.0
    """

    rate: float
    drive: float
    """Spectral density of the noise that drives the slope, unit²/s³."""
    decay: float
    """Of the slope, 1/s."""
    white: float
    """Variance of the white noise."""
    lines: tuple[Line, ...] = ()

    def spectrum(self, omega: Float[Tensor, " w"]) -> Float[Tensor, " w"]:
        """Power spectral density at ``omega`` (radians per sample) above zero; white noise has its variance."""
        return _log_spectrum(_raw(self), omega.double(), self.rate).exp()

    def noise_spectrum(self, omega: Float[Tensor, " w"]) -> Float[Tensor, " w"]:
        """That of the noise alone: white and lines."""
        return self.white + _lines(_raw(self)[3:], omega.double(), self.rate, 0.0)

    def signal_spectrum(self, omega: Float[Tensor, " w"]) -> Float[Tensor, " w"]:
        """That of the signal alone."""
        return _signal(_raw(self), omega.double(), self.rate)

    @property
    def noise_std(self) -> float:
        """Standard deviation of white noise and lines together."""
        return math.sqrt(self.white + sum(line.std**2 for line in self.lines))

    def matrices(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """``F, H, Q, R`` for one sample: signal, slope, and two states for each line."""
        F, H, Q, R = stacked_matrices([self])
        return F[0], H[0], Q[0], R[0]


def stacked_matrices(models: Sequence[ChannelModel]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``F, H, Q, R`` of models of one rate for one sample, as batches; where a model has fewer lines, they are zero.

    >>> model = ChannelModel(rate=100.0, drive=4.0, decay=1.0, white=0.01, lines=(Line(20.0, 1.0, 0.5),))
    >>> [tuple(item.shape) for item in stacked_matrices([model, replace(model, lines=())])]
    [(2, 4, 4), (2, 1, 4), (2, 4, 4), (2, 1, 1)]
    """
    rate, count = models[0].rate, max(len(model.lines) for model in models)
    raw = torch.stack([_raw(replace(model, lines=())) for model in models])
    phi, rho, first, cross, late = _discrete(raw, rate)
    one, zero = torch.ones_like(phi), torch.zeros_like(phi)
    F, Q = (
        torch.stack(items, -1).unflatten(-1, (2, 2)) for items in ((one, phi, zero, rho), (first, cross, cross, late))
    )
    H = F.new_tensor([[1.0, 0.0]]).expand(len(models), 1, 2)
    R = F.new_tensor([model.white for model in models]).reshape(-1, 1, 1)
    if count:
        none = Line(0.25 * rate, 0.1 * rate, 0.0)
        table = F.new_tensor(
            [
                [(line.hz, line.bandwidth_hz, line.std) for line in (*model.lines, *[none] * count)][:count]
                for model in models
            ]
        )
        A, drive = oscillators.transition(
            torch.exp(-math.pi * table[..., 1] / rate), 2 * math.pi * table[..., 0] / rate
        )
        F, Q = block_diagonal(F, A), block_diagonal(Q, drive)
        spread = torch.stack((table[..., 2], torch.zeros_like(table[..., 2])), -1).flatten(-2)
        H = torch.cat((H, spread.unsqueeze(-2)), -1)
    return F, H, Q, R


def fit_channel(
    omega: Float[Tensor, " w"],
    density: Float[Tensor, " w"],
    *,
    rate: float,
    samples: float,
    lines: int = 0,
    places: Sequence[float] = (),
    lowest_hz: float = 0.0,
) -> ChannelModel:
    """The model of a measured spectrum with up to ``lines`` lines, as many as lower the BIC.

    Args:
        omega: radians per sample, evenly spaced from zero to π.
        density: power at these frequencies, such that white noise has its variance.
        samples: how many samples the spectrum was measured from.
        places: frequencies (Hz) where lines are tried first; the largest misfits are tried as well.
        lowest_hz: below it there are no lines, because the signal itself moves there.

    >>> omega = torch.linspace(0, math.pi, 1025).double()
    >>> truth = ChannelModel(200.0, 9.0, 2.0, 0.04, (Line(60.0, 2.0, 0.3),))
    >>> fitted = fit_channel(omega, truth.spectrum(omega.clamp_min(1e-3)), rate=200.0, samples=20000, lines=2)
    >>> [round(line.hz, 1) for line in fitted.lines], round(fitted.white, 3)
    ([60.0], 0.04)
    """
    omega, density = omega[LEAKED:].double(), density[LEAKED:].double()
    if len(omega) < 8 or not bool((density > 0).all()) or not bool(density.isfinite().all()):
        raise DataError("a channel that is constant, or too short for a spectrum, has no model; leave it out")
    half = 0.5 * samples / len(omega)
    floor = max(lowest_hz, 2 * float(omega[0]) * rate / (2 * math.pi))

    lowest_white = WHITE_SHARE * float(density.quantile(0.05))

    likelihood = ChannelLikelihood(omega.numpy(), density.numpy(), half, rate, floor, lowest_white)

    def maximised(model: ChannelModel) -> tuple[ChannelModel, float]:
        start = _raw(model, floor, lowest_white)
        raw, local = maximise(lambda raw: likelihood(raw, start), start, iterations=ITERATIONS, tolerance=0.05)
        return _model(raw, rate, floor, lowest_white), local.value

    best, value = max((maximised(start) for start in _starts(omega, density, rate)), key=lambda pair: pair[1])
    tried = [hz for hz in places if floor < hz < 0.499 * rate]
    penalty = 1.5 * math.log(samples)  # half of the BIC's, for three parameters
    for _ in range(lines):
        if not floor < 0.49 * rate:
            break
        misfit = density / best.spectrum(omega)
        candidates = [*tried[:1], *_largest(omega * rate / (2 * math.pi), misfit, floor)][:STARTS]
        trials = []
        for hz in candidates:
            near = (omega * rate / (2 * math.pi) - hz).abs()
            for width in (2 * float(omega[1] - omega[0]) * rate / (2 * math.pi), 0.03 * rate):
                inside = near < max(width, float(near.min()) * 1.01)
                excess = (density - best.spectrum(omega))[inside].clamp_min(0).sum() * float(omega[1] - omega[0])
                std = math.sqrt(max(float(excess) / math.pi, 1e-4 * best.white))
                trials.append(maximised(replace(best, lines=(*best.lines, Line(hz, width, std)))))
        if not trials:
            break
        top, reached = max(trials, key=lambda pair: pair[1])
        if reached - value < penalty:
            if not tried:
                break
            tried = tried[1:]  # this place is no line; the next may be
            continue
        best, value = top, reached
        tried = [
            hz for hz in tried if all(abs(hz - line.hz) > max(line.bandwidth_hz, 0.01 * hz) for line in best.lines)
        ]
    return replace(best, lines=tuple(sorted(best.lines, key=lambda line: -line.std)))


def channels_filter(
    models: Sequence[ChannelModel], names: Sequence[str], *, noise: float = 1.0, level_seconds: float | None = None
) -> Filter:
    """The Kalman filter of several channels side by side; its states are all signals, then all slopes.

    A ``kf``, or an ``fwnkf`` with noise states where a channel has lines. Measurements are called ``names``, so that a
    log's channels find their place. ``noise`` multiplies every covariance, which leaves all gains as they are. With
    ``level_seconds`` the level of all covariances follows the innovations (:class:`~fwnkf.Level`).

    >>> model = ChannelModel(rate=100.0, drive=4.0, decay=1.0, white=0.01, lines=(Line(20.0, 1.0, 0.5),))
    >>> filter = channels_filter([model, model], ["gyro_x", "gyro_y"])
    >>> [part.name for part in filter.layout.parts]
    ['gyro_x', 'gyro_y', 'gyro_x_slope', 'gyro_y_slope']
    """
    m = len(models)
    rate = models[0].rate
    decay = torch.tensor([model.decay for model in models], dtype=torch.float64)
    F = torch.zeros(2 * m, 2 * m, dtype=torch.float64)
    F[:m, m:], F[m:, m:] = torch.eye(m), -decay.diag()
    drive = torch.tensor([model.drive for model in models], dtype=torch.float64)
    white = torch.tensor([model.white for model in models], dtype=torch.float64)
    system = LinearSystem.of(
        F=F,
        H=torch.eye(m, 2 * m, dtype=torch.float64),
        Q=torch.cat((torch.zeros(m), drive)).double().diag() * noise,
        R=white.diag() * noise,
        continuous=True,
        dt=1 / rate,
        layout=tuple((name, "euclidean", 1) for name in (*names, *(f"{name}_slope" for name in names))),
        channels=tuple(names),
    )
    count = max(len(model.lines) for model in models)
    if not count and level_seconds is None:
        return build("kf", **{name: getattr(system, name) for name in "FH"}, Q=system.Q(), R=system.R(),
                     continuous=True, dt=1 / rate, layout=system.config.layout, channels=tuple(names))  # fmt: skip
    level = None if level_seconds is None else Level(level_seconds, of="all")
    if not count:
        return FrequencyWeightedNeuralKalmanFilter(system, level=level)
    narrowest = -math.log(POLE_RADIUS) * rate / math.pi
    table = torch.tensor(
        [
            [
                (line.hz, max(line.bandwidth_hz, 1.1 * narrowest), line.std * math.sqrt(noise))
                for line in (*model.lines, *[Line(0.25 * rate, 0.1 * rate, SILENT * math.sqrt(model.white))] * count)
            ][:count]
            for model in models
        ],
        dtype=torch.float64,
    )
    hz, width, std = table.unbind(-1)
    lines = Lines(count, hz, width, std, pole_radius=POLE_RADIUS)
    return FrequencyWeightedNeuralKalmanFilter(system, noise=lines, level=level)


# ---- raw parameters: log drive, log decay, log white; logit frequency, log bandwidth, log variance of each line ----


def _raw(model: ChannelModel, floor: float = 0.0, lowest_white: float = 0.0) -> Tensor:
    top = 0.5 * model.rate
    white = max(model.white - lowest_white, 1e-3 * model.white)
    values = [math.log(model.drive), math.log(max(model.decay, SLOWEST)), math.log(white)]
    for line in model.lines:
        share = min(max((line.hz - floor) / (top - floor), 1e-6), 1 - 1e-6)
        values += [math.log(share / (1 - share)), math.log(line.bandwidth_hz), 2 * math.log(line.std)]
    return torch.tensor(values, dtype=torch.float64)


def _model(raw: Tensor, rate: float, floor: float, lowest_white: float) -> ChannelModel:
    table = torch.stack(_line_values(raw[3:], rate, floor), -1).tolist()
    lines = tuple(Line(hz, width, math.sqrt(variance)) for hz, width, variance in table)
    return ChannelModel(
        rate, float(raw[0].exp()), float(_decay(raw[1], rate)), lowest_white + float(raw[2].exp()), lines
    )


def _decay(raw: Tensor, rate: float) -> Tensor:
    return raw.exp().clamp(SLOWEST, 2 * rate)


def _line_values(raw: Tensor, rate: float, floor: float) -> tuple[Tensor, Tensor, Tensor]:
    """Frequency, bandwidth and variance of lines, ``[..., k]`` each."""
    table = raw.unflatten(-1, (-1, 3))
    width = table[..., 1].exp().clamp(*width_limits(rate))
    return floor + (0.5 * rate - floor) * table[..., 0].sigmoid(), width, table[..., 2].exp()


def _discrete(raw: Tensor, rate: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Of signal and slope over one sample: ``F[0, 1]``, ``F[1, 1]``, ``Q[0, 0]``, ``Q[0, 1]`` and ``Q[1, 1]``."""
    q, a, step = raw[..., 0].exp(), _decay(raw[..., 1], rate), 1 / rate
    phi, late = -torch.expm1(-a * step) / a, -torch.expm1(-2 * a * step) / (2 * a)
    x = a * step
    # ∫ φ² ds = (step - 2 φ + late) / a², whose leading terms cancel for a slow decay: there its series
    exact = (step - 2 * phi + late) / a.square()
    first = torch.where(x < 1e-3, step**3 * (1 / 3 - x / 4 + 7 * x.square() / 60), exact)
    return phi, (-x).exp(), q * first, 0.5 * q * phi.square(), q * late


def _signal(raw: Tensor, omega: Tensor, rate: float) -> Tensor:
    # |H (z - F)⁻¹ z|² in real terms: with d = 1/z, level = 1/(1 - d), slope = φ d level / (1 - ρ d)
    phi, rho, first, cross, late = (item.unsqueeze(-1) for item in _discrete(raw, rate))
    cosine = omega.cos()
    level = 1 / (2 - 2 * cosine)
    decayed = 1 / (1 - 2 * rho * cosine + rho.square())
    return level * (first + 2 * cross * phi * (cosine - rho) * decayed + late * phi.square() * decayed)


def _lines(raw: Tensor, omega: Tensor, rate: float, floor: float) -> Tensor:
    if not raw.shape[-1]:
        return torch.zeros_like(omega)
    hz, width, variance = _line_values(raw, rate, floor)
    return oscillators.spectrum(torch.exp(-math.pi * width / rate), 2 * math.pi * hz / rate, variance, omega)


def _log_spectrum(raw: Tensor, omega: Tensor, rate: float, floor: float = 0.0, lowest_white: float = 0.0) -> Tensor:
    white = lowest_white + raw[..., 2:3].exp()
    return (_signal(raw, omega, rate) + white + _lines(raw[..., 3:], omega, rate, floor)).log()


def _starts(omega: Tensor, density: Tensor, rate: float) -> list[ChannelModel]:
    """White noise from the lower quartile of the upper half, the drive from the lowest bins, two decays."""
    upper = density[len(density) // 2 :]
    white = max(float(upper.quantile(0.25)), 1e-12 * float(density.max()))
    low = slice(0, max(4, len(density) // 50))
    starts = []
    for decay in (0.5, 20.0):
        unit = ChannelModel(rate, 1.0, min(decay, rate), 1e-300).signal_spectrum(omega[low])
        excess = (density[low] - white).clamp_min(0.01 * white)
        drive = float((excess / unit).log().mean().exp())
        starts.append(ChannelModel(rate, drive, min(decay, rate), white))
    return starts


def _largest(hz: Tensor, misfit: Tensor, floor: float) -> list[float]:
    """Frequencies of the largest misfits, apart from each other."""
    smooth = torch.nn.functional.avg_pool1d(misfit[None, None], 3, 1, 1, count_include_pad=False)[0, 0]
    smooth = torch.where(hz > floor, smooth, 0.0)
    places = []
    for _ in range(STARTS):
        top = float(hz[smooth.argmax()])
        places.append(min(max(top, floor * 1.001 + 1e-9), float(hz[-1]) * 0.999))
        smooth = torch.where((hz - top).abs() < 0.02 * float(hz[-1]), 0.0, smooth)
    return places
