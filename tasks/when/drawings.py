"""Pictures to read a decision from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fwnkf.extras import need
from tasks.when import cells, summary
from tasks.when.cells import MISMATCHED, USUAL_STRENGTH, Cell
from tasks.when.problem import Disturbance, Kind
from tasks.when.store import Row
from tasks.when.summary import TITLES, Ratios

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {
    summary.BEST_R: "#8C8C8C", summary.LOW_PASS: "#F0E442", summary.NOTCH: "#E69F00", summary.FITTED: "#0072B2",
    summary.NOTCH_TOLD: "#CC79A7", cells.ORACLE: "#56B4E9", summary.PHI: "#D55E00", summary.PHI_TWO: "#A03C00",
    summary.FIR: "#009E73", summary.SPECTRAL: "#000000",
}  # fmt: skip
"""Of Okabe and Ito, as in the plots of the library."""
SHOWN = (
    summary.BEST_R, summary.LOW_PASS, summary.NOTCH, summary.FITTED, summary.PHI, summary.SPECTRAL, summary.FIR,
)  # fmt: skip
RECORDED = (
    summary.RAW, summary.BEST_R, summary.LOW_PASS, summary.NOTCH, summary.FITTED, summary.PHI, summary.PHI_TWO,
    summary.SPECTRAL, summary.FIR,
)  # fmt: skip
WORST = 4.0
"""Ratio at which the colour no longer changes."""
AXES: dict[Kind, tuple[str, tuple[float, ...], float]] = {
    "tone": ("tone", cells.TONES, 0.0),
    "band": ("band, width 0.3 of its centre", cells.BANDS, cells.USUAL_WIDTH),
    "drift": ("drift", cells.DRIFTS, 0.0),
    "pink": ("pink noise", cells.PINKS, 0.0),
    "sweep": ("sweeping line, ± 50 %", cells.SWEEPS, cells.USUAL_SWEEP),
}


def draw(folder: Path, rows: Sequence[Row]) -> list[Path]:
    """All pictures of which there are rows."""
    found = summary.linear(rows)
    right, swung, recorded = summary.right(found), summary.pendulum(rows), summary.recordings(rows)
    figures: dict[str, Figure] = {}
    if right:
        figures |= {"when-decision": decision(right), "when-map": ratio_map(right), "when-width": by_width(right)}
        figures |= {"when-wrong": wrong_noises(found)}
    if swung:
        figures["when-pendulum"] = ratio_table(
            {cell_name(cell): ratios for cell, ratios in swung.items()}, (cells.ORACLE, *SHOWN), WORST
        )
    if recorded:
        axes = {f"{data}, {axis}": ratios for data, by_axis in recorded.items() for axis, ratios in by_axis.items()}
        figures["when-recordings"] = ratio_table(axes, RECORDED, 0.25)
    plt = need("matplotlib.pyplot", extra="plot")
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in figures.items():
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=90)
        plt.close(figure)
    return paths


def cell_name(cell: Cell) -> str:
    """A cell of the pendulum in words."""
    one = cell.disturbance
    wrong = f", assumed Q × {cell.q:g}" if cell.q != 1 else ""
    return f"{one.kind}, {one.hz:g} Hz, RMS {one.std:g}{wrong}"


def ratio_table(rows: Mapping[str, Ratios], names: Sequence[str], extreme: float) -> Figure:
    """Ratios as a table of colours: darker is worse for ``extreme`` above one, better for one below."""
    plt = need("matplotlib.pyplot", extra="plot")
    figure, axis = plt.subplots(figsize=(1.15 * len(names) + 3.2, 0.33 * len(rows) + 1.2), layout="constrained")
    for j, ratios in enumerate(reversed(list(rows.values()))):
        least = min(ratios[name].ratio for name in names if name in ratios)
        for i, name in enumerate(names):
            if name in ratios:
                _cell(axis, i, j, ratios[name].ratio, extreme=extreme, bold=ratios[name].ratio <= summary.CLOSE * least)
    axis.set(xlim=(-0.5, len(names) - 0.5), ylim=(-0.5, len(rows) - 0.5))
    axis.set_xticks(
        range(len(names)), [_needs(name).replace(", ", ",\n").replace(" (", "\n(") for name in names], fontsize=8
    )
    axis.xaxis.tick_top()
    axis.set_yticks(range(len(rows)), list(rows)[::-1], fontsize=8)
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)
    over = "RMSE over that told the disturbance" if extreme > 1 else "RMSE over that of the best R"
    axis.set_xlabel(f"{over}; bold: within 5 % of the best of its row", fontsize=9)
    return figure


def decision(right: Mapping[Disturbance, Ratios]) -> Figure:
    """The cheapest estimator within 5 % of the best, for each kind by frequency and strength."""
    plt = need("matplotlib.pyplot", extra="plot")
    colours = need("matplotlib.colors", extra="plot")
    figure, axes = plt.subplots(2, 3, figsize=(11.5, 6.6), layout="constrained")
    panels: list[tuple[Kind, Sequence[str], str]] = [(kind, summary.COST, AXES[kind][0]) for kind in AXES]
    panels[4:] = [("sweep", summary.COST, "sweeping line, ± 50 %, frequency not known"),
                  ("sweep", summary.TOLD_COST, "sweeping line, ± 50 %, a sensor tells it")]  # fmt: skip
    used: list[str] = []
    for axis, (kind, order, title) in zip(axes.flat, panels, strict=True):
        _, places, width = AXES[kind]
        for i, hz in enumerate(places):
            for j, std in enumerate(cells.STRENGTHS):
                ratios = right.get(Disturbance(kind, hz, width, std))
                if ratios is None:
                    continue
                name = summary.choice(ratios, order)
                used.append(name)
                axis.add_patch(plt.Rectangle((i - 0.5, j - 0.5), 1, 1, color=COLOURS[name], ec="white", lw=1.5))
                ink = "white" if sum(colours.to_rgb(COLOURS[name])[:3]) < 1.5 else "black"
                axis.text(i, j, f"{ratios[name].ratio:.2f}", ha="center", va="center", fontsize=8.5, color=ink)
        _frame(axis, places, title, kind)
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[name]) for name in COLOURS if name in used]
    names = [_needs(name) for name in COLOURS if name in used]
    figure.legend(handles, names, loc="outside lower center", ncols=4, fontsize=9, frameon=False)
    figure.suptitle("The cheapest estimator within 5 % of the best; number: its RMSE over the oracle's", fontsize=11)
    return figure


def _needs(name: str) -> str:
    if name in summary.NEEDS_TRUTH:
        return f"{TITLES[name]} (needs truth)"
    if name == summary.NOTCH_TOLD:
        return "notch that follows"
    return f"{TITLES[name]} (no truth)" if name == summary.FITTED else TITLES[name]


def ratio_map(right: Mapping[Disturbance, Ratios]) -> Figure:
    """RMSE over the oracle's: kinds down, estimators across, each by frequency and strength."""
    plt = need("matplotlib.pyplot", extra="plot")
    figure, axes = plt.subplots(
        len(AXES), len(SHOWN), figsize=(17, 10.2), layout="constrained", sharey=True, width_ratios=[1] * len(SHOWN)
    )
    for row, (kind, (title, places, width)) in zip(axes, AXES.items(), strict=True):
        for axis, name in zip(row, SHOWN, strict=True):
            for i, hz in enumerate(places):
                for j, std in enumerate(cells.STRENGTHS):
                    ratios = right.get(Disturbance(kind, hz, width, std), {})
                    if name in ratios:
                        _cell(axis, i, j, ratios[name].ratio)
            _frame(axis, places, "", kind, labels=row is axes[-1] or kind in ("drift", "pink", "band", "tone"))
            axis.set_ylabel(f"{title}\nRMS over motion" if name == SHOWN[0] else "", fontsize=9)
            axis.set_xlabel(axis.get_xlabel() if name == SHOWN[3] else "")
    for axis, name in zip(axes[0], SHOWN, strict=True):
        axis.set_title(_needs(name), fontsize=9.5)
    figure.suptitle(f"RMSE over the oracle's: white at 1, darkest from {WORST:g} on", fontsize=12)
    return figure


