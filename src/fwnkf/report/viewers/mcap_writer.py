"""MCAP with the messages of Foxglove in JSON, which Foxglove, PlotJuggler and Rerun open, and layouts beside it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...extras import need
from .foxglove_layout import foxglove_layout
from .foxglove_schemas import SCHEMAS, signals_schema
from .heat import png
from .plotjuggler_layout import plotjuggler_layout
from .scene import (
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
from .topics import BODY, IMAGES, POSE, REMARKS, SCENE, TRANSFORM, WORLD, image_topic, signals_topic

APART = 0.1
"""Seconds between poses."""
LEVELS = {"info": 2, "warning": 3, "failure": 4}
LAYOUTS = (".foxglove.json", ".plotjuggler.xml")
"""Ends of the names of the layouts beside a file."""
SECOND = 1_000_000_000
Message = Mapping[str, Any]


class McapWriter:
    """Writes ``path``, and beside it the layouts for Foxglove (.foxglove.json) and PlotJuggler (.plotjuggler.xml)."""

    def __init__(self, title: str, path: Path, start_ns: int = 0) -> None:
        module = need("mcap.writer", "viewers")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._start = path, max(start_ns, 0)
        self._file = path.open("wb")
        self._writer = module.Writer(self._file, compression=_compression(module))
        self._writer.start(profile="", library="fwnkf")
        self._writer.add_metadata("fwnkf", {"title": title})
        self._channels: dict[str, int] = {}
        self._tracks: dict[str, _Drawn] = {}
        self._last = self._first = 0
        foxglove, plots = (self._beside(suffix) for suffix in LAYOUTS)
        self.where = f"{path}: in Foxglove with the layout {foxglove}; or plotjuggler -l {plots}"

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(self._path.stem + suffix)

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
        topic = signals_topic(part)
        schema = signals_schema(topic.strip("/").replace("/", "."), part.channels, interval=part.low is not None)
        columns = [part.values, *(end for end in (part.low, part.high) if end is not None)]
        names = ("value", "low", "high")[: len(columns)]
        values = np.stack(columns, -1)
        known = np.isfinite(values)

        def messages() -> Iterable[Message]:
            for row, finite in zip(values.tolist(), known.tolist(), strict=True):
                # what is not known is left out: null is no number for a plot
                yield {
                    channel: {name: number for name, number, valid in zip(names, numbers, usable, strict=True) if valid}
                    for channel, numbers, usable in zip(part.channels, row, finite, strict=True)
                    if any(usable)
                }

        self._write(topic, schema["title"], schema, part.time, messages())

    def _track(self, part: Track) -> None:
        finite = np.isfinite(part.position).all(1)
        time, position = part.time[finite], part.position[finite]
        drawn = self._tracks.setdefault(part.name, _Drawn(len(self._tracks)))
        drawn.line.add(position)
        some = every(time, APART)
        if part.cov is not None and len(some):
            drawn.bodies.add(position[some], *ellipsoids(part.cov[finite][some]))
        if not part.main or not len(some):
            return
        turns = (
            np.tile([0.0, 0.0, 0.0, 1.0], (len(some), 1))
            if part.orientation is None
            else part.orientation[finite][some]
        )
        poses = [_pose(*row) for row in zip(position[some], turns, strict=True)]
        self._write_known(
            POSE, "foxglove.PoseInFrame", time[some], [{"frame_id": WORLD, "pose": pose} for pose in poses]
        )
        moves = [
            {
                "parent_frame_id": WORLD,
                "child_frame_id": BODY,
                "translation": pose["position"],
                "rotation": pose["orientation"],
            }
            for pose in poses
        ]
        self._write_known(TRANSFORM, "foxglove.FrameTransform", time[some], moves)
        if part.cov is not None:
            half, axes = ellipsoids(part.cov[finite][some])
            bodies = [
                {"entities": [self._entity(stamp, f"now {part.name}", spheres=[_sphere(*row, drawn.number, 0.35)])]}
                for stamp, row in zip(
                    self._stamps(time[some]).tolist(), zip(position[some], half, axes, strict=True), strict=True
                )
            ]
            self._write_known(SCENE, "foxglove.SceneUpdate", time[some], bodies, stamped=False)

    def _picture(self, part: Picture) -> None:
        data = base64.b64encode(png(part.image)).decode("ascii")
        message = {"frame_id": IMAGES, "format": "png", "data": data}
        # at the start, where a viewer begins
        self._write_known(image_topic(part.name), "foxglove.CompressedImage", np.array([part.extent[0]]), [message])

    def _remark(self, part: Remark) -> None:
        message = {
            "level": LEVELS[part.level],
            "message": f"{part.title}: {part.text}",
            "name": "fwnkf",
            "file": "",
            "line": 0,
        }
        self._write_known(REMARKS, "foxglove.Log", np.array([part.time]), [message])

    # ---- layout ---------------------------------------------------------------------------------------------

    def arrange(self, outline: Outline) -> None:
        """Nothing: layouts are written at the end."""

    def refresh(self) -> None:
        """Nothing: whole tracks are written at the end too."""

    def close(self, outline: Outline) -> None:
        """Write whole tracks, the index, and the layouts."""
        if self._file.closed:
            return
        stamp = self._first or self._start
        for name, drawn in self._tracks.items():
            if drawn.line.rows:
                entity = self._entity(stamp, name, lines=[drawn.as_line()], spheres=drawn.as_spheres())
                self._write_known(
                    SCENE,
                    "foxglove.SceneUpdate",
                    np.array([(stamp - self._start) / SECOND]),
                    [{"entities": [entity]}],
                    stamped=False,
                )
        self._writer.finish()
        self._file.close()
        foxglove, plots = (self._beside(suffix) for suffix in LAYOUTS)
        foxglove.write_text(json.dumps(foxglove_layout(outline), indent=2) + "\n", encoding="utf-8")
        plots.write_text(plotjuggler_layout(outline, self._path.name), encoding="utf-8")

    # ---- messages -------------------------------------------------------------------------------------------

    def _stamps(self, time: Array) -> NDArray[np.int64]:
        return np.maximum(self._start + np.round(time * SECOND).astype(np.int64), 0)

    def _write_known(
        self, topic: str, name: str, time: Array, messages: Iterable[Message], *, stamped: bool = True
    ) -> None:
        self._write(topic, name, SCHEMAS[name], time, messages, stamped=stamped)

    def _write(
        self, topic: str, name: str, schema: Any, time: Array, messages: Iterable[Message], *, stamped: bool = True
    ) -> None:
        if topic not in self._channels:
            number = self._writer.register_schema(name, "jsonschema", json.dumps(schema).encode())
            self._channels[topic] = self._writer.register_channel(topic, "json", number)
        channel = self._channels[topic]
        for stamp, message in zip(self._stamps(time).tolist(), messages, strict=True):
            self._first = min(self._first or stamp, stamp)
            whole = {"timestamp": _time(stamp), **message} if stamped else message
            self._writer.add_message(channel, stamp, json.dumps(whole, allow_nan=False).encode(), stamp)

    def _entity(self, stamp: int, name: str, **drawn: Any) -> dict[str, Any]:
        return {
            "timestamp": _time(stamp), "frame_id": WORLD, "id": name, "lifetime": {"sec": 0, "nsec": 0},
            "frame_locked": True, **drawn,
        }  # fmt: skip


class _Drawn:
    """A track as far as it was drawn."""

    def __init__(self, number: int) -> None:
        self.number, self.line, self.bodies = number, Thinned(MOST_POINTS), Thinned(MOST_ELLIPSOIDS)

    def as_line(self) -> dict[str, Any]:
        (points,) = self.line.columns()
        return {
            "type": 0, "pose": _pose(np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0])), "thickness": 2.0,
            "scale_invariant": True, "points": [_vector(point) for point in points], "color": _colour(self.number, 1.0),
        }  # fmt: skip

    def as_spheres(self) -> list[dict[str, Any]]:
        if not self.bodies.rows:
            return []
        centres, half, turns = self.bodies.columns()
        rows = zip(centres, half, turns, strict=True)
        return [_sphere(centre, axes, turn, self.number, 0.2) for centre, axes, turn in rows]


def _compression(module: Any) -> Any:
    """Zstandard where it is installed, as with the extra ``logs``; else none."""
    try:
        import zstandard  # noqa: F401
    except ModuleNotFoundError:
        return module.CompressionType.NONE
    return module.CompressionType.ZSTD


def _time(stamp: int) -> dict[str, int]:
    return {"sec": stamp // SECOND, "nsec": stamp % SECOND}


def _vector(values: Array) -> dict[str, float]:
    return dict(zip("xyz", np.nan_to_num(values).tolist(), strict=True))


def _pose(position: Array, turn: Array) -> dict[str, Any]:
    return {"position": _vector(position), "orientation": dict(zip("xyzw", turn.tolist(), strict=True))}


def _sphere(position: Array, half: Array, turn: Array, number: int, opacity: float) -> dict[str, Any]:
    return {"pose": _pose(position, turn), "size": _vector(2 * half), "color": _colour(number, opacity)}


def _colour(number: int, opacity: float) -> dict[str, float]:
    colour = COLOURS[number % len(COLOURS)]
    return dict(zip("rgb", (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)), strict=True)) | {"a": opacity}
