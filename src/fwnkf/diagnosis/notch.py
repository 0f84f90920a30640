"""Filters that engineers put in front of an estimator, with what they cost: the notch and the low-pass.

Delays are group delays, at 0 Hz unless a frequency is given: what a slow motion is late by.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Biquad(NamedTuple):
    """``b`` and ``a`` of a second-order section, ``a[0] = 1``."""

    b: tuple[float, float, float]
    a: tuple[float, float, float]

    def response(self, frequency: Array, rate: float) -> NDArray[np.complex128]:
        """Complex gain at frequencies in Hz."""
        delay = np.exp(-2j * np.pi * np.asarray(frequency) / rate)
        above = self.b[0] + self.b[1] * delay + self.b[2] * delay**2
        return np.asarray(above / (self.a[0] + self.a[1] * delay + self.a[2] * delay**2))

    def delay(self, rate: float, frequency: float = 0.0) -> float:
        """Group delay in seconds; at 0 Hz it is the phase delay too."""
        steps = np.arange(3)
        late = np.exp(-2j * np.pi * frequency / rate * steps)
        above, below = np.array(self.b) * late, np.array(self.a) * late
        return float(((steps * above).sum() / above.sum() - (steps * below).sum() / below.sum()).real / rate)

    def apply(self, values: Array) -> Array:
        """Filter along the first axis; the first sample is taken for the past."""
        b, a = np.array(self.b), np.array(self.a)
        output = np.empty_like(values)
        # transposed direct form II, begun in the steady state of the first sample
        first = values[0]
        level = first * b.sum() / a.sum()
        state = [b[1:].sum() * first - a[1:].sum() * level, b[2] * first - a[2] * level]
        for step, value in enumerate(values):
            output[step] = b[0] * value + state[0]
            state = [b[1] * value - a[1] * output[step] + state[1], b[2] * value - a[2] * output[step]]
        return output


def notch(frequency: float, bandwidth: float, rate: float) -> Biquad:
    """As PX4 computes it: zero gain at ``frequency``, half power ``bandwidth`` Hz apart.

    >>> section = notch(100.0, 15.0, 1000.0)
    >>> abs(section.response(np.array([100.0]), 1000.0)).round(9).tolist(), round(1e3 * section.delay(1000.0), 2)
    ([0.0], 0.25)
    """
    alpha = math.tan(math.pi * bandwidth / rate)
    beta = -math.cos(2 * math.pi * frequency / rate)
    share = 1 / (1 + alpha)
    return Biquad((share, 2 * beta * share, share), (1.0, 2 * beta * share, (1 - alpha) * share))


def low_pass(cutoff: float, rate: float) -> Biquad:
    """Butterworth of second order, as in PX4 and ArduPilot.

    >>> round(1e3 * low_pass(30.0, 1000.0).delay(1000.0), 1)
    7.5
    """
    ohm = math.tan(math.pi * cutoff / rate)
    share = 1 / (1 + math.sqrt(2) * ohm + ohm * ohm)
    gain = ohm * ohm * share
    return Biquad(
        (gain, 2 * gain, gain), (1.0, 2 * (ohm * ohm - 1) * share, (1 - math.sqrt(2) * ohm + ohm * ohm) * share)
    )


def notch_bandwidth(frequency: float, width: float, rate: float) -> float:
    """Bandwidth (Hz) of a notch for a line of this width at half power: three widths, and a tenth of the frequency.

    It is at most a fifth of the sampling rate: a wider one is no notch, and from half the rate on the section is not
    stable.

    >>> notch_bandwidth(60.0, 1.0, 200.0), notch_bandwidth(60.0, 50.0, 200.0)
    (6.0, 40.0)
    """
    return min(max(3 * width, 0.1 * frequency), 0.2 * rate)
