"""``docs/results/paper.md`` from the store: the paper's tables with the published figures beside ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tasks.paper import published, summary
from tasks.paper.matrix import Matrix
from tasks.paper.scores import COLUMNS, paired
from tasks.paper.store import Row
from tasks.paper.summary import Entry, Results, short

TITLES = {"lorenz": "Lorenz", "pendulum": "Pendulum", "euroc": "EuRoC MAV", "uipdb": "UIP-DB"}
HEADINGS = {"mae": "MAE", "mse": "MSE", "rmse": "RMSE", "nrmse": "NRMSE", "r2": "R²"}
OURS = "fwnkf"
DEFINITIONS = (
    "The paper's formulas sum over the components of the state. Its tables follow its public code instead "
    "(`evaluate` in `trainer.py`): means over all components, steps and records, differences of stored numbers even "
    "for angles, NRMSE relative to the standard deviation of all numbers together, R² = 1 - NRMSE². The columns here "
    "are computed in this way. “MSE, arc” compares angles along the shortest arc, which is what the filters are "
    "trained for; paired differences use it. ± is the standard deviation over seeds."
)


def write(path: Path, matrix: Matrix, rows: Mapping[str, Row], runs: Path) -> None:
    """Write the page; runs that are missing are shown as such."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(matrix, rows), encoding="utf-8")


def page(matrix: Matrix, rows: Mapping[str, Row]) -> str:
    """The page as Markdown."""
    results = Results(rows.values())
    lines = [
        "# The paper's tables",
        "",
        "Written by `python -m tasks paper` from [the store of results](paper/runs.jsonl), a row for each run. Recipes "
        "and budget: [`tasks/paper/recipes.yaml`](../../tasks/paper/recipes.yaml).",
        "",
        DEFINITIONS,
        "",
    ]
    for data in dict.fromkeys(str(table["data"]) for table in matrix.values["tables"]):
        lines += section(matrix, results, data)
    return "\n".join(lines)


def section(matrix: Matrix, results: Results, data: str) -> list[str]:
    """The tables of one data set."""
    lines = [f"## {TITLES.get(data, data)}", "", f"{summary.budget(matrix.values, data)}.".capitalize(), ""]
    for protocol in ("paper", "strict"):
        tables = [t for t in matrix.values["tables"] if (t["data"], t["protocol"]) == (data, protocol)]
        pairs = [(recipe, float(w)) for table in tables for recipe in table["recipes"] for w in table["weights"]]
        if pairs:
            lines += [f"### Protocol `{protocol}`", ""]
            lines += _comparison(matrix, results, data, protocol, pairs)
            lines += _references(results, data, protocol)
    return lines


def _comparison(
    matrix: Matrix, results: Results, data: str, protocol: str, pairs: list[tuple[str, float]]
) -> list[str]:
    angles = data == "pendulum"
    header = ["method", "λ", *HEADINGS.values(), *(["MSE, arc"] if angles else [])]
    header += ["FW-NKF / method", "NEES", "parameters", "CPU s"]
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
            "" if recipe == OURS else _ratio(against, entry),
            entry.text("nees") if entry.rows else "",
            f"{entry.rows[0]['parameters']:,}" if entry.rows else "",
            f"{entry.seconds():.0f}" if entry.rows else "",
        ])  # fmt: skip
    return summary.table(header, lines)


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
        lines.append([f"`{name}`", *(entry.text(column) for column in (*COLUMNS, "mse_arc", "nees"))])
    return summary.table(["reference", *HEADINGS.values(), "MSE, arc", "NEES"], lines) if lines else []


def _ratio(ours: Entry, theirs: Entry) -> str:
    interval = paired(ours.rows, theirs.rows)
    return "" if interval is None else str(interval)
