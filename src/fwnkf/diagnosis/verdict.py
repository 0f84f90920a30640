"""The verdict: all rules applied, and their findings in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .evidence import Evidence
from .finding import Finding
from .rules import agreement, amplitude, errors, levels, lines, sampling, visibility

RULES: tuple[Callable[[Evidence], Iterable[Finding]], ...] = (
    lines.findings,
    sampling.findings,
    agreement.findings,
    errors.findings,
    levels.findings,
    amplitude.findings,
    visibility.findings,
)
SEVERITIES = ("failure", "warning", "info")
RANK = (
    "no_aiding", "impact", "clipping", "aliasing", "rotor_vibration", "vibration", "broadband", "overconfident",
    "time_base", "gaps", "drift", "underconfident", "damaged_file", "not_observable", "coloured",
)  # fmt: skip
"""Causes of one severity in the order in which they are worth an engineer's time: faults of the vehicle first."""


def judge(evidence: Evidence) -> tuple[Finding, ...]:
    """Findings of all rules, the most severe first."""
    findings = [finding for rule in RULES for finding in rule(evidence)]
    return tuple(sorted(findings, key=_place))


def _place(finding: Finding) -> tuple[int, int]:
    return SEVERITIES.index(finding.severity), RANK.index(finding.cause)
