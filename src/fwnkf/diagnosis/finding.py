"""A finding of the diagnosis: what is wrong, how sure, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["info", "warning", "failure"]

CAUSES: Mapping[str, str] = {
    "vibration": "a line in the noise at a fixed frequency",
    "rotor_vibration": "a line that follows the speed of a rotor or one of its harmonics",
    "aliasing": "a line from above the Nyquist frequency, folded down",
    "broadband": "noise far above the usual floor, without a line",
    "drift": "a bias that wanders",
    "gaps": "missing samples: gaps, dropouts, skipped samples",
    "clipping": "values at the limit of the range",
    "time_base": "time stamps with a wrong unit, rate, order or offset",
    "overconfident": "innovations larger than the filter states",
    "underconfident": "innovations smaller than the filter states",
    "coloured": "innovations correlated in time, without a line",
    "no_aiding": "no position or velocity is measured, so that the estimate drifts",
    "impact": "a shock far above the rest of the flight",
    "damaged_file": "a part of the file could not be read",
    "not_observable": "something that this log cannot show",
}
"""Causes by name, with their meaning."""


@dataclass(frozen=True)
class Finding:
    """One finding of a diagnosis.

    >>> Finding("gaps", "warning", 0.9, "Samples are missing.", "3 gaps", "Check the link.").severity
    'warning'
    """

    cause: str
    """One of :data:`CAUSES`."""
    severity: Severity
    """``"info"``, ``"warning"`` or ``"failure"``."""
    confidence: float
    """From 0 to 1: how sure."""
    what: str
    """What is wrong, in one sentence."""
    evidence: str
    """The measurement that says so, beside its threshold."""
    action: str
    """What to do."""
    channels: tuple[str, ...] = ()
    """The channels that it is about."""
    figures: Mapping[str, float | str] = field(default_factory=dict)
    """The numbers behind it, with the unit in the name: ``frequency_hz``, ``r_factor``."""
