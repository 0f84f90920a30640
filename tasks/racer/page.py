"""The page of results of the racing quadrotor, written from ``results.json``."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from tasks.bootstrap import paired_ratio
from tasks.racer.filter import VARIANTS
from tasks.racer.study import SIZES
from tasks.results import Results, plus_minus

Seeds = Mapping[str, Mapping[str, Mapping[str, float]]]
"""A row: metrics by seed and flight; ``""`` is all flights together."""
Rows = Mapping[str, Seeds]
TITLES = {
    "validation": "The choice between a constant Q and one that follows the GRU: the validation flight",
    "variants": "The same filter without one of its parts, with Q_t, and with noise states",
    "sizes": "Smaller GRU and network (the filter has 64)",
    "shifted": "Trained on ten flights, tested on the ten others",
    "saturated": "Gyro clipped at 6.7 rad/s, clipped samples taken as missing",
    "forecast": "20 ms ahead: what the commands to come are worth",
    "tail": "The tail of the NEES",
}
NOTES = {
    "forecast": "`commands forecast`: a ridge predicts the motor commands of the next 20 ms from what the other ridge "
    "reads, and the filter takes them as if they were known. `commands` is the RMSE of the commands (0 to 1).",
    "tail": "Windows without a collision. `tail_…` is the share of the NEES that the largest 1 % of the windows make "
    "(4.5 % for a normal distribution of three dimensions), `rest_…` the NEES without them.",
}
BESIDE_THE_FILTER = ("variants", "sizes")
"""Parts whose rows stand beside those of the filter."""
THE_FILTER = "the filter"
RATIO = "gap_50 over the filter's"
GAPS = ("gap_step", "gap_20", "gap_50", "gap_100", "gap_200")
OTHERS = ("ahead_5", "ahead_10", "ahead_20")


def page(kept: Results) -> str:
    """All tables there are; a study that has not run is named as such."""
    methods = ordered(kept)
    seeds = ", ".join(f"{len(rows)} of {name}" for name, rows in methods.items() if len(rows) > 1)
    minutes = kept.details["cpu_seconds"] / 60
    lines = [
        "# Racing quadrotor: the rate without a gyro",
        "",
        "Written by `python -m tasks racer [PART …]` from `models/racer/results.json`, which "
        "`python -m tasks train racer` and the parts of the study write. Method and limits: "
        "[card](../../models/racer/README.md), [design](../design/racer.md).",
        "",
        f"Protocol: {kept.protocol}. {kept.details['windows']:,} windows of {kept.records} flights. Seeds: {seeds}. "
        f"`python -m tasks train racer` took {minutes:.1f} CPU minutes from the logs to the shipped filter and the "
        "tables of this section, baselines and all seeds included.",
        "",
        "![A gap in a real flight](../images/racer.png)",
        "",
        "## Gaps and predictions",
        "",
        "RMSE in rad/s, mean of three axes: at the end of gaps of so many ms with motor commands going on (`step`: one "
        "step, 4.1 ms), and so many ms ahead without knowledge of later commands. 5, 10, 20, 50, 100, 200 ms are 1, 2, "
        "5, 12, 24, 48 steps of 4.1 ms. `±` is the standard deviation over seeds.",
        "",
        *_table(methods, (*GAPS, *OTHERS), spread),
        "",
        "NEES over its dimension and 95 % coverage of the withheld gyro under the stated covariance:",
        "",
        *_table(methods, tuple(f"{kind}_{name[4:]}" for kind in ("nees", "coverage") for name in GAPS), spread),
        "",
        f"RMSE over the {kept.details['quiet_windows']:,} windows without a collision (no rate beyond 16 rad/s); the "
        "others are one collision in LOG00036:",
        "",
        *_table(methods, tuple(f"quiet_{name[4:]}" for name in GAPS), spread),
        "",
        "Mean over test flights of the figures of each flight (mean of seeds), with a 95 % bootstrap interval over "
        "flights; with five flights it is a rough one:",
        "",
        *_intervals(methods, kept.metrics()),
        "",
        "Ours over each baseline at 50 ms, mean over test flights with a 95 % bootstrap interval over flights: "
        + ", ".join(f"{name} {kept.against(name)}" for name in kept.baselines)
        + ".",
        "",
        *_curve(kept.details.get("curve")),
    ]
    for name, title in TITLES.items():
        rows = kept.details.get(name)
        lines += [f"## {title}", "", *([NOTES[name], ""] if name in NOTES and rows else [])]
        lines += part(name, rows, kept) if rows else [f"Not measured yet: `python -m tasks racer {name}`.", ""]
    return "\n".join(lines)


def ordered(kept: Results) -> dict[str, Seeds]:
    """The rows of all methods, ours last."""
    rows: Rows = kept.details["by_flight"]
    return {**{name: rows[name] for name in kept.baselines}, "**ours**": rows["ours"]}


def part(name: str, rows: Rows, kept: Results) -> list[str]:
    """The tables of one part of the study: with the spread over seeds, and with intervals over flights."""
    columns = list(dict.fromkeys(column for row in rows.values() for seed in row.values() for column in seed[""]))
    lines: list[str] = []
    if name == "tail":
        return _tail(rows)
    if name in BESIDE_THE_FILTER:
        multiply_adds = kept.details["multiply_adds"]
        own = {
            seed: {flight: {**metrics, "multiply_adds": multiply_adds} for flight, metrics in by_flight.items()}
            for seed, by_flight in kept.details["by_flight"]["ours"].items()
        }
        wanted = VARIANTS if name == "variants" else [f"gru_{size}" for size in SIZES]
        missing = [f"`{row}`" for row in wanted if row not in rows]
        rows = {THE_FILTER: own, **rows}
        lines += [f"Not measured yet: {', '.join(missing)}.", ""] if missing else []
    lines += [*_table(rows, columns, spread, seeds=True), ""]
    shown = [column for column in columns if column not in ("multiply_adds", "samples", "windows")]
    if any(len(seed) > 2 for row in rows.values() for seed in row.values()):
        lines += ["Mean over the flights it was tested on, with a 95 % bootstrap interval over flights:", ""]
        table = _table(rows, shown, interval)
        if name in BESIDE_THE_FILTER:
            ours = flights(rows[THE_FILTER], "gap_50")
            ratios = [RATIO, "---", *(str(paired_ratio(flights(row, "gap_50"), ours)) for row in rows.values())]
            table = [f"{line} {cell} |" for line, cell in zip(table, ratios, strict=True)]
        lines += [*table, ""]
    return lines


# ---- cells ----------------------------------------------------------------------------------------------------------


def spread(row: Seeds, metric: str) -> str:
    """Mean and standard deviation over seeds of a metric of all windows; empty if the row does not have it."""
    values = [seed[""][metric] for seed in row.values() if metric in seed[""]]
    if not values:
        return ""
    if len(values) > 1 and statistics.stdev(values) > 0:
        return plus_minus(statistics.fmean(values), statistics.stdev(values))
    return f"{values[0]:,.0f}" if values[0] >= 1000 else f"{values[0]:.3g}"


def interval(row: Seeds, metric: str) -> str:
    """Mean over flights and its interval."""
    values = flights(row, metric)
    return str(paired_ratio(values, dict.fromkeys(values, 1.0))) if values else ""


def flights(row: Seeds, metric: str) -> dict[str, float]:
    """A metric of each flight, mean over seeds."""
    names = dict.fromkeys(name for seed in row.values() for name in seed if name and metric in seed[name])
    return {name: statistics.fmean(seed[name][metric] for seed in row.values()) for name in names}


# ---- tables ---------------------------------------------------------------------------------------------------------


def _table(rows: Rows, columns: Sequence[str], cell: Callable[[Seeds, str], str], *, seeds: bool = False) -> list[str]:
    head = ("", *(("seeds",) if seeds else ()), *columns)
    lines = [_row(head), "|---" * len(head) + "|"]
    for name, row in rows.items():
        cells = [cell(row, column) for column in columns]
        if any(cells):
            lines.append(_row((name, *((str(len(row)),) if seeds else ()), *cells)))
    return lines


def _intervals(methods: Rows, metrics: Sequence[str]) -> list[str]:
    shown = ("**ours**", "ridge", "network", "linear_kf", "ekf_rigid_body", "hold")
    lines = [_row(("", *shown)), "|---" * (1 + len(shown)) + "|"]
    return lines + [_row((metric, *(interval(methods[name], metric) for name in shown))) for metric in metrics]


def _curve(curve: Rows | None) -> list[str]:
    if not curve:
        return []
    columns = [("hold", "rmse"), ("linear_kf", "rmse"), ("linear_kf", "stated"), ("ours", "rmse"), ("ours", "stated")]
    titles = [name if kind == "rmse" else f"{name} {kind}" for name, kind in columns]
    times = [name.removeprefix("rmse_") for name in next(iter(curve["hold"].values()))[""]]
    lines = [
        "![Error against the length of the gap](../images/racer-gaps.png)",
        "",
        f"Error and stated error by length of the gap ({_seeds(curve['ours'])}), and the mean error over flights:",
        "",
        _row(("", *titles, "ours, interval over flights")),
        "|---" * (2 + len(columns)) + "|",
    ]
    for time in times:
        cells = [spread(curve[name], f"{kind}_{time}") for name, kind in columns]
        lines.append(_row((f"{time} ms", *cells, interval(curve["ours"], f"rmse_{time}"))))
    return [*lines, ""]


def _tail(rows: Rows) -> list[str]:
    lengths = [name[5:] for name in next(iter(rows["ours"].values()))[""] if name.startswith("tail_")]
    kinds = ("nees", "tail", "rest", "coverage")
    head = ("", *(f"{kind}{text}" for kind in kinds for text in ("", ", over flights")))
    lines = [f"{_seeds(rows['ours'])}:", "", _row(head), "|---" * len(head) + "|"]
    for length in lengths:
        names = [f"{kind}_{length}" for kind in kinds]
        cells = [text for name in names for text in (spread(rows["ours"], name), interval(rows["ours"], name))]
        lines.append(_row((length if length == "step" else f"{length} ms", *cells)))
    return [*lines, ""]


def _seeds(row: Seeds) -> str:
    return f"{len(row)} seed{'s' * (len(row) > 1)}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