def by_width(right: Mapping[Disturbance, Ratios]) -> Figure:
    """Against the centre of a band, for widths from a tone to a band as wide as its centre."""
    plt = need("matplotlib.pyplot", extra="plot")
    widths = (0.0, *cells.WIDTHS)
    figure, axes = plt.subplots(1, len(widths), figsize=(13, 4.1), layout="constrained", sharey=True)
    for axis, width in zip(axes, widths, strict=True):
        kind: Kind = "band" if width else "tone"
        for name in SHOWN:
            points = [
                (one.hz, ratios[name].ratio)
                for one, ratios in right.items()
                if (one.kind, one.width, one.std) == (kind, width, USUAL_STRENGTH) and name in ratios
            ]
            if points:
                style = {summary.FITTED: "-", summary.PHI: "--", summary.FIR: ":"}.get(name, "-")
                axis.plot(
                    *zip(*points, strict=True), style, marker="o", ms=3.5, color=COLOURS[name], label=TITLES[name]
                )
        axis.set(xscale="log", yscale="log", ylim=(0.97, 6))
        axis.set_yticks([1, 1.5, 2, 3, 5], ["1", "1.5", "2", "3", "5"])
        axis.minorticks_off()
        axis.set_xticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
        axis.set_title("tone" if not width else f"band, width {width:g} of its centre", fontsize=10)
        axis.set_xlabel("centre over bandwidth of the motion", fontsize=9)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("RMSE over the oracle's")
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=7, fontsize=8.5, frameon=False)
    return figure


