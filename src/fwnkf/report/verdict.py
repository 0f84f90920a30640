"""The first screen of a diagnosis: findings as cards with what to do, and a few key figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..diagnosis.finding import Finding
from ..diagnosis.result import ALL_CHANNELS, Consistency, Diagnosis, Peak
from .page import Level, Notice
from .wording import in_words, number, quantity, shorten

CARDS = 3
"""Findings with a card of their own at the top; the others are folded."""
TILES = 6
"""Key figures below the cards."""
NAMES = 40
"""Characters of a channel's name."""


def verdict_notices(diagnosis: Diagnosis) -> tuple[tuple[Notice, ...], tuple[Notice, ...]]:
    """Cards and folded notes: faults first, or one card if there is no fault."""
    groups = _together(diagnosis.findings)
    faults = [group for group in groups if group[0].severity != "info"]
    notes = [group for group in groups if group[0].severity == "info"]
    if not faults:
        limits = [group for group in notes if group[0].cause == "not_observable"]
        others = [group for group in notes if group[0].cause != "not_observable"]
        text = "No problem was found." if notes else diagnosis.verdict
        if limits:  # a part of the faults cannot be seen in this log
            text = "No problem was found, but this log does not contain everything that was checked for; see below."
        first = Notice("info" if limits else "good", text)
        return (first, *map(_notice, limits)), tuple(map(_notice, others))
    return tuple(map(_notice, faults[:CARDS])), tuple(map(_notice, faults[CARDS:] + notes))


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
    return Notice(level, finding.what, _filled(details), _filled(more))


def _filled(items: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in items.items() if text}


def key_figures(diagnosis: Diagnosis) -> dict[str, str]:
    """A few figures for the first screen."""
    values: dict[str, str] = {}
    peaks = by_strength(diagnosis.peaks)
    if peaks:
        units = {spectrum.channel: spectrum.unit for spectrum in diagnosis.spectra}
        values["strongest line"] = number(peaks[0].frequency, "Hz")
        amplitude = number(peaks[0].amplitude, units.get(peaks[0].channel, ""))
        values["amplitude of that line"] = f"{amplitude} in {shorten(peaks[0].channel, 24)}"
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


def by_strength(peaks: Iterable[Peak]) -> list[Peak]:
    return sorted(peaks, key=lambda peak: -peak.ratio)


def overall_row(rows: Sequence[Consistency]) -> Consistency | None:
    """The row of all channels together, or the first."""
    return next((row for row in rows if row.name == ALL_CHANNELS), rows[0] if rows else None)
