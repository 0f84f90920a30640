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
from itertools import pairwise
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core import oscillators as core_oscillators
from ..errors import ConfigError
from ..shapes import Float

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Shape = tuple[int, int, int]

FLOOR = 0.1
"""Share of white noise in every coloured scenario: every sensor has some, and without it ``R`` would be singular."""
PINK_POLES = (0.5, 0.9, 0.99)
"""Poles of three drifts of equal power, one per decade of corner frequency: together 1/f, see :class:`Pink`."""


@runtime_checkable
class Part(Protocol):
    """An additive disturbance: stationary noise of variance ``variance`` in every channel."""

    @property
    def variance(self) -> float: ...

    def sample(self, shape: Shape, generator: np.random.Generator) -> Array:
        """Noise ``[B, T, m]``."""
        ...


@runtime_checkable
class Operation(Protocol):
    """A change of measurements and mask, such as missing samples."""

    def apply(self, y: Array, mask: Mask, generator: np.random.Generator) -> tuple[Array, Mask]:
        """Returns new arrays; the arguments are not modified."""
        ...


# ---- additive parts -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class White:
    """Independent Gaussian samples."""

    variance: float = 1.0

    def sample(self, shape: Shape, generator: np.random.Generator) -> Array:
        noise = generator.standard_normal(shape)
        noise *= math.sqrt(self.variance)
        return noise


@dataclass(frozen=True)
class Tone:
    """``√(2 variance) sin(ω t + φ)``: one ``ω`` per trajectory, uniform in ``low`` to ``high``, ``φ`` per channel.

    The channels share the frequency, as with one source of vibration, but not the phase. The power of a long record is
    exactly ``variance``, in every trajectory and channel.
    """

    variance: float = 1.0
    low: float = 0.2
    high: float = 0.4

    def __post_init__(self) -> None:
        _check_band(self, self.low, self.high)

    def sample(self, shape: Shape, generator: np.random.Generator) -> Array:
        return self.at(self.frequency(shape[0], generator), shape, generator)

    def frequency(self, trajectories: int, generator: np.random.Generator) -> Array:
        """One per trajectory, as a fraction of Nyquist: the first thing :meth:`sample` draws."""
        return generator.uniform(self.low, self.high, trajectories)

    def at(self, frequency: Array, shape: Shape, generator: np.random.Generator) -> Array:
        """The tone at known frequencies ``[B]``."""
        phase = generator.uniform(0.0, 2 * np.pi, (shape[0], 1, shape[2]))
        turns = np.pi * frequency[:, None, None] * np.arange(shape[1])[:, None]
        return math.sqrt(2 * self.variance) * np.sin(turns + phase)


