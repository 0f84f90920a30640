"""What the evidence means, one kind of fault a file; and the verdict: all rules applied, their findings in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..evidence import Evidence
from ..finding import Finding
from . import agreement, amplitude, columns, errors, levels, lines, sampling, visibility

RULES: tuple[Callable[[Evidence], Iterable[Finding]], ...] = (
    lines.findings,
    sampling.findings,
    agreement.findings,
    errors.findings,
    levels.findings,
    amplitude.findings,
    columns.findings,
    visibility.findings,
)
SEVERITIES = ("failure", "warning", "info")
RANK = (
    "no_aiding", "impact", "clipping", "aliasing", "rotor_vibration", "vibration", "broadband", "overconfident",
    "time_base", "gaps", "quantisation", "drift", "underconfident", "damaged_file", "not_observable", "coloured",
)  # fmt: skip
"""Causes of one severity in the order in which they are worth an engineer's time: faults of the vehicle first.

What a log cannot show is a warning where it can show nothing of its sensors, and then comes before all that it can.
"""


def judge(evidence: Evidence) -> tuple[Finding, ...]:
    """Findings of all rules, the most severe first."""
    findings = [finding for rule in RULES for finding in rule(evidence)]
    return tuple(sorted(findings, key=_place))


def _place(finding: Finding) -> tuple[int, int]:
    severity, rank = SEVERITIES.index(finding.severity), RANK.index(finding.cause)
    if finding.cause == "not_observable" and finding.severity != "info":
        rank = -1
    if finding.cause == "rotor_vibration" and not finding.figures.get("attributed", True):
        rank = RANK.index("vibration")  # whether it is a rotor is a guess: the stronger line comes first
    return severity, rank
