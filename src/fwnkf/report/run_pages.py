"""Pages of the other commands: training runs compared, a trained filter inspected, a training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..diagnosis.result import plain_values
from ._style import COLOURS
from .drawing import Drawing, canvas, draw, log_ticks
from .page import Cell, Notice, Page, Section, Table
from .wording import clean, in_words, number, percent, shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:  # runtime shape checks evaluate annotations, and matplotlib is optional
    Figure = Any

Rows = Sequence[Mapping[str, Any]]
GROUP = ("data", "protocol", "scenario", "horizon")
"""What the rows of one table share."""
SAME = 0.01
"""Relative difference of errors below which two methods are called equally accurate."""


def comparison_page(rows: Rows, command: str = "") -> Page:
    """Training runs and their baselines side by side, from the rows of :func:`fwnkf.evaluation.runs.compare`."""
    shown: Rows = clean(list(rows))
    groups = _groups(shown)
    sections, notices = [], []
    for k, (name, members) in enumerate(groups.items()):
        notices.append(Notice("info", f"{name}: {_winner(members)}" if name else _winner(members)))
        sections.append(accuracy_section(members, f"group{k}", name))
    for note in dict.fromkeys(row["note"] for row in shown if row.get("note")):
        methods = in_words([row["method"] for row in shown if row.get("note") == note])
        notices.append(Notice("warning", f"{methods}: {note}."))
    commands = tuple((row["method"], text) for row in shown for text in row.get("commands") or ())
    table = Table(("method", "command"), commands, "Commands of the runs", fold=True)
    answer = f"Command of this page: `{command}`." if command else "The runs were trained by these commands."
    sections.append(Section("How can it be reproduced?", answer, (), (table,)))
    runs = sum(row.get("runs") or 0 for row in shown)
    subtitle = f"{runs} training run{'' if runs == 1 else 's'}, {len(shown)} methods"
    return Page("Comparison of training runs", subtitle, tuple(sections), tuple(notices), data=plain_values(rows))


def training_page(
    name: str, rows: Rows, figures: Mapping[str, Figure | None], facts: Mapping[str, Any], command: str = ""
) -> Page:
    """A training: accuracy beside the baselines, the course of training, estimates, consistency, what was learned."""
    shown: Rows = clean(list(rows))
    sections = [accuracy_section(shown, "accuracy", "")]
    questions = {
        "history": ("Did the training converge?", "Curves that are flat at the end have converged."),
        "trajectory": ("What does an estimate look like?", "One test record: truth, measurements and estimates."),
        "error": ("Where in a record is the error?", "Root mean square error over the test records, step by step."),
        "nees": (
            "Is the filter consistent?",
            "NEES is the squared error divided by its variance in the filter. Its mean is 1 for a consistent filter. "
            f"This filter is {_consistency(shown[:1])}.",
        ),
        **_LEARNED,
    }
    sections += _figure_sections(figures, questions)
    table = Table(("fact", "value"), _facts(clean(dict(facts))), "Run", fold=False)
    answer = f"Command: `{clean(command)}`." if command else "By `fwnkf train`."
    sections.append(Section("How was it trained?", answer, (), (table,)))
    notice = Notice("failure" if any(row.get("failures") for row in shown[:1]) else "info", _judgement(shown))
    return Page(f"Training of {clean(name)}", _title(shown[0]), tuple(sections), (notice,), data=plain_values(rows))


def filter_page(name: str, facts: Mapping[str, Any], figures: Mapping[str, Figure | None], command: str = "") -> Page:
    """A filter and what it has learned, from :func:`fwnkf.report.inspect.inspect`."""
    shown: dict[str, Any] = clean(dict(facts))
    response = shown.get("frequencies") or {}
    simple = {key: value for key, value in shown.items() if key not in ("frequencies", "options", "noise_over_time")}
    tables = (
        Table(("fact", "value"), _facts(simple), "Filter"),
        Table(("option", "value"), _facts(shown.get("options") or {}), "Options", fold=True),
    )
    system = f" with the system {shown['system']}" if shown.get("system") else ""
    answer = (
        f"{shown['name']}{system}, {number(shown['parameters'])} parameters, {number(shown['trainable'])} trainable."
    )
    sections = [Section("What filter is it?", answer, (), tables)]
    sections += _figure_sections(figures, _LEARNED, {"shaper": _response_tables(response)})
    if response.get("reason"):
        sections.append(Section("Which frequencies does it treat differently?", f"None: {response['reason']}."))
    if command:
        sections.append(Section("How was it measured?", f"Command: `{clean(command)}`."))
    return Page(f"Filter {clean(name)}", answer, tuple(sections), data=plain_values(facts))


_LEARNED = {
    "shaper": (
        "Which frequencies does it treat differently?",
        "What was learned about the noise or the innovations, over frequency.",
    ),
    "noise": (
        "Does its noise change over time?",
        "Standard deviations that the filter used at each step of one record.",
    ),
}


def accuracy_section(rows: Rows, key: str, name: str) -> Section:
    """Errors of methods on the same records: a figure with the spread over seeds, and the table."""
    columns = {
        "method": "method", "mse": "MSE", "mse_std": "± (seeds)", "mse_from_10": "MSE from step 10", "nees": "NEES",
        "nis": "NIS", "coverage95": "in 95 % interval", "failures": "failures", "runs": "runs", "seconds": "seconds",
        "cpu_seconds": "CPU s of training",
    }  # fmt: skip
    cells = tuple(tuple(_cell(row, column) for column in columns) for row in rows)
    table = Table(
        tuple(columns.values()), cells, "Accuracy and consistency; NEES and NIS are 1 for a consistent filter"
    )
    drawing = draw(_errors(rows), key, "Mean squared error of the state; bars: standard deviation over seeds.")
    question = f"Which is the most accurate on {name}?" if name else "Which is the most accurate?"
    return Section(question, _winner(rows), (drawing,), (table,))


# ---- helpers --------------------------------------------------------------------------------------------------------


def _errors(rows: Rows) -> Figure:
    """Mean squared errors of methods as dots on a logarithmic axis; the first ones are the trained filters."""
    usable = [row for row in rows if _finite(row.get("mse")) and row["mse"] > 0]
    figure, (axis,) = canvas(height=0.3 * max(len(usable), 1) + 0.9)
    for place, row in enumerate(usable):
        colour = COLOURS[0] if row.get("runs") or place == 0 else COLOURS[1]
        spread = row.get("mse_std") or 0.0
        low = max(row["mse"] - spread, row["mse"] / 10)  # a spread above the mean has no place on this axis
        axis.plot([low, row["mse"] + spread], [place, place], color=colour, linewidth=2)
        axis.plot([row["mse"]], [place], "o", color=colour, markersize=6)
    axis.set_yticks(range(len(usable)), [shorten(str(row["method"]), 24) for row in usable])
    axis.set_ylim(len(usable) - 0.4, -0.6)
    axis.set_xscale("log")
    log_ticks(axis.xaxis, *axis.get_xlim())
    axis.set_xlabel("mean squared error", fontsize=9)
    return figure


def _groups(rows: Rows) -> dict[str, list[Mapping[str, Any]]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(_title(row), []).append(row)
    return groups


def _title(row: Mapping[str, Any]) -> str:
    return ", ".join(str(row[name]) for name in GROUP if row.get(name) is not None)


def _winner(rows: Rows) -> str:
    """The most accurate method in one sentence, beside the next one."""
    scored = sorted((row for row in rows if _finite(row.get("mse"))), key=_error)
    if not scored:
        return "No method has a finite error."
    best, others = scored[0], scored[1:]
    spread = f" ± {number(best['mse_std'])} over {best['runs']} seeds" if best.get("mse_std") else ""
    text = f"{best['method']} has the smallest error: MSE {number(_error(best))}{spread}"
    close = [row["method"] for row in others if _error(row) < (1 + SAME) * _error(best)]
    if close:
        text += f", less than {percent(SAME)} below {in_words(close)}"
    elif others:
        text += f"; next is {others[0]['method']} with {number(_error(others[0]))}"
    return f"{text}. It is {_consistency([best])}." if _finite(best.get("nees")) else f"{text}."


def _judgement(rows: Rows) -> str:
    """The trained filter, which is the first row, beside the best baseline."""
    first, others = rows[0], [row for row in rows[1:] if _finite(row.get("mse"))]
    text = f"{first['method']}: MSE {number(_error(first))}, {_consistency(rows[:1])}"
    if not others or not _error(first):
        return f"{text}."
    best = min(others, key=_error)
    change = _error(first) / _error(best) - 1 if _error(best) else math.inf
    if abs(change) < SAME:
        return f"{text}. As accurate as the best baseline, {best['method']} (within {percent(SAME)})."
    word = "more" if change < 0 else "less"
    share = f"an MSE {percent(abs(change))} {'lower' if change < 0 else 'higher'}"
    return f"{text}. It is {word} accurate than the best baseline, {best['method']} ({share})."


def _error(row: Mapping[str, Any]) -> float:
    value = row.get("mse")
    return float(value) if isinstance(value, int | float) else math.inf


def _consistency(rows: Rows) -> str:
    """The consistency of the first row by its NEES, in words."""
    nees = rows[0].get("nees") if rows else None
    if nees is None or not _finite(nees):
        return "without a covariance to judge"
    word = "overconfident" if nees > 1.2 else "underconfident" if nees < 0.8 else "consistent"
    return f"{word} (NEES {number(float(nees))})"


def _figure_sections(
    figures: Mapping[str, Figure | None],
    questions: Mapping[str, tuple[str, str]],
    tables: Mapping[str, tuple[Table, ...]] | None = None,
) -> list[Section]:
    sections = []
    for key, (question, answer) in questions.items():
        figure = figures.get(key)
        if figure is not None:
            drawing: Drawing = draw(figure, key)
            sections.append(Section(question, answer, (drawing,), (tables or {}).get(key, ())))
    return sections


def _response_tables(response: Mapping[str, Any]) -> tuple[Table, ...]:
    """Oscillators of noise states, or poles of the innovation filter."""
    rows: list[tuple[Cell, ...]] = []
    for channel in response.get("channels") or ():
        for item in channel.get("oscillators") or ():
            rows.append((channel["channel"], *(item.get(key) for key in ("hz", "bandwidth_hz", "std"))))
    noise = Table(("channel", "frequency (Hz)", "bandwidth (Hz)", "standard deviation"), tuple(rows), "Oscillators")
    roots: list[tuple[Cell, ...]] = []
    for item in response.get("filters") or ():
        for kind in ("poles", "zeros"):
            roots += [(item["channel"], kind[:-1], root.get("hz"), root.get("radius")) for root in item.get(kind) or ()]
    shaper = Table(("channel", "kind", "frequency (Hz)", "radius"), tuple(roots), "Poles and zeros of Φ")
    return noise, shaper


def _facts(values: Mapping[str, Any]) -> tuple[tuple[Cell, ...], ...]:
    def cell(value: Any) -> str:
        if isinstance(value, bool) or value is None:
            return "–" if value is None else "yes" if value else "no"
        if isinstance(value, int | float):
            return number(value)
        return shorten(str(value), 200)

    return tuple((name.replace("_", " "), cell(value)) for name, value in values.items())


def _cell(row: Mapping[str, Any], column: str) -> Cell:
    value = row.get(column)
    if column == "coverage95":
        return percent(value) if _finite(value) else None
    return value if isinstance(value, str | int | float) else None


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
