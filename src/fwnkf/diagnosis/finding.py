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
    "resonance": "a fixed band that rings when the rotors, or the flow, excite it",
    "aliasing": "a line above the Nyquist frequency that appears at a lower frequency",
    "broadband": "noise far above the usual floor, without a line",
    "axis_sign": "an axis that is mirrored",
    "axis_swap": "axes that are exchanged",
    "scale": "a signal in a wrong unit, or wrong by a factor",
    "bias_step": "a sensor bias that jumps",
    "interference": "a magnetic field that changes with the supply current",
    "gnss_glitch": "a position of a receiver that jumps and comes back",
    "delay": "a signal that is late against the others",
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


TITLES: Mapping[str, str] = {
    "rotor_vibration": "rotor vibration",
    "aliasing": "alias",
    "broadband": "shaking",
    "drift": "drifting bias",
    "bias_step": "jump of the bias",
    "axis_sign": "wrong sign",
    "axis_swap": "exchanged axes",
    "scale": "wrong scale",
    "interference": "magnetic interference",
    "gnss_glitch": "jumps of the GNSS position",
    "gaps": "missing samples",
    "time_base": "wrong time stamps",
    "overconfident": "overconfident estimate",
    "underconfident": "underconfident estimate",
    "coloured": "correlated innovations",
    "no_aiding": "no position measured",
    "damaged_file": "damaged file",
    "not_observable": "something that this log cannot show",
}
"""Causes in a few words, where their name is not enough."""

WHEN = "docs/concepts/when.md"
GUIDES: Mapping[str, str] = dict.fromkeys(
    ("vibration", "rotor_vibration", "resonance", "aliasing", "broadband", "drift", "coloured"), WHEN
)
"""The page of the documentation that compares what can be done about a cause, where there is one."""


@dataclass(frozen=True)
class Finding:
    """One finding of a diagnosis.

    >>> finding = Finding("gaps", "warning", 0.95, "Samples are missing.", "3 gaps", "Check the link.")
    >>> finding.severity, finding.confidence
    ('warning', 'high')
    >>> Finding("drift", "warning", 0.95, "The bias drifts.", "", "").guide
    'docs/concepts/when.md'
    """

    cause: str
    """One of :data:`CAUSES`."""
    severity: Severity
    """``"info"``, ``"warning"`` or ``"failure"``."""
    score: float
    """From 0 to 1, near the share of findings that are right on simulated logs with known faults."""
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
    guide: str = field(init=False)
    """The page of the documentation that compares what can be done about it; empty where there is none."""

    @property
    def title(self) -> str:
        """The cause in a few words, with its frequency or channel.

        >>> Finding("vibration", "warning", 0.9, "", "", "", figures={"frequency_hz": 60.0}).title
        'vibration at 60 Hz'
        """
        name = TITLES.get(self.cause, self.cause.replace("_", " "))
        if self.cause in ("axis_sign", "axis_swap", "scale", "bias_step", "drift") and self.channels:
            return f"{name} of {', '.join(self.channels)}"
        frequency = self.figures.get("frequency_hz")
        return name if frequency is None else f"{name} at {float(frequency):.3g} Hz"

    def __post_init__(self) -> None:
        confidence = "high" if self.score >= HIGH else "medium" if self.score >= MEDIUM else "low"
        object.__setattr__(self, "confidence", confidence)
        object.__setattr__(self, "guide", GUIDES.get(self.cause, ""))
