"""The time of a table: which column it is, and its unit, as the header states it or as its values suggest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .log import Array

SECONDS: Mapping[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
UNITS: Mapping[str, str] = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("ms", "msec", "millis", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("us", "µs", "μs", "usec", "micros", "microsecond", "microseconds"), "us"),
    **dict.fromkeys(("ns", "nsec", "nanos", "nanosecond", "nanoseconds"), "ns"),
}
"""Spellings of units of time."""
EPOCH = (9e8, 4.2e9)
"""Unix times of the years 1998 to 2103, by which the unit of a time stamp is recognized."""
_NAME = re.compile(
    r"(?:#\s*)?(?:t|ts|time|timestamp|time_?stamp|stamp|clock|epoch|elapsed|(?:unix|utc|gps|ros|sim|log|sample)[_ ]?"
    r"(?:time|stamp)|elapsed[_ ]?time|date_?time|date|utc|seconds|secs)(?:[_ ](?P<unit>[a-zµμ]+))?"
)
_LIKE = re.compile(r"time|stamp", re.IGNORECASE)


class TimeUnit(NamedTuple):
    """The unit of time stamps, one of :data:`SECONDS`, and where it is from."""

    unit: str
    source: str
    """``header``, ``name`` or ``guess``."""

    @property
    def factor(self) -> float:
        """To seconds."""
        return SECONDS[self.unit]


def time_column(units: Mapping[str, str]) -> str | None:
    """The column of a table that is the time, by the names and units of all of them; None if there is none.

    >>> time_column({"load": "N", "time_ms": ""}), time_column({"t": "degC", "x": ""})
    ('time_ms', None)
    """
    for name, unit in units.items():
        match = _NAME.fullmatch(name.strip().lower())
        if match is not None and _known(unit) and (match["unit"] is None or match["unit"] in UNITS):
            return name
    like = [name for name, unit in units.items() if _LIKE.search(name) and _known(unit)]
    return like[0] if len(like) == 1 else None


def _known(unit: str) -> bool:
    return not unit or unit.strip().lower() in UNITS


def time_unit(name: str, unit: str, stamps: NDArray[np.float64]) -> TimeUnit | None:
    """The unit of time stamps: that of the header, of the name, or the one that their values suggest.

    None if the header states a unit that is not one of time.

    >>> time_unit("t", "", 10.0 * np.arange(50)), time_unit("t_us", "", np.arange(3.0)).unit
    (TimeUnit(unit='ms', source='guess'), 'us')
    """
    if unit:
        known = UNITS.get(unit.strip().lower())
        return None if known is None else TimeUnit(known, "header")
    suffix = re.fullmatch(r".*[_ ]([a-zµμ]+)", name.lower())
    if suffix is not None and suffix[1] in UNITS:
        return TimeUnit(UNITS[suffix[1]], "name")
    return TimeUnit(_guessed(stamps), "guess")


def _guessed(stamps: Array) -> str:
    known = stamps[np.isfinite(stamps)]
    steps = np.diff(known)
    steps = steps[steps > 0]
    step = float(np.median(steps)) if len(steps) else 0.0
    first = float(known[0]) if len(known) else 0.0
    for unit, second in SECONDS.items():
        if EPOCH[0] <= first * second <= EPOCH[1] and step * second <= 10.0:
            return unit
    # not a Unix time: logs are sampled at 1 to 1000 Hz; a step of one is taken as seconds
    if step <= 1.0:
        return "s"
    return "ms" if step < 1e3 else "us" if step < 1e6 else "ns"
