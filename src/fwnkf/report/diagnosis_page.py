"""The HTML report of a diagnosis: the findings, then one section for each question about the estimate."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..diagnosis.result import AllanDeviation, ChannelSpectrum, Consistency, Diagnosis, Fix
from ..diagnosis.thresholds import THRESHOLDS
from ..settings import RELEASES
from . import diagnosis_figures as figures
from .drawing import Drawing, draw, plain_text
from .page import Cell, Page, Section, Table
from .stamps import stream_section
from .verdict import NAMES, by_strength, key_figures, overall_row, strongest, verdict_notices
from .wording import clean, in_words, number, percent, quantity, shorten, versions

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:  # runtime shape checks evaluate annotations, and matplotlib is optional
    Figure = Any

__all__ = ["diagnosis_page", "page_of", "pictures_of"]

WATERFALLS = 3
BEFORE_AFTER = 3
MOST_ROWS = 24
"""Channels of the figure of consistency."""


def diagnosis_page(diagnosis: Diagnosis) -> str:
    """The whole HTML file of a diagnosis.

    Args:
        diagnosis: the diagnosis.

    Returns:
        One self-contained page.

    >>> text = diagnosis_page(Diagnosis("flight.ulg", "ulog", 61.7, "constant velocity"))
    >>> "No problem was found in this log." in text
    True
    """
    return page_of(diagnosis).html()


def page_of(diagnosis: Diagnosis) -> Page:
    """The page of a diagnosis before it is written as text.

    Args:
        diagnosis: the diagnosis.

    Returns:
        The page, to add sections to or to save.

    >>> page_of(Diagnosis("flight.ulg", "ulog", 61.7, "constant velocity")).title
    'Diagnosis of flight.ulg'
    """
    shown: Diagnosis = clean(diagnosis)
    builders: tuple[Callable[[Diagnosis], Section | None], ...] = (
        stream_section, _noise, _rotors, _consistent, _bias, _cost, _fix, _settings, _method,
    )  # fmt: skip
    sections = tuple(section for build in builders if (section := build(shown)) is not None)
    notices, asides = verdict_notices(shown)
    return Page(
        title=f"Diagnosis of {shorten(shown.name, 80)}",
        subtitle=f"{shown.format}, {number(shown.seconds, 's')}; filter: {shown.filter or 'none'}",
        sections=sections,
        notices=notices,
        asides=asides,
        facts=key_figures(shown),
        data=diagnosis.as_dict(arrays=False),
    )


def pictures_of(diagnosis: Diagnosis) -> dict[str, Figure]:
    """The figures that answer most, by name: where the noise is, and whether the filter is consistent.

    Args:
        diagnosis: the diagnosis.

    Returns:
        Figures for :func:`fwnkf.report.plots.save_all`.

    >>> pictures_of(Diagnosis("flight.ulg", "ulog", 61.7, "constant velocity"))
    {}
    """
    shown: Diagnosis = clean(diagnosis)
    found = {
        f"spectra_{k}_{re.sub(r'[^a-z]+', '_', kind.lower())[:20]}": figures.spectra(group, shown.peaks)
        for k, ((kind, _), group) in enumerate(_grouped(shown.spectra).items(), 1)
    }
    if shown.consistency:
        found["consistency"] = figures.consistency(shown.consistency[:MOST_ROWS])
    return {name: plain_text(figure) for name, figure in found.items()}


# ---- the questions --------------------------------------------------------------------------------------------------


def _noise(diagnosis: Diagnosis) -> Section | None:
    if not diagnosis.spectra:
        return None
    drawings = []
    for k, ((kind, unit), group) in enumerate(_grouped(diagnosis.spectra).items()):
        caption = f"{_titled(kind)} ({unit}): square root of the power density."
        if any(spectrum.white is not None for spectrum in group):
            caption += " Dashed: the flat level of a consistent filter."
        drawings.append(draw(figures.spectra(group, diagnosis.peaks), f"spectra{k}", caption))
    peaks = by_strength(diagnosis.peaks)
    units = {spectrum.channel: spectrum.unit for spectrum in diagnosis.spectra}
    rows = tuple(
        (
            shorten(peak.channel, NAMES),
            peak.frequency,
            number(peak.amplitude, units.get(peak.channel, "")),
            peak.ratio,
            peak.label or "–",
        )
        for peak in peaks
    )
    table = Table(
        ("channel", "frequency (Hz)", "amplitude", "× floor", "source"),
        rows,
        "Spectral lines, the highest over the noise floor first",
    )
    best = strongest(diagnosis)
    if best is None:
        answer = "No spectral line was found: the noise is broadband."
    else:
        count = "One spectral line was" if len(peaks) == 1 else f"{len(peaks)} spectral lines were"
        answer = (
            f"{count} found. The strongest is at {number(best.frequency, 'Hz', digits=4)} in {best.channel}, "
            f"with an amplitude of {number(best.amplitude, units.get(best.channel, ''))}"
            + (f": {best.label}." if best.label else ".")
        )
    nyquist = max(float(spectrum.frequency[-1]) for spectrum in diagnosis.spectra if len(spectrum.frequency))
    notes = (f"Vibration above {number(nyquist, 'Hz')} (half the sampling rate) appears as an alias at a lower "
             "frequency.",)  # fmt: skip
    return Section("Where is the noise?", answer, tuple(drawings), (table,), notes)


def _rotors(diagnosis: Diagnosis) -> Section | None:
    if not diagnosis.waterfalls:
        return None
    drawings = []
    for k, result in enumerate(diagnosis.waterfalls[:WATERFALLS]):
        names = in_words([shorten(name, NAMES) for name in result.tracks], most=8)
        caption = "Spectral density over time; brighter is stronger." + (f" Dashed: {names}." if names else "")
        drawings.append(draw(figures.waterfall(result), f"waterfall{k}", caption))
    following = [peak for peak in by_strength(diagnosis.peaks) if peak.rotor is not None]
    tracked = any(result.tracks for result in diagnosis.waterfalls)
    if following:
        best = following[0]
        answer = (
            f"Yes: the line at {number(best.frequency, 'Hz')} in {best.channel} follows rotor {best.rotor}"
            + (f", harmonic {best.harmonic}" if best.harmonic else "")
            + (f", as an alias of {number(best.origin, 'Hz')}" if best.origin else "")
            + (f" (correlation over time {best.correlation:.2f})." if best.correlation is not None else ".")
        )
    elif tracked:
        answer = "No: no line follows a rotor speed."
    else:
        answer = "Unknown: the log has no rotor speeds. The spectrogram shows whether lines change over time."
    rows = tuple(
        (shorten(peak.channel, NAMES), peak.frequency, peak.rotor, peak.harmonic, peak.origin, peak.correlation)
        for peak in following
    )
    table = Table(
        ("channel", "frequency (Hz)", "rotor", "harmonic", "alias of (Hz)", "correlation"), rows, "Lines of rotors"
    )
    return Section("Does the noise follow the rotors?", answer, tuple(drawings), (table,))


def _consistent(diagnosis: Diagnosis) -> Section | None:
    rows = diagnosis.consistency
    if not rows:
        return None
    outside = [row for row in rows if not figures.is_consistent(row)]
    overall = overall_row(rows)
    large = [row for row in outside if row.mean > row.high]
    small = [row for row in outside if row.mean < row.low]
    coloured = [row for row in rows if abs(row.correlation or 0.0) > THRESHOLDS.whiteness_correlation]
    sentences = []
    if not outside:
        sentences.append(
            "Partly: the innovations have the expected size, but are not white."
            if coloured
            else "Yes: the innovations and errors match the covariance of the filter."
        )
    for group, word, size in ((large, "Overconfident", "larger"), (small, "Underconfident", "smaller")):
        for kind, subject in (("NIS", "the innovations are"), ("NEES", "the errors against the reference are")):
            found = [row for row in group if (row.kind == "NEES") == (kind == "NEES")]
            if found:
                sentences.append(f"{word} in {_names(found)}: {subject} {size} than the filter expects.")
    if coloured:
        sentences.append(f"Correlated in time: {_names(coloured)}.")
    shown = [row for row in _choice(rows, overall) if len(row.values) > 1]
    drawings = [
        draw(
            figures.consistency(rows[:MOST_ROWS]),
            "consistency",
            "Mean of each channel: underconfident on the left, overconfident on the right. Grey: 95 % interval of a "
            "consistent filter; a cross is more than 25 % outside.",
        )
    ]
    if shown:
        drawings.append(
            draw(
                figures.consistency_over_time(shown),
                "over_time",
                "Moving average over time. Dashed: value of a consistent filter.",
            )
        )
    kinds = sorted({row.kind for row in rows})
    mixed = len(kinds) > 1
    cells = tuple(
        (
            shorten(row.name, NAMES),
            *((row.kind,) if mixed else ()),
            row.mean,
            f"{number(row.low)} to {number(row.high)}",
            row.correlation,
            percent(row.gated),
        )
        for row in rows
    )
    columns = ("channel", *(("statistic",) if mixed else ()), "mean", "95 % interval", "correlation", "rejected")
    notes: tuple[str, ...] = (
        "NIS is the squared innovation (measurement minus prediction) divided by its variance in the filter. Its mean "
        "is 1 for a consistent filter. Correlation is the largest correlation between innovations of different "
        "steps; it is 0 for white innovations. Rejected: share of innovations outside the gate.",
    )
    if any(row.kind == "NEES" for row in rows):
        notes += ("NEES is the squared error against the reference divided by its variance in the estimate. Its "
                  "interval is wide where errors change slowly, because few of them are independent.",)  # fmt: skip
    table = Table(columns, cells, f"{'Consistency' if mixed else kinds[0]} of each channel")
    return Section("Is the filter consistent?", " ".join(sentences), tuple(drawings), (table,), notes)


def _bias(diagnosis: Diagnosis) -> Section | None:
    if not diagnosis.allan:
        return None
    groups: dict[str, list[AllanDeviation]] = {}
    for row in diagnosis.allan:
        groups.setdefault(row.unit, []).append(row)
    drawings = tuple(
        draw(figures.allan(group), f"allan{k}", "A slope of -½ is white noise; a rising curve is bias drift.")
        for k, group in enumerate(groups.values())
    )
    drifting = [finding for finding in diagnosis.findings if finding.cause in ("drift", "bias_step")]
    walks = [row for row in diagnosis.allan if row.walk is not None]
    if drifting:
        answer = drifting[0].what
    elif walks:
        names = in_words([shorten(row.channel, NAMES) for row in walks])
        answer = f"The curves of {names} rise at long averaging times. In flight, manoeuvres alone have this effect."
    else:
        answer = "No bias drift is visible within the length of this log."
    rows = tuple(
        (
            shorten(row.channel, NAMES),
            number(row.white, f"{row.unit}/√Hz") if row.white is not None else "–",
            number(row.instability, row.unit) if row.instability is not None else "–",
            number(row.walk, f"{row.unit}/s/√Hz") if row.walk is not None else "–",
        )
        for row in diagnosis.allan
    )
    table = Table(
        ("channel", "white noise", "bias instability", "bias random walk"), rows, "Noise parameters from the curves"
    )
    notes = (
        "In flight, manoeuvres raise the curve at long averaging times. Record at rest to characterise the sensor.",
    )
    return Section("Does the bias drift?", answer, drawings, (table,), notes)


def _cost(diagnosis: Diagnosis) -> Section | None:
    if not diagnosis.trades:
        return None
    drawings = tuple(
        draw(figures.trade(result), f"trade{k}", "Lower is less error, further left is less delay.")
        for k, result in enumerate(diagnosis.trades)
    )
    sentences = []
    rows: list[tuple[Cell, ...]] = []
    for result in diagnosis.trades:
        points = [
            (name, float(delay), float(error))
            for name, (delays, errors) in result.curves.items()
            for delay, error in zip(delays, errors, strict=True)
        ]
        points += [(name, delay, error) for name, (delay, error) in result.marks.items()]
        rows += [
            (shorten(result.channel, NAMES), name, delay, number(error, result.unit)) for name, delay, error in points
        ]
        prompt = min((point for point in points if point[1] <= 1.0), key=lambda point: point[2], default=None)
        best = min(points, key=lambda point: point[2], default=None)
        if prompt is not None and best is not None:
            sentence = (
                f"{result.channel}: the smallest error within 1 ms of delay is {number(prompt[2], result.unit)} "
                f"({prompt[0]})"
            )
            if best[0] != prompt[0] or best[1] > 1.0:
                sentence += f", and {number(best[2], result.unit)} at {number(best[1], 'ms')} ({best[0]})"
            sentences.append(sentence + ".")
    answer = " ".join(sentences) or "Each curve is one method. Choose by the delay that your application accepts."
    table = Table(("channel", "method", "delay (ms)", "error"), tuple(rows), "Points of the curves", fold=True)
    return Section("How much delay does filtering add?", answer, drawings, (table,))


def _fix(diagnosis: Diagnosis) -> Section | None:
    fix = diagnosis.fix
    if fix is None:
        return None
    before = {spectrum.channel: spectrum for spectrum in diagnosis.spectra if spectrum.kind == "innovation"}
    pairs = [(before[after.channel], after) for after in fix.spectra if after.channel in before]
    pairs.sort(key=lambda pair: -_excess(pair[0]))
    drawings: tuple[Drawing, ...] = tuple(
        draw(
            figures.before_after(old, new),
            f"fix{k}",
            "Innovation density divided by its value in the filter: flat at 1 for a consistent filter.",
        )
        for k, (old, new) in enumerate(pairs[:BEFORE_AFTER])
    )
    names = list(dict.fromkeys(name for row in fix.rows for name in row))
    rows = tuple(tuple(_value(row.get(name)) for name in names) for row in fix.rows)
    titles = {"log_likelihood": "log-likelihood per sample", "nis": "NIS", "white_p": "p-value of whiteness"}
    tables = [
        Table(
            tuple(titles.get(name, _spoken(name)) for name in names), rows, "Comparison on the held-out part of the log"
        )
    ]
    if fix.parameters:
        items = tuple((_spoken(name), value) for name, value in fix.parameters.items())
        tables.append(Table(("parameter", "value"), items, "Fitted parameters", fold=True))
    answer = _gain(fix)
    if fix.folder:
        answer += f" The filter is saved in {fix.folder}."
    return Section("What does the fitted filter (--fix) improve?", answer, drawings, tuple(tables), fix.notes)


def _settings(diagnosis: Diagnosis) -> Section | None:
    rows = diagnosis.settings
    if not rows and not diagnosis.settings_notes:
        return None
    groups = dict.fromkeys((row.group, row.why, row.gain, row.delay) for row in rows)
    sentences = [f"{why} Held-out gain: {gain}." if gain is not None else why for _, why, gain, _ in groups]
    answer = " ".join(sentences) or "None: no change of a setting has a gain that is significant."
    cells = tuple(
        (
            row.name,
            number(row.current) if row.current is not None else "–",
            f"{row.text} {row.unit}".rstrip(),
            row.range or "–",
            number(row.default) if row.default is not None else "–",
            str(row.gain) if row.gain is not None else "–",
            number(1e3 * row.delay, "ms") if row.delay is not None else "–",
        )
        for row in rows
    )
    table = Table(
        ("parameter", "in the log", "suggested", "allowed", "default", "gain (95 % interval)", "delay at 20 Hz"),
        cells,
        "Numbers to type in",
    )
    notes = (
        "Lines are found in the whole log; frequencies and widths of fixed notches come from its first half, gains "
        "from the second. Ranges and defaults: "
        f"{in_words(sorted({RELEASES[row.firmware] for row in rows}))}. `--params FILE` writes them to a file.",
    ) if rows else ()  # fmt: skip
    tables = (table,) if rows else ()
    return Section("Which settings would help?", answer, (), tables, (*notes, *diagnosis.settings_notes))


def _method(diagnosis: Diagnosis) -> Section:
    tables = [Table(("threshold", "value and meaning"), tuple(diagnosis.thresholds.items()), "Thresholds", fold=True)]
    facts = tuple(quantity(name, value) for name, value in diagnosis.facts.items())
    tables.append(Table(("fact", "value"), facts, "Vehicle and log", fold=True))
    answer = f"Filter: {diagnosis.filter or 'none'}. "
    answer += f"Command: `{diagnosis.command}`. " if diagnosis.command else ""
    answer += versions()
    return Section("How was it measured?", answer, (), tuple(tables), diagnosis.notes)


# ---- helpers --------------------------------------------------------------------------------------------------------


def _grouped(spectra: Iterable[ChannelSpectrum]) -> dict[tuple[str, str], list[ChannelSpectrum]]:
    """Spectra by kind and unit: one figure each."""
    groups: dict[tuple[str, str], list[ChannelSpectrum]] = {}
    for spectrum in spectra:
        if len(spectrum.frequency) > 1:
            groups.setdefault((spectrum.kind, spectrum.unit), []).append(spectrum)
    return groups


def _choice(rows: Sequence[Consistency], overall: Consistency | None) -> list[Consistency]:
    """The overall row and the two that are furthest from their band."""
    others = [row for row in rows if row is not overall]
    others.sort(key=lambda row: -max(row.mean / max(row.high, 1e-12), row.low / max(row.mean, 1e-12)))
    return ([] if overall is None else [overall]) + others[:2]


def _names(rows: Sequence[Consistency]) -> str:
    return in_words([shorten(row.name, NAMES) for row in rows], most=4)


def _excess(spectrum: ChannelSpectrum) -> float:
    return float(spectrum.density.max() / spectrum.white) if spectrum.white and len(spectrum.density) else 0.0


def _gain(fix: Fix) -> str:
    """What was kept, and how it compares on the held-out part."""
    scored = sum(isinstance(row.get("log_likelihood"), float) for row in fix.rows)
    if scored < 2:
        return "A filter was fitted, but the held-out part is too short to compare it."
    change = f"{number(abs(fix.gain))} ± {number(fix.gain_error)} nats of log-likelihood per sample"
    if fix.outcome == "unchanged":
        return f"Nothing: no fitted filter predicts better than {fix.kept}, which is kept."
    if fix.outcome == "worse":
        return (
            f"Nothing: {fix.kept} was selected on the fitted part, but predicts the held-out part worse, by {change}. "
            "It was not saved."
        )
    nis = next((row.get("nis") for row in fix.rows if row.get("method") == fix.kept), None)
    text = f"One-step prediction with {fix.kept} is better by {change}"
    return text + (f"; NIS {number(nis)} (consistent: 1)." if isinstance(nis, float) else ".")


def _value(value: object) -> Cell:
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _spoken(name: str) -> str:
    return name.replace("_", " ")


def _titled(kind: str) -> str:
    return {"signal": "Measured signal", "innovation": "Innovations of the filter",
            "logged innovation": "Innovations logged by the autopilot"}.get(kind, kind)  # fmt: skip
