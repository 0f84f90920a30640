"""Rules about lines in spectra: vibration, rotors and aliases."""

from __future__ import annotations

from collections.abc import Iterator

from ..evidence import Evidence
from ..finding import Finding
from ..peaks import group_peaks


def findings(evidence: Evidence) -> Iterator[Finding]:
    """One finding for each frequency, whatever the number of channels that show it."""
    for group in group_peaks(evidence.peaks):
        top = group[0]
        yield Finding(
            "vibration",
            "warning",
            0.9,
            f"A vibration at {top.frequency:.4g} Hz in {', '.join(peak.channel for peak in group)}.",
            f"{top.ratio:.3g} times the floor",
            "",
            tuple(peak.channel for peak in group),
            {"frequency_hz": top.frequency, "amplitude": top.amplitude},
        )
