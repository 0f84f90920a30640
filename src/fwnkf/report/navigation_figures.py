"""Figures of a navigation review in the width of a phone: plan, states with intervals, innovations, differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..navigation.recording import Pose
from ..navigation.review import ChannelInnovations, Difference, NavigationReview
from ..navigation.solution import Solution
from ._style import COLOURS, DOTS, TRUTH
from .drawing import WIDTH, canvas, legend, thin

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:  # runtime shape checks evaluate annotations, and matplotlib is optional
    Axes = Figure = Any

Array = NDArray[np.float64]

OWN, SMOOTHED, OTHER = COLOURS[0], COLOURS[2], COLOURS[1]
"""Of the filter, of the smoother, and of the autopilot."""
POINTS = 400
"""Points of a line with its interval, and of a track."""
SIGMAS = 1.96
"""Of a 95 % interval."""
CLIP = 6.0
"""Standard deviations beyond which an innovation is drawn at the edge."""


def plan(review: NavigationReview) -> Figure:
    """The track from above."""
    figure, (axis,) = canvas(height=0.9 * WIDTH)
    fixes = review.fixes.position
    if fixes is not None:
        some = _some(len(fixes))
        axis.plot(fixes[some, 1], fixes[some, 0], ".", color=DOTS, markersize=3, label="GNSS")
    for pose, colour, style, label in _poses(review):
        if pose.position is not None:
            rows = np.flatnonzero((pose.time >= review.begin) & (pose.time <= review.end))
            rows = rows[_some(len(rows), 2 * POINTS)]
            east, north = pose.position[rows, 1], pose.position[rows, 0]
            axis.plot(east, north, style, color=colour, linewidth=1.1, label=label)
    for solution, colour, label in ((review.filtered, OWN, "filtered"), (review.smoothed, SMOOTHED, "smoothed")):
        rows = _some(len(solution.time), 2 * POINTS)
        axis.plot(solution.mean[rows, 1], solution.mean[rows, 0], color=colour, linewidth=1.1, label=label)
    start = review.smoothed.mean[0]
    axis.plot([start[1]], [start[0]], "o", color=TRUTH, markersize=5, markerfacecolor="none", label="start")
    axis.set_aspect("equal", adjustable="datalim")
    axis.margins(0.05)
    axis.set_xlabel("east (m)", fontsize=9)
    axis.set_ylabel("north (m)", fontsize=9)
    legend(figure, axis)
    return figure


def height(review: NavigationReview) -> Figure:
    """Height above the origin with its interval."""
    figure, (axis,) = canvas(height=2.6)
    fixes = review.fixes.position
    if fixes is not None:
        axis.plot(*thin(review.fixes.time, -fixes[:, 2]), ".", color=DOTS, markersize=2.5, label="GNSS")
    _others(axis, review, "position", 2, -1.0)
    mean, std = review.filtered.part("position")
    _interval(axis, review.filtered.time, -mean[:, 2], std[:, 2])
    _smoothed(axis, review.smoothed.time, -review.smoothed.mean[:, 2])
    axis.set_ylabel("height (m)", fontsize=9)
    _timed(figure, [axis], review)
    return figure


def velocity(review: NavigationReview) -> Figure:
    """North, east and down with their intervals."""
    figure, axes = canvas(rows=3, height=4.2)
    mean, std = review.filtered.part("velocity")
    for number, (axis, name) in enumerate(zip(axes, ("north", "east", "down"), strict=True)):
        _others(axis, review, "velocity", number)
        _interval(axis, review.filtered.time, mean[:, number], std[:, number])
        _smoothed(axis, review.smoothed.time, review.smoothed.part("velocity")[0][:, number])
        axis.set_ylabel(f"{name} (m/s)", fontsize=9)
    _timed(figure, axes, review)
    return figure


def attitude(review: NavigationReview) -> Figure:
    """Roll, pitch and heading with their intervals."""
    figure, axes = canvas(rows=3, height=4.2)
    angles, std = review.filtered.angles()
    best = review.smoothed.angles()[0]
    others = [
        (_angles(pose), pose.time, colour, style, label)
        for pose, colour, style, label in _poses(review)
        if pose.orientation is not None
    ]
    for number, (axis, name) in enumerate(zip(axes, ("roll", "pitch", "heading"), strict=True)):
        for values, time, colour, style, label in others:
            inside = (time >= review.begin) & (time <= review.end)
            _line(axis, time[inside], values[inside, number], colour, style, label, turns=number == 2)
        shown = _broken(angles[:, number]) if number == 2 else angles[:, number]
        _interval(axis, review.filtered.time, shown, std[:, number])
        _line(axis, review.smoothed.time, best[:, number], SMOOTHED, "-", "smoothed", turns=number == 2)
        axis.set_ylabel(f"{name} (°)", fontsize=9)
    _timed(figure, axes, review)
    return figure


def innovations(rows: Sequence[ChannelInnovations]) -> Figure:
    """Channels of one sensor, with lines at two standard deviations, beside those of the autopilot."""
    figure, axes = canvas(rows=len(rows), height=1.15 * len(rows) + 0.75)
    for axis, row in zip(axes, rows, strict=True):
        if row.logged is not None:
            time, values = thin(row.logged_time, np.clip(row.logged_values, -CLIP, CLIP))
            axis.plot(time, values, ".", color=OTHER, markersize=2.5, label="autopilot")
        axis.plot(
            *thin(row.time, np.clip(row.values, -CLIP, CLIP)), ".", color=OWN, markersize=2.5, label="this filter"
        )
        for edge in (-2.0, 2.0):
            axis.axhline(edge, color=TRUTH, linewidth=0.8, linestyle="--")
        axis.set_ylim(-CLIP, CLIP)
        axis.set_yticks((-4, -2, 0, 2, 4))
        axis.set_ylabel(row.channel, fontsize=9)
    axes[-1].set_xlabel("time (s)", fontsize=9)
    shown = next((axis for axis, row in zip(axes, rows, strict=True) if row.logged is not None), axes[0])
    legend(figure, shown)
    return figure


def state(solution: Solution, name: str, unit: str, axes_names: Sequence[str], rest: float) -> Figure:
    """A state beside the pose, with its interval."""
    values, std = solution.part(name)
    # at the start an interval is wide, and would hide the rest
    shown = solution.time >= min(rest, solution.time[0] + 5.0)
    figure, axes = canvas(rows=values.shape[1], height=1.0 * values.shape[1] + 0.7)
    for number, axis in enumerate(axes):
        _interval(axis, solution.time[shown], values[shown, number], std[shown, number])
        axis.set_ylabel(" ".join(filter(None, (axes_names[number], f"({unit})" if unit else ""))), fontsize=9)
    axes[-1].set_xlabel("time (s)", fontsize=9)
    return figure


def differences(rows: Sequence[Difference], rest: float) -> Figure:
    """Distances between two trajectories over time."""
    figure, axes = canvas(rows=len(rows), height=1.15 * len(rows) + 0.6)
    for axis, row in zip(axes, rows, strict=True):
        axis.plot(*thin(row.time, row.values), color=OWN, linewidth=1.0)
        axis.plot([row.when], [row.largest], "o", color=OTHER, markersize=5, markerfacecolor="none")
        axis.set_ylim(0, 1.15 * max(row.largest, 1e-9))
        axis.set_title(f"{row.name} ({row.unit})", fontsize=9.5, loc="left")
        axis.axvline(rest, color=DOTS, linewidth=0.9, linestyle=":")
    axes[-1].set_xlabel("time (s)", fontsize=9)
    return figure


# ---- helpers --------------------------------------------------------------------------------------------------------


def _some(count: int, most: int = POINTS) -> NDArray[np.int64]:
    """Places of at most so many items, evenly."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64)) if count else np.zeros(0, np.int64)


