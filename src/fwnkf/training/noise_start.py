"""Noise states that start from the noise itself, where training records hold the true state.

What is measured less what should have been is the noise, so its spectrum can be fitted before any filter runs: by
Whittle's likelihood, with the bias that short records give a periodogram taken into account (debiased Whittle:
Sykulski et al. 2019). A minute of training through the filter is worth less than these few seconds.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import spectral
from ..data.protocols import Records
from ..errors import ConfigError
from ..filters.base import Filter
from ..filters.fwnkf import FrequencyWeightedNeuralKalmanFilter
from ..filters.hypotheses import HypothesisStates
from ..shapes import Float

STEPS = 1500
RATE = 0.03
TONE_RADIUS = 0.998
"""Pole radius of a hypothesis before training: broad enough for a frequency between two of them."""
SHARE_FLOOR = 1e-4
"""Least share of the noise power that stays white: without it the spectrum of a tone has no likelihood."""


def start_noise(model: Filter, task: Records) -> str:
    """Set frequencies, dampings, amplitudes and the white level; returns a line that says what was found."""
    if not isinstance(model, FrequencyWeightedNeuralKalmanFilter) or model.noise_states is None:
        raise ConfigError("filter.noise_from_spectrum sets noise states; it needs an fwnkf with shaping: noise")
    states = model.noise_states
    noise = noise_of(model, task)
    if isinstance(states, HypothesisStates):
        return _start_hypotheses(model, states, noise)
    seen = spectral.periodogram(noise).mean(0)  # [w, m]
    if states.raw_frequency.shape[0] == 1:
        seen = seen.mean(-1, keepdim=True)
    found = [fit_cycles(column, states.count, noise.shape[1]) for column in seen.double().unbind(-1)]
    frequency, radius, power, floor = (torch.stack(parts).to(noise) for parts in zip(*found, strict=True))
    base = model.prepare().base[model.layout.tangent_size :]
    white = base[: len(found)] if states.raw_frequency.shape[0] > 1 else base.mean().unsqueeze(0)
    states.set_oscillators(
        frequency, radius.clamp_max(0.999 * states.largest_radius), (power / white.unsqueeze(-1)).sqrt()
    )
    bound = float(model.config.adapt)
    with torch.no_grad():
        scale = (floor / white).log().clamp(-0.99 * bound, 0.99 * bound)
        model.head_bias[-model.observation_dim :] = torch.atanh(scale / bound)
    share = float(1 - floor.sum() / (floor + power.sum(-1)).sum())
    return f"noise on training records: {share:.0%} of its power is coloured"


def _start_hypotheses(model: FrequencyWeightedNeuralKalmanFilter, states: HypothesisStates, noise: Tensor) -> str:
    """Each hypothesis one tone with all the coloured power; their frequencies where the records' tones are."""
    power = spectral.periodogram(noise).double().mean(-1)  # [N, w]
    total, floor = power.mean(), power.median(-1).values.mean() / math.log(2)  # half of an exponential lies below it
    strongest = (power[:, 1:].argmax(-1) + 1).double() / (power.shape[-1] - 1)
    place = (torch.arange(states.hypotheses, dtype=torch.float64) + 0.5) / states.hypotheses
    frequency = strongest.quantile(place).clamp(1e-3, 1 - 1e-3)
    white = model.prepare().base[model.layout.tangent_size :].mean()
    bound = float(model.config.adapt)
    with torch.no_grad():
        states.raw_frequency.copy_(torch.logit(frequency)[:, None, None].expand_as(states.raw_frequency))
        states.raw_radius.fill_(math.log(TONE_RADIUS / (1 - TONE_RADIUS)))
        states.amplitude.fill_(float(((total - floor) / states.count / white).sqrt()))
        model.head_bias[-model.observation_dim :] = math.atanh(
            float((floor / white).log().clamp(-bound, bound)) / bound
        )
    return f"noise on training records: tones from {float(frequency[0]):.2f} to {float(frequency[-1]):.2f} of Nyquist"


@torch.no_grad()
def noise_of(model: Filter, task: Records) -> Float[Tensor, "N T m"]:
    """The measurements less what the true states should have given; zero where either is missing."""
    valid = task.truth.isfinite().all(-1, keepdim=True)
    truth = torch.where(valid, task.truth, task.layout.origin(task.truth))
    present = task.mask & task.y.isfinite() & valid
    clean = torch.where(present, task.y, 0.0)
    return model.observation_layout.boxminus(clean, model.observe(truth)) * present


def fit_cycles(
    seen: Float[Tensor, " w"], count: int, length: int
) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"], Float[Tensor, " k"], Float[Tensor, ""]]:
    """Frequencies, radii and powers of ``count`` oscillators and a white floor, of greatest likelihood."""
    floor = seen.quantile(0.1)
    # two starts, for a strong peak hides a weak one: at equal shares of the power above the floor, and of its logarithm
    starts = ((seen - floor).clamp_min(0) + 1e-6 * seen.mean(), (seen / floor).log().clamp_min(0) + 1e-6)
    fits = [_climb(seen, above, count, length) for above in starts]
    best = min(fits, key=lambda fit: float(fit[0]))
    return best[1:]


def _climb(seen: Tensor, above: Tensor, count: int, length: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """One start: the negative log-likelihood, and the parts that have it."""
    total = seen.mean()
    share = above.cumsum(0) / above.sum()
    places = torch.searchsorted(share, (torch.arange(count, dtype=seen.dtype) + 0.5) / count)
    start = (places.to(seen) + 0.25) / (len(seen) - 1)
    raw = [
        torch.logit(start.clamp(1e-3, 1 - 1e-3)),
        torch.full_like(start, math.log(0.9 / 0.1)),
        (0.8 * total / count).log().expand(count).clone(),
        (0.2 * total).log().clone(),
    ]
    for tensor in raw:
        tensor.requires_grad_()
    lags = torch.arange(length, dtype=seen.dtype)
    taper = 1 - lags / length
    omega = 2 * math.pi * torch.arange(len(seen), dtype=seen.dtype) / length
    waves = (omega[:, None] * lags).cos() * taper
    optimizer = torch.optim.Adam(raw, RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 0.5 * (1 + math.cos(math.pi * k / STEPS)))

    def parts() -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return math.pi * raw[0].sigmoid(), raw[1].sigmoid(), raw[2].exp(), raw[3].exp() + SHARE_FLOOR * total

    for _ in range(STEPS):
        frequency, radius, power, floor = parts()
        covariance = (power[:, None] * radius[:, None] ** lags * (frequency[:, None] * lags).cos()).sum(0)
        expected = 2 * (waves @ covariance) - covariance[0] + floor
        loss = (expected.log() + seen / expected).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    frequency, radius, power, floor = (part.detach() for part in parts())
    return loss.detach(), frequency, radius, power, floor
