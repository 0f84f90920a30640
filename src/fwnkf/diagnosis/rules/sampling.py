"""Rules about time stamps and the file itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...logs.log import OWN
from ...logs.stamps import INERTIAL, StampReport
from ..evidence import Evidence
from ..finding import Finding
from ..thresholds import Thresholds


def findings(evidence: Evidence) -> Iterator[Finding]:
    """Gaps, missing samples, wrong clocks, and damage."""
    limits = evidence.thresholds
    same: dict[StampReport, list[str]] = {}
    for role, report in evidence.reports.items():
        # signals with the same stamps have one finding
        if role in INERTIAL or role == "pose" or evidence.streams[role].role == OWN:
            same.setdefault(replace(report, name=""), []).append(report.name)
    for report, names in same.items():
        name = ", ".join(names)
        yield from _gaps(name, report, limits)
        yield from _skipped(name, report, limits)
        yield from _time_base(name, report, limits)
    yield from _damage(evidence)


def _gaps(name: str, report: StampReport, limits: Thresholds) -> Iterator[Finding]:
    long = [gap for gap in report.gaps if gap.seconds > limits.gap_seconds]
    if long:
        longest = max(long, key=lambda gap: gap.seconds)
        undeclared = sum(not gap.declared for gap in long)
        yield Finding(
            "gaps",
            "warning",
            0.99,
            f"{name} has {len(long)} gap(s), the longest of {longest.seconds:.3g} s at {longest.time:.1f} s"
            + (f"; {undeclared} of them without a dropout message of the logger." if undeclared else "."),
            f"gaps above {limits.gap_seconds:g} s: "
            + ", ".join(f"{gap.seconds:.3g} s at {gap.time:.2f} s" for gap in long[:6]),
            "Use a faster SD card or log fewer topics. An estimator that runs on this log needs the true time step at "
            "each gap. This analysis uses all samples between the gaps.",
            (name,),
            {"gaps": float(len(long)), "longest_s": longest.seconds, "at_s": longest.time},
        )


def _skipped(name: str, report: StampReport, limits: Thresholds) -> Iterator[Finding]:
    lost = report.skipped / max(1, report.samples + report.skipped)
    if lost > limits.missing_share:
        yield Finding(
            "gaps",
            "warning",
            0.99,
            f"{name}: {100 * lost:.2g} % of the samples are missing, one or a few at a time.",
            f"{report.skipped:,} samples missing (threshold {100 * limits.missing_share:g} %); the mean rate is "
            f"{report.mean_rate:.4g} Hz, the sampling rate {report.rate:.4g} Hz",
            f"Use {report.rate:.4g} Hz as the sampling rate: with the mean rate, every frequency is wrong by "
            f"{100 * (1 - report.mean_rate / report.rate):.2g} %.",
            (name,),
            {"missing_share": lost, "rate_hz": report.rate, "mean_rate_hz": report.mean_rate},
        )


def _time_base(name: str, report: StampReport, limits: Thresholds) -> Iterator[Finding]:
    wrong = report.clock_problems(
        repeated=limits.missing_share, rate=limits.rate_error, jitter=limits.jitter_share, drift=limits.rate_error
    )
    if wrong:
        serious = report.factor != 1.0 or report.backwards or report.invalid
        yield Finding(
            "time_base",
            "failure" if serious else "warning",
            0.95,
            f"{name}: the time base is wrong: {'; '.join(wrong)}.",
            f"clock {report.rate:.5g} Hz, median {report.median_rate:.5g} Hz, mean {report.mean_rate:.5g} Hz; "
            f"jitter {1e3 * report.jitter:.2g} ms; thresholds: rate {100 * limits.rate_error:g} %, jitter "
            f"{100 * limits.jitter_share:g} % of a step",
            "Give the estimator the time steps of the time stamps, and stamp samples when they are taken, not when "
            "they are received. All frequencies in this report use the fitted clock.",
            (name,),
            {"rate_hz": report.rate, "factor": report.factor, "jitter_s": report.jitter},
        )


def _damage(evidence: Evidence) -> Iterator[Finding]:
    damage = [note for note in evidence.log.notes if "damage" in note.lower() or "corrupt" in note.lower()]
    if damage:
        yield Finding(
            "damaged_file",
            "warning",
            0.99,
            "A part of the file could not be read; the rest was.",
            "; ".join(damage[:3]),
            "The rest of the log is usable. If the file was damaged while copying, copy it again from the card.",
        )