def _interval(axis: Axes, time: Array, mean: Array, std: Array) -> None:
    rows = _some(len(time))
    low, high = mean - SIGMAS * std, mean + SIGMAS * std
    axis.fill_between(time[rows], low[rows], high[rows], color=OWN, alpha=0.25, linewidth=0, label="95 % interval")
    axis.plot(time[rows], mean[rows], color=OWN, linewidth=1.1, label="filtered")


def _smoothed(axis: Axes, time: Array, values: Array) -> None:
    _line(axis, time, values, SMOOTHED, "-", "smoothed")


def _line(axis: Axes, time: Array, values: Array, colour: str, style: str, label: str, *, turns: bool = False) -> None:
    rows = _some(len(time))
    shown = _broken(values[rows]) if turns else values[rows]
    axis.plot(time[rows], shown, style, color=colour, linewidth=0.9, label=label)


def _broken(angles: Array) -> Array:
    """Headings without the lines from one edge of the circle to the other."""
    jumps = np.abs(np.diff(angles, prepend=angles[:1])) > 180.0
    return np.where(jumps, np.nan, angles)


def _poses(review: NavigationReview) -> list[tuple[Pose, str, str, str]]:
    found = [(review.estimate, OTHER, "-", "autopilot"), (review.truth, TRUTH, "--", "truth")]
    return [(pose, colour, style, label) for pose, colour, style, label in found if pose is not None]


def _others(axis: Axes, review: NavigationReview, part: str, column: int, sign: float = 1.0) -> None:
    for pose, colour, style, label in _poses(review):
        values = pose.position if part == "position" else pose.velocity
        if values is not None:
            inside = (pose.time >= review.begin) & (pose.time <= review.end)
            _line(axis, pose.time[inside], sign * values[inside, column], colour, style, label)


def _angles(pose: Pose) -> Array:
    """Roll, pitch and heading (degrees)."""
    assert pose.orientation is not None
    count = len(pose.time)
    mean = np.concatenate((np.zeros((count, 6)), pose.orientation), 1)
    return Solution(pose.time, mean, np.zeros((count, 9, 9)), (), (0.0, 0.0, 0.0)).angles()[0]


def _timed(figure: Figure, axes: Sequence[Axes], review: NavigationReview) -> None:
    """A line where the rest begins, the label of the axis, and one legend."""
    for axis in axes:
        if review.fitted:
            axis.axvline(review.rest, color=DOTS, linewidth=0.9, linestyle=":")
    axes[-1].set_xlabel("time (s)", fontsize=9)
    legend(figure, axes[0])
