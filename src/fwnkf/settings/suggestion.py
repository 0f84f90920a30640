"""A number to type in: the suggested value of one parameter, with what supports it and what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from .catalogue import Firmware, Parameter


class Gain(NamedTuple):
    """What a change improves on data that were not used to choose it, with its 95 % interval; more is better.

    >>> Gain(12.0, 9.5, 14.5, "% less gyro vibration").significant
    True
    """

    value: float
    """The gain."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""
    of: str
    """What it is in, in words: ``% less gyro vibration``, ``nats per held-out GNSS fix``."""

    @property
    def significant(self) -> bool:
        """Whether the whole interval is above zero."""
        return math.isfinite(self.value) and self.low > 0

    def __str__(self) -> str:
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g}) {self.of}"


@dataclass(frozen=True)
class Suggestion:
    """The suggested value of one parameter.

    >>> from fwnkf.settings import find
    >>> change = Suggestion.of(find("IMU_GYRO_NF0_FRQ"), 96.83, current=0.0, why="A fixed line at 96.8 Hz.")
    >>> change.name, change.value, change.maximum
    ('IMU_GYRO_NF0_FRQ', 97.0, 1000.0)
    """

    name: str
    """Of the parameter, as the vehicle of the log spells it."""
    value: float
    """Rounded as a person would type it, inside the firmware's range."""
    current: float | None
    """In the log; None if the log does not have it."""
    unit: str
    """Of the value; empty for switches and counts."""
    minimum: float | None
    """The least value that the firmware documents, where it does."""
    maximum: float | None
    """The largest value that the firmware documents, where it does."""
    default: float | None
    """The firmware's default, where it does not depend on the vehicle."""
    why: str
    """One sentence."""
    gain: Gain | None = None
    """On held-out data; None if it could not be measured."""
    delay: float | None = None
    """Seconds of delay that the change adds to the signal; None where it adds none."""
    group: str = ""
    """Settings of one group have an effect only together, and share their gain and delay."""
    firmware: Firmware = "PX4"
    """Whose parameter it is."""
    whole: bool = False
    """Whether the parameter is an integer."""

    @staticmethod
    def of(
        parameter: Parameter,
        value: float,
        *,
        why: str,
        current: float | None = None,
        name: str = "",
        gain: Gain | None = None,
        delay: float | None = None,
        group: str = "",
    ) -> Suggestion:
        """From the catalogue: the value is rounded and kept inside the range.

        Args:
            parameter: of the catalogue.
            value: wanted, in the unit of the parameter.
            why: one sentence; that a limit of the firmware was met is added to it.
            current: value in the log.
            name: as this vehicle spells it; by default as the catalogue does.
            gain: on held-out data.
            delay: seconds.
            group: settings that belong together.

        Returns:
            The suggestion.

        >>> from fwnkf.settings import find
        >>> Suggestion.of(find("EKF2_ACC_NOISE"), 2.345, why="Vibration.").value
        1.0
        """
        typed = parameter.typed(value)
        low, high = parameter.minimum, parameter.maximum
        if typed in (low, high) and not math.isclose(typed, parameter.rounded(value)):
            why += f" The firmware allows {low:g} to {high:g}; the data ask for {value:.3g}."
        return Suggestion(
            name or parameter.name, typed, None if current is None else float(f"{current:.6g}"), parameter.unit, low,
            high, parameter.default, why, gain, delay, group, parameter.firmware, parameter.whole,
        )  # fmt: skip

    @property
    def changes(self) -> bool:
        """Whether the value differs from that in the log."""
        return self.current is None or not math.isclose(self.value, self.current, rel_tol=1e-4, abs_tol=1e-9)

    @property
    def range(self) -> str:
        """The firmware's range in words; empty where it documents none.

        >>> from fwnkf.settings import find
        >>> Suggestion.of(find("EKF2_GPS_DELAY"), 180, why="").range
        '0 to 300'
        """
        if self.minimum is None or self.maximum is None:
            return ""
        return f"{self.minimum:g} to {self.maximum:g}"

    @property
    def text(self) -> str:
        """The value as it is typed.

        >>> from fwnkf.settings import find
        >>> Suggestion.of(find("EKF2_GYR_B_NOISE"), 0.0000123, why="").text
        '0.000012'
        """
        return f"{self.value:.0f}" if self.whole else f"{self.value:.9f}".rstrip("0").rstrip(".")


def significant(suggestions: Iterable[Suggestion]) -> tuple[Suggestion, ...]:
    """Those that are worth typing: groups that change something and whose gain is significant on held-out data.

    Of a group that changes something all settings stay, those that are in the log already too, because they have an
    effect only together.

    Args:
        suggestions: any.

    Returns:
        Some of them, in the same order.

    >>> from fwnkf.settings import find
    >>> row = Suggestion.of(find("EKF2_GPS_DELAY"), 180, current=110, why="", gain=Gain(2, -1, 5, "nats"))
    >>> significant([row])
    ()
    """
    rows = list(suggestions)
    changed = {row.group or row.name for row in rows if row.changes}
    return tuple(
        row for row in rows if (row.group or row.name) in changed and row.gain is not None and row.gain.significant
    )
