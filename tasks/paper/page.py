"""``docs/results/paper.md`` from the store: the paper's tables with the published figures beside ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

from fwnkf.training.config import OptimizerSection
from tasks.encoder.command import STORE as ENCODERS
from tasks.encoder.page import verdicts
from tasks.encoder.study import read as read_encoders
from tasks.paper import published, summary
from tasks.paper.claims import OURS, SMALLER, Claim, Verdict, claims, inconsistencies
from tasks.paper.matrix import Cell, Matrix
from tasks.paper.published import columns
from tasks.paper.scores import COLUMNS, paired
from tasks.paper.store import RUNTIME, Row
from tasks.paper.summary import EARLIER, NEGLIGIBLE, NOT_RUN, STOPPED, Entry, Results, short

IMAGES = Path("../images")
"""Folder of the drawings, from that of the page."""
EXAMPLES = {
    "trajectory": "the first test record, with the 95 % interval of FW-NKF",
    "spectra": "spectral density of the error of predicted measurements, which the spectral loss weighs",
    "phi": "the learned Φ of FW-NKF, its response, delay, poles and zeros",
}
MEASURED_FIRST = (
    "On these data FW-NKF reads the measurement of a step before it predicts it (`reads: current`). Its encoder can "
    "then make the error of predicted measurements as small as the spectral loss asks for by itself; whether the "
    "estimates are better for it, the table above says."
)
TITLES = {
    "lorenz": "Lorenz",
    "lorenz_full": "Lorenz as in KalmanNet's paper",
    "pendulum": "Pendulum",
    "euroc": "EuRoC MAV",
    "euroc_full": "EuRoC MAV, every sample",
    "uipdb": "UIP-DB",
}
HEADINGS = {"mae": "MAE", "mse": "MSE", "rmse": "RMSE", "nrmse": "NRMSE", "r2": "R²"}
TRAJECTORY = {"ate": "ATE", "ate_max": "maximum ATE"}
"""Errors of positions in space, which the paper defines and prints for none of its data."""
DEFINITIONS = (
    "The paper's formulas sum over the components of the state. Its tables follow its public code instead "
    "(`evaluate` in `trainer.py`): means over all components, steps and records, differences of stored numbers even "
    "for angles, NRMSE relative to the standard deviation of all numbers together, R² = 1 - NRMSE². The columns here "
    "are computed in this way. “MSE, arc” compares angles along the shortest arc, which is what the filters are "
    "trained for; paired differences use it. ATE is the mean distance from the true position, maximum ATE the largest "
    "one of a record, both averaged over records; the paper defines them and prints neither. ± is the standard "
    "deviation over seeds."
)


def write(path: Path, matrix: Matrix, rows: Mapping[str, Row], runs: Path, *, images: bool) -> None:
    """Write the page, and its drawings if ``images``; runs that are missing are shown as such."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if images:
        from tasks.paper.drawings import draw

        draw(path.parent / IMAGES, matrix, rows, runs)
    drawn = {image.stem for image in (path.parent / IMAGES).glob("paper-*.png")}
    path.write_text(page(matrix, rows, drawn), encoding="utf-8")


def page(matrix: Matrix, rows: Mapping[str, Row], drawn: Collection[str] = ()) -> str:
    """The page as Markdown; ``drawn`` are the names of the drawings that exist."""
    results = Results(rows.values(), matrix)
    runtime = [row for row in rows.values() if row["kind"] == RUNTIME]
    listed = claims(matrix, results, runtime)
    lines = [
        "# The paper's tables",
        "",
        *_conclusion(listed),
        "",
        "Written by `python -m tasks paper` from the store of results, `docs/results/paper/`, which has a row for each "
        "run. Recipes and budget: [`tasks/paper/recipes.yaml`](../../tasks/paper/recipes.yaml).",
        "",
        DEFINITIONS,
        "",
        *([summary.rule(matrix.values), ""] if "search" in matrix.values else []),
        "## What holds of the paper's claims",
        "",
        *_claims(listed),
        *_doubled(matrix, results),
    ]
    for data in dict.fromkeys(str(table["data"]) for table in matrix.values["tables"]):
        lines += section(matrix, results, data, drawn)
    lines += _uipdb(matrix, drawn) + _encoder() + _runtime(matrix, runtime, drawn) + _means(matrix, results)
    return "\n".join(lines).rstrip() + "\n"


