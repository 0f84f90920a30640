"""What a viewer shows of ``fwnkf navigate``: tracks, states with intervals and innovations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...logs.results import rotation_matrices
from ...navigation.recording import Pose
from ...navigation.review import STATES, NavigationReview
from .scene import TURN, Item, Remark, Signals, Track, around, east_north_up, safe

AXES = ("north", "east", "down")


def navigation_items(review: NavigationReview) -> Iterator[Item]:
    """Everything of a review."""
    yield Remark(review.name, "\n\n".join([review.summary, *review.notes]), time=review.begin)
    yield from _tracks(review)
    found = review.filtered
    for name, unit in (("position", "m"), ("velocity", "m/s")):
        values, std = found.part(name)
        low, high = around(values, std)
        yield Signals(f"state/{name}", AXES, found.time, values, low, high, unit)
    angles, std = found.angles()
    turned = np.abs(np.diff(angles, axis=0, prepend=angles[:1])) > 180.0
    low, high = around(np.where(turned, np.nan, angles), std)  # no line from one edge of the circle to the other
    yield Signals("state/attitude", ("roll", "pitch", "heading"), found.time, (low + high) / 2, low, high, "°")
    yield from _innovations(review)
    for name, unit, axes in ((name, *STATES[name][1:]) for name, *_ in found.parts if name in STATES):
        values, std = found.part(name)
        low, high = around(values, std)
        channels = tuple(safe(axis) if axis else name for axis in axes)
        yield Signals(f"other/{name}", channels, found.time, values, low, high, unit)


def _tracks(review: NavigationReview) -> Iterator[Item]:
    found = review.filtered
    position, turn = east_north_up(found.mean[:, :3], found.rotations)
    yield Track("filtered", found.time, position, turn, TURN @ found.cov[:, :3, :3] @ TURN.T, main=True)
    smoothed = review.smoothed
    yield Track("smoothed", smoothed.time, *east_north_up(smoothed.mean[:, :3], smoothed.rotations))
    for name, pose in (("autopilot", review.estimate), ("truth", review.truth), ("GNSS", review.fixes)):
        if pose is not None and pose.position is not None:
            yield _pose(name, pose, review)


def _pose(name: str, pose: Pose, review: NavigationReview) -> Track:
    assert pose.position is not None
    inside = (pose.time >= review.begin) & (pose.time <= review.end)
    turns = None if pose.orientation is None else rotation_matrices(pose.orientation[inside][:, [1, 2, 3, 0]])
    return Track(name, pose.time[inside], *east_north_up(pose.position[inside], turns))


def _innovations(review: NavigationReview) -> Iterator[Item]:
    """In standard deviations, sensor by sensor."""
    sensors = dict.fromkeys(row.sensor for row in review.innovations)
    for sensor in sensors:
        rows = [row for row in review.innovations if row.sensor == sensor]
        together = all(len(row.time) == len(rows[0].time) for row in rows)
        for some in [rows] if together else [[row] for row in rows]:
            values = np.stack([row.values for row in some], 1)
            names = [row.channel for row in some]
            suffix = "" if together else f"_{safe(names[0])}"
            low, high = around(0.0, np.ones_like(values))
            channels = tuple(map(safe, names))
            yield Signals(f"innovation/{safe(sensor)}{suffix}", channels, some[0].time, values, low, high, "σ")
