"""``docs/results/engine.md`` and its drawings, from the rows of ``benchmarks/engine.py``."""

from __future__ import annotations

import platform
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tables import shown

Row = Mapping[str, Any]


class Limit(NamedTuple):
    """What a ratio may be at most: of which candidate of ours, beside which other."""

    part: str
    case: str
    """The beginning of the names of the cases."""
    ours: str
    other: str
    most: float
    title: str = ""
    """What the row is called where the case does not say it."""


REGULAR, IRREGULAR = "n = 4, m = 2, regular", "n = 12, m = 3, a fifth missing, irregular"
LIMITS = (
    Limit("filter", REGULAR, "auto", "dynamax", 1.0, "KF"),
    Limit("filter", REGULAR, "auto", "statsmodels", 2.0, "KF"),
    Limit("filter", IRREGULAR, "auto", "C by hand", 3.0, "KF"),
    Limit("filter", IRREGULAR, "scan", "dynamax", 3.0, "KF without a compiler"),
    Limit("smoother", "", "auto", "dynamax", 1.0, "smoother"),
    Limit("gradient", "", "auto", "dynamax", 1.0, "log-likelihood and gradient in 10 parameters"),
    Limit("extended", "", "auto", "Eigen by hand", 2.0, "EKF"),
    Limit("learned", "", "auto", "its step, called from C", 1.1),
    Limit("batch", "", "auto", "simdkalman", 1.0),
    Limit("batch", "", "auto", "dynamax", 1.0),
    Limit("commands", "", "now", "0.2.0", 0.1),
    Limit("run", "", "now", "length of the log", 0.03),
    Limit("first", "", "first", "loop", 1.0, "first run of a new filter, compiling included"),
    Limit("first", "", "second", "loop", 0.1, "second run, in a new process"),
)
NAMES = {"dynamax": "dynamax, compiled", "native": "ours, native", "scan": "ours, scan", "loop": "ours, loop"}
COLOURS = {
    "native": "#1f5fbf",
    "scan": "#5b9bd5",
    "loop": "#a9c7e8",
    "C by hand": "#333333",
    "dynamax": "#d9822b",
    "statsmodels": "#7a9a3a",
}
NOTE = """\
One thread, float64, CPU seconds, records of seed 0, on a machine of two cores that other work shared, so that ratios
say more than times. Candidates take turns in one process; a ratio is the median over the rounds of the ratio within a
round, with its quartiles. Every candidate returns means, covariances, the log-likelihood and, where it has them,
innovations, into memory that it takes anew. Results are compared first: *difference* is the largest over all steps,
of means and covariances in standard deviations, of log-likelihoods and gradients relative to their size. dynamax adds
1e-9 to the diagonal of what it inverts, and statsmodels stops computing covariances that have nearly converged; both
are timed as they are, and compared with that switched off as well (*exactly*), which must agree to 1e-6. A row whose
results disagree is not timed. `auto` is what `filter.run(y)` does; `scan` needs no compiler. Models: *n = 4* is a
target that turns at a known rate. *n = 12* are three axes of position, velocity, acceleration and a slow bias of the
tracker, whose axes are turned against those of the motion; time stamps are in whole microseconds, uniform within 20 %
of the nominal step. Without turn or mount the axes are *independent*, which the engine finds and uses. The programs
by hand are in `benchmarks/engine`: dense, of fixed size, `-O3 -march=native`; of the C the faster of two builds, with
loops unrolled or not. The strapdown by hand computes nothing for a sensor that measured nothing."""


def write_page(rows: Sequence[Row], path: Path) -> None:
    """Write the page and its drawings; of measurements that were repeated, the last counts."""
    latest = list({(row["part"], row["case"], row["steps"]): row for row in rows}.values())
    by_part: dict[str, list[Row]] = {}
    for row in latest:
        by_part.setdefault(row["part"], []).append(row)
    lines = [
        "# Engines over time",
        "",
        f"Written by `python {' '.join(sys.argv)}` from rows that the other commands of that script measured; "
        f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}, 1 thread.",
        "",
        " ".join(NOTE.split()),
        "",
        *_table(list(_limits(by_part))),
    ]
    failed = [
        f"{row['case']}, {row['steps']:,} steps, {name}: {why}"
        for row in latest
        for name, why in row.get("failed", {}).items()
    ]
    if failed:
        lines += [
            "",
            "Not timed, because a candidate failed or its results disagree:",
            "",
            *(f"- {one}" for one in failed),
        ]
    timed = [
        row
        for part in ("filter", "smoother", "gradient", "extended", "learned", "batch")
        for row in by_part.get(part, ())
    ]
    if timed:
        lines += ["", "## Microseconds for a step", "", *_table(list(map(_costs, timed)))]
    if "profile" in by_part:
        lines += ["", "## Where the time of the commands goes", ""]
        lines += ["Shares by package (cProfile; compiled code and PyTorch's operators count for who calls them).", ""]
        lines += _table([{"command": row["case"], **_shares(row)} for row in by_part["profile"]])
    images = path.parent.parent / "images"
    if "lengths" in by_part:
        _draw_lengths(by_part["lengths"], images / "engine-lengths.png")
        lines += ["", "## By the length of a record", "", *_wrapped_lengths(), ""]
        lines += ["![Time of a step and memory by the length of a record](../images/engine-lengths.png)"]
    if "sizes" in by_part:
        _draw_sizes(by_part["sizes"], images / "engine-sizes.png")
        lines += ["", "## By the number of states", ""]
        lines += ["A chain of masses and springs, of which the first and the last are measured.", ""]
        lines += ["![Time of a step by the number of states](../images/engine-sizes.png)"]
    if "agreement" in by_part:
        lines += ["", "## Agreement with the loop", "", *_table(list(map(_differences, by_part["agreement"])))]
    if "precision" in by_part:
        lines += ["", "## Single precision", ""]
        lines += ['Beside the loop in float64; *factors* is `solve="square_root"`.', ""]
        lines += _table([row for item in by_part["precision"] for row in _precisions(item)])
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    print(f"written: {path}")


