"""Initialise noise states from the spectrum of the measurement noise, for training records with true states.

The noise is the difference between the measurements and the observation of the true states, so its spectrum can be
fitted before any filter runs: by Whittle's likelihood, corrected for the bias of periodograms of short records
(debiased Whittle: Sykulski et al. 2019). It takes seconds and reduces the training that the filter needs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import spectral
from ..core.gaussian import dense
from ..data.protocols import Records
from ..errors import ConfigError
from ..filters.base import Filter
from ..filters.fwnkf import ADAPT, FrequencyWeightedNeuralKalmanFilter
from ..filters.parts.lines import LineStates
from ..shapes import Float

ITERATIONS = 150
STARTING_RADII = (0.9, 0.999)
"""A broad and a narrow starting point; a fit that starts on the wrong side of its peak's width may stop early."""
TONE_RADIUS = 0.998
"""Initial pole radius of a hypothesis: broad enough to cover frequencies between two hypotheses."""
SHARE_FLOOR = 1e-4
"""Smallest white fraction of the noise power; without a floor the likelihood of a tone is unbounded."""


def start_noise(model: Filter, records: Records) -> str:
    """Set frequencies, pole radii, amplitudes and the white level of the noise states; returns a status line."""
    if not isinstance(model, FrequencyWeightedNeuralKalmanFilter) or model.noise_states is None:
        raise ConfigError(
            "filter.noise_from_spectrum needs an fwnkf with lines; set filter.options.noise: {part: lines, count: 3}"
        )
    states = model.noise_states
    if not isinstance(states, LineStates):
        raise ConfigError("filter.noise_from_spectrum sets lines; give the filter noise: {part: lines} and no other")
    noise = noise_of(model, records)
    if model.config.hypotheses is not None:
        return _start_hypotheses(model, states, noise)
    spectrum = spectral.periodogram(noise).mean(0)  # [w, m]
    if states.raw_frequency.shape[0] == 1:
        spectrum = spectrum.mean(-1, keepdim=True)
    fits = [fit_oscillators(column, states.count, noise.shape[1]) for column in spectrum.double().unbind(-1)]
    frequency, radius, power, floor = (torch.stack(parts).to(noise) for parts in zip(*fits, strict=True))
    base = _base_variance(model)
    white = base[: len(fits)] if states.raw_frequency.shape[0] > 1 else base.mean().unsqueeze(0)
    states.set_oscillators(
        frequency, radius.clamp_max(0.999 * states.largest_radius), (power / white.unsqueeze(-1)).sqrt()
    )
    bound = ADAPT
    with torch.no_grad():
        scale = (floor / white).log().clamp(-0.99 * bound, 0.99 * bound)
        model.head_bias[-model.observation_dim :] = torch.atanh(scale / bound)
    share = float(1 - floor.sum() / (floor + power.sum(-1)).sum())
    return f"noise on training records: {share:.0%} of its power is coloured"


def _base_variance(model: FrequencyWeightedNeuralKalmanFilter) -> Float[Tensor, " m"]:
    """The variances of ``R`` before the encoder scales them."""
    return dense(model.system.measurement_noise()).diagonal().detach()


def _start_hypotheses(model: FrequencyWeightedNeuralKalmanFilter, states: LineStates, noise: Tensor) -> str:
    """One tone for each hypothesis, with all the coloured power, at quantiles of the records' strongest frequencies."""
    power = spectral.periodogram(noise).double().mean(-1)  # [N, w]
    # the median of an exponential distribution is log 2 times its mean
    total, floor = power.mean(), power.median(-1).values.mean() / math.log(2)
    count = len(states.raw_frequency)
    strongest = (power[:, 1:].argmax(-1) + 1).double() / (power.shape[-1] - 1)
    quantiles = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    frequency = strongest.quantile(quantiles).clamp(1e-3, 1 - 1e-3)
    white = _base_variance(model).mean()
    bound = ADAPT
    with torch.no_grad():
        states.raw_frequency.copy_(torch.logit(frequency)[:, None, None].expand_as(states.raw_frequency))
        states.raw_radius.fill_(math.log(TONE_RADIUS / (1 - TONE_RADIUS)))
        states.amplitude.fill_(float(((total - floor) / states.count / white).sqrt()))
        model.head_bias[-model.observation_dim :] = math.atanh(
            float((floor / white).log().clamp(-bound, bound)) / bound
        )
    return f"noise on training records: tones from {float(frequency[0]):.2f} to {float(frequency[-1]):.2f} of Nyquist"


