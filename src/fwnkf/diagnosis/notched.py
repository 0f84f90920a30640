"""What notches take out of a gyro on a part of the log that was not used to choose them, and the delay they cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..settings import Gain
from .autopilots import BANDWIDTH as ARDUPILOT_WIDTH
from .autopilots import CENTRE, NOTCH_WIDTH, NYQUIST_SHARE, ROTOR_QUALITY, Autopilot, moving_notch
from .notch import notch
from .spectra import Grid, detrended, grid_spectrum, noise_floor

Array = NDArray[np.float64]
Response = Callable[[Array], Array]

LOWEST = 20.0
"""Hz: vibration is above, and delays are given here, where motion ends."""
BLOCK = 0.5
"""Seconds of a block whose power is compared before and after."""
FEWEST = 8
"""Blocks below which no interval is given."""
SETTLED = 0.25
"""Seconds after the start of a run in which a notch settles."""
LONGEST = 12_000
"""Samples that are filtered at most: the section is computed sample by sample."""
GAINED = "% less gyro vibration above 20 Hz"


@dataclass(frozen=True, eq=False)
class Notch:
    """One notch of a gyro, standing still or following a speed."""

    time: Array
    hz: Array
    """Centre at these times; NaN where the notch is off."""
    autopilot: Autopilot
    width: float | None = None
    """Hz at half power of a notch that stands still; None for the firmware's usual width."""
    channel: int | None = None
    """The axis it is for; None for all."""

    @property
    def centre(self) -> float:
        """The usual one, in Hz."""
        return float(np.nanmedian(self.hz))

    def width_at(self, hz: float) -> float:
        """Hz at half power."""
        if self.width is not None:
            return self.width
        shares = {"PX4": NOTCH_WIDTH / hz, "ArduPilot": ARDUPILOT_WIDTH / CENTRE, "Betaflight": 1 / ROTOR_QUALITY}
        return shares[self.autopilot] * hz

    def apply(self, values: Array, start: float, rate: float) -> Array:
        """Filter a run ``[samples, channels]`` that starts at a time."""
        chosen = slice(None) if self.channel is None else slice(self.channel, self.channel + 1)
        result = values.copy()
        if self.width is not None:
            if self.centre < NYQUIST_SHARE * rate:
                result[:, chosen] = notch(self.centre, min(self.width, 0.2 * rate), rate).apply(values[:, chosen])
            return result
        hz = np.interp(start + np.arange(len(values)) / rate, self.time, self.hz)
        inside = np.isfinite(hz) & (hz < NYQUIST_SHARE * rate)
        if inside.any():
            # the section goes on where it is off, so that it is settled when it is on again
            held = np.where(inside, hz, np.median(hz[inside]))
            filtered = moving_notch(values[:, chosen], held, 1 / rate, self.autopilot)
            result[:, chosen] = np.where(inside[:, None], filtered, values[:, chosen])
        return result

    def power(self, frequency: Array, time: float, rate: float, channels: int) -> Array:
        """Squared gain ``[frequency, channels]`` at a time."""
        result = np.ones((len(frequency), channels))
        hz = float(np.interp(time, self.time, self.hz))
        if math.isfinite(hz) and 0 < hz < NYQUIST_SHARE * rate:
            section = notch(hz, min(self.width_at(hz), 0.2 * rate), rate)
            gain = np.abs(section.response(frequency, rate)) ** 2
            result[:, slice(None) if self.channel is None else self.channel] *= (
                gain[:, None] if self.channel is None else gain
            )
        return result


def delay_of(notches: Sequence[Notch], rate: float) -> float:
    """Group delay at 20 Hz of notches in series, in seconds, at the rate at which the firmware filters.

    >>> one = Notch(np.zeros(1), np.array([100.0]), "PX4", 15.0)
    >>> round(1e3 * delay_of([one], 1000.0), 2)
    0.28
    """
    axes = {item.channel for item in notches}
    total = 0.0
    for axis in axes:  # notches of one axis alone delay that axis: the slowest counts
        chosen = [item for item in notches if item.channel in (None, axis)]
        sections = [notch(item.centre, item.width_at(item.centre), rate) for item in chosen if item.centre < 0.5 * rate]
        total = max(total, sum(section.delay(rate, LOWEST) for section in sections))
    return total


def first(grid: Grid, samples: int = LONGEST) -> Grid:
    """At most so many samples from the start."""
    runs, starts, left = [], [], samples
    for run, start in zip(grid.runs, grid.starts, strict=True):
        if left > 0:
            runs.append(run[:left])
            starts.append(start)
            left -= len(run)
    return grid._replace(runs=tuple(runs), starts=tuple(starts))