def _limits(by_part: Mapping[str, Sequence[Row]]) -> Iterator[dict[str, object]]:
    """One row for each limit and measurement; what was not measured is said to be so."""
    for limit in LIMITS:
        found = [row for row in by_part.get(limit.part, ()) if row["case"].startswith(limit.case)]
        if not found:
            yield {
                "case": limit.title or limit.part,
                "beside": limit.other,
                "at most": limit.most,
                "held": "not measured",
            }
        for row in found:
            name = f"{limit.title}: {row['case']}" if limit.title else row["case"]
            yield {"case": name, "steps": f"{row['steps']:,}" if row["steps"] else "", **_compared(row, limit)}


def _compared(row: Row, limit: Limit) -> dict[str, object]:
    own, other = (row["taken"].get(name) for name in (limit.ours, limit.other))
    told: dict[str, object] = {"beside": limit.other, "ours": None, "theirs": None, "ratio": None}
    told |= {"quartiles": "", "rounds": len(own or ())}
    told |= {"at most": limit.most, "held": "not measured", "difference": row.get("difference", {}).get(limit.other)}
    told["exactly"] = row.get("exact", {}).get(limit.other)
    if not own or not other:
        return told
    unit = (1e6 / row["steps"], " µs") if limit.ours in ("auto", "scan") else (1.0, " s")
    # within a round both met the same load; what was measured once stands beside the median of the other
    pairs = (
        zip(own, other, strict=True) if len(own) == len(other) else ((item, statistics.median(other)) for item in own)
    )
    ratios = [mine / theirs for mine, theirs in pairs]
    ratio = statistics.median(ratios)
    if len(ratios) > 2:
        low, _, high = statistics.quantiles(ratios, n=4)
        told["quartiles"] = f"{low:.3g} to {high:.3g}"
    for name, values in (("ours", own), ("theirs", other)):
        told[name] = f"{statistics.median(values) * unit[0]:.3g}{unit[1]}"
    return told | {"ratio": f"{ratio:.3g}", "held": ratio <= limit.most}


def _costs(row: Row) -> dict[str, object]:
    costs = {name: 1e6 * statistics.median(values) / row["steps"] for name, values in row["taken"].items()}
    return {"case": f"{row['part']}: {row['case']}", "steps": f"{row['steps']:,}", **costs}


def _shares(row: Row) -> dict[str, object]:
    return {f"{place + 1}.": f"{name} {100 * share:.0f} %" for place, (name, share) in enumerate(row["shares"].items())}


def _differences(row: Row) -> dict[str, object]:
    return {"case": row["case"], "steps": f"{row['steps']:,}", **row["difference"]}


def _precisions(row: Row) -> Iterator[dict[str, object]]:
    for name, far in row["difference"].items():
        cost = 1e6 * statistics.median(row["taken"][name]) / row["steps"]
        yield {"case": row["case"], "engine, form, precision": name, "difference": far, "µs for a step": cost}


def _table(rows: Sequence[Mapping[str, object]]) -> list[str]:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return [
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
        *("| " + " | ".join(shown(row.get(name)) for name in columns) + " |" for row in rows),
    ]


# ---- drawings -------------------------------------------------------------------------------------------------------


def _wrapped_lengths() -> list[str]:
    from engine_processes import CHUNK

    text = f"""\
The model of n = 4. Ours runs {CHUNK:,} steps at a time and drops what it returned, as a run that writes a file does;
the others take the whole record. Memory is what a process takes beside the record itself."""
    return [" ".join(text.split())]


def _axes(count: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * count + 1.4, 3.4), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)[0]
    for axis in axes:
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.grid(alpha=0.3, linewidth=0.5)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _lines(axis: Any, points: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    for name, colour in COLOURS.items():
        if name in points:
            x, y = zip(*sorted(points[name]), strict=True)
            axis.plot(x, y, marker="o", markersize=3.5, linewidth=1.4, color=colour, label=NAMES.get(name, name))


def _draw_lengths(rows: Sequence[Row], path: Path) -> None:
    figure, (cost, memory) = _axes(2)
    for axis, key, unit in ((cost, "seconds", 1e6), (memory, "bytes", 1e-6)):
        points: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            value = unit * row[key] / (row["steps"] if key == "seconds" else 1)
            points.setdefault(row["case"], []).append((row["steps"], max(value, 0.1)))
        _lines(axis, points)
        axis.set_xlabel("steps of the record")
    cost.set_ylabel("µs for a step")
    memory.set_ylabel("MB")
    _legend(figure, cost)
    _save(figure, path)


def _draw_sizes(rows: Sequence[Row], path: Path) -> None:
    figure, (axis,) = _axes(1)
    points: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        for name, values in row["taken"].items():
            point = (int(row["case"].split()[-1]), 1e6 * statistics.median(values) / row["steps"])
            points.setdefault(name, []).append(point)
    _lines(axis, points)
    ticks = sorted({x for series in points.values() for x, _ in series})
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.set_xlabel("states")
    axis.set_ylabel("µs for a step")
    _legend(figure, axis)
    _save(figure, path)


def _legend(figure: Any, axis: Any) -> None:
    """Beside the axes, where it hides no line; in the order of the lines at their right end."""
    drawn = sorted(axis.get_lines(), key=lambda line: -line.get_ydata()[-1])
    figure.legend(drawn, [line.get_label() for line in drawn], loc="outside right center", fontsize=8, frameon=False)


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
