"""JSON schemas of the messages in our MCAP files, by the names under which Foxglove knows them.

A viewer chooses how to draw a message by the name of its schema; of each schema only the fields that are written here
are listed. https://docs.foxglove.dev/docs/sdk/schemas has all of them.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def _object(title: str = "", **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties} | ({"title": title} if title else {})


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


NUMBER: Schema = {"type": "number"}
INTEGER: Schema = {"type": "integer"}
TEXT: Schema = {"type": "string"}
TIME = _object("time", sec=INTEGER, nsec=INTEGER)
DURATION = _object("duration", sec=INTEGER, nsec=INTEGER)
VECTOR = _object("foxglove.Vector3", x=NUMBER, y=NUMBER, z=NUMBER)
POINT = _object("foxglove.Point3", x=NUMBER, y=NUMBER, z=NUMBER)
QUATERNION = _object("foxglove.Quaternion", x=NUMBER, y=NUMBER, z=NUMBER, w=NUMBER)
POSE = _object("foxglove.Pose", position=VECTOR, orientation=QUATERNION)
COLOUR = _object("foxglove.Color", r=NUMBER, g=NUMBER, b=NUMBER, a=NUMBER)
SPHERE = _object("foxglove.SpherePrimitive", pose=POSE, size=VECTOR, color=COLOUR)
LINE = _object(
    "foxglove.LinePrimitive", type=INTEGER, pose=POSE, thickness=NUMBER, scale_invariant={"type": "boolean"},
    points=_array(POINT), color=COLOUR,
)  # fmt: skip
ENTITY = _object(
    "foxglove.SceneEntity", timestamp=TIME, frame_id=TEXT, id=TEXT, lifetime=DURATION, frame_locked={"type": "boolean"},
    spheres=_array(SPHERE), lines=_array(LINE),
)  # fmt: skip

SCHEMAS: dict[str, Schema] = {
    "foxglove.PoseInFrame": _object("foxglove.PoseInFrame", timestamp=TIME, frame_id=TEXT, pose=POSE),
    "foxglove.FrameTransform": _object(
        "foxglove.FrameTransform", timestamp=TIME, parent_frame_id=TEXT, child_frame_id=TEXT, translation=VECTOR,
        rotation=QUATERNION,
    ),
    "foxglove.SceneUpdate": _object("foxglove.SceneUpdate", entities=_array(ENTITY)),
    "foxglove.CompressedImage": _object(
        "foxglove.CompressedImage", timestamp=TIME, frame_id=TEXT, format=TEXT,
        data={"type": "string", "contentEncoding": "base64"},
    ),
    "foxglove.Log": _object(
        "foxglove.Log", timestamp=TIME, level=INTEGER, message=TEXT, name=TEXT, file=TEXT, line=INTEGER
    ),
}  # fmt: skip
"""By name."""


def signals_schema(name: str, channels: tuple[str, ...], *, interval: bool) -> Schema:
    """Of channels with a value each, and the ends of its interval."""
    fields = {"value": NUMBER} | ({"low": NUMBER, "high": NUMBER} if interval else {})
    properties = {"timestamp": TIME} | {channel: {"type": "object", "properties": fields} for channel in channels}
    return {"type": "object", "title": name, "properties": properties}
