"""Rerun: a recording (.rrd) or the running viewer, with a blueprint.

The package writes recordings without any connection. Its viewer reports how it is used to its makers; viewers that are
started here are told not to, by the variable that switches it off (``CI``), and settings of the user stay as they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ConfigError
from ...extras import need
from .scene import (
    COLOUR_NAMES,
    COLOURS,
    MOST_ELLIPSOIDS,
    MOST_POINTS,
    Array,
    Item,
    Outline,
    Picture,
    Remark,
    Signals,
    Thinned,
    Track,
    ellipsoids,
    every,
)

TIMELINE = "time"
"""Name of the time axis: seconds of the log."""
APART = 0.1
"""Seconds between ellipsoids and between poses of the vehicle."""
ROWS = 4
"""Plots below each other; a family with more has tabs."""
LEGEND = 6
"""Lines of a plot that has a legend, at most."""
DIM = 110
"""Opacity (of 255) of the ends of intervals."""
LEVELS = {"info": "INFO", "warning": "WARN", "failure": "ERROR"}


class RerunWriter:
    """Writes to a file, or, without one, to a viewer that is running or is started."""

    def __init__(self, title: str, path: Path | None = None) -> None:
        self._rerun = need("rerun", "viewers")
        self._blueprint = need("rerun.blueprint", "viewers")
        self._stream = self._rerun.RecordingStream("fwnkf", recording_id=None)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._stream.save(path)
            self.where = f"{path}: open it with rerun {path}"
        else:
            self._show()
            self.where = "the viewer of Rerun"
        self._stream.send_recording_name(title)
        self._known: dict[str, int] = {}
        self._lines: dict[str, Thinned] = {}
        self._bodies: dict[str, Thinned] = {}
        self._ranges: dict[str, tuple[float, float]] = {}
        self._static("world", self._rerun.ViewCoordinates.RIGHT_HAND_Z_UP)

    def _show(self) -> None:
        """Start a viewer, or connect to the one that runs."""
        try:
            with without_reports():
                self._stream.spawn(hide_welcome_screen=True)
        except Exception as error:
            raise ConfigError(
                f"the viewer of Rerun cannot be started ({error}); write a file and open it elsewhere: --rerun FILE.rrd"
            ) from error

    # ---- items ----------------------------------------------------------------------------------------------

    def add(self, item: Item) -> None:
        """Append an item."""
        if isinstance(item, Signals):
            self._signals(item)
        elif isinstance(item, Track):
            self._track(item)
        elif isinstance(item, Picture):
            self._picture(item)
        else:
            self._remark(item)

    def _signals(self, part: Signals) -> None:
        rr = self._rerun
        bounds = [end for end in (part.low, part.high) if end is not None]
        settled = part.settled()
        if settled is not None:
            low, high = self._ranges.get(part.name, settled)
            self._ranges[part.name] = min(low, settled[0]), max(high, settled[1])
        for column, channel in enumerate(part.channels):
            path = f"{part.name}/{channel}"
            if path not in self._known:
                self._known[path] = column
                names = [channel, f"{channel}, 2.5 %", f"{channel}, 97.5 %"][: 1 + len(bounds)]
                shown = [_rgba(column), *[_rgba(column, DIM)] * len(bounds)]
                style = rr.SeriesLines(
                    names=names, colors=shown, widths=[1.5, *[0.8] * len(bounds)], aggregation_policy="MinMax"
                )
                self._static(path, style)
            rows = np.stack([part.values[:, column], *(bound[:, column] for bound in bounds)], 1)
            self._send(path, part.time, rr.Scalars.columns(scalars=rows))

    def _track(self, part: Track) -> None:
        rr = self._rerun
        finite = np.isfinite(part.position).all(1)
        time, position = part.time[finite], part.position[finite]
        self._lines.setdefault(part.name, Thinned(MOST_POINTS)).add(position)
        some = every(time, APART)
        if part.main and len(some):
            values: dict[str, Any] = {"translation": position[some]}
            if part.orientation is not None:
                values["quaternion"] = part.orientation[finite][some]
            self._send("world/vehicle", time[some], rr.Transform3D.columns(**values))
            if part.orientation is None:
                self._static("world/vehicle/point", rr.Points3D([[0.0, 0.0, 0.0]], radii=rr.Radius.ui_points(6.0)))
        if part.cov is not None and len(some):
            half, turn = ellipsoids(part.cov[finite][some])
            path = f"world/uncertainty/{part.name}"
            self._bodies.setdefault(part.name, Thinned(MOST_ELLIPSOIDS)).add(position[some], half, turn)
            columns = rr.Ellipsoids3D.columns(centers=position[some], half_sizes=half, quaternions=turn)
            self._static(
                path, rr.Ellipsoids3D.from_fields(colors=[_rgba(self._place(part.name), DIM)], fill_mode="solid")
            )
            self._send(path, time[some], columns)

    def _place(self, track: str) -> int:
        return [*self._lines].index(track)

    def _picture(self, part: Picture) -> None:
        rr = self._rerun
        self._static(part.name, rr.Image(part.image))
        left, right = part.extent[:2]
        for number, (label, (time, frequency)) in enumerate(part.lines.items()):
            inside = (time >= left) & (time <= right) & np.isfinite(frequency)
            points = part.pixels(time[inside], frequency[inside])
            points = (
                points[np.unique(np.linspace(0, len(points) - 1, min(len(points), 400)).astype(int))]
                if len(points)
                else points
            )
            strips = rr.LineStrips2D(
                [points], colors=[[0, 229, 255, 200]], radii=rr.Radius.ui_points(0.7), labels=[label]
            )
            self._static(f"{part.name}/source_{number}", strips)
        marks = part.ticks()
        labels = rr.Points2D(
            [place for _, place in marks], labels=[text for text, _ in marks], colors=[[128, 128, 128]],
            radii=rr.Radius.ui_points(2.0), show_labels=True,
        )  # fmt: skip
        self._static(f"{part.name}/axes", labels)
        # a line at the moment that the other views show
        moments = np.linspace(left, right, max(2, min(part.image.shape[1], 400)))
        ends = np.stack([part.pixels(moments, np.full(len(moments), level)) for level in part.extent[2:]], 1)
        self._static(
            f"{part.name}/now",
            rr.LineStrips2D.from_fields(colors=[[255, 255, 255, 220]], radii=[rr.Radius.ui_points(0.8)]),
        )
        self._send(f"{part.name}/now", moments, rr.LineStrips2D.columns(strips=[[strip] for strip in ends]))

    def _remark(self, part: Remark) -> None:
        rr = self._rerun
        self._stream.set_time(TIMELINE, duration=part.time)
        self._stream.log("remarks", rr.TextLog(f"{part.title}: {part.text}", level=LEVELS[part.level]))
        self._stream.reset_time()
        known = self._known.setdefault("remarks", 0)
        self._known["remarks"] = known + 1
        if part.level == "info" and known == 0:
            self._static("summary", rr.TextDocument(f"# {part.title}\n\n{part.text}", media_type=rr.MediaType.MARKDOWN))

    # ---- layout ---------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Draw the lines of tracks up to now, and the vehicle in their scale."""
        rr = self._rerun
        if not self._lines:
            return
        lines = {name: kept.columns()[0] for name, kept in self._lines.items() if kept.rows}
        extent = max((float(np.ptp(points, axis=0).max()) for points in lines.values()), default=0.0)
        for number, (name, points) in enumerate(lines.items()):
            width = rr.Radius.ui_points(1.2)
            self._static(f"world/path/{name}", rr.LineStrips3D([points], colors=[_rgba(number)], radii=width))
            if name in self._bodies:
                centres, half, turn = self._bodies[name].columns()
                small = half.max(1) <= max(extent, 1e-9) / 6  # before the first fixes they would hide the track
                bodies = rr.Ellipsoids3D(
                    centers=centres[small], half_sizes=half[small], quaternions=turn[small], colors=[_rgba(number, DIM)]
                )
                self._static(f"world/uncertainty_along/{name}", bodies)
        axes = max(0.04 * extent, 0.1) * np.eye(3)
        shown = rr.Arrows3D(vectors=axes, colors=[[220, 60, 60], [60, 180, 60], [70, 110, 230]])
        self._static("world/vehicle/axes", shown)

    def arrange(self, outline: Outline) -> None:
        """Send the blueprint for what there is."""
        self._stream.send_blueprint(self._arranged(outline, {}))

    def close(self, outline: Outline) -> None:
        """Draw tracks, lay out, and finish the file."""
        self.refresh()
        self._stream.send_blueprint(self._arranged(outline, self._ranges))
        self._stream.flush()
        self._stream.disconnect()

    def _arranged(self, outline: Outline, ranges: Mapping[str, tuple[float, float]]) -> Any:
        rrb = self._blueprint
        columns: list[Any] = []
        left: list[Any] = []
        if outline.tracks:
            left.append(rrb.Spatial3DView(origin="world", name=_coloured(outline)))
        if outline.pictures:
            views = [rrb.Spatial2DView(origin=name, name=title) for name, title in outline.pictures.items()]
            left.append(rrb.Tabs(*views, name="spectrograms") if len(views) > 1 else views[0])
        if outline.remarks:
            left.append(
                rrb.Tabs(
                    rrb.TextDocumentView(origin="summary", name="summary"),
                    rrb.TextLogView(origin="remarks", name="findings"),
                )
            )
        if left:
            columns.append(rrb.Vertical(*left, row_shares=[3.0 if k == 0 else 2.0 for k in range(len(left))]))
        columns += [_stacked(rrb, family, parts, ranges) for family, parts in outline.families().items()]
        whole = rrb.Horizontal(*columns) if len(columns) > 1 else columns[0] if columns else rrb.Vertical()
        hidden = {"state": "collapsed"}
        return rrb.Blueprint(
            whole, rrb.BlueprintPanel(**hidden), rrb.SelectionPanel(**hidden),
            rrb.TimePanel(**hidden, timeline=TIMELINE), auto_layout=False, auto_views=False,
        )  # fmt: skip

    # ---- rerun ----------------------------------------------------------------------------------------------

    def _static(self, path: str, value: Any) -> None:
        self._stream.log(path, value, static=True)

    def _send(self, path: str, time: Array, columns: Any) -> None:
        if len(time):
            index = self._rerun.TimeColumn(TIMELINE, duration=time)
            self._stream.send_columns(path, [index], columns)


