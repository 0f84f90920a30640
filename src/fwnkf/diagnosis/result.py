"""The results of a diagnosis, as plain values for the report, JSON and tests."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..plain import printable
from ..settings import Suggestion
from ..summary import counted, html_card
from .finding import Finding

Array = NDArray[np.float64]

FIRST = 3
"""Problems that are shown before the others."""
ALL_CHANNELS = "all channels"
"""Name of the row of consistency of all channels together."""


class Peak(NamedTuple):
    """A line of a spectrum."""

    channel: str
    frequency: float
    """Hz, as it appears in the log."""
    amplitude: float
    """Of a sine with the power of the line, in the unit of the channel."""
    density: float
    """Power spectral density at the line."""
    ratio: float
    """Density at the line over the floor around it."""
    width: float
    """Hz, at half power."""
    rotor: int | None = None
    """Number of the rotor that it follows, from 1."""
    harmonic: int | None = None
    """Of that rotor; without rotors, of the lowest line of a series."""
    origin: float | None = None
    """Hz before it was folded at the Nyquist frequency, where it was."""
    correlation: float | None = None
    """Of the frequency of the line with that of its source over time."""
    label: str = ""
    """In words: "rotor 2, harmonic 1", "alias of 170 Hz"."""


@dataclass(frozen=True, eq=False)
class ChannelSpectrum:
    """Density of one channel: of its signal, of the innovations of a filter, or of those that the autopilot logged."""

    channel: str
    unit: str
    kind: str
    """``signal``, ``innovation`` or ``logged innovation``."""
    frequency: Array
    density: Array
    floor: Array
    white: float | None = None
    """Density that a consistent filter would have at all frequencies (innovations only)."""


@dataclass(frozen=True, eq=False)
class Waterfall:
    """Density over time; ``tracks`` are frequencies over time drawn above it, such as those of rotors."""

    channel: str
    unit: str
    time: Array
    frequency: Array
    density: Array
    """``[time, frequency]``"""
    tracks: Mapping[str, tuple[Array, Array]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Consistency:
    """NIS (or NEES) of a channel or of all: mean, the 95 % band of the mean, whiteness, and the course over time."""

    name: str
    kind: str
    """``NIS``, ``NEES`` or ``test ratio``."""
    mean: float
    low: float
    high: float
    count: int
    white_p: float | None
    """p-value of the whiteness test."""
    gated: float | None
    """Share of measurements that the gate rejects."""
    time: Array
    values: Array
    correlation: float | None = None
    """The autocorrelation over time that is farthest from zero."""


@dataclass(frozen=True, eq=False)
class AllanDeviation:
    """Allan deviation of one channel, and what is read from it."""

    channel: str
    unit: str
    tau: Array
    deviation: Array
    white: float | None
    """Noise density, unit/√Hz."""
    instability: float | None
    walk: float | None
    """Of the bias, unit/s/√Hz."""


@dataclass(frozen=True, eq=False)
class Trade:
    """Error of the estimate against its delay for one channel: a curve for each method, and marked points."""

    channel: str
    unit: str
    curves: Mapping[str, tuple[Array, Array]]
    """Delay (ms) and error (unit of the channel) by method."""
    marks: Mapping[str, tuple[float, float]] = field(default_factory=dict)


Outcome = Literal["better", "worse", "unchanged"]


@dataclass(frozen=True, eq=False)
class Fix:
    """Filters before and after the fix, compared on the part of the log that was not used to fit."""

    rows: tuple[Mapping[str, Any], ...]
    """``method``, ``log_likelihood`` per sample, ``nis``, ``white_p`` and, with truth, ``error``."""
    spectra: tuple[ChannelSpectrum, ...]
    """Innovations after the fix."""
    parameters: Mapping[str, float]
    folder: str | None = None
    """Where the filter was saved; None if it was not."""
    notes: tuple[str, ...] = ()
    kept: str = ""
    """The method that was chosen on the part used to fit."""
    outcome: Outcome = "unchanged"
    """Whether it predicts the held-out part better or worse than the previous filter; unchanged if that was kept."""
    gain: float = 0.0
    """Gain in log-likelihood per held-out sample over the previous filter."""
    gain_error: float = 0.0
    """Standard error of the gain."""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Everything that the report shows.

    >>> Diagnosis("flight.ulg", "ulog", 61.7, "constant velocity").verdict
    'No problem was found in this log.'
    """

    name: str
    """Name of the log."""
    format: str
    """Format of the log."""
    seconds: float
    """Length of the log."""
    filter: str
    """The filter whose innovations are shown, in words."""
    stamps: tuple[Any, ...] = ()
    """Time stamps of every stream (:class:`fwnkf.logs.stamps.StampReport`)."""
    findings: tuple[Finding, ...] = ()
    """The most severe first."""
    peaks: tuple[Peak, ...] = ()
    """Lines of the spectra."""
    spectra: tuple[ChannelSpectrum, ...] = ()
    """Densities of signals and innovations."""
    waterfalls: tuple[Waterfall, ...] = ()
    """Densities over time."""
    consistency: tuple[Consistency, ...] = ()
    """NIS and NEES."""
    allan: tuple[AllanDeviation, ...] = ()
    """Allan deviations."""
    trades: tuple[Trade, ...] = ()
    """Error of the estimate against its delay."""
    fix: Fix | None = None
    """Filters before and after, if a fix was asked for."""
    settings: tuple[Suggestion, ...] = ()
    """Numbers to type in: settings whose gain is significant on the held-out half of the log."""
    settings_notes: tuple[str, ...] = ()
    """Lines for which no setting is suggested, and why."""
    notes: tuple[str, ...] = ()
    """What could not be examined, and why."""
    facts: Mapping[str, float | str] = field(default_factory=dict)
    """Of the vehicle and the flight: vehicle, firmware, sampling rate, rotors, times in the air."""
    thresholds: Mapping[str, str] = field(default_factory=dict)
    """Every threshold that was used, by name: its value with unit, and what it means."""
    command: str = ""
    """The command line that gives this diagnosis again."""

    def __repr__(self) -> str:
        return printable(f"<Diagnosis of {self.name} ({self.format}, {self.seconds:.4g} s): {self.verdict}>")

    def _repr_html_(self) -> str:
        rows = [(item.severity, item.confidence, item.title, item.what, item.action) for item in self.findings]
        head = ("severity", "confidence", "finding", "what is wrong", "what to do")
        facts = {"log": f"{self.name} ({self.format}, {self.seconds:.4g} s)", "filter": self.filter}
        notes = counted(len(self.notes), "note") if self.notes else ""
        return html_card(self.verdict, facts, head, rows, notes)

    @property
    def problems(self) -> tuple[Finding, ...]:
        """Warnings and failures."""
        return tuple(finding for finding in self.findings if finding.severity != "info")

    @property
    def first(self) -> tuple[Finding, ...]:
        """What a reader needs first: at most three problems; without any, what the log cannot show."""
        limits = [finding for finding in self.findings if finding.cause == "not_observable"]
        return self.problems[:FIRST] or tuple(limits[:1])

    @property
    def verdict(self) -> str:
        """All problems in one line, or a sentence that no problem was found."""
        titles = list(dict.fromkeys(finding.title for finding in self.problems))
        if not titles:
            return "No problem was found in this log."
        count = "1 problem" if len(titles) == 1 else f"{len(titles)} problems"
        return f"{count}: {'; '.join(titles)}."

    def as_dict(self, *, arrays: bool = True) -> dict[str, Any]:
        """Everything as values of strict JSON.

        Args:
            arrays: whether curves are included; without, they are replaced by their shape.

        Returns:
            Fields by name, and the verdict.

        >>> diagnosis = Diagnosis("flight.ulg", "ulog", 61.7, "constant velocity")
        >>> diagnosis.as_dict()["verdict"]
        'No problem was found in this log.'
        """
        values: dict[str, Any] = plain_values(self, arrays=arrays)
        return {"verdict": self.verdict, **values}


