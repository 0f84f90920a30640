"""Disturbances of a sensor: coloured noise of a stated variance, and missing samples.

Additive parts (:class:`White`, :class:`Tone`, :class:`Band`, :class:`Drift`, :class:`Pink`) draw noise; operations
(:class:`Dropout`, or your own) change measurements and their mask. A :class:`Scenario` mixes them. All are frozen
dataclasses of plain values; every draw comes from the ``numpy.random.Generator`` handed in, so that one seed gives the
same bits. Arrays are ``[B, T, m]``: trajectories, steps, channels. Frequencies are fractions of Nyquist, poles are per
sample.

:func:`scenario` names the five scenarios of the benchmarks, and :func:`oscillators` gives the model of each as noise
states.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..core import oscillators as core_oscillators
from ..errors import ConfigError
from ..shapes import Float
from .disturbances import PINK_POLES, Array, Band, Drift, Dropout, Mask, Operation, Part, Pink, Shape, Tone, White

__all__ = [
    "FLOOR",
    "PINK_POLES",
    "SCENARIOS",
    "Band",
    "Drift",
    "Dropout",
    "Operation",
    "Oscillators",
    "Part",
    "Pink",
    "Scenario",
    "Tone",
    "White",
    "oscillators",
    "scenario",
]

FLOOR = 0.1
"""Share of white noise in every coloured scenario: every sensor has some, and without it ``R`` would be singular."""


# ---- scenarios ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scenario:
    """Additive parts, then operations in their order.

    >>> rough = Scenario((Tone(0.9), White(0.1)), (Dropout(0.05, burst=3.0),), variance=0.26)
    >>> rough.total
    0.26
    """

    parts: tuple[Part, ...] = ()
    """What is added."""
    operations: tuple[Operation, ...] = ()
    """What is done to the measurements afterwards."""
    variance: float | None = None
    """Scales the mixture: the parts' own variances are shares of it. None uses them as they are."""

    @property
    def total(self) -> float:
        """Variance of the additive noise in every channel."""
        return sum(part.variance for part in self.parts) if self.variance is None else self.variance

    def scaled(self) -> tuple[Part, ...]:
        """The parts with their variances as they are drawn.

        Returns:
            The parts, which sum to :attr:`total`.

        Raises:
            ConfigError: there is nothing to scale.
        """
        if self.variance is None:
            return self.parts
        whole = sum(part.variance for part in self.parts)
        if not whole:
            raise ConfigError(f"{self}: no part has a variance that could be scaled")
        return tuple(replace(part, variance=part.variance * self.variance / whole) for part in self.parts)  # type: ignore[type-var]

    def sample(self, shape: Shape, generator: np.random.Generator) -> Array:
        """Draw the additive noise alone.

        Args:
            shape: trajectories, steps, channels.
            generator: where every draw comes from.

        Returns:
            Noise ``[B, T, m]``.
        """
        noise = None
        for part in self.scaled():
            drawn = part.sample(shape, generator)
            noise = drawn if noise is None else np.add(noise, drawn, out=noise)
        return np.zeros(shape) if noise is None else noise

    def apply(self, clean: Array, generator: np.random.Generator) -> tuple[Array, Mask]:
        """Measurements and mask from the clean signal.

        Args:
            clean: the signal ``[B, T, m]``.
            generator: where every draw comes from.

        Returns:
            Measurements, NaN where missing, and a mask that is True where a channel was measured.
        """
        batch, steps, channels = clean.shape
        y, mask = self.sample((batch, steps, channels), generator), np.ones(clean.shape, bool)
        y += clean
        for operation in self.operations:
            y, mask = operation.apply(y, mask, generator)
        return y, mask


SCENARIOS = ("white", "tone", "high_band", "drift", "pink")
"""Names of the scenarios of the benchmarks."""


def scenario(name: str, variance: float) -> Scenario:
    """One of the five scenarios of the benchmarks, all with the same total variance; coloured ones are a tenth white.

    - ``white``;
    - ``tone``: 0.2 to 0.4 of Nyquist, one frequency per trajectory, random phase per channel;
    - ``high_band``: flat above half Nyquist, nothing below;
    - ``drift``: first order, pole 0.99 per sample;
    - ``pink``: 1/f, three drifts.

    Args:
        name: one of :data:`SCENARIOS`.
        variance: total variance in every channel.

    Returns:
        The scenario.

    Raises:
        ConfigError: the name is unknown.

    >>> scenario("tone", 0.26).total
    0.26
    """
    if name == "white":
        return Scenario((White(variance),))
    coloured: dict[str, Part] = {"tone": Tone(), "high_band": Band(), "drift": Drift(), "pink": Pink()}
    if name not in coloured:
        raise ConfigError(f"no scenario is called {name!r}; there are: {', '.join(SCENARIOS)}")
    return Scenario((replace(coloured[name], variance=1 - FLOOR), White(FLOOR)), variance=variance)  # type: ignore[type-var]


