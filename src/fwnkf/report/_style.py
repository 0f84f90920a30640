"""How every figure looks: panels, colours, scales and legends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..extras import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:  # the runtime shape checks read annotations, and matplotlib may not be there
    Axes = Figure = Any

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's palette, which colour-blind readers can tell apart; line styles change once it is used up."""
STYLES = ("-", "--", ":", "-.")
TRUTH, DOTS, GRID = "#000000", "#8C8C8C", "#E3E3E3"
WIDTH = 8.0


def panels(count: int, height: float = 1.7) -> tuple[Figure, list[Axes]]:
    """Panels below one another with one time axis; in two columns where one would be too tall."""
    columns = 1 if count <= 5 else 2
    rows = math.ceil(count / columns)
    figure = _figure(WIDTH if columns == 1 else 1.5 * WIDTH, height * rows + 1.0)
    axes = [figure.add_subplot(rows, columns, i + 1) for i in range(count)]
    for i, axis in enumerate(axes):
        if i:
            axis.sharex(axes[0])
        axis.tick_params(labelbottom=i >= count - columns)
        _dress(axis)
    return figure, axes


def beside_plane(rows: int) -> tuple[Figure, list[Axes], Axes]:
    """Panels over frequency, and the unit circle beside them."""
    figure = _figure(1.25 * WIDTH, 4.4)
    grid = figure.add_gridspec(rows, 2, width_ratios=(3, 2))
    left = [figure.add_subplot(grid[i, 0]) for i in range(rows)]
    for axis in left:
        if axis is not left[0]:
            axis.sharex(left[0])
        axis.tick_params(labelbottom=axis is left[-1])
    left[-1].set_xlabel("frequency (Hz)", fontsize=9)
    plane = figure.add_subplot(grid[:, 1])
    for axis in (*left, plane):
        _dress(axis)
    circle = torch.linspace(0, 2 * math.pi, 200)
    plane.plot(circle.cos(), circle.sin(), color=DOTS, linewidth=0.8)
    plane.set_aspect("equal", adjustable="datalim")
    plane.set_xlabel("real", fontsize=9)
    plane.set_ylabel("imaginary", fontsize=9)
    return figure, left, plane


def beside() -> tuple[Figure, Axes, Axes]:
    """Two panels side by side that share nothing."""
    figure = _figure(1.1 * WIDTH, 3.9)
    left, right = (figure.add_subplot(1, 2, i + 1) for i in range(2))
    for axis in (left, right):
        _dress(axis)
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
    """Title, the axis they share, and one legend for all panels below them."""
    figure.suptitle(title, fontsize=10)
    figure.align_ylabels(axes)
    for i, axis in enumerate(axes):
        if i >= len(axes) - (1 if len(axes) <= 5 else 2):
            axis.set_xlabel(xlabel, fontsize=9)
    named = {}
    for axis in axes if legend else ():
        handles, labels = axis.get_legend_handles_labels()
        named.update(dict(zip(labels, handles, strict=True)))
    if named:
        figure.legend(
            list(named.values()),
            list(named),
            loc="outside lower center",
            ncols=min(len(named), columns),
            fontsize=8,
            frameon=False,
        )


def line(k: int) -> dict[str, Any]:
    """The k-th line of a plot."""
    return {"color": COLOURS[k % len(COLOURS)], "linestyle": STYLES[k // len(COLOURS) % len(STYLES)], "linewidth": 1.3}


def log_scale(axis: Axes) -> None:
    """A logarithmic axis with plain numbers, and enough of them however narrow; to be called once all is drawn."""
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    ticker = need("matplotlib.ticker", extra="plot")
    wide = high / low
    if wide < 3:
        axis.yaxis.set_major_locator(ticker.MaxNLocator(5))
    else:
        subs = (1.0,) if wide > 300 else (1.0, 2.0, 5.0) if wide > 30 else (1.0, 2.0, 3.0, 5.0)
        axis.yaxis.set_major_locator(ticker.LogLocator(subs=subs, numticks=20))
    axis.yaxis.set_major_formatter("{x:.4g}")
    axis.yaxis.set_minor_formatter(ticker.NullFormatter())


def roots(axis: Axes, places: Sequence[Sequence[float]], marker: str, k: int, label: str | None) -> None:
    """Poles or zeros of the k-th filter; smaller from one to the next, so that equal ones are all seen."""
    axis.plot(
        [place[0] for place in places],
        [place[1] for place in places],
        marker,
        color=COLOURS[k % len(COLOURS)],
        markersize=max(11 - 2 * k, 5),
        markerfacecolor="none",
        label=label,
    )


def at_least(axis: Axes, span: float) -> None:
    """Do not blow rounding up to a landscape: the identity is a flat line."""
    low, high = axis.get_ylim()
    if high - low < span:
        axis.set_ylim((low + high - span) / 2, (low + high + span) / 2)


def _figure(width: float, height: float) -> Figure:
    made: Figure = need("matplotlib.figure", extra="plot").Figure(figsize=(width, height), layout="constrained")
    return made


def _dress(axis: Axes) -> None:
    axis.grid(True, color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.margins(x=0.02)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(which="both", labelsize=8)
    axis.yaxis.label.set_fontsize(9)