# ---- as plain values ------------------------------------------------------------------------------------------------

DIGITS = 6
"""Significant digits of floats: more than a log can support, and half the size of a file."""


def plain_values(value: Any, *, arrays: bool = True) -> Any:
    """Dataclasses and named tuples as dictionaries, arrays as lists; without ``arrays``, their shape instead.

    NaN becomes None, infinity the word ``"inf"``, as in the other JSON of this package.

    >>> plain_values({"density": np.array([1.0, np.nan, np.inf]), "peak": 96.8765432})
    {'density': [1.0, None, 'inf'], 'peak': 96.8765}
    >>> plain_values({"density": np.zeros((2, 3))}, arrays=False)
    {'density': {'shape': [2, 3]}}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: plain_values(getattr(value, name), arrays=arrays) for name in names}
    if isinstance(value, Mapping):
        return {str(name): plain_values(item, arrays=arrays) for name, item in value.items()}
    if isinstance(value, np.ndarray) and value.ndim:
        return plain_values(value.tolist()) if arrays else {"shape": list(value.shape)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: plain_values(item, arrays=arrays) for name, item in zip(value._fields, value, strict=True)}
    if isinstance(value, list | tuple):
        return [plain_values(item, arrays=arrays) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain_values(value.item())
    if isinstance(value, float):
        return _number(value)
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _number(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(value)