def _conclusion(listed: Sequence[Claim]) -> list[str]:
    """Two sentences: how many claims hold, and which of them is about the least error."""
    decided = [claim for claim in listed if claim.verdict not in ("not run yet", "cannot be tested")]
    if not decided:
        return ["Nothing has been run yet."]
    counts = Counter[str](claim.verdict for claim in decided)
    words = {
        "holds": ("holds", "hold"),
        "does not hold": ("does not hold", "do not hold"),
        "holds in part": ("holds in part", "hold in part"),
        "no difference of a tenth": ("shows no difference of a tenth", "show no difference of a tenth"),
        "differs from seed to seed": ("differs from seed to seed", "differ from seed to seed"),
        "undecided": ("is open", "are open"),
    }
    said = ", ".join(
        f"{counts[verdict]} {text[counts[verdict] > 1]}" for verdict, text in words.items() if counts[verdict]
    )
    least = [claim for claim in decided if "has the least error" in claim.text]
    where = ", ".join(f"{claim.text.split(',')[0].removeprefix('On ')} {claim.verdict}" for claim in least)
    better = sum(SMALLER in claim.reason for claim in least)
    return [
        f"**Of {len(decided)} claims of the paper that can be tested, {said}. That FW-NKF has the least error of the "
        f"trained filters ({where}) says little by itself: on {better} of {len(least)} data sets a filter with the "
        "given or regressed equations, or plain integration, has a smaller one.**"
    ]


def _doubled(matrix: Matrix, results: Results) -> list[str]:
    """What twice the budget changes, for the first seed of each recipe and weight."""
    rows = [row for row in results.rows if "doubled" in row]
    if not rows:
        return []
    header = ["data", "protocol", "method", "λ", "MSE of the first seed", "twice the budget", "difference", "spread"]
    lines, beyond = [], dict[str, list[str]]()
    for row in rows:
        entry = results.entry(row["data"], row["protocol"], row["recipe"], row["weight"])
        before, after, spread = row["metrics"]["mse_arc"], row["doubled"]["mse_arc"], entry.spread("mse_arc")
        inside = abs(after - before) <= max(spread, NEGLIGIBLE * before)
        name = f"{matrix.title(row['recipe'])} on {TITLES.get(row['data'], row['data'])}, `{row['protocol']}`"
        if not inside:
            beyond.setdefault(name, []).append(f"{after / before - 1:+.0%}")
        method = matrix.title(row["recipe"]) + (EARLIER if row["earlier"] else "")
        lines.append([TITLES.get(row["data"], row["data"]), row["protocol"], method, f"{row['weight']:g}",
                      short(before), short(after), f"{after / before - 1:+.1%}", short(spread, 2)])  # fmt: skip
    limit = f"the spread over seeds{' and' if beyond else ', or'} {NEGLIGIBLE:.0%}"
    found = (f"{name} ({', '.join(changes)})" for name, changes in beyond.items())
    said = f"Beyond {limit}: {', '.join(found)}." if beyond else f"All differences are within {limit}."
    hours = _hours(results.rows)
    return [
        "## What a larger budget would change",
        "",
        "The first seed of each row, which went on with twice the patience and twice the largest number of steps. "
        f"{said} All runs of this page together took {hours:.1f} CPU hours.",
        "",
        *summary.table(header, lines),
    ]


def _hours(rows: Iterable[Row]) -> float:
    """CPU hours of runs and their grids; runs that differ in the weight of the loss share what prepares them."""
    seconds, prepared, trials = 0.0, dict[Any, float](), dict[Any, Sequence[Row]]()
    for row in rows:
        clock = dict(row.get("cpu_seconds", {}))
        prepared[row["data"], row["protocol"], row["recipe"], row.get("seed")] = clock.pop("preparation", 0.0)
        seconds += sum(clock.values()) + row.get("doubled", {}).get("cpu_seconds", 0.0)
        trials[row["data"], row["protocol"], row["recipe"]] = row.get("trials", ())
    seconds += sum(trial["cpu_seconds"] for grid in trials.values() for trial in grid)
    return float(seconds + sum(prepared.values())) / 3600


def _claims(listed: Sequence[Claim]) -> list[str]:
    """Claims by verdict, each with the figures behind it."""
    lines = []
    for verdict in get_args(Verdict):
        chosen = [claim for claim in listed if claim.verdict == verdict]
        if chosen:
            lines += [f"**{verdict.capitalize()}**", ""]
            lines += [f"- *{claim.text}* {claim.reason}".rstrip() for claim in chosen]
            lines.append("")
    odd = list(inconsistencies())
    if odd:
        lines += [f"Published figures that do not fit each other: {'; '.join(odd)}.", ""]
    return lines


