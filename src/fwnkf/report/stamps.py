"""What a log contained: the streams that were read, their rates, and their time stamps."""

from __future__ import annotations

from collections.abc import Sequence

from ..diagnosis.result import Diagnosis
from ..logs.stamps import StampReport
from .page import Section, Table
from .wording import in_words, number, percent, shorten

NAMES = 40
"""Characters of a stream's name in a table."""


def stream_section(diagnosis: Diagnosis) -> Section:
    """The section on streams, rates and gaps."""
    reports: Sequence[StampReport] = diagnosis.stamps
    rows = tuple(
        (
            shorten(report.name, NAMES),
            report.samples,
            number(report.rate, "Hz", digits=4),
            percent(report.lost) if report.lost else "none",
            number(max(gap.seconds for gap in report.gaps), "s") if report.gaps else "none",
            number(round(1e3 * report.jitter, 4), "ms"),
        )
        for report in reports
    )
    table = Table(("stream", "samples", "rate", "missing", "longest gap", "jitter"), rows, "Streams")
    gaps = tuple(
        (shorten(report.name, NAMES), gap.time, gap.seconds, "yes" if gap.declared else "no")
        for report in reports
        for gap in sorted(report.gaps, key=lambda gap: -gap.seconds)
    )
    holes = Table(("stream", "at (s)", "length (s)", "reported by the logger"), gaps, "Gaps", fold=True)
    faults: dict[str, list[str]] = {}
    for report in reports:
        for fault in _faults(report):
            faults.setdefault(fault, []).append(shorten(report.name, NAMES))
    notes = tuple(f"{in_words(names, most=10)}: {fault}." for fault, names in faults.items())
    return Section("What did the log contain?", _answer(diagnosis, reports), (), (table, holes), notes)


def _answer(diagnosis: Diagnosis, reports: Sequence[StampReport]) -> str:
    if not reports:
        return f"{number(diagnosis.seconds, 's')} ({diagnosis.format}), without a stream for a filter."
    streams = in_words(
        [f"{shorten(report.name, NAMES)} at {number(report.rate, 'Hz', digits=4)}" for report in reports]
    )
    affected = [shorten(report.name, NAMES) for report in reports if report.problems()]
    state = (
        f"Check the time stamps of {in_words(affected)}." if affected else "No problem was found in the time stamps."
    )
    return f"{number(diagnosis.seconds, 's')} ({diagnosis.format}): {streams}. {state}"


def _faults(report: StampReport) -> list[str]:
    """Problems of the stamps without those that the tables show."""
    return [line for line in report.problems() if "gap(s)" not in line]
