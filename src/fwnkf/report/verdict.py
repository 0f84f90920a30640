"""The first screen of a diagnosis: findings as cards with what to do, and a few key figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..diagnosis.finding import Finding
from ..diagnosis.result import ALL_CHANNELS, Consistency, Diagnosis, Peak
from .page import Level, Notice
from .wording import in_words, number, quantity, shorten

TILES = 6
"""Key figures below the cards."""
NAMES = 40
"""Characters of a channel's name."""


def verdict_notices(diagnosis: Diagnosis) -> tuple[tuple[Notice, ...], tuple[Notice, ...]]:
    """The verdict in one line, cards of the first problems, and the other findings, folded."""
    groups = _together(diagnosis.findings)
    shown = [group for group in groups if any(finding in diagnosis.first for finding in group)]
    rest = [group for group in groups if group not in shown]
    level: Level = diagnosis.problems[0].severity if diagnosis.problems else "info" if shown else "good"
    text = diagnosis.verdict
    if shown and not diagnosis.problems:  # a part of the faults cannot be seen in this log
        text = "No problem was found, but this log does not contain everything that was checked for; see below."
    return (Notice(level, text), *map(_notice, shown)), tuple(map(_notice, rest))


def _together(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Findings with the same cause and the same action are one card."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.severity, finding.cause, finding.action), []).append(finding)
    return list(groups.values())


def _notice(group: Sequence[Finding]) -> Notice:
    finding = group[0]
    level: Level = finding.severity
    details = {"What to do": finding.action, "Confidence": finding.confidence}
    more = {"Evidence": finding.evidence}
    if len(group) > 1:
        more["Also"] = " ".join(other.what for other in group[1:7])
    channels = list(dict.fromkeys(name for member in group for name in member.channels))
    if channels:
        more["Channels"] = in_words([shorten(name, NAMES) for name in channels])
    more["Which filter helps"] = finding.guide and f"see {finding.guide} of fwnkf"
    return Notice(level, finding.what, _filled(details), _filled(more))


def _filled(items: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in items.items() if text}


def key_figures(diagnosis: Diagnosis) -> dict[str, str]:
    """A few figures for the first screen."""
    values: dict[str, str] = {}
    top = strongest(diagnosis)
    if top is not None:
        units = {spectrum.channel: spectrum.unit for spectrum in diagnosis.spectra}
        values["strongest line"] = number(top.frequency, "Hz", digits=4)
        amplitude = number(top.amplitude, units.get(top.channel, ""))
        values["amplitude of that line"] = f"{amplitude} in {shorten(top.channel, 24)}"
    overall = overall_row(diagnosis.consistency)
    if overall is not None:
        values[f"{overall.kind} (consistent: 1)" if overall.kind != "test ratio" else overall.kind] = number(
            overall.mean
        )
    for name, value in diagnosis.facts.items():
        if len(values) < TILES:
            title, text = quantity(name, value)
            values[title] = shorten(text, 40)
    return values


def strongest(diagnosis: Diagnosis) -> Peak | None:
    """The line of the first finding about a line; without one, the highest over its floor."""
    peaks = by_strength(diagnosis.peaks)
    for finding in diagnosis.findings:
        frequency = finding.figures.get("frequency_hz")
        if frequency is not None and finding.channels:
            own = [peak for peak in peaks if peak.channel == finding.channels[0]]
            return min(own or peaks, key=lambda peak: abs(peak.frequency - float(frequency)), default=None)
    return peaks[0] if peaks else None


def by_strength(peaks: Iterable[Peak]) -> list[Peak]:
    return sorted(peaks, key=lambda peak: -peak.ratio)


def overall_row(rows: Sequence[Consistency]) -> Consistency | None:
    """The row of all channels together, or the first."""
    return next((row for row in rows if row.name == ALL_CHANNELS), rows[0] if rows else None)