@dataclass(frozen=True)
class Band:
    """Gaussian noise whose spectrum is flat between ``low`` and ``high`` and zero outside.

    Drawn in the frequency domain on a circle more than twice as long as the record and cut from it, so that it is
    stationary from the first sample and its two ends are uncorrelated.
    """

    variance: float = 1.0
    low: float = 0.5
    high: float = 1.0

    def __post_init__(self) -> None:
        _check_band(self, self.low, self.high)

    def sample(self, shape: Shape, generator: np.random.Generator) -> Array:
        batch, steps, channels = shape
        length = max(64, 2 ** math.ceil(math.log2(2 * steps)))
        bins = np.arange(length // 2 + 1) / (length // 2)
        inside = np.flatnonzero((bins >= self.low) & (bins <= self.high))
        if not len(inside):
            raise ConfigError(f"{self}: the band is narrower than a bin of {length} samples; use a Tone")
        spectrum = np.zeros((batch, channels, len(bins)), complex)
        spectrum[..., inside] = generator.standard_normal((batch, channels, 2 * len(inside))).view(complex)
        # the ends of the spectrum are real: their imaginary part is ignored, so they carry half a bin
        power = sum(1.0 if k in (0, length // 2) else 4.0 for k in inside.tolist())
        noise = np.fft.irfft(spectrum, length, axis=-1)[..., :steps]
        return np.ascontiguousarray(noise.swapaxes(1, 2)) * (length * math.sqrt(self.variance / power))


@dataclass(frozen=True)
class Drift:
    """First-order drift ``v⁺ = pole v + √(1 - pole²) w``, stationary from the first sample."""

    variance: float = 1.0
    pole: float = 0.99

    def __post_init__(self) -> None:
        _check_poles(self, (self.pole,))

    def sample(self, shape: Shape, generator: np.random.Generator) -> Array:
        return _drifts(shape, (self.pole,), self.variance, generator)


@dataclass(frozen=True)
class Pink:
    """``1/f`` noise as a sum of drifts of equal power, so that it has an exact model as states.

    Poles 0.5, 0.9, 0.99 follow ``1/ω`` within 20 % from ω = 0.01 to 3 radians per sample, with a mean slope of -1.01;
    below, where a record of 100 samples has no resolution, the spectrum is flat and the variance therefore finite.
    """

    variance: float = 1.0
    poles: tuple[float, ...] = PINK_POLES

    def __post_init__(self) -> None:
        _check_poles(self, self.poles)

    def sample(self, shape: Shape, generator: np.random.Generator) -> Array:
        return _drifts(shape, self.poles, self.variance, generator)


def _drifts(shape: Shape, poles: tuple[float, ...], variance: float, generator: np.random.Generator) -> Array:
    """The sum of first-order drifts of equal power, each begun in its stationary distribution."""
    batch, steps, channels = shape
    total: Array | None = None
    for pole in poles:
        noise = generator.standard_normal((steps, batch, channels))  # time first: every step is contiguous
        noise[1:] *= math.sqrt(1 - pole**2)
        for before, now in pairwise(noise):
            now += pole * before
        total = noise if total is None else np.add(total, noise, out=total)
    assert total is not None
    return np.multiply(total.swapaxes(0, 1), math.sqrt(variance / len(poles)), order="C")


# ---- operations -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dropout:
    """Samples go missing (NaN, masked) in bursts of mean length ``burst``, a share ``rate`` of them in the long run.

    A two-state Markov chain per trajectory; ``together`` loses all channels at once, as a lost packet does.
    """

    rate: float = 0.1
    burst: float = 1.0
    together: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.rate < 1 or self.burst < 1 or self.rate > self.burst * (1 - self.rate):
            raise ConfigError(f"{self}: must have 0 ≤ rate < 1, burst ≥ 1 and rate / (1 - rate) ≤ burst")

    def apply(self, y: Array, mask: Mask, generator: np.random.Generator) -> tuple[Array, Mask]:
        batch, steps, channels = y.shape
        draws = generator.random((steps, batch, 1 if self.together else channels))
        recover, fail = 1 / self.burst, self.rate / (self.burst * (1 - self.rate))
        lost = np.empty(draws.shape, bool)
        lost[0] = draws[0] < self.rate
        for t in range(1, steps):
            lost[t] = draws[t] < np.where(lost[t - 1], 1 - recover, fail)
        gone = np.broadcast_to(lost.swapaxes(0, 1), y.shape)
        return np.where(gone, np.nan, y), mask & ~gone


# ---- scenarios ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scenario:
    """Additive parts, then operations in their order.

    ``variance`` scales the mixture: the parts' own variances are shares of it. Without it they are used as they are.

    >>> rough = Scenario((Tone(0.9), White(0.1)), (Dropout(0.05, burst=3.0),), variance=0.26)
    >>> rough.total
    0.26
    """

    parts: tuple[Part, ...] = ()
    operations: tuple[Operation, ...] = ()
    variance: float | None = None

    @property
    def total(self) -> float:
        """Variance of the additive noise in every channel."""
        return sum(part.variance for part in self.parts) if self.variance is None else self.variance

    def scaled(self) -> tuple[Part, ...]:
        """The parts with their variances as they are drawn."""
        if self.variance is None:
            return self.parts
        whole = sum(part.variance for part in self.parts)
        if not whole:
            raise ConfigError(f"{self}: no part has a variance that could be scaled")
        return tuple(replace(part, variance=part.variance * self.variance / whole) for part in self.parts)  # type: ignore[type-var]

    def sample(self, shape: Shape, generator: np.random.Generator) -> Array:
        """The additive noise alone, ``[B, T, m]``."""
        noise = None
        for part in self.scaled():
            drawn = part.sample(shape, generator)
            noise = drawn if noise is None else np.add(noise, drawn, out=noise)
        return np.zeros(shape) if noise is None else noise

    def apply(self, clean: Array, generator: np.random.Generator) -> tuple[Array, Mask]:
        """Measurements and mask from the clean signal ``[B, T, m]``."""
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
    """
    if name == "white":
        return Scenario((White(variance),))
    coloured: dict[str, Part] = {"tone": Tone(), "high_band": Band(), "drift": Drift(), "pink": Pink()}
    if name not in coloured:
        raise ConfigError(f"no scenario is called {name!r}; there are: {', '.join(SCENARIOS)}")
    return Scenario((replace(coloured[name], variance=1 - FLOOR), White(FLOOR)), variance=variance)  # type: ignore[type-var]


def _check_band(part: object, low: float, high: float) -> None:
    if not 0 <= low <= high <= 1:
        raise ConfigError(f"{part}: must have 0 ≤ low ≤ high ≤ 1, as fractions of Nyquist")


def _check_poles(part: object, poles: tuple[float, ...]) -> None:
    if not poles or not all(0 <= pole < 1 for pole in poles):
        raise ConfigError(f"{part}: must have at least one pole, each in [0, 1)")


# ---- noise as states ------------------------------------------------------------------------------------------------


class Oscillators(NamedTuple):
    """Coloured noise as oscillators (:mod:`fwnkf.core.oscillators`), ``[1, k]`` each, and the white variance.

    Goes into a filter by ``noise_states.set_oscillators(*model.states)``, with a system whose ``variance`` is the
    floor.
    """

    frequency: Float[Tensor, "1 k"]
    """Radians per sample."""
    radius: Float[Tensor, "1 k"]
    amplitude: Float[Tensor, "1 k"]
    """In units of the white standard deviation."""
    floor: float
    """Variance of the white part."""

    @property
    def states(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.frequency, self.radius, self.amplitude

    @property
    def total(self) -> float:
        """Variance of oscillators and floor together."""
        return self.floor * (1 + float(self.amplitude.square().sum()))

    def spectrum(self, omega: Float[Tensor, " w"]) -> Float[Tensor, " w"]:
        """Power spectral density at ``ω`` (radians per sample), whose mean over all frequencies is :attr:`total`."""
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

    Drift and pink are exact, and so is a tone whose ``frequency`` (fraction of Nyquist) is known, but for its radius.
    The high band, and the tone when all that is known is its range, are two broad oscillators fitted to the spectrum.

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