# ---- noise as states ------------------------------------------------------------------------------------------------


class Oscillators(NamedTuple):
    """Coloured noise as oscillators (:mod:`fwnkf.core.oscillators`), ``[1, k]`` each, and the white variance.

    Goes into a filter by ``noise_states.set_oscillators(*model.states)``, with a system whose ``variance`` is the
    floor.

    >>> round(oscillators("drift", 0.26).total, 6)
    0.26
    """

    frequency: Float[Tensor, "1 k"]
    """Radians per sample."""
    radius: Float[Tensor, "1 k"]
    """Radius of the poles, per sample."""
    amplitude: Float[Tensor, "1 k"]
    """In units of the white standard deviation."""
    floor: float
    """Variance of the white part."""

    @property
    def states(self) -> tuple[Tensor, Tensor, Tensor]:
        """Frequency, radius and amplitude."""
        return self.frequency, self.radius, self.amplitude

    @property
    def total(self) -> float:
        """Variance of oscillators and floor together."""
        return self.floor * (1 + float(self.amplitude.square().sum()))

    def spectrum(self, omega: Float[Tensor, " w"]) -> Float[Tensor, " w"]:
        """Power spectral density at ``ω`` (radians per sample), whose mean over all frequencies is :attr:`total`.

        Args:
            omega: frequencies in radians per sample.

        Returns:
            The density at each.
        """
        power = self.floor * self.amplitude[0].square()
        return self.floor + core_oscillators.spectrum(self.radius[0], self.frequency[0], power, omega)


FITTED: dict[str, tuple[float, tuple[tuple[float, float, float], ...]]] = {
    # share of the floor, then (frequency / π, radius, share) of each oscillator: the least Whittle divergence from the
    # scenario's spectrum at a fixed total; oscillators have soft edges, so they take a part of the true floor
    "high_band": (0.01, ((0.6073, 0.8886, 0.379), (0.8533, 0.8094, 0.611))),
    "tone": (0.05, ((0.2502, 0.9574, 0.4512), (0.3465, 0.9529, 0.4988))),
}
TONE_RADIUS = 0.998
"""Of a tone of known frequency: over 100 samples as good as 1, and below the default limit of a filter's poles."""


def oscillators(name: str, variance: float, frequency: float | None = None) -> Oscillators:
    """The model of a named scenario as noise states; floor and oscillators sum to ``variance``.

    Drift and pink are exact, and so is a tone whose frequency is known, but for its radius. The high band, and the tone
    when all that is known is its range, are two broad oscillators fitted to the spectrum.

    Args:
        name: one of :data:`SCENARIOS`.
        variance: total variance.
        frequency: that of a tone, as a fraction of Nyquist, if it is known.

    Returns:
        The model.

    Raises:
        ConfigError: the name is unknown, or a frequency is given for another scenario.

    >>> oscillators("drift", 0.26).radius
    tensor([[0.9900]], dtype=torch.float64)
    """
    if frequency is not None and name != "tone":
        raise ConfigError(f"frequency is for scenario 'tone' only, not for {name!r}")
    exact: dict[str, tuple[float, tuple[tuple[float, float, float], ...]]] = {
        "white": (1.0, ((0.5, 0.5, 0.0),)),
        "drift": (FLOOR, ((0.0, 0.99, 1 - FLOOR),)),
        "pink": (FLOOR, tuple((0.0, pole, (1 - FLOOR) / len(PINK_POLES)) for pole in PINK_POLES)),
    }
    known = {**FITTED, **exact}
    if frequency is not None:
        known["tone"] = (FLOOR, ((frequency, TONE_RADIUS, 1 - FLOOR),))
    if name not in known:
        raise ConfigError(f"no scenario is called {name!r}; there are: {', '.join(SCENARIOS)}")
    floor, entries = known[name]
    table = torch.tensor(entries, dtype=torch.float64).T.unsqueeze(1)
    return Oscillators(math.pi * table[0], table[1], (table[2] / floor).sqrt(), floor * variance)
