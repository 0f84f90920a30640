"""Whittle's likelihood of the spectrum of one channel, with its derivatives in closed form.

A fit evaluates it thousands of times at a thousand frequencies each, so it is written in NumPy, in real terms and
without a matrix; :mod:`fwnkf.identify.channels` states the same spectrum as a model.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..shapes import Float
from .likelihood import Local

Array = NDArray[np.float64]

SLOWEST = 0.05
"""Smallest decay of the slope in 1/s: over a minute no different from none."""
PRIOR_SPREAD = 3.0
"""Standard deviation of a prior about the start, in logarithms, for parameters that the spectrum does not determine."""
SERIES_BELOW = 1e-3
"""Decay over one sample below which the variance of the signal is computed by its series."""
EDGE = 1e-6
"""A logarithm this close below a lower limit is on it, and free to rise."""


def width_limits(rate: float) -> tuple[float, float]:
    """The narrowest and the broadest line (Hz)."""
    return 1e-4 * rate, 0.5 * rate


class ChannelLikelihood:
    """Whittle's log-likelihood of raw parameters, less a weak prior about a start.

    Args:
        omega: radians per sample, above zero.
        density: power at these frequencies, such that white noise has its variance.
        half: half the number of samples for each frequency.
        rate: samples per second.
        floor: lines are above this frequency (Hz).
        lowest_white: variance that white noise has at least.
    """

    def __init__(
        self, omega: Array, density: Array, half: float, rate: float, floor: float, lowest_white: float
    ) -> None:
        self.density, self.half = density, half
        self.rate, self.floor, self.lowest_white = rate, floor, lowest_white
        self.cosine, self.sine = np.cos(omega), np.sin(omega)
        self.level = 1 / (2 - 2 * self.cosine)

    def __call__(self, raw: Float[Tensor, " p"], start: Float[Tensor, " p"]) -> Local:
        """Value, gradient and Fisher's information."""
        spectrum, slope = self.spectrum(raw.numpy())
        if not (spectrum > 0).all():  # NaN too
            nothing = torch.zeros_like(raw)
            return Local(-math.inf, nothing, nothing.diag())
        slope /= spectrum
        ratio = self.density / spectrum
        away = (raw - start).numpy()
        pull = away / PRIOR_SPREAD**2
        value = -self.half * float(np.log(spectrum).sum() + ratio.sum()) - 0.5 * float(pull @ away)
        gradient = self.half * (slope @ (ratio - 1)) - pull
        information = self.half * (slope @ slope.T)
        information.flat[:: len(away) + 1] += 1 / PRIOR_SPREAD**2
        return Local(
            value if math.isfinite(value) else -math.inf, torch.from_numpy(gradient), torch.from_numpy(information)
        )

    def spectrum(self, raw: Array) -> tuple[Array, Array]:
        """The power at all frequencies, and its derivatives by the raw parameters, ``[parameters, frequencies]``."""
        slope = np.empty((len(raw), len(self.cosine)))
        log_drive, log_decay, log_white, *lines = raw.tolist()
        self._signal(log_drive, log_decay, slope)
        white = _exp(log_white)
        slope[2] = white
        total = slope[0] + (self.lowest_white + white)
        for place in range(0, len(lines), 3):
            logit, log_width, log_variance = lines[place : place + 3]
            self._line(logit, log_width, log_variance, slope[3 + place : 6 + place])
            total += slope[5 + place]
        return total, slope

    def _signal(self, log_drive: float, log_decay: float, slope: Array) -> None:
        """Derivatives by the logarithms of the drive, which is the power itself, and of the decay."""
        decay, free = _limited(log_decay, SLOWEST, 2 * self.rate)
        step, x = 1 / self.rate, decay / self.rate
        drive, rho = _exp(log_drive), math.exp(-x)
        gone = -math.expm1(-x)
        phi, late = step * gone / x, -step * math.expm1(-2 * x) / (2 * x)
        first, first_slope = 1 / 3 - x / 4 + 7 * x * x / 60, -x / 4 + 14 * x * x / 60
        if x >= SERIES_BELOW:
            first = (x - 2 * gone - 0.5 * math.expm1(-2 * x)) / x**3
            first_slope = (gone / x) ** 2 - 3 * first
        apart = self.cosine - rho
        decayed = 1 / (1 - 2 * rho * self.cosine + rho * rho)
        inside = phi * apart + late
        scale = drive * self.level
        slope[0] = scale * (step**3 * first + phi * phi * inside * decayed)
        if not free:
            slope[1] = 0.0
            return
        by_phi, by_late, by_rho = step * rho - phi, step * rho * rho - late, -x * rho
        changed = (2 * phi * by_phi) * inside + (phi * phi) * (by_phi * apart + (by_late - phi * by_rho))
        changed += (2 * phi * phi * by_rho) * inside * apart * decayed
        slope[1] = scale * (step**3 * first_slope + changed * decayed)

    def _line(self, logit: float, log_width: float, log_variance: float, slope: Array) -> None:
        """Derivatives by frequency, bandwidth, and the logarithm of the variance, which is the power itself."""
        share = 1 / (1 + _exp(-logit))
        width, free = _limited(log_width, *width_limits(self.rate))
        turn = 2 * math.pi * (self.floor / self.rate + (0.5 - self.floor / self.rate) * share)
        radius, power = math.exp(-math.pi * width / self.rate), _exp(log_variance)
        along, across = self.cosine * math.cos(turn), self.sine * math.sin(turn)
        above, below = along + across, along - across  # cosines of the distances to the line and to its mirror image
        one, other = (1 / (1 + radius * radius - 2 * radius * item) for item in (above, below))
        both, loss = one + other, 1 - radius * radius
        slope[2] = (0.5 * power * loss) * both
        one *= one
        other *= other
        by_turn = 2 * math.pi * (0.5 - self.floor / self.rate) * share * (1 - share)
        up, down = self.sine * math.cos(turn), self.cosine * math.sin(turn)
        slope[0] = (power * loss * radius * by_turn) * (one * (up - down) - other * (up + down))
        if not free:
            slope[1] = 0.0
            return
        by_radius = -radius * both - loss * (one * (radius - above) + other * (radius - below))
        slope[1] = (-power * math.pi * width / self.rate * radius) * by_radius


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _limited(log: float, low: float, high: float) -> tuple[float, bool]:
    """The exponential within limits, and whether it can change."""
    value = _exp(log)
    return min(max(value, low), high), value * (1 + EDGE) > low and value < high
