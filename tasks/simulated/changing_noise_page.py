"""The page and the drawing of :mod:`tasks.simulated.changing_noise`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fwnkf.evaluation.rows import Row
from fwnkf.extras import need
from tasks.simulated.changing_noise import (
    COVERAGE,
    DWELL,
    ERROR_LIMIT,
    FIRST_SEED,
    LEVELS,
    MEMORY,
    NEES_TOLERANCE,
    ONSETS,
    PERIOD,
    RECOVERED,
    RECOVERY,
    SWITCH_LIMIT,
    WINDOW,
)
from tasks.simulated.robustness import FILTERS

METHODS = {
    "told": "told",
    "bank": "bank of levels",
    "switching": "hypotheses with dwell",
    "onsets": "the same with onsets",
    "tracked": "level tracked",
    "trained": "as trained",
    "ekf": "EKF",
    "autopilot": "autopilot + EKF",
}
COLOURS = {"bank": "#0072B2", "tracked": "#009E73", "trained": "#8C8C8C", "ekf": "#D55E00"}
"""Of Okabe and Ito, as in the plots of the library."""
FOLLOWING = ("bank", "tracked", "switching", "onsets")


def markdown(rows: Sequence[Row], figure: str | None = None) -> str:
    """The rows as a page; every figure is theirs."""
    levels, switches = ([row for row in rows if (row["condition"] == "switches") == kind] for kind in (False, True))
    most, fewest = (choose(int(row["records"]) for row in levels or rows) for choose in (max, min))
    fewer = f" ({fewest} of the tone, whose filter has eight frequencies)" if fewest < most else ""
    low, high = COVERAGE
    lines = [
        "# Noise that changes",
        "",
        f"Written by `python -m tasks changing_noise --records {most} --markdown docs/results/changing_noise.md "
        f"--figure docs/images/changing-noise.png`: {most} records{fewer} "
        f"of each of {rows[0]['seeds']} seeds from {FIRST_SEED} on, the same for all methods, in float64. Errors (MSE) "
        "and NEES are relative to the filter that is told. The first error is that of all records together over the "
        "told filter's on the same records, with the 95 % interval of a bootstrap over records; the others are means "
        "over seeds ± the standard deviation between them. Parts may be measured one by one (`--part`, `--store`, "
        "`--keep`).",
        "",
        "The trained Lorenz filters; nothing is trained for this. **Told**: the filter with its noise at the true "
        f"level. **Bank of levels**: `Hypotheses(fallback=True, levels={LEVELS}, dwell={DWELL:g})`. **Level tracked**: "
        f"`Level(seconds={MEMORY:g})`, one filter. **EKF**: the true equations, white "
        "noise of the nominal variance. **Autopilot**: for the tone the notch of PX4 (15 Hz wide) at the true "
        "frequency of each record, for the high band the low-pass of ArduPilot (20 Hz), then the EKF; autopilots "
        "have nothing for drift and pink noise.",
        "",
        f"Criteria: error at most {ERROR_LIMIT:g} times that of the told filter, coverage {low:g} to {high:g}, NEES "
        f"within {100 * NEES_TOLERANCE:.0f} % of the told filter's.",
        "",
        *_summary(levels),
        "",
        *_missing(rows),
        "Most of the loss is in the first ten of 100 steps, when the unknown state hides the level: no filter "
        "can know it there. The bank is the Bayesian estimator for its levels, so a smaller loss at one level costs "
        "a larger one at another.",
        "",
    ]
    if figure is not None:
        lines += [f"![Error and coverage against the level]({figure})", ""]
    lines += [
        "## Levels",
        "",
        "| filter | variance | method | error [95 %] | error from step 10 | NEES | coverage | verdict |",
        "|---|---|---|---|---|---|---|---|",
        *(_level_line(row) for row in levels),
        "",
    ]
    if not switches:
        return "\n".join(lines)
    most = max(int(row["records"]) for row in switches)
    lines += [
        "## On, off, on",
        "",
        f"{most} records of each seed, a quarter for the tone (`--part switches --records {most}`). The "
        f"disturbance stops after {PERIOD} steps and comes back after {PERIOD} more; the white floor stays. Told: "
        "the hypotheses that are false at a step are ruled out. **Hypotheses with dwell**: `Hypotheses(fallback=True, "
        f"dwell={DWELL:g})`; **with onsets**: `onsets={ONSETS}` besides. **Level tracked**: "
        f"`Level(seconds={MEMORY / 10:g}, of='each')`. Recovery: seconds after "
        "which the error of all records together in windows "
        f"of 0.1 s stays below {RECOVERED:g} times the told filter's, after the stop and after the return (at most "
        f"{(PERIOD - WINDOW) / 100:g} s). After {RECOVERY:g} s: the same ratio over the rest of the {PERIOD} steps, "
        "with its interval over records; a few records with large errors make the windows uncertain. Criteria: error "
        f"at most {SWITCH_LIMIT:g} times, recovered "
        f"within {RECOVERY:g} s. In the high band the white floor that was learned is far below the true one, because "
        "its broad oscillators take a part of it: the filter told that the disturbance is off states covariances "
        "that are too small.",
        "",
        "| filter | method | error [95 %] | error from step 10 | NEES | coverage | recovery, off | recovery, on | "
        f"after {RECOVERY:g} s, off | after {RECOVERY:g} s, on | verdict |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *(_switch_line(row) for row in switches),
        "",
    ]
    return "\n".join(lines)


def _missing(rows: Sequence[Row]) -> list[str]:
    """Which filters a run that was stopped, or found not all of them, has no figures of."""
    have = {(row["task"], row["condition"] == "switches") for row in rows}
    absent = [
        f"{kind} of {task}"
        for kind, switches in (("levels", False), ("switches", True))
        for task in FILTERS
        if (task, switches) not in have
    ]
    return [f"Not measured in this run: {', '.join(absent)}.", ""] if absent else []


def _summary(levels: Sequence[Row]) -> list[str]:
    """How often each form meets the criteria, and its largest error."""
    lines = []
    for method in ("bank", "tracked"):
        ours = [row for row in levels if row["method"] == method]
        if not ours:
            continue
        worst = max(ours, key=lambda row: float(row["pooled"]))
        met = {name: sum(bool(row[name]) for row in ours) for name in ("error_ok", "coverage_ok", "nees_ok", "ok")}
        nominal = max((row["pooled"] for row in ours if row["condition"] == "x1"), default=float("nan"))
        surely = (
            sum(row["pooled_high"] <= ERROR_LIMIT for row in ours),
            sum(row["pooled_low"] > ERROR_LIMIT for row in ours),
        )
        lines.append(
            f"- {METHODS[method].capitalize()}: of {len(ours)} conditions {met['error_ok']} meet the criterion of "
            f"error ({surely[0]} with the whole interval; {surely[1]} miss it with the whole interval), "
            f"{met['coverage_ok']} that of coverage, {met['nees_ok']} that of NEES, {met['ok']} all three. The "
            f"largest error is {_error(worst)} ({worst['task']}, "
            f"{worst['condition']}), the largest at the nominal level {nominal:.3f}."
        )
    widths = [row["pooled_high"] - row["pooled_low"] for row in levels if row["method"] in FOLLOWING]
    if widths:  # a run of switches alone has none
        lines.append(f"- The interval of these errors is {statistics.median(widths):.3f} wide in the median.")
    return lines


def _error(row: Row, name: str = "pooled") -> str:
    return f"{row[name]:.3f} [{row[name + '_low']:.3f}, {row[name + '_high']:.3f}]"


def _figure(row: Row, name: str) -> str:
    value, spread = row[name], row[name + "_std"]  # JSON keeps no NaN, and infinity as a word
    if not (isinstance(value, float) and math.isfinite(value)):
        return "not finite"
    return f"{value:.3f} ± {spread:.3f}"


def _words(row: Row, also: dict[str, bool]) -> str:
    """What a filter that follows the noise misses; the others are there to compare with."""
    if row["method"] not in FOLLOWING:
        return ""
    missed = [name for name, ok in also.items() if not ok]
    return f"**misses: {', '.join(missed)}**" if missed else "meets all"


def _criteria(row: Row) -> dict[str, bool]:
    return {"error": row["error_ok"], "coverage": row["coverage_ok"], "NEES": row["nees_ok"]}


def _columns(row: Row) -> str:
    return " | ".join((_error(row), *(_figure(row, name) for name in ("ratio_from_10", "nees", "coverage95"))))


def _level_line(row: Row) -> str:
    method = METHODS[row["method"]]
    if row["method"] == "told":
        method = f"told: MSE {_figure(row, 'mse')}"
    words = _words(row, _criteria(row))
    return f"| {row['task']} | {row['condition'].replace('x', '×')} | {method} | {_columns(row)} | {words} |"


def _switch_line(row: Row) -> str:
    words = _words(row, {"error": row["error_ok"], "recovery": row["recovered"]})
    seconds = " | ".join(f"{row[name]:.2f} s" for name in ("recovery_off", "recovery_on"))
    rest = " | ".join(_error(row, name) for name in ("rest_off", "rest_on"))
    return f"| {row['task']} | {METHODS[row['method']]} | {_columns(row)} | {seconds} | {rest} | {words} |"


def _ends(row: Row, name: str) -> tuple[float, float]:
    """How far the bar of a figure reaches down and up: its interval, or the standard deviation between seeds."""
    if name == "pooled":
        return row["pooled"] - row["pooled_low"], row["pooled_high"] - row["pooled"]
    return row[f"{name}_std"], row[f"{name}_std"]


def draw(rows: Sequence[Row], path: Path) -> None:
    """Error relative to the told filter and coverage against the level, one column for each filter."""
    plt = need("matplotlib.pyplot", extra="plot")
    shown = [row for row in rows if row["condition"] != "switches"]
    tasks = list(dict.fromkeys(row["task"] for row in shown))
    figure, axes = plt.subplots(
        2,
        len(tasks),
        figsize=(3.1 * len(tasks) + 0.6, 5.2),
        sharex=True,
        sharey="row",
        squeeze=False,
        layout="constrained",
    )
    for column, task in enumerate(tasks):
        for method, colour in COLOURS.items():
            ours = [row for row in shown if (row["task"], row["method"]) == (task, method)]
            level = [float(row["condition"].removeprefix("x")) for row in ours]
            for panel, name in zip(axes[:, column], ("pooled", "coverage95"), strict=True):
                value = [row[name] for row in ours]
                spread = np.array([_ends(row, name) for row in ours]).T
                style = {"color": colour, "marker": "o", "ms": 3.5, "lw": 1.4, "capsize": 2}
                panel.errorbar(level, value, spread, label=METHODS[method], **style)
        top, bottom = axes[:, column]
        top.set_title(task)
        top.set_yscale("log")
        top.axhspan(1.0, ERROR_LIMIT, color="black", alpha=0.08, lw=0)
        bottom.axhspan(*COVERAGE, color="black", alpha=0.08, lw=0)
        bottom.set_xscale("log", base=2)
        bottom.set_xticks(LEVELS, [f"×{level:g}" for level in LEVELS])
        bottom.set_xlabel("variance of the noise")
        for panel in (top, bottom):
            panel.grid(alpha=0.3)
    ticks = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0)
    axes[0, 0].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes[0, 0].set_yticks([], minor=True)
    axes[0, 0].set_ylabel("MSE over that of the told filter")
    axes[1, 0].set_ylabel("coverage of 95 % intervals")
    axes[0, -1].legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
