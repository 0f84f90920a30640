"""A finding of the diagnosis: what is wrong, with what confidence, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["info", "warning", "failure"]
Confidence = Literal["low", "medium", "high"]

HIGH, MEDIUM = 0.9, 0.7
"""Scores from which the confidence is high and medium. Below, it is low."""

CAUSES: Mapping[str, str] = {
    "vibration": "a line in the noise at a fixed frequency",
    "rotor_vibration": "a line that follows the speed of a rotor or one of its harmonics",
    "aliasing": "a line above the Nyquist frequency that appears at a lower frequency",
    "broadband": "noise far above the usual floor, without a line",
    "drift": "a sensor bias that changes during the log",
    "gaps": "missing samples: gaps, dropouts, skipped samples",
    "clipping": "values at the limit of the range",
    "quantisation": "steps of a sensor that are larger than the rest of its noise",
    "time_base": "time stamps with a wrong unit, rate, order or offset",
    "overconfident": "innovations or errors larger than the filter expects",
    "underconfident": "innovations or errors smaller than the filter expects",
    "coloured": "innovations correlated in time, without a line",
    "no_aiding": "no position or velocity is measured, so that the estimate drifts",
    "impact": "an acceleration far above that of the rest of the flight",
    "damaged_file": "a part of the file could not be read",
    "not_observable": "something that cannot be determined from this log",
}
"""Causes by name, with their meaning."""


@dataclass(frozen=True)
class Finding:
    """One finding of a diagnosis.

    >>> finding = Finding("gaps", "warning", 0.95, "Samples are missing.", "3 gaps", "Check the link.")
    >>> finding.severity, finding.confidence
    ('warning', 'high')
    """

    cause: str
    """One of :data:`CAUSES`."""
    severity: Severity
    """``"info"``, ``"warning"`` or ``"failure"``."""
    score: float
    """From 0 to 1. It orders findings and sets their confidence; it is not calibrated and not a probability."""
    what: str
    """What is wrong, in one sentence."""
    evidence: str
    """The measurement behind it, with its threshold."""
    action: str
    """What to do."""
    channels: tuple[str, ...] = ()
    """The channels that are affected."""
    figures: Mapping[str, float | str] = field(default_factory=dict)
    """The numbers behind it, with the unit in the name: ``frequency_hz``, ``r_factor``."""
    confidence: Confidence = field(init=False)
    """``"high"`` for a score of 0.9 or more, ``"medium"`` for 0.7 or more, otherwise ``"low"``."""

    def __post_init__(self) -> None:
        confidence = "high" if self.score >= HIGH else "medium" if self.score >= MEDIUM else "low"
        object.__setattr__(self, "confidence", confidence)