def section(matrix: Matrix, results: Results, data: str, drawn: Collection[str]) -> list[str]:
    """The tables of one data set."""
    lines = [f"## {TITLES.get(data, data)}", "", f"{summary.budget(matrix, data)}.", ""]
    lines += _image(drawn, f"paper-{data}-curves", f"Validation error during training on {TITLES.get(data, data)}")
    lines += _image(drawn, f"paper-{data}", f"MSE on {TITLES.get(data, data)}, here and published")
    for protocol in ("paper", "strict"):
        pairs = matrix.rows(data, protocol)
        if pairs:
            lines += [f"### Protocol `{protocol}`", ""]
            lines += _comparison(matrix, results, data, protocol, pairs)
            lines += _references(results, data, protocol)
    for name, text in EXAMPLES.items():
        image = _image(drawn, f"paper-{data}-{name}", f"{TITLES.get(data, data)}: {text}", caption=True)
        lines += image
        if image and name == "spectra" and _reads_first(matrix, data):
            lines += [MEASURED_FIRST, ""]
    return lines


def _reads_first(matrix: Matrix, data: str) -> bool:
    """Whether FW-NKF reads the measurement of a step before it predicts it, on these data."""
    own: Mapping[str, Any] = matrix.config(Cell(data, "paper", OURS, 0.0, 0))["filter"]
    return bool(own.get("options", {}).get("encoder", {}).get("reads") == "current")


def _image(drawn: Collection[str], name: str, text: str, *, caption: bool = False) -> list[str]:
    if name not in drawn:
        return []
    return [*([f"{text}:", ""] if caption else []), f"![{text}]({IMAGES.as_posix()}/{name}.png)", ""]


def _comparison(
    matrix: Matrix, results: Results, data: str, protocol: str, pairs: list[tuple[str, float]]
) -> list[str]:
    angles = data == "pendulum"
    positions = any(
        "ate" in row["metrics"] for recipe, w in pairs for row in results.entry(data, protocol, recipe, w).rows
    )
    header = [
        "method",
        "λ",
        *HEADINGS.values(),
        *(["MSE, arc"] if angles else []),
        *(TRAJECTORY.values() if positions else []),
    ]
    header += ["FW-NKF / method", "NEES", "parameters", "CPU s", "budget"]
    lines = []
    for recipe, weight in pairs:
        entry = results.entry(data, protocol, recipe, weight)
        cells = [f"{entry.text(name)}{_published(data, protocol, recipe, weight, name)}" for name in COLUMNS]
        against = results.entry(data, protocol, OURS, weight)
        lines.append([
            matrix.title(recipe),
            f"{weight:g}",
            *cells,
            *([entry.text("mse_arc")] if angles else []),
            *((entry.text(name) for name in TRAJECTORY) if positions else []),
            "" if recipe == OURS else _ratio(against, entry),
            entry.text("nees") if entry.rows else "",
            f"{entry.rows[0]['parameters']:,}" if entry.rows else "",
            f"{entry.seconds():.0f}" if entry.rows else "",
            entry.budget(),
        ])  # fmt: skip
    notes = {
        STOPPED: "training of a seed ended early, because its loss was no longer finite.",
        EARLIER: "not yet trained by the rule above, but with a smaller budget, which may rank speed of learning.",
    }
    found = [f"{mark} {note}" for mark, note in notes.items() if any(mark in cell for line in lines for cell in line)]
    return summary.table(header, lines) + [text for note in found for text in (note, "")]


def _published(data: str, protocol: str, recipe: str, weight: float, column: str) -> str:
    if protocol != "paper":
        return ""
    figure = published.figure(data, recipe, weight, column)
    return "" if figure is None else f" (*{short(figure.value)}*)"


def _references(results: Results, data: str, protocol: str) -> list[str]:
    names = results.references(data, protocol)
    lines = []
    for name in names:
        entry = results.entry(data, protocol, name)
        lines.append([f"`{name}`", *(entry.text(column) for column in (*COLUMNS, "mse_arc", *TRAJECTORY, "nees"))])
    header = ["reference", *HEADINGS.values(), "MSE, arc", *TRAJECTORY.values(), "NEES"]
    return summary.table(header, lines) if lines else []


def _ratio(ours: Entry, theirs: Entry) -> str:
    interval = paired(ours.rows, theirs.rows)
    return "" if interval is None else str(interval)


