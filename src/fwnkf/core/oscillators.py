"""Coloured noise as states: damped rotations driven by white noise.

An oscillator is ``ν⁺ = r Rot(ω) ν + √(1 - r²) w`` with ``w ~ N(0, I₂)``: its stationary covariance is the identity for
every ``r`` and ``ω``, its first component has autocorrelation ``rᵏ cos ωk``. ``ω = 0`` is first-order drift, ``r → 1``
a tone, a sum of drifts pink noise, a few broad oscillators a band. Amplitudes sit in the output matrix, so poles and
power are learned apart. Raising ``r Rot(ω)`` to the power ``dt / dt₀`` makes irregular sampling exact.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..shapes import Float


def transition(
    radius: Float[Tensor, "... c"], frequency: Float[Tensor, "... c"], ratio: Float[Tensor, "B"] | None = None
) -> tuple[Float[Tensor, "... s s"], Float[Tensor, "... s s"]]:
    """``A`` and ``Q`` of ``c`` oscillators side by side (``s = 2 c``); ``ratio`` is ``dt / dt₀`` per batch item."""
    if ratio is not None:
        exponent = ratio.unsqueeze(-1)
        radius = radius**exponent
        frequency = frequency * exponent
    cosine, sine = radius * frequency.cos(), radius * frequency.sin()
    zero = torch.zeros_like(cosine)
    # [2c, 2c] in one go: the diagonal holds r cos ω twice, the off-diagonals ±r sin ω within each pair
    main = torch.stack((cosine, cosine), -1).flatten(-2)
    upper = torch.stack((-sine, zero), -1).flatten(-2)[..., :-1]
    A = torch.diag_embed(main) + torch.diag_embed(upper, 1) - torch.diag_embed(upper, -1)
    drive = 1 - radius * radius
    return A, torch.diag_embed(torch.stack((drive, drive), -1).flatten(-2))


def continuous(
    radius: Float[Tensor, " c"], frequency: Float[Tensor, " c"]
) -> tuple[Float[Tensor, "s s"], Float[Tensor, "s s"]]:
    """Drift and spectral density whose discretisation over ``ratio`` steps is :func:`transition`.

    >>> A, density = continuous(torch.tensor([0.9]), torch.tensor([0.3]))
    >>> torch.allclose(torch.linalg.matrix_exp(A), transition(torch.tensor([0.9]), torch.tensor([0.3]))[0])
    True
    """
    decay = radius.log().repeat_interleave(2)
    turn = torch.stack((-frequency, torch.zeros_like(frequency)), -1).flatten()[:-1]
    return decay.diag() + turn.diag(1) - turn.diag(-1), (-2 * decay).diag()


def output(amplitude: Float[Tensor, "m k"]) -> Float[Tensor, "m s"]:
    """``C`` for ``k`` oscillators per channel, channel by channel: the first component of each, times its amplitude."""
    channels, count = amplitude.shape
    spread = torch.stack((amplitude, torch.zeros_like(amplitude)), -1).flatten(-2)  # [m, 2k]
    place = torch.eye(channels, dtype=amplitude.dtype, device=amplitude.device)
    return (place.unsqueeze(-1) * spread.unsqueeze(-2)).reshape(channels, channels * 2 * count)


def spectrum(
    radius: Float[Tensor, "*B c"],
    frequency: Float[Tensor, "*B c"],
    power: Float[Tensor, "*B c"],
    omega: Float[Tensor, " w"],
) -> Float[Tensor, "*B w"]:
    """Power spectral density of the summed oscillators at ``ω`` (radians per sample); its mean is the power."""
    r, w0 = radius.unsqueeze(-1), frequency.unsqueeze(-1)

    def half(shift: Tensor) -> Tensor:  # spectrum of rᵏ e^{jω₀k}, two-sided
        return (1 - r * r) / (1 + r * r - 2 * r * (omega - shift).cos())

    return (power.unsqueeze(-1) * 0.5 * (half(w0) + half(-w0))).sum(-2)