def notched(grid: Grid, notches: Sequence[Notch]) -> Grid:
    """The same samples behind notches."""
    runs = list(grid.runs)
    for item in notches:
        runs = [item.apply(run, start, grid.rate) for run, start in zip(runs, grid.starts, strict=True)]
    return grid._replace(runs=tuple(runs))


class Tested(NamedTuple):
    """Notches on the held-out part."""

    gain: Gain | None
    """Less vibration, in per cent of its RMS above 20 Hz; None if the part is too short for an interval."""
    beyond: Gain | None
    """The same beyond what a low-pass of first order with the same delay takes."""
    after: Grid
    """The samples behind the notches."""


def held_out(before: Grid, notches: Sequence[Notch], delay: float, flown: Response) -> Tested:
    """How much less vibration there is behind notches.

    Of ``gain``, what they take from the noise floor is given back: a notch takes something from any noise, and only the
    line it is for counts. Intervals are those of ratios of sums over blocks.

    Args:
        before: gyro of the held-out part.
        notches: to try.
        delay: that they cost, in seconds.
        flown: squared gain, at frequencies in Hz, of the filters that the gyro passes anyway.

    >>> from fwnkf.diagnosis.spectra import even_grid
    >>> time = np.arange(8000) / 400
    >>> noise = np.random.default_rng(0).normal(size=(8000, 1))
    >>> tone = noise + 2 * np.sin(2 * np.pi * 90 * time)[:, None]
    >>> one = Notch(np.zeros(1), np.array([90.0]), "PX4", 10.0)
    >>> held_out(even_grid(time, tone), [one], 2e-4, np.ones_like).gain.low > 30  # √3 to about 1: 42 %
    True
    >>> held_out(even_grid(time, noise), [one], 2e-4, np.ones_like).gain.significant
    False
    """
    after = notched(before, notches)
    frequency, centres, power = _blocks(before)
    _, _, left = _blocks(after)
    if len(centres) < FEWEST:
        return Tested(None, None, after)
    measured = grid_spectrum(before)
    floor = noise_floor(measured)
    channels = floor.shape[1]
    floor = np.stack([np.interp(frequency, measured.frequency, floor[:, k]) for k in range(channels)], -1)
    weight = (flown(frequency) * (frequency >= LOWEST))[:, None]
    taken = np.empty(len(centres))
    for row, centre in enumerate(centres):
        passed = np.ones_like(floor)
        for item in notches:
            passed *= item.power(frequency, centre, before.rate, channels)
        taken[row] = (weight * floor * (1 - passed)).sum()
    total = (weight * power).sum((1, 2))
    removed = total - (weight * left).sum((1, 2))
    turn = (2 * np.pi * frequency * delay)[:, None] ** 2
    smoothed = (weight * power * turn / (1 + turn)).sum((1, 2))
    return Tested(_ratio(removed - taken, total), _ratio(removed - smoothed, total), after)


def _ratio(removed: Array, total: Array) -> Gain | None:
    """Removed over total power, as a share of the RMS, with the interval of a ratio estimator."""
    if not total.sum() > 0:
        return None
    share = float(removed.sum() / total.sum())
    count = len(total)
    error = math.sqrt(float(((removed - share * total) ** 2).sum()) * count / (count - 1)) / float(total.sum())

    def rms(part: float) -> float:
        return 100 * (1 - math.sqrt(1 - min(part, 1.0))) if part > 0 else 50 * part

    return Gain(rms(share), rms(share - 1.96 * error), rms(share + 1.96 * error), GAINED)


def _blocks(grid: Grid) -> tuple[Array, Array, Array]:
    """Frequencies, centres of blocks in seconds, and densities ``[blocks, frequency, channels]``."""
    length = max(2 * round(grid.rate * BLOCK / 2), 16)
    window = np.hanning(length + 1)[:-1]
    scale = 2 / (grid.rate * (window**2).sum())
    centres, rows = [], []
    for run, start in zip(grid.runs, grid.starts, strict=True):
        for begin in range(round(SETTLED * grid.rate), len(run) - length + 1, length):
            piece = detrended(run[begin : begin + length])
            rows.append(scale * np.abs(np.fft.rfft(piece * window[:, None], axis=0)) ** 2)
            centres.append(start + (begin + length / 2) / grid.rate)
    frequency = np.arange(length // 2 + 1) * grid.rate / length
    return frequency, np.array(centres), np.array(rows).reshape(-1, len(frequency), grid.runs[0].shape[1])