def _stacked(rrb: Any, family: str, parts: Sequence[Signals], ranges: Mapping[str, tuple[float, float]]) -> Any:
    """Plots of a family below each other."""
    views = [
        rrb.TimeSeriesView(
            origin=part.name,
            name=part.title,
            # a legend of many lines would cover them; their names are shown where the pointer is
            plot_legend=rrb.PlotLegend(visible=1 < len(part.channels) <= LEGEND and part.low is None),
            axis_y=_axis(rrb, ranges.get(part.name)),
        )
        for part in parts
    ]
    pages = [rrb.Vertical(*views[k : k + ROWS], name=f"{family} {k + 1} …") for k in range(0, len(views), ROWS)]
    return pages[0] if len(pages) == 1 else rrb.Tabs(*pages, name=family)


def _axis(rrb: Any, limits: tuple[float, float] | None) -> Any:
    """The values from when the filter has settled, with a margin: its first innovations would hide all others."""
    if limits is None or not limits[0] < limits[1]:
        return None
    margin = 0.05 * (limits[1] - limits[0])
    return rrb.ScalarAxis(range=(limits[0] - margin, limits[1] + margin))


def _coloured(outline: Outline) -> str:
    """The tracks with their colours: the view has no legend."""
    named = zip(outline.tracks, cycle(COLOUR_NAMES), strict=False)
    return f"track: {', '.join(f'{name} ({colour})' for name, colour in named)}"


def _rgba(number: int, opacity: int = 255) -> list[int]:
    colour = COLOURS[number % len(COLOURS)]
    return [int(colour[k : k + 2], 16) for k in (1, 3, 5)] + [opacity]


@contextmanager
def without_reports() -> Iterator[None]:
    """The environment in which a viewer sends nothing to its makers."""
    before = os.environ.get("CI")
    os.environ["CI"] = before or "true"
    try:
        yield
    finally:
        if before is None:
            del os.environ["CI"]
