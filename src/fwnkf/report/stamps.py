"""What a log contained: the streams that were read, their rates, and what their time stamps say."""

from __future__ import annotations

from ..diagnosis.result import Diagnosis
from ..diagnosis.values import plain_values
from .page import Section, Table
from .wording import number


def stream_section(diagnosis: Diagnosis) -> Section:
    """The section on streams, rates and gaps."""
    reports = [plain_values(report, arrays=False) for report in diagnosis.stamps]
    simple = (str, float, int, type(None))
    names = list(dict.fromkeys(n for report in reports for n, value in report.items() if isinstance(value, simple)))
    rows = tuple(tuple(report.get(name) for name in names) for report in reports)
    table = Table(tuple(name.replace("_", " ") for name in names), rows, "Streams")
    answer = f"{number(diagnosis.seconds, 's')} of {diagnosis.format}, {len(reports)} streams."
    return Section("What did the log contain?", answer, (), (table,))