def wrong_noises(found: Mapping[Cell, Ratios]) -> Figure:
    """Against factors of the assumed ``Q`` and ``R``."""
    plt = need("matplotlib.pyplot", extra="plot")
    names = ("as assumed", "notch", "Φ", "Φ, spectral loss", "states told")
    columns = [*(f"Q, R assumed; {name}" for name in names), "Q, R fitted; states fitted"]
    titles = ["as assumed", "notch before it", "Φ (needs truth)", "Φ, spectral loss\nλ = 0.1 (needs truth)",
              "noise states told", "noise states, Q and R\nfitted (no truth)"]  # fmt: skip
    figure, axes = plt.subplots(len(MISMATCHED), 6, figsize=(11.5, 7.6), layout="constrained", sharex=True, sharey=True)
    for row, one in zip(axes, MISMATCHED, strict=True):
        for axis, name in zip(row, columns, strict=True):
            for i, r in enumerate(cells.FACTORS):
                for j, q in enumerate(cells.FACTORS):
                    ratios = found.get(Cell(one, q, r), {})
                    if name in ratios:
                        _cell(axis, i, j, ratios[name].ratio, size=9)
            _frame(axis, cells.FACTORS, "", "none", heights=cells.FACTORS)
            axis.set_xlabel("assumed R over true" if row is axes[-1] else "", fontsize=8.5)
            axis.set_ylabel("")
        place = {"none": "white noise alone", "drift": f"drift, {one.hz:g} Hz"}.get(
            one.kind, f"{one.kind}, {one.hz:g} Hz"
        )
        row[0].set_ylabel(f"{place}\nassumed Q over true", fontsize=8.5)
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=9.5)
    figure.suptitle("RMSE over the oracle's where Q and R are wrong", fontsize=11)
    return figure


def _cell(
    axis: Any, i: float, j: float, ratio: float, size: float = 8, *, extreme: float = WORST, bold: bool = False
) -> None:
    plt = need("matplotlib.pyplot", extra="plot")
    shade = min(max(math.log(ratio) / math.log(extreme), 0.0), 1.0) if math.isfinite(ratio) else float(extreme > 1)
    colour = plt.get_cmap("Oranges" if extreme > 1 else "Blues")(0.95 * shade)
    axis.add_patch(plt.Rectangle((i - 0.5, j - 0.5), 1, 1, color=colour, ec="white", lw=0.8))
    text = f"{ratio:.2f}" if ratio < 9.95 else f"{ratio:.0f}"
    ink, weight = "white" if shade > 0.6 else "black", "bold" if bold else "normal"
    axis.text(i, j, text, ha="center", va="center", fontsize=size, color=ink, weight=weight)


def _frame(
    axis: Any,
    places: Sequence[float],
    title: str,
    kind: Kind,
    *,
    heights: Sequence[float] = cells.STRENGTHS,
    labels: bool = True,
) -> None:
    axis.set(xlim=(-0.5, len(places) - 0.5), ylim=(-0.5, len(heights) - 0.5))
    axis.set_xticks(range(len(places)), [f"{hz:g}" for hz in places] if labels else [], fontsize=8)
    axis.set_yticks(range(len(heights)), [f"{std:g}" for std in heights], fontsize=8)
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)
    axis.set_title(title, fontsize=10)
    named = {"drift": "corner", "pink": "lowest corner"}.get(kind, "centre")
    axis.set_xlabel(f"{named} over bandwidth of the motion", fontsize=8.5)
    axis.set_ylabel("RMS over that of the motion", fontsize=8.5)