def _uipdb(matrix: Matrix, drawn: Collection[str]) -> list[str]:
    """The published table; what can be said of the recordings at hand is on the card of the task."""
    header = ["method", "λ", "acc. RMSE", "acc. MAE", "rotation ρ", "distance RMSE", "distance MAE"]
    lines = [
        [matrix.title(row["recipe"]), f"{row['weight']:g}", *(f"*{row[name].value:g}*" for name in columns("uipdb"))]
        for row in published.rows("uipdb")
    ]
    return [
        "## UIP-DB",
        "",
        "Published figures alone: the part of the data at hand has neither accelerations nor rotations with their "
        "truth. What it can say is on [its card](../../models/uipdb/README.md); who has the official files trains on "
        "them with `data: {name: uipdb, files: official}`, and `tasks/uipdb/official.py` has these columns.",
        "",
        *_image(drawn, "paper-uipdb", "Acceleration RMSE on UIP-DB, published"),
        *summary.table(header, lines),
    ]


def _encoder() -> list[str]:
    """What the paper's encoder of the noise is worth on recordings, from the store of that study."""
    stored = read_encoders(ENCODERS)
    if not stored:
        return []
    return [
        "## The encoder of the noise on recordings",
        "",
        "The paper adapts `Q_t` and `R_t` by an encoder. The same filters with constant and with encoded noise, both "
        "by likelihood without truth, on recordings that neither has seen ([encoder](encoder.md)). Where the error is "
        "not smaller, the encoder is worth nothing there:",
        "",
        *verdicts(stored),
        "",
    ]


def _runtime(matrix: Matrix, runtime: Sequence[Row], drawn: Collection[str]) -> list[str]:
    header = ["method", "parameters", "ms a step", "compiled", "ratio to a bare GRU", "compiled"]
    by_name = {row["recipe"]: row for row in runtime}
    lines = []
    for printed in published.rows("runtime"):
        row = by_name.get(printed["recipe"])
        first = [f"(*{printed['parameters'].value:,.0f}*)", f"(*{printed['ms'].value:g}*)"]
        if row is None:
            lines.append([matrix.title(printed["recipe"]), *(f"{NOT_RUN} {text}" for text in first), "", "", ""])
            continue
        compiled = ("" if row[name] is None else short(row[name]) for name in ("compiled_ms", "compiled_ratio"))
        milliseconds, ratio = compiled
        lines.append([
            matrix.title(printed["recipe"]),
            f"{row['parameters']:,} {first[0]}",
            f"{short(row['ms'])} {first[1]}",
            milliseconds,
            short(row["ratio"]),
            ratio,
        ])  # fmt: skip
    return [
        "## Runtime",
        "",
        "Batch 1, 100 steps, Lorenz with two measured coordinates, one CPU thread; published in brackets, on a GPU. "
        "The bare GRU cell has the width of the filter's own network and was timed in the same run.",
        "",
        *_image(drawn, "paper-runtime", "Parameters and time of a step, here and published"),
        *summary.table(header, lines),
    ]


def _means(matrix: Matrix, results: Results) -> list[str]:
    """How each filter was trained, and what that took."""
    lines = []
    for recipe, values in matrix.values["recipes"].items():
        rows = [row for row in results.rows if row["recipe"] == recipe and row["status"] == "done"]
        if rows:
            entry = Entry(tuple(rows))
            optimizer = OptimizerSection(**rows[0]["config"]["optimizer"])
            rates = sorted({float(row.get("rate", optimizer.learning_rate)) for row in rows})
            refine = max(row["config"].get("trainer", {}).get("refine", 0) for row in rows)
            lines.append([
                matrix.title(recipe),
                optimizer.name,
                " to ".join(f"{rate:g}" for rate in dict.fromkeys((rates[0], rates[-1]))),
                f"{fmean(row['steps'] for row in rows):.0f}",
                f"{max(row['pretrain'] for row in rows)}" + (f" + {refine}" if refine else ""),
                f"{entry.seconds():.0f}",
                str(values.get("about", "")),
            ])  # fmt: skip
    if not lines:
        return []
    header = ["method", "optimiser", "learning rate", "steps", "regression", "CPU s a run", ""]
    return [
        "## Equal means",
        "",
        "Training of one run, over all tables: rates that were chosen, steps and CPU seconds on "
        "average; regression in steps of Adam and, after the sign, at most so many quasi-Newton iterations.",
        "",
        *summary.table(header, lines),
    ]
