"""Rules about time stamps and the file itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...logs.log import OWN
from ...logs.stamps import INERTIAL, StampReport
from ..evidence import Evidence
from ..finding import Finding
from ..thresholds import Thresholds
from .confidence import plain_score


def findings(evidence: Evidence) -> Iterator[Finding]:
    """Gaps and missing samples, wrong clocks, and damage: one finding each, whatever the number of signals."""
    limits = evidence.thresholds
    examined = {part.role for part in evidence.analysed} | {"pose"}
    reports = [_flown(report, evidence) for role, report in evidence.reports.items() if role in examined]
    yield from _missing([report for report in reports if not report.backwards], limits)
    # samples that are stamped too early leave a hole where they belong: that is the time base
    same: dict[StampReport, list[str]] = {}
    for role, report in evidence.reports.items():
        # signals with the same stamps have one finding
        if role in INERTIAL or role == "pose" or evidence.streams[role].role == OWN:
            same.setdefault(replace(report, name=""), []).append(report.name)
    wrong = [item for report, names in same.items() for item in _time_base(", ".join(names), report, limits)]
    if wrong:
        first = max(wrong, key=lambda item: item.severity == "failure")
        others = " ".join(item.what for item in wrong if item is not first)
        yield replace(first, evidence=f"{first.evidence}; also: {others}" if others else first.evidence)
    yield from _damage(evidence)


def _flown(report: StampReport, evidence: Evidence) -> StampReport:
    """Without gaps between flights: a logger that stops on the ground misses nothing."""
    spans = evidence.log.airborne()
    if len(spans) < 2:
        return report
    gaps = tuple(gap for gap in report.gaps if any(start <= gap.time <= stop for start, stop in spans))
    return replace(report, gaps=gaps)


def _missing(reports: Sequence[StampReport], limits: Thresholds) -> Iterator[Finding]:
    """Gaps, and samples that are missing one by one: the worst signal, and the names of the others."""
    long = {report.name: [gap for gap in report.gaps if gap.seconds > limits.gap_seconds] for report in reports}
    lost = {report.name: report.skipped / max(1, report.samples + report.skipped) for report in reports}
    affected = [report for report in reports if long[report.name] or lost[report.name] > limits.missing_share]
    if not affected:
        return
    gaps = [(gap, report) for report in affected for gap in long[report.name]]
    longest_gap = max((gap.seconds for gaps in long.values() for gap in gaps), default=0.0)
    figures: dict[str, float | str] = {
        "excess": min(max(longest_gap / limits.gap_seconds, max(lost.values()) / limits.missing_share), 10.0)
    }
    parts, text = [], []
    if gaps:
        longest, of = max(gaps, key=lambda pair: pair[0].seconds)
        own = long[of.name]
        undeclared = sum(not gap.declared for gap in own)
        parts.append(
            f"{of.name} has {len(own)} gap(s), the longest of {longest.seconds:.3g} s at {longest.time:.1f} s"
            + (f"; {undeclared} of them without a dropout message of the logger" if undeclared else "")
        )
        text.append(
            f"gaps above {limits.gap_seconds:g} s: "
            + ", ".join(f"{gap.seconds:.3g} s at {gap.time:.2f} s" for gap in own[:6])
        )
        figures |= {"gaps": float(len(own)), "longest_s": longest.seconds, "at_s": longest.time}
        action = (
            "Use a faster SD card or log fewer topics. An estimator that runs on this log needs the true time step at "
            "each gap."
        )
    worst = max(affected, key=lambda report: lost[report.name])
    share = lost[worst.name]
    if share > limits.missing_share:
        parts.append(f"{worst.name}: {100 * share:.2g} % of the samples are missing, one or a few at a time")
        text.append(
            f"{worst.skipped:,} samples missing (threshold {100 * limits.missing_share:g} %); the mean rate is "
            f"{worst.mean_rate:.4g} Hz, the sampling rate {worst.rate:.4g} Hz"
        )
        figures |= {"missing_share": share, "rate_hz": worst.rate, "mean_rate_hz": worst.mean_rate}
        if not gaps:
            action = (
                f"Use {worst.rate:.4g} Hz as the sampling rate: with the mean rate, every frequency is wrong by "
                f"{100 * (1 - worst.mean_rate / worst.rate):.2g} %."
            )
    names = tuple(report.name for report in affected)
    if len(names) > 1:
        text.append(f"in {', '.join(names)}")
    yield Finding("gaps", "warning", plain_score(), "; ".join(parts) + ".", "; ".join(text), action, names, figures)


def _time_base(name: str, report: StampReport, limits: Thresholds) -> Iterator[Finding]:
    wrong = report.clock_problems(
        repeated=limits.missing_share, rate=limits.rate_error, jitter=limits.jitter_share, drift=limits.rate_error
    )
    if wrong:
        serious = report.factor != 1.0 or report.backwards or report.invalid
        yield Finding(
            "time_base",
            "failure" if serious else "warning",
            plain_score(),
            f"{name}: the time base is wrong: {'; '.join(wrong)}.",
            f"clock {report.rate:.5g} Hz, median {report.median_rate:.5g} Hz, mean {report.mean_rate:.5g} Hz; "
            f"jitter {1e3 * report.jitter:.2g} ms; thresholds: rate {100 * limits.rate_error:g} %, jitter "
            f"{100 * limits.jitter_share:g} % of a step",
            "Give the estimator the time steps of the time stamps, and stamp samples when they are taken, not when "
            "they are received. All frequencies in this report use the fitted clock.",
            (name,),
            {
                "rate_hz": report.rate,
                "factor": report.factor,
                "jitter_s": report.jitter,
                "excess": _error(report, limits),
            },
        )


def _error(report: StampReport, limits: Thresholds) -> float:
    """Of a clock, over what gives a warning."""
    rates = [abs(report.nominal_rate / report.rate - 1) if report.nominal_rate else 0.0]
    rates.append(abs(report.clock.drift) if report.clock else 0.0)
    return max(max(rates) / limits.rate_error, report.jitter * report.rate / limits.jitter_share, 1.0)


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
            figures={"excess": 0.5},
        )
