"""Drawings of the page: a dot plot for each table, and trajectories, spectra and Φ of trained filters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from fwnkf import Filter, load
from fwnkf.data.protocols import Protocol
from fwnkf.evaluation.evaluate import estimate, inputs_for
from fwnkf.extras import need
from fwnkf.metrics.spectrum import welch
from fwnkf.report import plots
from tasks.paper import published
from tasks.paper.matrix import Group, Matrix
from tasks.paper.measure import run_folder
from tasks.paper.store import RUNTIME, Row
from tasks.paper.summary import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
"""Of Okabe and Ito, as in the plots of the library."""
OURS, PUBLISHED, REFERENCE = COLOURS[0], COLOURS[1], "#8C8C8C"
SHOWN = ("fwnkf", "kalmannet", "kf")
"""Filters of the trajectory plots."""
REFERENCES = {
    "mean_state": "mean state",
    "hold": "hold",
    "polynomial_regression_ekf": "regression + EKF",
    "ekf_with_equations": "EKF, equations",
    "constant_velocity": "constant velocity",
    "strapdown": "strapdown",
}
TWICE = "twice the budget"
SEGMENT = 100
LIMIT = 100_000
"""Bytes of a drawing."""


def draw(folder: Path, matrix: Matrix, rows: Mapping[str, Row], runs: Path) -> list[Path]:
    """Every drawing that the store and the folders of runs allow, as PNG files below 100 kB."""
    results = Results(rows.values())
    figures: dict[str, Figure | None] = {}
    for data in dict.fromkeys(str(table["data"]) for table in matrix.values["tables"]):
        figures[f"paper-{data}"] = accuracy(matrix, results, data)
        figures[f"paper-{data}-curves"] = curves(matrix, results, data)
        trained = models(matrix, rows, runs, data)
        if trained is not None:
            figures |= {f"paper-{data}-{name}": figure for name, figure in examples(matrix, *trained).items()}
    figures["paper-runtime"] = runtime(matrix, [row for row in rows.values() if row["kind"] == RUNTIME])
    figures["paper-uipdb"] = uipdb(matrix)
    folder.mkdir(parents=True, exist_ok=True)
    return [_saved(folder / f"{name}.png", figure) for name, figure in figures.items() if figure is not None]


def _saved(path: Path, figure: Figure) -> Path:
    """Write a figure with a palette of colours, with fewer dots where many panels would make it too large."""
    from PIL import Image  # comes with matplotlib

    for dpi in (90, 70, 50):
        figure.savefig(path, dpi=dpi)
        with Image.open(path) as image:
            reduced = image.convert("RGB").quantize(256)  # with fewer, thin lines lose their colour
        reduced.save(path, optimize=True)
        if path.stat().st_size < LIMIT:
            break
    return path


# ---- tables ---------------------------------------------------------------------------------------------------------


def accuracy(matrix: Matrix, results: Results, data: str) -> Figure | None:
    """MSE of every filter and weight, protocol ``paper``: ours with each seed, and the published figure.

    None for data that are tested under the other protocol alone, of which the paper has no figures, and where nothing
    was run.
    """
    pairs = matrix.rows(data, "paper")
    if not pairs:
        return None
    figure, axis = _dots(len(pairs))
    for place, (recipe, weight) in enumerate(pairs):
        values = [v for v in results.entry(data, "paper", recipe, weight).values("mse") if math.isfinite(v)]
        printed = published.figure(data, recipe, weight, "mse")
        _pair(axis, place, values, None if printed is None else printed.value)
    if not axis.lines:
        return None
    for level, labels in _references(results, data):
        axis.axvline(level, color=REFERENCE, linewidth=0.8, linestyle=":")
        axis.annotate(", ".join(labels), (level, 1.0), xycoords=("data", "axes fraction"), rotation=40, fontsize=7,
                      ha="left", va="bottom", color="#505050")  # fmt: skip
    _label_rows(axis, [f"{matrix.title(recipe)}, λ = {weight:g}" for recipe, weight in pairs])
    _finish(axis, "MSE, protocol paper (log axis)")
    return figure


def curves(matrix: Matrix, results: Results, data: str) -> Figure | None:
    """Validation error over the steps of training, one panel for each recipe: all seeds, and twice the budget."""
    shown: dict[tuple[str, str], list[Row]] = {}
    for row in results.rows:
        if row["data"] == data and row.get("history"):
            shown.setdefault((row["protocol"], row["recipe"]), []).append(row)
    if not shown:
        return None
    columns = min(4, len(shown))
    lines = math.ceil(len(shown) / columns)
    figure = _figure(9.0, 2.1 * lines + 0.4)
    for place, ((protocol, recipe), rows) in enumerate(sorted(shown.items())):
        axis = figure.add_subplot(lines, columns, place + 1)
        weights = sorted({row["weight"] for row in rows})
        for row in sorted(rows, key=lambda row: row["weight"]):
            steps, errors = zip(*row["history"], strict=True)
            label = f"λ = {row['weight']:g}" if len(weights) > 1 else None
            axis.plot(steps, errors, color=COLOURS[weights.index(row["weight"]) % 4], linewidth=0.8, label=label)
            if "doubled" in row:
                steps, errors = zip(*row["doubled"]["history"], strict=True)
                axis.plot(steps, errors, color="#000000", linewidth=0.8, linestyle=":", label=TWICE)
        axis.set_yscale("log")
        _number(axis.yaxis, axis.get_ylim())
        axis.set_title(f"{matrix.title(recipe)}\n{protocol}", fontsize=7)
        axis.tick_params(labelsize=7, which="both")
        axis.grid(True, color="#E3E3E3", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
        if place == 0:
            axis.set_ylabel("validation MSE", fontsize=8)
        if place // columns == lines - 1:
            axis.set_xlabel("optimiser steps", fontsize=8)
    handles = {text: line for axis in figure.axes for line, text in zip(*axis.get_legend_handles_labels(), strict=True)}
    handles = dict(sorted(handles.items(), key=lambda item: item[0] == TWICE))  # it comes last
    figure.legend(
        handles.values(), handles.keys(), fontsize=7, frameon=False, ncols=len(handles), loc="outside upper right"
    )
    return figure


def _references(results: Results, data: str) -> list[tuple[float, list[str]]]:
    """Levels of the references with their labels; those too close to be told apart on the axis share a line."""
    levels: list[tuple[float, list[str]]] = []
    found = [(results.entry(data, "paper", name).mean("mse"), label) for name, label in REFERENCES.items()]
    # the open loop is nearly exact where the start is given
    for level, label in sorted(pair for pair in found if math.isfinite(pair[0]) and pair[0] > 1e-4):
        if levels and level < 1.1 * levels[-1][0]:
            levels[-1][1].append(label)
        else:
            levels.append((level, [label]))
    return levels


def runtime(matrix: Matrix, rows: Sequence[Row]) -> Figure:
    """Parameters and milliseconds a step."""
    by_name = {row["recipe"]: row for row in rows}
    names = [row["recipe"] for row in published.rows("runtime")]
    figure = _figure(9.0, 0.32 * len(names) + 1.4)
    for number, (column, label) in enumerate((("parameters", "parameters"), ("ms", "ms a step, batch 1"))):
        axis = figure.add_subplot(1, 2, number + 1)
        for place, name in enumerate(names):
            printed = published.figure("runtime", name, None, column)
            values = [float(by_name[name][column])] if name in by_name else []
            _pair(axis, place, values, None if printed is None else printed.value)
        _label_rows(axis, [matrix.title(name) for name in names] if not number else [""] * len(names))
        _finish(axis, f"{label} (log axis)", legend=not number)
    return figure


def uipdb(matrix: Matrix) -> Figure:
    """The published errors; the recordings they were measured on are not at hand."""
    rows = published.rows("uipdb")
    figure, axis = _dots(len(rows))
    for place, row in enumerate(rows):
        _pair(axis, place, [], row["acceleration_rmse"].value)
    _label_rows(axis, [f"{matrix.title(row['recipe'])}, λ = {row['weight']:g}" for row in rows])
    _finish(axis, "acceleration RMSE, published (log axis)")
    return figure


def _pair(axis: Axes, place: int, ours: Sequence[float], printed: float | None) -> None:
    if printed is not None:
        axis.plot(printed, place, "D", color=PUBLISHED, markerfacecolor="none", markersize=6, label="published")
    if ours:
        axis.plot([min(ours), max(ours)], [place, place], color=OURS, linewidth=1.2)
        axis.plot(ours, [place] * len(ours), "|", color=OURS, markersize=7)
        axis.plot(sum(ours) / len(ours), place, "o", color=OURS, markersize=6, label="here: mean and seeds")
    if printed is not None and ours:
        axis.plot([printed, sum(ours) / len(ours)], [place, place], color="#D0D0D0", linewidth=0.8, zorder=0)


def _dots(count: int) -> tuple[Figure, Axes]:
    figure = _figure(8.0, 0.24 * count + 1.6)
    return figure, figure.add_subplot()


def _label_rows(axis: Axes, labels: Sequence[str]) -> None:
    axis.set_yticks(range(len(labels)), labels, fontsize=8)
    axis.set_ylim(len(labels) - 0.5, -0.5)
    names = [label.rsplit(", λ", 1)[0] for label in labels]
    for place in range(1, len(names)):
        if names[place] != names[place - 1] and ", λ" in labels[place]:
            axis.axhline(place - 0.5, color="#E3E3E3", linewidth=0.8)


def _finish(axis: Axes, label: str, *, legend: bool = True) -> None:
    axis.set_xscale("log")
    _number(axis.xaxis, axis.get_xlim())
    axis.set_xlabel(label, fontsize=9)
    axis.grid(True, axis="x", color="#E3E3E3", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=8, which="both")
    axis.spines[["top", "right"]].set_visible(False)
    if legend:
        handles = dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
        if handles:
            axis.legend(handles.values(), handles.keys(), fontsize=8, frameon=False, loc="best")


def _number(axis: Axis, limits: tuple[float, float]) -> None:
    """Write plain numbers along a logarithmic axis of few powers of ten, also between them where there is room."""
    low, high = limits
    if high < 100 * low:
        ticker = need("matplotlib.ticker", extra="plot")
        axis.set_minor_locator(ticker.LogLocator(subs=(2, 5)))
        for formatter in (axis.set_major_formatter, axis.set_minor_formatter):
            formatter(ticker.FormatStrFormatter("%g"))


def _figure(width: float, height: float) -> Figure:
    figure: Figure = need("matplotlib.figure", extra="plot").Figure(figsize=(width, height), layout="constrained")
    return figure


# ---- trained filters ------------------------------------------------------------------------------------------------


def models(
    matrix: Matrix, rows: Mapping[str, Row], runs: Path, data: str
) -> tuple[Protocol, dict[tuple[str, float], Filter]] | None:
    """Records of the first seed and the filters trained on them; None if no FW-NKF of this machine is among them."""
    from fwnkf.training.setup import load_data

    trained: dict[tuple[str, float], Filter] = {}
    experiment = None
    for group in matrix.groups([data]):
        if group.protocol != "paper" or group.recipe not in (*SHOWN, "fwnkf_algorithm3"):
            continue
        for number, cell in enumerate(group.cells):
            best = _best(matrix, group, number, runs)
            if cell.seed == group.seeds[0] and rows.get(cell.key, {}).get("status") == "done" and best.is_dir():
                experiment = experiment or matrix.experiment(cell)
                trained[cell.recipe, cell.weight] = load(best)
    if experiment is None or not any(recipe == "fwnkf" for recipe, _ in trained):
        return None
    return load_data(experiment), trained


def _best(matrix: Matrix, group: Group, number: int, runs: Path) -> Path:
    return run_folder(matrix, group, runs) / str(number)


def examples(matrix: Matrix, data: Protocol, trained: Mapping[tuple[str, float], Filter]) -> dict[str, Figure | None]:
    """Trajectories of one record, spectra of the predicted measurements, and Φ."""
    test = data.split.test.take(range(min(200, len(data.split.test))))
    shown = {}
    for recipe in SHOWN:
        weight = next((w for name, w in trained if name == recipe), None)
        if weight is not None:
            estimated = estimate(trained[recipe, weight], test)
            shown[f"{matrix.title(recipe)}, λ = {weight:g}"] = (estimated.mean, estimated.cov)
    ours = {weight: model for (recipe, weight), model in trained.items() if recipe == "fwnkf"}
    largest = max((w for w in ours if w <= 0.01), default=max(ours))
    return {
        "trajectory": plots.trajectory(test, shown),
        "spectra": spectra(data, {f"FW-NKF, λ = {weight:g}": model for weight, model in ours.items()}),
        "phi": plots.shaper(ours[largest]),
    }


@torch.no_grad()
def spectra(data: Protocol, by_name: Mapping[str, Filter]) -> Figure:
    """Spectral density of the error of predicted measurements, beside that of the measurement noise.

    The difference between the prediction ``H(x̂)`` from past measurements and ``H(x)``, by channel: what the spectral
    loss weighs by frequency.
    """
    test = data.split.test
    rate = 1 / float(test.dt[:, 1:].median())
    figure = _figure(8.0, 3.4)
    channels = test.y.shape[-1]
    shown = min(channels, 3)
    for channel in range(shown):
        axis = figure.add_subplot(1, shown, channel + 1)
        first = True
        for k, (name, model) in enumerate(by_name.items()):
            reference = model.observe(test.truth.to(model.dtype))
            if first:
                noise = welch((test.y - reference)[..., channel : channel + 1].double(), rate, SEGMENT)
                axis.plot(
                    noise.frequency, noise.density.mean(0), color="#000000", linewidth=1.0, label="measurement noise"
                )
                first = False
            predicted = model.observe(model.run(**inputs_for(model, test)).prior_mean)
            error = welch((predicted - reference)[..., channel : channel + 1].double(), rate, SEGMENT)
            axis.plot(
                error.frequency, error.density.mean(0), linewidth=1.3, color=COLOURS[k % len(COLOURS)], label=name
            )
        axis.set_yscale("log")
        axis.set_title(f"channel {channel + 1}", fontsize=9)
        axis.set_xlabel("frequency (Hz)", fontsize=9)
        axis.grid(True, color="#E3E3E3", linewidth=0.6)
        axis.tick_params(labelsize=8, which="both")
        axis.spines[["top", "right"]].set_visible(False)
        if channel == 0:
            axis.set_ylabel("density of the prediction error (unit²/Hz)", fontsize=9)
            axis.legend(fontsize=7, frameon=False)
    return figure