@torch.no_grad()
def noise_of(model: Filter, records: Records) -> Float[Tensor, "N T m"]:
    """Measurements minus the observation of the true states; zero where either is missing."""
    valid = records.truth.isfinite().all(-1, keepdim=True)
    truth = torch.where(valid, records.truth, records.layout.origin(records.truth))
    present = records.mask & records.y.isfinite() & valid
    clean = torch.where(present, records.y, 0.0)
    return model.observation_layout.boxminus(clean, model.observe(truth)) * present


@torch.no_grad()
def noise_floor(model: Filter, records: Records) -> float:
    """The least power of the noise of training records at any frequency, in units of the filter's white noise.

    What is left where a disturbance has no power is the noise that stays when it ends: ``floor`` of
    :class:`fwnkf.Hypotheses`.
    """
    least = spectral.periodogram(noise_of(model, records)).mean((0, 2)).min()
    white = dense(model.prepare().R).diagonal(dim1=-2, dim2=-1).mean()
    return float(least / white)


def fit_oscillators(
    spectrum: Float[Tensor, " w"], count: int, length: int
) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"], Float[Tensor, " k"], Float[Tensor, ""]]:
    """Maximum-likelihood frequencies, pole radii and powers of ``count`` oscillators, and the white floor."""
    floor = spectrum.quantile(0.1)
    # several starting points, because a strong peak hides a weak one: quantiles of the power and of its logarithm
    weights = ((spectrum - floor).clamp_min(0) + 1e-6 * spectrum.mean(), (spectrum / floor).log().clamp_min(0) + 1e-6)
    fits = [
        _maximise_likelihood(spectrum, weight, radius, count, length) for weight in weights for radius in STARTING_RADII
    ]
    best = min(fits, key=lambda fit: float(fit[0]))
    return best[1:]


def _maximise_likelihood(
    spectrum: Tensor, weight: Tensor, radius: float, count: int, length: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Fit from one starting point; returns the negative log-likelihood and the parameters."""
    total = spectrum.mean()
    share = weight.cumsum(0) / weight.sum()
    bins = torch.searchsorted(share, (torch.arange(count, dtype=spectrum.dtype) + 0.5) / count)
    start = (bins.to(spectrum) + 0.25) / (len(spectrum) - 1)
    raw = [
        torch.logit(start.clamp(1e-3, 1 - 1e-3)),
        torch.full_like(start, math.log(radius / (1 - radius))),
        (0.8 * total / count).log().expand(count).clone(),
        (0.2 * total).log().clone(),
    ]
    for tensor in raw:
        tensor.requires_grad_()
    lags = torch.arange(length, dtype=spectrum.dtype)
    taper = 1 - lags / length
    omega = 2 * math.pi * torch.arange(len(spectrum), dtype=spectrum.dtype) / length
    waves = (omega[:, None] * lags).cos() * taper
    optimizer = torch.optim.LBFGS(
        raw, max_iter=ITERATIONS, history_size=20, tolerance_change=1e-10, line_search_fn="strong_wolfe"
    )

    def parameters() -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return math.pi * raw[0].sigmoid(), raw[1].sigmoid(), raw[2].exp(), raw[3].exp() + SHARE_FLOOR * total

    def negative_log_likelihood() -> Tensor:
        frequency, radius, power, floor = parameters()
        covariance = (power[:, None] * radius[:, None] ** lags * (frequency[:, None] * lags).cos()).sum(0)
        # positive in exact arithmetic; a very narrow peak leaves rounding errors between its side lobes
        expected = (2 * (waves @ covariance) - covariance[0] + floor).clamp_min(SHARE_FLOOR * total)
        return (expected.log() + spectrum / expected).mean()

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = negative_log_likelihood()
        loss.backward()
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        return negative_log_likelihood(), *parameters()
