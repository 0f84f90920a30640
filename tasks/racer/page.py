"""The page of results of the racing quadrotor, written from ``results.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fwnkf.evaluation.bootstrap import paired_ratio
from tasks.results import Results, plus_minus

TITLES = {
    "variants": "The same filter without one of its parts, and with noise states; seed 0",
    "sizes": "Smaller GRU and network (the filter has 64); seed 0",
    "shifted": "Trained on ten flights, tested on the ten others",
    "saturated": "Gyro clipped at 6.7 rad/s, clipped samples taken as missing",
}
OF_ONE_SEED = ("variants", "sizes")
"""Parts whose rows stand beside the same seed of the filter."""
GAPS = ("gap_step", "gap_20", "gap_50", "gap_100", "gap_200")
OTHERS = ("ahead_5", "ahead_10", "ahead_20")


def page(kept: Results) -> str:
    """All tables there are; a study that has not run is named as such."""
    seeds = f"{len(kept.seeds)} seed{'s' * (len(kept.seeds) > 1)}"
    lines = [
        "# Racing quadrotor: the rate without a gyro",
        "",
        "Written by `python -m tasks racer [PART …]` from `models/racer/results.json`, which "
        "`python -m tasks train racer` and the parts of the study write. Method and limits: "
        "[card](../../models/racer/README.md), [design](../design/racer.md).",
        "",
        f"Protocol: {kept.protocol}. {kept.details['windows']:,} windows of {kept.records} flights, {seeds}.",
        "",
        "![A gap in a real flight](../images/racer.png)",
        "",
        "## Gaps and predictions",
        "",
        "RMSE in rad/s, mean of three axes: at the end of gaps of so many ms with motor commands going on (`step`: one "
        "step, 4.1 ms), and so many ms ahead without knowledge of later commands. 5, 10, 20, 50, 100, 200 ms are 1, 2, "
        "5, 12, 24, 48 steps of 4.1 ms.",
        "",
        *_methods(kept, (*GAPS, *OTHERS)),
        "",
        "NEES over its dimension and 95 % coverage of the withheld gyro under the stated covariance:",
        "",
        *_methods(kept, tuple(f"{kind}_{name[4:]}" for kind in ("nees", "coverage") for name in GAPS)),
        "",
        *_more(kept),
        "Ours over each baseline at 50 ms, mean over test flights with a 95 % bootstrap interval over flights: "
        + ", ".join(f"{name} {kept.against(name)}" for name in kept.baselines)
        + ".",
        "",
    ]
    if "curve" in kept.details:
        lines += ["![Error against the length of the gap](../images/racer-gaps.png)", ""]
        lines += ["Error and stated error by length of the gap:", "", *_curve(kept.details["curve"]), ""]
    for name, title in TITLES.items():
        lines += [f"## {title}", ""]
        rows = kept.details.get(name)
        if rows and name in OF_ONE_SEED:
            columns = next(iter(rows.values()))
            rows = {"the filter": {key: kept.seeds[0].metrics.get(key) for key in columns}, **rows}
        lines += [*_table(rows), ""] if rows else [f"Not measured yet: `python -m tasks racer {name}`.", ""]
    return "\n".join(lines)


def _methods(kept: Results, columns: tuple[str, ...]) -> list[str]:
    lines = [_row(("method", *columns)), "|---" * (1 + len(columns)) + "|"]
    for name, score in kept.baselines.items():
        if any(column in score.metrics for column in columns):
            lines.append(_row((name, *(_number(score.metrics.get(column)) for column in columns))))
    ours = (plus_minus(kept.mean(column), kept.std(column)) for column in columns)
    return [*lines, _row(("**ours**", *ours))]


def _more(kept: Results) -> list[str]:
    """Windows without a collision, and intervals over flights, of results that have them."""
    if "by_flight" not in kept.details:
        return []
    return [
        f"RMSE over the {kept.details['quiet_windows']:,} windows without a collision (no rate beyond 16 rad/s); the "
        "others are one collision in LOG00036:",
        "",
        *_methods(kept, tuple(f"quiet_{name[4:]}" for name in GAPS)),
        "",
        "Mean over test flights of the figures of each flight (ours: mean of seeds), with a 95 % bootstrap interval "
        "over flights; with five flights it is a rough one:",
        "",
        *_intervals(kept),
        "",
    ]


def _intervals(kept: Results) -> list[str]:
    by_flight: Mapping[str, Mapping[str, Mapping[str, float]]] = kept.details["by_flight"]
    shown = ("ours", "ridge", "network", "linear_kf")
    lines = [_row(("", *shown)), "|---" * (1 + len(shown)) + "|"]
    for metric in kept.metrics():
        cells = []
        for method in shown:
            values = {name: row[metric] for name, row in by_flight[method].items() if metric in row}
            cells.append(str(paired_ratio(values, dict.fromkeys(values, 1.0))) if values else "")
        lines.append(_row((metric, *cells)))
    return lines


def _table(rows: Mapping[str, Mapping[str, float | None]]) -> list[str]:
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    lines = [_row(("", *columns)), "|---" * (1 + len(columns)) + "|"]
    return lines + [_row((name, *(_number(row.get(column)) for column in columns))) for name, row in rows.items()]


def _curve(curve: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[str]:
    rows: dict[str, dict[str, float]] = {}
    for method, by_length in curve.items():
        for row in by_length.values():
            of_length = rows.setdefault(f"{row['ms']:.0f} ms", {})
            of_length |= {f"{method} {kind}" if kind != "rmse" else method: row[kind] for kind in row if kind != "ms"}
    return _table(rows)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
