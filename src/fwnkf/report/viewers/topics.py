"""Names of topics and frames in our MCAP files, for the writer and for the layouts."""

from __future__ import annotations

from .scene import Signals

WORLD, BODY, IMAGES = "world", "vehicle", "image"
"""Frames."""
POSE, TRANSFORM, SCENE, REMARKS = "/fwnkf/pose", "/fwnkf/transform", "/fwnkf/scene", "/fwnkf/remarks"


def signals_topic(part: Signals) -> str:
    """The topic of a group of signals."""
    return f"/fwnkf/{part.name}"


def image_topic(name: str) -> str:
    """The topic of a picture."""
    return f"/fwnkf/{name}"


def fields(part: Signals) -> list[tuple[str, str, int]]:
    """Channel, field and number of the channel for each line of a plot: values, then the ends of intervals."""
    kinds = ("value",) if part.low is None else ("value", "low", "high")
    return [(channel, kind, place) for place, channel in enumerate(part.channels) for kind in kinds]
