"""The verdict: all rules applied, and their findings in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .evidence import Evidence
from .finding import Finding
from .rules import agreement, lines, sampling

RULES: tuple[Callable[[Evidence], Iterable[Finding]], ...] = (
    lines.findings,
    sampling.findings,
    agreement.findings,
)
ORDER = {"failure": 0, "warning": 1, "info": 2}


def judge(evidence: Evidence) -> tuple[Finding, ...]:
    """Findings of all rules, the most severe and surest first."""
    findings = [finding for rule in RULES for finding in rule(evidence)]
    return tuple(sorted(findings, key=lambda finding: (ORDER[finding.severity], -finding.confidence)))
