"""Whether a time stamp is of the clock of a stream, and when stamps of another clock are accepted.

One stamp of another clock (Unix time between seconds since the start, a damaged message) must not move a filter: it
would be predicted over decades, and every correct measurement after it would be late. Stamps that jump and stay there
are a clock that was set, or a device that was off.
"""

from __future__ import annotations

import math
from typing import Any

from ..errors import ConfigError, DataError, shown
from .stepper import MOST_STEPS, Sample

LONGEST_PREDICTION = 60.0
"""Seconds that a filter is predicted over by default; more for one of slow steps: ..."""
STEPS = 3000
"""... as many of its steps, and of those that divide a gap no more: they take seconds."""
HELD = 8
"""Samples with the same stamp that are held, on average: sensors may come one after the other."""


def longest_gap(given: float | None, takes_dt: bool, step: float | None, longest_step: float | None) -> float:
    """Seconds to the next stamp that are predicted over: those given, or a default of the filter.

    >>> longest_gap(None, True, 0.01, None), longest_gap(None, True, 1.0, None), longest_gap(None, False, 0.01, None)
    (60.0, 3000.0, 30.0)
    """
    part = longest_step if takes_dt else step
    if given is None:
        gap = max(LONGEST_PREDICTION, STEPS * (step or 0.0))
        return gap if part is None else min(gap, STEPS * part)
    if not 0 < given < math.inf:
        raise ConfigError(f"longest_gap = {given} must be a positive number of seconds")
    if part is not None and given / part > MOST_STEPS:
        raise ConfigError(
            f"longest_gap = {given} s would take {given / part:,.0f} steps of {part} s without measurement; the most "
            f"are {MOST_STEPS:,}, in {MOST_STEPS * part:,.6g} s"
        )
    return float(given)


def seconds(stamp: Any) -> float:
    """A time stamp as a number; raises DataError unless it is a finite number of seconds.

    >>> seconds(1.5), seconds(3)
    (1.5, 3.0)
    """
    try:
        value = math.nan if isinstance(stamp, (str, bytes)) else float(stamp)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f"t = {shown(stamp)}: the time of a measurement must be a finite number of seconds")
    return value


class OtherClock:
    """Samples in a row whose stamps are not of the clock of the stream, but may be of another one."""

    def __init__(self, gap: float, wanted: int) -> None:
        self.gap, self.wanted = gap, max(wanted, 1)
        self.held: tuple[Sample, ...] = ()

    def add(self, sample: Sample) -> list[Sample] | None:
        """Hold a sample; the samples of the new clock in order once there are enough that agree, else None."""
        near = self.held and abs(sample.time - self.held[-1].time) <= self.gap
        self.held = (*self.held, sample)[-HELD * self.wanted :] if near else (sample,)
        if len({item.time for item in self.held}) < self.wanted:
            return None
        samples = sorted(self.held, key=lambda item: item.time)
        self.held = ()
        return samples
