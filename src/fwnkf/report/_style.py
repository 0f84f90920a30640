"""Common style of figures: panels, colours, scales and legends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..extras import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:  # runtime shape checks evaluate annotations, and matplotlib is optional
    Axes = Figure = Any

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""The colour-blind safe palette of Okabe and Ito; line styles change when all colours are used."""
STYLES = ("-", "--", ":", "-.")
TRUTH, DOTS, GRID = "#000000", "#8C8C8C", "#E3E3E3"
WIDTH = 8.0


def panels(count: int, height: float = 1.7) -> tuple[Figure, list[Axes]]:
    """Stacked panels with a shared time axis, in two columns for more than five panels."""
    columns = 1 if count <= 5 else 2
    rows = math.ceil(count / columns)
    figure = new_figure(WIDTH if columns == 1 else 1.5 * WIDTH, height * rows + 1.0)
    axes = [figure.add_subplot(rows, columns, i + 1) for i in range(count)]
    for i, axis in enumerate(axes):
        if i:
            axis.sharex(axes[0])
        axis.tick_params(labelbottom=i >= count - columns)
        set_look(axis)
    return figure, axes


def beside_plane(rows: int) -> tuple[Figure, list[Axes], Axes]:
    """Stacked panels over frequency on the left, and the complex plane with the unit circle on the right."""
    figure = new_figure(1.25 * WIDTH, 4.4)
    grid = figure.add_gridspec(rows, 2, width_ratios=(3, 2))
    left = [figure.add_subplot(grid[i, 0]) for i in range(rows)]
    for axis in left:
        if axis is not left[0]:
            axis.sharex(left[0])
        axis.tick_params(labelbottom=axis is left[-1])
    left[-1].set_xlabel("frequency (Hz)", fontsize=9)
    plane = figure.add_subplot(grid[:, 1])
    for axis in (*left, plane):
        set_look(axis)
    circle = torch.linspace(0, 2 * math.pi, 200)
    plane.plot(circle.cos(), circle.sin(), color=DOTS, linewidth=0.8)
    plane.set_aspect("equal", adjustable="datalim")
    plane.set_xlabel("real", fontsize=9)
    plane.set_ylabel("imaginary", fontsize=9)
    return figure, left, plane


def beside() -> tuple[Figure, Axes, Axes]:
    """Two panels side by side with separate axes."""
    figure = new_figure(1.1 * WIDTH, 3.9)
    left, right = (figure.add_subplot(1, 2, i + 1) for i in range(2))
    for axis in (left, right):
        set_look(axis)
    return figure, left, right


def finish(
    figure: Figure,
    axes: Sequence[Axes],
    title: str,
    *,
    legend: bool = True,
    columns: int = 6,
    xlabel: str = "time (s)",
) -> None:
    """Add the title, the label of the shared axis, and one legend for all panels."""
    figure.suptitle(title, fontsize=10)
    figure.align_ylabels(axes)
    for i, axis in enumerate(axes):
        if i >= len(axes) - (1 if len(axes) <= 5 else 2):
            axis.set_xlabel(xlabel, fontsize=9)
    entries = {}
    for axis in axes if legend else ():
        handles, labels = axis.get_legend_handles_labels()
        entries.update(dict(zip(labels, handles, strict=True)))
    if entries:
        figure.legend(
            list(entries.values()),
            list(entries),
            loc="outside lower center",
            ncols=max(1, min(len(entries), columns, int(figure.get_figwidth() / _legend_width(entries)))),
            fontsize=8,
            frameon=False,
        )


def _legend_width(labels: Iterable[str]) -> float:
    """Inches of a column of the legend: a line and its longest label, in letters of 8 points."""
    return 0.062 * (max(map(len, labels)) + 8)


def line(k: int) -> dict[str, Any]:
    """Style of the k-th line of a plot."""
    return {"color": COLOURS[k % len(COLOURS)], "linestyle": STYLES[k // len(COLOURS) % len(STYLES)], "linewidth": 1.3}


def log_scale(axis: Axes) -> None:
    """Logarithmic y axis with plain numbers and enough ticks for narrow ranges; call it after drawing."""
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    ticker = need("matplotlib.ticker", extra="plot")
    ratio = high / low
    if ratio < 3:
        axis.yaxis.set_major_locator(ticker.MaxNLocator(5))
    else:
        subs = (1.0,) if ratio > 300 else (1.0, 2.0, 5.0) if ratio > 30 else (1.0, 2.0, 3.0, 5.0)
        axis.yaxis.set_major_locator(ticker.LogLocator(subs=subs, numticks=20))
    axis.yaxis.set_major_formatter("{x:.4g}")
    axis.yaxis.set_minor_formatter(ticker.NullFormatter())


def roots(axis: Axes, points: Sequence[Sequence[float]], marker: str, k: int, label: str | None) -> None:
    """Poles or zeros of the k-th filter; markers shrink with k, so that coinciding roots stay visible."""
    axis.plot(
        [point[0] for point in points],
        [point[1] for point in points],
        marker,
        color=COLOURS[k % len(COLOURS)],
        markersize=max(11 - 2 * k, 5),
        markerfacecolor="none",
        label=label,
    )


def at_least(axis: Axes, span: float) -> None:
    """Widen the y axis to at least ``span``, so that rounding errors are not magnified."""
    low, high = axis.get_ylim()
    if high - low < span:
        axis.set_ylim((low + high - span) / 2, (low + high + span) / 2)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    figure: Figure = need("matplotlib.figure", extra="plot").Figure(figsize=(width, height), layout="constrained")
    return figure


def set_look(axis: Axes) -> None:
    """Grid, spines and sizes of text that all panels share."""
    axis.grid(True, color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.margins(x=0.02)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(which="both", labelsize=8)
    axis.yaxis.label.set_fontsize(9)
