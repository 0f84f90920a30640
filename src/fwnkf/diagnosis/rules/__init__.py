"""What the evidence means, one kind of fault a file; and the verdict: all rules applied, their findings in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..evidence import Evidence
from ..finding import Finding
from . import agreement, aiding, amplitude, axes, columns, errors, levels, lines, sampling, visibility

RULES: tuple[Callable[[Evidence], Iterable[Finding]], ...] = (
    axes.findings,
    lines.findings,
    aiding.findings,
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
    "no_aiding", "axis_sign", "axis_swap", "scale", "impact", "clipping", "rotor_vibration", "vibration", "resonance",
    "aliasing", "broadband", "overconfident", "time_base", "gaps", "quantisation", "bias_step", "drift", "gnss_glitch",
    "delay", "interference", "underconfident", "damaged_file", "not_observable", "coloured",
)  # fmt: skip
"""Causes in the order in which they are worth an engineer's time, where nothing else orders them."""


def judge(evidence: Evidence) -> tuple[Finding, ...]:
    """Findings of all rules, the most severe first."""
    findings = [finding for rule in RULES for finding in rule(evidence)]
    return tuple(sorted(findings, key=_place))


def _place(finding: Finding) -> tuple[int, float, int]:
    """The most severe first, then what exceeds its limit by most: an amplitude, a rate, a share of the samples."""
    excess = float(finding.figures.get("excess", 1.0))
    return SEVERITIES.index(finding.severity), -excess, RANK.index(finding.cause)
