"""The conclusion with which a page of results begins: two sentences, computed from the rows of that page.

    python benchmarks/conclusions.py            write them into docs/results/*.md
    python benchmarks/conclusions.py --check    say which pages do not begin with what their rows say, and exit with 1

A command that measures again replaces its page, figures and all; then this one is run. A test runs the check. Pages of
``OWN`` begin with a conclusion that their own command writes.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "docs" / "results"
BEGIN, END = "<!-- conclusion -->", "<!-- end of the conclusion -->"
OWN = ("index", "paper", "five_minutes", "when", "navigation")
"""Beginnings of the names of pages that are left to their own commands."""
_NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?|\binf\b")


@dataclass(frozen=True)
class Table:
    """A table of a page, with the heading that it stands below."""

    heading: str
    columns: tuple[str, ...]
    rows: tuple[dict[str, str], ...]

    def where(self, **wanted: str) -> list[dict[str, str]]:
        """Rows whose cells are these."""
        return [row for row in self.rows if all(row[name] == value for name, value in wanted.items())]


@dataclass(frozen=True)
class Page:
    """A page without its conclusion: its text, and its tables in order."""

    text: str
    tables: tuple[Table, ...]

    @property
    def first(self) -> Table:
        return self.tables[0]

    def below(self, heading: str) -> list[Table]:
        """Tables below headings that begin like this."""
        return [table for table in self.tables if table.heading.startswith(heading)]

    def found(self, pattern: str) -> list[tuple[str, ...]]:
        """Groups of every place of the text that a pattern matches; a page without one is not understood."""
        groups = [match.groups() for match in re.finditer(pattern, self.text, re.M)]
        if not groups:
            raise ValueError(f"nothing on the page is like {pattern!r}")
        return groups


def without_conclusion(text: str) -> str:
    """A page as its own command writes it.

    >>> without_conclusion(f"# A\\n\\n{BEGIN}\\nIt holds.\\n{END}\\n\\nWritten by …\\n")
    '# A\\n\\nWritten by …\\n'
    """
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}\n\n", "", text, flags=re.DOTALL)


def cells(line: str) -> list[str]:
    """The cells of a row of a table, without emphasis."""
    return [cell.strip().strip("*").strip() for cell in line.strip().strip("|").split("|")]


def read(text: str) -> Page:
    """Take a page apart. Of two columns with one name the first counts."""
    text = without_conclusion(text)
    heading, tables = "", []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if number and re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", line):
            columns = cells(lines[number - 1])
            rows = []
            for row in lines[number + 1 :]:
                if not row.startswith("|"):
                    break
                rows.append(dict(reversed(list(zip(columns, cells(row), strict=True)))))
            tables.append(Table(heading, tuple(columns), tuple(rows)))
    return Page(text, tuple(tables))


# ---- words for numbers -----------------------------------------------------------------------------------------------


def number(cell: str) -> float | None:
    """The first number of a cell; None where there is none.

    >>> number("0.3686 ± 0.0057"), number("12,545 windows"), number("–")
    (0.3686, 12545.0, None)
    """
    match = _NUMBER.search(cell)
    return None if match is None else float(match[0].replace(",", ""))


def numbers(rows: Iterable[dict[str, str]], column: str) -> list[float]:
    """The numbers of a column, without empty cells."""
    return [value for row in rows if (value := number(row[column])) is not None]


def short(value: float) -> str:
    """Three digits, without an exponent where none is needed.

    >>> short(0.12345), short(1234.5), short(140000), short(2e-7)
    ('0.123', '1,234', '140,000', '2e-07')
    """
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"


def span(values: Iterable[float]) -> str:
    """The smallest and the largest of some numbers, once where they read alike."""
    ends = [short(end(values)) for values in [list(values)] for end in (min, max)]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def listed(names: Iterable[str]) -> str:
    """Names in a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def yes(cell: str) -> bool:
    """Whether a cell of a table says that something holds."""
    return cell.lower() in ("yes", "true")


