"""Pictures of the racing quadrotor: a gap in a real flight, and error against the length of the gap."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from fwnkf import Filter
from fwnkf.extras import need
from tasks.bootstrap import paired_ratio
from tasks.racer.gaps import gap_errors
from tasks.racer.page import flights
from tasks.racer.protocol import BLOCK, CONTEXT, STEP, STRIDE, TEST, control, flight, frames, windows
from tasks.racer.regression import hold
from tasks.racer.scoring import truth
from tasks.racer.study import CURVE_MS
from tasks.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"ours": "#0072B2", "linear_kf": "#D55E00", "hold": "#8C8C8C"}
"""Of Okabe and Ito, as in the plots of the library."""
LABELS = {"ours": "FW-NKF", "linear_kf": "linear Kalman filter", "hold": "hold"}
SHOWN_FLIGHT = TEST[1]
GAP_MS, BEFORE, AFTER = 100, 30, 25
"""Length of the gap in the picture, and steps shown before and behind it."""
TURN = 3.0
"""Change of the roll rate (rad/s) in the gaps of which one is shown."""


def draw(folder: Path, model: Filter, linear: Filter, kept: Results) -> list[Path]:
    """The picture of a flight, and of the curve where it was measured."""
    figures = {"racer": gap_in_flight(model, linear)}
    if "curve" in kept.details:
        figures["racer-gaps"] = against_length(kept)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in figures.items():
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=110)
        paths.append(path)
    return paths


def begin_of_gap(model: Filter) -> int:
    """The median case: of gaps in which the roll rate changes that much, the one with the median error at its end."""
    one, gap = flight(SHOWN_FLIGHT), frames(GAP_MS)
    data = windows([one], gap + BLOCK * AFTER, stride=STRIDE)
    turned = (truth(data, gap) - hold(data))[:, 0].abs() > TURN
    turned[: CONTEXT // STRIDE + 1] = False  # the picture begins one context earlier
    places = turned.nonzero().flatten()
    error = gap_errors(model, data.y[places], control(data.motors[places]), CONTEXT, (gap,)).error[:, 0]
    middle = error.norm(dim=-1).argsort()[len(places) // 2]
    return int(places[middle]) * STRIDE + CONTEXT


@torch.no_grad()
def gap_in_flight(model: Filter, linear: Filter) -> Figure:
    """Gyro, estimates and 95 % bands around a gap of a test flight."""
    plt = need("matplotlib.pyplot", extra="plot")
    one, gap = flight(SHOWN_FLIGHT), frames(GAP_MS) // BLOCK
    at = begin_of_gap(model)
    part = slice(at - 2 * CONTEXT, at + BLOCK * (gap + AFTER))
    y, u = one.rate[part].unsqueeze(0), control(one.motors[part]).unsqueeze(0)
    mask = torch.ones_like(y, dtype=torch.bool)
    mask[:, 2 * CONTEXT : 2 * CONTEXT + BLOCK * gap] = False
    first = 2 * CONTEXT // BLOCK
    shown = slice(first - BEFORE, first + gap + AFTER)
    time = 1e3 * BLOCK * STEP * (torch.arange(first + gap + AFTER) - first + 1)[shown]
    figure, axes = plt.subplots(3, 1, figsize=(8, 6.4), sharex=True, layout="constrained")
    for axis, name, panel in zip(range(3), ("roll", "pitch", "yaw"), axes, strict=True):
        panel.axvspan(0, 1e3 * BLOCK * STEP * gap, color="#000000", alpha=0.06, lw=0)
        truth = y[0, BLOCK - 1 :: BLOCK, axis][shown]
        held = torch.where((time > 0) & (time <= time[BEFORE + gap - 1]), truth[BEFORE - 1], truth)
        panel.plot(time, held, color=COLOURS["hold"], lw=1.2, ls="--", label=LABELS["hold"])
        for key, filter_ in (("linear_kf", linear), ("ours", model)):
            track = filter_.run(y, u, mask)
            mean = track.mean[0, shown, axis]
            std = track.cov[0, shown, axis, axis].sqrt()
            panel.fill_between(time, mean - 1.96 * std, mean + 1.96 * std, color=COLOURS[key], alpha=0.18, lw=0)
            panel.plot(time, mean, color=COLOURS[key], lw=1.6, label=LABELS[key])
        panel.plot(time, truth, color="black", lw=1.2, label="gyro (withheld in the gap)")
        panel.set_ylabel(f"{name} rate (rad/s)")
        panel.grid(alpha=0.3)
    axes[0].legend(fontsize=8, ncols=2)
    axes[0].set_title(
        f"{one.name}: gyro missing for {1e3 * BLOCK * STEP * gap:.0f} ms, motor commands go on; 95 % bands"
    )
    axes[-1].set_xlabel("time since the last gyro sample (ms)")
    return figure


def against_length(kept: Results) -> Figure:
    """Error and stated error against the length of the gap."""
    plt = need("matplotlib.pyplot", extra="plot")
    figure, panel = plt.subplots(figsize=(7, 4), layout="constrained")
    times = [1e3 * frames(time) * STEP for time in CURVE_MS]
    for key, row in kept.details["curve"].items():
        for kind, style in (("rmse", {}), ("stated", {"ls": ":"})):
            seeds = [one for one in row.values() if f"{kind}_{CURVE_MS[0]}" in one[""]]
            if seeds:
                label = LABELS[key] if kind == "rmse" else f"{LABELS[key]}, stated"
                values = [statistics.fmean(one[""][f"{kind}_{time}"] for one in seeds) for time in CURVE_MS]
                panel.plot(times, values, color=COLOURS[key], label=label, **style)
        if key == "ours":
            by_flight = {time: flights(row, f"rmse_{time}") for time in CURVE_MS}
            ends = [paired_ratio(values, dict.fromkeys(values, 1.0)) for values in by_flight.values()]
            low, high = [one.low for one in ends], [one.high for one in ends]
            panel.fill_between(times, low, high, color=COLOURS[key], alpha=0.15, lw=0, label="95 %, over flights")
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel("length of the gap (ms)")
    panel.set_ylabel("RMSE of the rate (rad/s), mean of axes")
    panel.grid(alpha=0.3, which="both")
    panel.legend(fontsize=8)
    return figure
