"""The parts of a disturbance: noise that is added to measurements, and operations that change them.

What they have in common, and how they are mixed, is said in :mod:`fwnkf.systems.noise`, which has all their names.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Shape = tuple[int, int, int]

PINK_POLES = (0.5, 0.9, 0.99)
"""Poles of three drifts of equal power, one per decade of corner frequency: together 1/f, see :class:`Pink`."""


@runtime_checkable
class Part(Protocol):
    """An additive disturbance: stationary noise of the same variance in every channel.

    >>> from fwnkf.systems.noise import Part, White
    >>> isinstance(White(), Part)
    True
    """

    @property
    def variance(self) -> float:
        """Variance in every channel."""
        ...

    def sample(self, shape: Shape, generator: np.random.Generator) -> Array:
        """Draw noise.

        Args:
            shape: trajectories, steps, channels.
            generator: where every draw comes from.

        Returns:
            Noise ``[B, T, m]``.
        """
        ...


@runtime_checkable
class Operation(Protocol):
    """A change of measurements and mask, such as missing samples.

    >>> from fwnkf.systems.noise import Dropout, Operation
    >>> isinstance(Dropout(), Operation)
    True
    """

    def apply(self, y: Array, mask: Mask, generator: np.random.Generator) -> tuple[Array, Mask]:
        """Change measurements; the arguments are not modified.

        Args:
            y: measurements ``[B, T, m]``.
            mask: True where a channel was measured.
            generator: where every draw comes from.

        Returns:
            New measurements and mask.
        """
        ...


# ---- additive parts -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class White:
    """Independent Gaussian samples.

    >>> round(float(White(4.0).sample((1, 1000, 1), np.random.default_rng(0)).std()), 1)
    2.0
    """

    variance: float = 1.0
    """Variance in every channel."""

    def sample(self, shape: Shape, generator: np.random.Generator) -> Array:
        """Draw noise, see :meth:`Part.sample`.

        Args:
            shape: trajectories, steps, channels.
            generator: where every draw comes from.

        Returns:
            Noise ``[B, T, m]``.
        """
        noise = generator.standard_normal(shape)
        noise *= math.sqrt(self.variance)
        return noise


@dataclass(frozen=True)
class Tone:
    """``√(2 variance) sin(ω t + φ)``: one ``ω`` per trajectory, uniform in ``low`` to ``high``, ``φ`` per channel.

    The channels share the frequency, as with one source of vibration, but not the phase. The power of a long record is
    exactly ``variance``, in every trajectory and channel.

    >>> round(float(Tone(low=0.5, high=0.5).sample((1, 4, 1), np.random.default_rng(0)).std()), 3)
    1.0
    """

    variance: float = 1.0
    """Variance in every channel."""
    low: float = 0.2
    """Lowest frequency, as a fraction of Nyquist."""
    high: float = 0.4
    """Highest frequency, as a fraction of Nyquist."""

    def __post_init__(self) -> None:
        _check_band(self, self.low, self.high)

    def sample(self, shape: Shape, generator: np.random.Generator) -> Array:
        """Draw noise, see :meth:`Part.sample`.

        Args:
            shape: trajectories, steps, channels.
            generator: where every draw comes from.

        Returns:
            Noise ``[B, T, m]``.
        """
        return self.at(self.frequency(shape[0], generator), shape, generator)

    def frequency(self, trajectories: int, generator: np.random.Generator) -> Array:
        """Draw a frequency for each trajectory: the first thing :meth:`sample` draws.

        Args:
            trajectories: how many.
            generator: where every draw comes from.

        Returns:
            Frequencies ``[B]`` as fractions of Nyquist.
        """
        return generator.uniform(self.low, self.high, trajectories)

    def at(self, frequency: Array, shape: Shape, generator: np.random.Generator) -> Array:
        """The tone at known frequencies.

        Args:
            frequency: ``[B]``, as fractions of Nyquist.
            shape: trajectories, steps, channels.
            generator: where the phases come from.

        Returns:
            Noise ``[B, T, m]``.
        """
        phase = generator.uniform(0.0, 2 * np.pi, (shape[0], 1, shape[2]))
        turns = np.pi * frequency[:, None, None] * np.arange(shape[1])[:, None]
        return math.sqrt(2 * self.variance) * np.sin(turns + phase)


@dataclass(frozen=True)
class Band:
    """Gaussian noise whose spectrum is flat between ``low`` and ``high`` and zero outside.

    Drawn in the frequency domain on a circle more than twice as long as the record and cut from it, so that it is
    stationary from the first sample and its two ends are uncorrelated.

    >>> noise = Band(low=0.5, high=1.0).sample((1, 256, 1), np.random.default_rng(0))[0, :, 0]
    >>> power = np.abs(np.fft.rfft(noise * np.hanning(256))) ** 2
    >>> bool(power[:50].max() < 1e-3 * power[70:].max())  # nothing below half Nyquist, but for the window's leakage
    True
    """

    variance: float = 1.0
    """Variance in every channel."""
    low: float = 0.5
    """Lower edge, as a fraction of Nyquist."""
    high: float = 1.0
    """Upper edge, as a fraction of Nyquist."""

    def __post_init__(self) -> None:
        _check_band(self, self.low, self.high)

    def sample(self, shape: Shape, generator: np.random.Generator) -> Array:
        """Draw noise, see :meth:`Part.sample`.

        Args:
            shape: trajectories, steps, channels.
            generator: where every draw comes from.

        Returns:
            Noise ``[B, T, m]``.

        Raises:
            ConfigError: the band is narrower than the resolution of the record.
        """
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
    """First-order drift ``v⁺ = pole v + √(1 - pole²) w``, stationary from the first sample.

    >>> Drift(pole=0.9).sample((2, 100, 3), np.random.default_rng(0)).shape
    (2, 100, 3)
    """

    variance: float = 1.0
    """Variance in every channel."""
    pole: float = 0.99
    """Pole per sample, from 0 (white) to below 1."""

    def __post_init__(self) -> None:
        _check_poles(self, (self.pole,))

    def sample(self, shape: Shape, generator: np.random.Generator) -> Array:
        """Draw noise, see :meth:`Part.sample`.

        Args:
            shape: trajectories, steps, channels.
            generator: where every draw comes from.

        Returns:
            Noise ``[B, T, m]``.
        """
        return _drifts(shape, (self.pole,), self.variance, generator)


@dataclass(frozen=True)
class Pink:
    """``1/f`` noise as a sum of drifts of equal power, so that it has an exact model as states.

    Poles 0.5, 0.9, 0.99 follow ``1/ω`` within 20 % from ω = 0.01 to 3 radians per sample, with a mean slope of -1.01;
    below, where a record of 100 samples has no resolution, the spectrum is flat and the variance therefore finite.

    >>> Pink().sample((2, 100, 3), np.random.default_rng(0)).shape
    (2, 100, 3)
    """

    variance: float = 1.0
    """Variance in every channel."""
    poles: tuple[float, ...] = PINK_POLES
    """Poles per sample of the drifts."""

    def __post_init__(self) -> None:
        _check_poles(self, self.poles)

    def sample(self, shape: Shape, generator: np.random.Generator) -> Array:
        """Draw noise, see :meth:`Part.sample`.

        Args:
            shape: trajectories, steps, channels.
            generator: where every draw comes from.

        Returns:
            Noise ``[B, T, m]``.
        """
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
    """Samples go missing (NaN, masked) in bursts: a two-state Markov chain per trajectory.

    >>> y, everywhere = np.zeros((1, 2000, 1)), np.ones((1, 2000, 1), bool)
    >>> _, mask = Dropout(0.2, burst=5.0).apply(y, everywhere, np.random.default_rng(0))
    >>> bool(0.15 < (~mask).mean() < 0.25)
    True
    """

    rate: float = 0.1
    """Share of samples that go missing in the long run."""
    burst: float = 1.0
    """Mean length of a burst in samples."""
    together: bool = True
    """Whether all channels go missing at once, as with a lost packet."""

    def __post_init__(self) -> None:
        if not 0 <= self.rate < 1 or self.burst < 1 or self.rate > self.burst * (1 - self.rate):
            raise ConfigError(f"{self}: must have 0 ≤ rate < 1, burst ≥ 1 and rate / (1 - rate) ≤ burst")

    def apply(self, y: Array, mask: Mask, generator: np.random.Generator) -> tuple[Array, Mask]:
        """Let samples go missing, see :meth:`Operation.apply`.

        Args:
            y: measurements ``[B, T, m]``.
            mask: True where a channel was measured.
            generator: where every draw comes from.

        Returns:
            New measurements and mask.
        """
        batch, steps, channels = y.shape
        draws = generator.random((steps, batch, 1 if self.together else channels))
        recover, fail = 1 / self.burst, self.rate / (self.burst * (1 - self.rate))
        lost = np.empty(draws.shape, bool)
        lost[0] = draws[0] < self.rate
        for t in range(1, steps):
            lost[t] = draws[t] < np.where(lost[t - 1], 1 - recover, fail)
        gone = np.broadcast_to(lost.swapaxes(0, 1), y.shape)
        return np.where(gone, np.nan, y), mask & ~gone


def _check_band(part: object, low: float, high: float) -> None:
    if not 0 <= low <= high <= 1:
        raise ConfigError(f"{part}: must have 0 ≤ low ≤ high ≤ 1, as fractions of Nyquist")


def _check_poles(part: object, poles: tuple[float, ...]) -> None:
    if not poles or not all(0 <= pole < 1 for pole in poles):
        raise ConfigError(f"{part}: must have at least one pole, each in [0, 1)")
