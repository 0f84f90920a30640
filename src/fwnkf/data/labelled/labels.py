"""The truth about a simulated log: what is wrong with it, where, and how strongly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

GYRO_FAULT, ACCEL_FAULT = 0.035, 0.9
"""Amplitude (rad/s, m/s²) in the strongest channel from which a line is a fault."""
GYRO_WEAK, ACCEL_WEAK = 0.012, 0.3
"""Amplitude in every channel up to which a line is ordinary. Between both limits it may be named, and need not be."""


class Line(NamedTuple):
    """A line of a label: one order of a rotor, or the line itself.

    >>> Line(2.0, 98.0, 1.5, {"gyro_x": 0.05}, folded=True).amplitude["gyro_x"]
    0.05
    """

    order: float
    """Multiple of the rotor's speed; 1 where no rotor makes it."""
    frequency: float
    """Hz at which it appears in the log, folded where it has to be: the mean over the flight, weighted by power."""
    spread: float
    """Standard deviation of that frequency over the flight, weighted by power (Hz)."""
    amplitude: Mapping[str, float]
    """By channel: that of a sine of the same power, over the time in the air."""
    folded: bool = False
    """Whether it is above the Nyquist frequency for most of its power."""


@dataclass(frozen=True)
class Label:
    """A fault of a simulated log.

    >>> Label("gaps", "skipped samples", figures={"share": 0.05}).causes
    ('gaps',)
    """

    cause: str
    """As a finding names it."""
    kind: str
    """What was simulated: ``unbalance``, ``bent shaft``, ``hard landing`` …"""
    also: tuple[str, ...] = ()
    """Causes that this log cannot separate from it: naming one of them is right."""
    channels: tuple[str, ...] = ()
    """The channels in which it is; empty where it concerns the log."""
    lines: tuple[Line, ...] = ()
    """The strongest first."""
    rotor: int | None = None
    """From 1."""
    required: bool = True
    """False for what may be named but need not be: lines of medium strength, and consequences of another fault."""
    figures: Mapping[str, float | str] = field(default_factory=dict)
    """Further numbers with the unit in the name: ``delay_s``, ``share``, ``at_s``, ``width_hz``."""

    @property
    def causes(self) -> tuple[str, ...]:
        """The cause, and those that cannot be separated from it."""
        return (self.cause, *self.also)

    @property
    def frequency(self) -> float | None:
        """Of the strongest line."""
        return self.lines[0].frequency if self.lines else None