def held(rows: Iterable[dict[str, str]], column: str) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Rows that hold and rows that do not; those without an entry are references."""
    judged = [row for row in rows if row[column]]
    return [row for row in judged if yes(row[column])], [row for row in judged if not yes(row[column])]


def missed(rows: list[dict[str, str]], column: str, most: int = 4) -> str:
    """What did not hold, by name."""
    names = list(dict.fromkeys(row[column] for row in rows))
    if any("," in name for name in names):
        return "; ".join([*names[:most], *([f"{len(names) - most} more"] if len(names) > most else [])])
    return listed(names) if len(names) <= most else f"{', '.join(names[:most])} and {len(names) - most} more"


# ---- the pages -------------------------------------------------------------------------------------------------------

Conclusion = Callable[[Page], tuple[str, str]]
CONCLUSIONS: dict[str, Conclusion] = {}


def page(*names: str) -> Callable[[Conclusion], Conclusion]:
    """Says of which pages a function computes the conclusion."""

    def keep(function: Conclusion) -> Conclusion:
        CONCLUSIONS.update(dict.fromkeys(names, function))
        return function

    return keep


@page("ablations")
def _ablations(it: Page) -> tuple[str, str]:
    verdicts = it.found(r"^- \*\*(.+?)\*\* .*?; difference [^(]*\(([\d.]+)% (less|more)\), (measurably \w+|within)")
    better = [f"{name} ({share} %)" for name, share, _, verdict in verdicts if verdict == "measurably better"]
    spectral = [verdict for name, _, _, verdict in verdicts if name.startswith("Spectral loss, ")]
    states = [f"{share} % {more}" for name, share, more, _ in verdicts if name.startswith("Noise states instead of Φ")]
    helped = sum(verdict == "measurably better" for verdict in spectral)
    return (
        f"Noise states in place of Φ change the squared error by {listed(states)} on the {len(states)} tasks, and "
        f"{len(better)} of {len(verdicts)} comparisons are measurably better with the part than without.",
        f"The spectral loss is measurably better in {helped} of {len(spectral)} comparisons.",
    )


@page("accuracy")
def _accuracy(it: Page) -> tuple[str, str]:
    rows = it.first.rows
    reached = [row for row in rows if row["target"].endswith(": reached")]
    ahead = []
    for row in rows:
        ours, best = number(row["ours"]), number(re.sub(r"^.* ", "", row["best baseline"]))
        if ours is not None and best is not None and (ours < best if row["target"].startswith("≤") else ours > best):
            ahead.append(row)
    network = [row for row in rows if "GRU" in row["learned"]]
    return (
        f"{len(reached)} of {len(rows)} shipped filters reach all their targets, and {len(ahead)} are ahead of "
        "the best baseline of their task.",
        f"{len(network)} of them have a trained network; the others are fitted constants, noise states and "
        "regressions.",
    )


@page("changing_noise")
def _changing_noise(it: Page) -> tuple[str, str]:
    levels, switches = it.below("Levels")[0], it.below("On, off")[0]
    bank, tracked = (levels.where(method=name) for name in ("bank of levels", "level tracked"))

    def met(rows: list[dict[str, str]]) -> str:
        return f"{sum(row['verdict'] == 'meets all' for row in rows)} of {len(rows)}"

    worst = max(numbers(bank, "error [95 %]"))
    told = [row for row in switches.rows if row["verdict"]]
    return (
        f"A bank of levels has at most {short(worst)} times the error of a filter that is told the level, and "
        f"meets all criteria in {met(bank)} conditions; a tracked level meets them in {met(tracked)}.",
        f"Where the disturbance stops and comes back, all criteria are met in {met(told)} rows.",
    )


@page("conditioning")
def _conditioning(it: Page) -> tuple[str, str]:
    rows = it.first.rows
    root = it.first.where(form="square_root")
    dense = [row for row in rows if row["form"] != "square_root"]
    return (
        f"In float32 the square-root form keeps the standard deviation within "
        f"{short(max(numbers(root, 'std, worst')))} of its value on every system, where the dense forms are off "
        f"by up to {short(max(numbers(dense, 'std, worst')))} times.",
        f"Of {short(sum(numbers(rows, 'systems')))} runs {short(sum(numbers(rows, 'silent')))} were wrong "
        "without a status that says so.",
    )


@page("consistency")
def _consistency(it: Page) -> tuple[str, str]:
    good, bad = held(it.first.rows, "holds")
    states = [row for row in good + bad if row["claim"] == "noise states"]
    white = [row for row in it.first.rows if "white" in row["filter"]]
    return (
        f"With noise states NEES is {span(numbers(states, 'nees'))} and NIS {span(numbers(states, 'nis'))} in "
        f"every kind of coloured noise; filters that take it for white have NIS of {span(numbers(white, 'nis'))}.",
        f"{len(good)} of {len(good) + len(bad)} claims hold.",
    )


@page("cure")
def _cure(it: Page) -> tuple[str, str]:
    rows = it.first.rows
    return (
        f"`fwnkf diagnose --fix` reaches {span(numbers(rows, 'share'))} of the gain of a filter that is told "
        f"the vibration, on {len(rows)} simulated flights and without truth.",
        f"Errors fall to {span(numbers(rows, 'error after'))} of what they were, and NIS stays at "
        f"{span(numbers(rows, 'NIS after'))}.",
    )


@page("diagnosis")
def _diagnosis(it: Page) -> tuple[str, str]:
    part = it.below("The held out half")[0]
    good, bad = held(part.rows, "holds")
    (logs,) = re.findall(r"[\d,]+", part.heading)[-1:]
    false = it.found(r"^- healthy logs with a false warning: ([\d.]+) \([^)]*\) of (\d+)")[0]
    return (
        f"On {logs} simulated logs that no rule was chosen on, {len(good)} of {len(good) + len(bad)} targets hold"
        + (f"; missed: {missed(bad, 'target')}." if bad else "."),
        f"Of {false[1]} healthy logs, a share of {false[0]} gets a false warning.",
    )


@page("encoder")
def _encoder(it: Page) -> tuple[str, str]:
    rows = it.found(r"^- ([\w-]+): log-likelihood .*?, error ([\d.]+) \[.*?\] times that without it, (.+?) \(")
    smaller = [name for name, _, verdict in rows if verdict == "smaller"]
    larger = [f"{name} ({ratio} times)" for name, ratio, verdict in rows if verdict == "larger"]
    return (
        f"A network that adapts the noise from step to step, trained without truth, has a smaller error on "
        f"{len(smaller)} of {len(rows)} sets of recordings.",
        f"It is larger on {listed(larger)}; elsewhere there is no difference beyond the interval."
        if larger
        else "It is larger on none.",
    )


@page("engine")
def _engine(it: Page) -> tuple[str, str]:
    good, bad = held(it.first.rows, "held")
    rivals = [row for row in good + bad if row["beside"] == "dynamax" and row["case"].startswith("KF: ")]
    return (
        f"A compiled Kalman filter takes {span(numbers(rivals, 'ratio'))} times the time of dynamax, and "
        f"{len(good)} of {len(good) + len(bad)} limits of time are held.",
        f"Missed: {missed(bad, 'case')}." if bad else "None is missed.",
    )


@page("export", "export_recordings", "export_onnx", "export_onnx_recordings")
def _export(it: Page) -> tuple[str, str]:
    rows = [row for row in it.first.rows if yes(row["exported"])]
    error = "relative error" if "relative error" in it.first.columns else "float32"
    (limit,) = (name for name in it.first.columns if name in ("within 1e-4", "within 1e-5"))
    good, bad = held(rows, limit)
    beside = "the filter in float64" if error == "relative error" else "the filter in PyTorch"
    return (
        f"{len(rows)} of {len(it.first.rows)} filters are exported, and {len(good)} of {len(good) + len(bad)} stay "
        f"{limit.replace('within', 'within a relative')} of {beside} in single precision.",
        f"Further off: {missed(bad, 'which')}."
        if bad
        else f"The largest difference is {short(max(numbers(rows, error)))}.",
    )


@page("export_device")
def _export_device(it: Page) -> tuple[str, str]:
    rows = it.first.rows
    share = "of 168 MHz at 1 kHz"
    fits, slow = ([row for row in rows if ((number(row[share]) or 0) < 1) is wanted] for wanted in (True, False))
    flash = numbers(fits, "code and constants, -Os (bytes)")
    return (
        f"{len(fits)} of {len(rows)} exported filters run at 1 kHz on a Cortex-M4F of 168 MHz if an instruction "
        f"takes a cycle, with {short(min(flash) / 1e3)} to {short(max(flash) / 1e3)} kB of flash.",
        "Too slow for that: " + "; ".join(f"{row['filter']} ({row['weights']})" for row in slow) + ".",
    )


@page("export_speed")
def _export_speed(it: Page) -> tuple[str, str]:
    limits = [row for row in it.first.rows if row["limit"]]
    good, bad = held(limits, "held")
    eigen = next(row for row in limits if row["case"].startswith("inertial EKF: C / Eigen") and row["unit"] == "ratio")
    return (
        f"{len(good)} of {len(limits)} limits are held" + (f"; missed: {missed(bad, 'case')}." if bad else "."),
        f"An inertial filter as generated C takes {short(number(eigen['value']) or 0)} times the time of the "
        "same filter written by hand with Eigen.",
    )


@page("export_weights")
def _export_weights(it: Page) -> tuple[str, str]:
    by = {row["weights"]: row for row in it.first.rows}
    size = {name: number(row["code and constants (bytes)"]) or 0 for name, row in by.items()}

    def told(name: str) -> str:
        change = number(by[name]["change (%)"]) or 0
        return f"{short(size[name] / size['float'])} of the flash and change the error by {short(change)} %"

    return (f"Weights of 16 bits take {told('int16')}.", f"Weights of 8 bits take {told('int8')}.")


@page("fit")
def _fit(it: Page) -> tuple[str, str]:
    good, bad = held(it.first.rows, "holds")
    named = {row["case"] for row in it.first.rows if row["not determined"] != "nothing"}
    return (
        f"Without true states, fitted filters have {span(numbers(it.first.rows, 'MSE / oracle'))} times the "
        f"error of the filter that knows the noise, and {len(good)} of {len(good) + len(bad)} fits hold.",
        f"What the records cannot determine is named ({listed(sorted(named))})." if named else "All is determined.",
    )


@page("fit_recordings")
def _fit_recordings(it: Page) -> tuple[str, str]:
    ratios, order = {}, []
    for table in it.tables:
        column = next(name for name in table.columns[1:])
        by = {row["method"]: number(row[column]) for row in table.rows}
        ours, trained = by["fitted without truth"], by["trained with truth"]
        if ours is not None and trained is not None:
            ratios[table.heading] = ours / trained
            best = min(
                (value, name) for name, value in by.items() if value is not None and not name.startswith("trained")
            )
            order.append((table.heading, best[1] == "fitted without truth"))
    first = [name for name, is_first in order if is_first]
    return (
        "Fitted without truth, filters have "
        + listed(f"{short(value)} times ({name})" for name, value in ratios.items())
        + " the error of those trained with truth.",
        f"They are the best of those without truth on {listed(first)}."
        if first
        else "On no set are they the best of those without truth.",
    )


@page("fix_logs")
def _fix_logs(it: Page) -> tuple[str, str]:
    fresh, seen = it.below("Logs that were never")[0], it.below("The logs of the verdicts")[0]

    def gained(table: Table) -> tuple[int, int, int]:
        gains = numbers([row for row in table.rows if row["kept"] != "white"], "gain")
        return sum(gain > 0 for gain in gains), len(gains), len(table.rows)

    new, old = gained(fresh), gained(seen)
    notch = sum((number(row["noise states"]) or 0) > (number(row["notch"]) or 0) for row in fresh.rows if row["notch"])
    return (
        f"On logs that were never looked at, what `--fix` keeps predicts better than white noise in {new[0]} of "
        f"{new[2]}, and noise states better than notches in {notch}.",
        f"On the logs that rules were made with, it does in {old[0]} of the {old[1]} where it keeps more than "
        "white noise.",
    )


@page("hardening")
def _hardening(it: Page) -> tuple[str, str]:
    cases, failures = (sum(sum(numbers(table.rows, name)) for table in it.tables) for name in ("cases", "failures"))
    bad = [row["target"] for table in it.tables for row in table.rows if number(row["failures"])]
    return (
        f"Of {short(cases)} attempts to break the package {short(failures)} succeeded.",
        f"They are in {listed(bad)}." if bad else "Every answer was right, flagged, or a named error.",
    )


@page("install")
def _install(it: Page) -> tuple[str, str]:
    name, *pythons = it.first.columns
    tried = [(row[name], row[python]) for row in it.first.rows for python in pythons if row[python] != "not tried"]
    bad = [what for what, said in tried if said != "yes"]
    return (
        f"{len(tried) - len(bad)} of {len(tried)} installations into an empty environment work, over "
        f"{len(it.first.rows)} forms of the package and {len(pythons)} version{'s' if len(pythons) > 1 else ''} "
        "of Python.",
        f"These do not: {listed(bad)}." if bad else "Every extra works alone.",
    )


@page("mutated_logs")
def _mutated_logs(it: Page) -> tuple[str, str]:
    rows = it.first.rows
    return (
        f"{short(sum(numbers(rows, 'mutated')))} damaged logs of {len(rows)} formats were read or refused by a "
        f"named error, with {short(sum(numbers(rows, 'failures')))} failures.",
        f"The slowest took {short(max(numbers(rows, 'longest (s)')))} s and the largest "
        f"{short(max(numbers(rows, 'memory (MB)')))} MB.",
    )


@page("racer")
def _racer(it: Page) -> tuple[str, str]:
    table = it.below("Gaps")[0]
    by = {row[""]: row for row in table.rows}
    words = []
    for column in ("gap_20", "gap_50", "gap_100"):
        others = {
            name: value for name, row in by.items() if name != "ours" and (value := number(row[column])) is not None
        }
        best = min(others, key=lambda name: others[name])
        words.append(f"{short((number(by['ours'][column]) or 0) / others[best])} times ({best}, {column[4:]} ms)")
    coverage = numbers([row for row in it.below("Gaps")[1].rows if row[""] == "ours"], "coverage_50")
    return (
        f"Without its gyro, the filter predicts the rate with {listed(words)} the error of the best baseline.",
        f"Its 95 % intervals cover {short(100 * coverage[0])} % after 50 ms.",
    )


@page("reading")
def _reading(it: Page) -> tuple[str, str]:
    ratios = numbers(it.first.rows, "ratio")
    faster = sum(ratio < 1 for ratio in ratios)
    return (
        f"Logs are read in {span(ratios)} times the time of the libraries of their formats.",
        f"{faster} of {len(ratios)} comparisons are faster.",
    )


@page("references")
def _references(it: Page) -> tuple[str, str]:
    methods = sum(len(table.rows) for table in it.tables)
    learned = [
        table.heading
        for table in it.tables
        for best in [min(table.rows, key=lambda row, column=table.columns[1]: number(row[column]) or float("inf"))]
        if "regression" in best["method"]
    ]
    return (
        f"{methods} figures of methods that learn no network, over {len(it.tables)} tasks: what a learned "
        "filter has to be compared with.",
        f"By the first column, a regression of the motion is the best of them on {listed(learned)}."
        if learned
        else "By the first column, a regression of the motion is the best of them nowhere.",
    )


@page("release")
def _release(it: Page) -> tuple[str, str]:
    good, bad = held(it.first.rows, "passed")
    return (
        f"{len(good)} of {len(good) + len(bad)} steps from a clean clone to the lines of the README pass"
        + (f"; the first that does not is “{bad[0]['step']}”." if bad else "."),
        f"Together they take {short(sum(numbers(it.first.rows, 'seconds')) / 60)} minutes.",
    )


@page("robustness")
def _robustness(it: Page) -> tuple[str, str]:
    rows = it.first.rows
    good = [row for row in rows if row["verdict"] == "robust"]
    bad = [row for row in rows if row not in good]
    worst = max(rows, key=lambda row: number(row["ratio"]) or 0)
    return (
        f"Filters that have learned one disturbance meet all criteria in {len(good)} of {len(rows)} conditions "
        f"in which it is absent, shifted, weaker or stronger; the others are those of {missed(bad, 'filter')}.",
        f"The largest error is {worst['ratio']} times that of the EKF ({worst['filter']}, {worst['condition']}).",
    )


@page("robustness_recordings")
def _robustness_recordings(it: Page) -> tuple[str, str]:
    moved = [row for row in it.first.rows if row["verdict"] != "reference"]
    robust = [row for row in moved if row["verdict"] == "robust"]
    over = numbers(moved, "over the filter trained there")
    return (
        f"{len(robust)} of {len(moved)} filters that run on the kind of recording they were not trained on are robust.",
        f"Their errors are {span(over)} times those of the filter trained there, and their 95 % intervals cover "
        f"{span([100 * value for value in numbers(moved, 'coverage')])} %.",
    )


@page("rotor")
def _rotor(it: Page) -> tuple[str, str]:
    sweep = {row["filter"]: row for row in it.below("A simulated sweep")[0].rows}
    logs = it.below("Flight logs")[0].rows
    better = [row for row in logs if (number(row["NLL following"]) or 0) < (number(row["NLL white noise"]) or 0)]
    column = "gap closed, mean (least)"
    return (
        f"Lines that follow rotors close {number(sweep['speeds given at 100 Hz'][column]):.0f} % of the gap "
        f"between white noise and a filter that is told all, and {number(sweep['no speed'][column]):.0f} % "
        "without any speed.",
        f"On flight logs they predict better than white noise on {len(better)} of {len(logs)} axes.",
    )


@page("sizes")
def _sizes(it: Page) -> tuple[str, str]:
    sentences = []
    for data in dict.fromkeys(row["data"] for row in it.first.rows):
        by = {row["size"]: number(row["of the least"]) or 0 for row in it.first.where(data=data)}
        sentences.append(f"{short(by['none'])} on {data} without an encoder ({short(by['micro'])} with 16 units)")
    flash = {row["size"]: number(row["flash (bytes)"]) or 0 for row in it.first.rows}
    return (
        f"The squared error over that of the best size is {listed(sentences)}.",
        f"The size of the paper takes {short(flash['paper'] / flash['micro'])} times the flash of 16 units.",
    )


@page("smoothing")
def _smoothing(it: Page) -> tuple[str, str]:
    rows = it.first.where(method="fixed interval")
    ratios = numbers(rows, "over_filtered")
    return (
        f"Smoothing over the whole record has {span(ratios)} times the error of filtering, "
        f"{short(statistics.median(ratios))} in the median of {len(ratios)} figures of "
        f"{len({row['task'] for row in rows})} shipped filters.",
        f"Its 95 % intervals cover {span([100 * value for value in numbers(rows, 'coverage95')])} %.",
    )


@page("speed")
def _speed(it: Page) -> tuple[str, str]:
    good, bad = held(it.first.rows, "held")
    steps = numbers([row for row in it.first.rows if row["case"].startswith("Stream.step")], "ratio")
    return (
        f"A step of the filter takes {span(steps)} times the time of the bare GRU inside, and {len(good)} of "
        f"{len(good) + len(bad)} limits are held.",
        f"Missed: {missed(bad, 'case')}." if bad else "None is missed.",
    )


@page("stability")
def _stability(it: Page) -> tuple[str, str]:
    good, bad = held(it.first.rows, "holds")
    soaks = [row for row in it.first.rows if row["what"].startswith("soak")]
    shapers = [row for row in it.first.rows if row not in soaks]
    return (
        f"No pole of {short(sum(numbers(shapers, 'count')))} drawn shapers leaves its stated radius, and "
        f"covariances stay positive over {short(max(numbers(soaks, 'count')))} steps with outliers, dropouts and NaN."
        if not bad
        else f"{len(bad)} of {len(good) + len(bad)} claims do not hold: {missed(bad, 'what')}.",
        "The smallest eigenvalue of a covariance is at least "
        f"{short(min(numbers(soaks, 'smallest eigenvalue over largest')))} of the largest.",
    )


@page("stacked")
def _stacked(it: Page) -> tuple[str, str]:
    gains = numbers(it.first.rows, "gain")
    (together,) = re.findall(r"\d+", it.first.columns[2])
    return (
        f"In processor time, training {together} filters together is {span(gains)} times as fast as one by one.",
        f"The least gain is that of {min(it.first.rows, key=lambda row: number(row['gain']) or 0)['filter']}.",
    )


@page("verdicts")
def _verdicts(it: Page) -> tuple[str, str]:
    agree = [row for row in it.first.rows if row["against the label"] == "–"]
    kinds = [row["first"].split(",")[0] for row in it.first.rows]
    return (
        f"{len(agree)} of {len(it.first.rows)} public logs agree with labels from independent evidence.",
        f"{kinds.count('failure')} begin with a failure and {kinds.count('warning')} with a warning; rules were "
        "made with an eye on these logs, so that this is no estimate for others.",
    )


@page("walk")
def _walk(it: Page) -> tuple[str, str]:
    walks = [tuple(map(int, found)) for found in it.found(r"^(\d+) commands, (\d+) s, (\d+) failed\.$")]
    return (
        f"{sum(walk[0] for walk in walks)} commands of the guides lead {len(walks)} logs from a diagnosis to "
        f"compiled C, and {sum(walk[2] for walk in walks)} fail.",
        f"A log takes {span([walk[1] for walk in walks])} s.",
    )


# ---- the command -----------------------------------------------------------------------------------------------------


def conclusion(name: str, text: str) -> str:
    """The two sentences of a page."""
    return " ".join(CONCLUSIONS[name](read(text)))


def concluded(name: str, text: str) -> str:
    """A page that begins, below its title, with its conclusion."""
    plain = without_conclusion(text)
    title, rest = plain.split("\n", 1)
    return f"{title}\n\n{BEGIN}\n**{conclusion(name, plain)}**\n{END}\n\n{rest.lstrip()}"


def pages(folder: Path = RESULTS) -> list[Path]:
    """Pages that begin with a conclusion computed here."""
    return sorted(path for path in folder.glob("*.md") if not path.stem.startswith(OWN))


def main() -> int:
    """Write the conclusions, or check them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; the exit code is 1 if a page differs")
    options = parser.parse_args()
    different = []
    for path in pages():
        text = path.read_text(encoding="utf-8")
        wanted = concluded(path.stem, text)
        if text != wanted:
            different.append(path)
            if not options.check:
                path.write_text(wanted, encoding="utf-8")
    for path in different:
        print(f"{'differs' if options.check else 'written'}: {path}")
    return int(options.check and bool(different))


if __name__ == "__main__":
    sys.exit(main())
