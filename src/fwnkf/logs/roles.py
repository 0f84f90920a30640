"""Help for readers that say which fields of a log are the standard signals of :data:`fwnkf.logs.log.ROLES`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from .log import Array, Source, Topic

AXES = "xyz"
FIX = {0: "none", 1: "none", 2: "2D", 3: "3D", 4: "3D, differential", 5: "RTK float", 6: "RTK fixed"}
"""Kinds of GPS fix, numbered alike by PX4 and ArduPilot."""

ROTORS = 64
"""Rotors of a vehicle, at most."""

Columns = Mapping[str, tuple[str, float]]


class SourceList:
    """Standard signals of a log in the order in which they are added, the best of each role first."""

    def __init__(self, topics: Mapping[str, Topic]) -> None:
        self.topics = topics
        self.sources: list[Source] = []
        self._named: Counter[str] = Counter()

    def has(self, role: str) -> bool:
        """Whether a signal of this role was added."""
        return role in self._named

    def add(self, role: str, label: str, topic: str, columns: Columns) -> None:
        """Add a signal if the topic has all its fields; the first of a role has its name, others ``role_label``.

        Further signals with the same label get a number, because names are unique.
        """
        fields = self.topics[topic].fields if topic in self.topics else ()
        if columns and all(field in fields for field, _ in columns.values()):
            name = f"{role}_{label}" if self.has(role) else role
            self._named[name] += 1
            name = name if self._named[name] == 1 else f"{name}_{self._named[name]}"
            self.sources.append(Source(name, role, topic, dict(columns)))


def whole(number: float) -> int:
    """A number of a damaged or crafted log as an integer: -1 where it is not finite.

    >>> whole(3.0), whole(float("nan")), whole(float("inf"))
    (3, -1, -1)
    """
    return int(number) if math.isfinite(number) else -1


def vector(prefix: str, fields: str, axes: str = AXES) -> dict[str, tuple[str, float]]:
    """Columns ``prefix_x`` … from fields that contain ``?`` for the axis letter or ``#`` for its index.

    >>> vector("gyro", "rate[#]")["gyro_y"]
    ('rate[1]', 1.0)
    """
    return {
        f"{prefix}_{axis}": (fields.replace("?", axis).replace("#", str(index)), 1.0) for index, axis in enumerate(axes)
    }


def intervals(time: Array, state: NDArray[np.bool_]) -> tuple[tuple[float, float], ...]:
    """From the first to the last time of every run of True; a run lasts until the state changes.

    >>> intervals(np.array([0.0, 1.0, 2.0, 5.0]), np.array([False, True, True, False]))
    ((1.0, 5.0),)
    """
    spans = []
    begin: float | None = None
    for moment, active in zip(time.tolist(), state.tolist(), strict=True):
        if active and begin is None:
            begin = moment
        elif not active and begin is not None:
            spans.append((begin, moment))
            begin = None
    if begin is not None and len(time):
        spans.append((begin, float(time[-1])))
    return tuple((start, stop) for start, stop in spans if stop > start)


def match(time: Array, other: Array) -> NDArray[np.int64]:
    """Row of the nearest sample of ``other`` for each time, -1 where there is none within half a usual step.

    >>> match(np.array([0.0, 1.0, 2.0]), np.array([2.1, 0.1])).tolist()
    [1, -1, 0]
    """
    if len(other) == 0:
        return np.full(len(time), -1)
    within = 0.5 * float(np.median(np.abs(np.diff(time)))) if len(time) > 1 else 1e-3
    order = np.argsort(other, kind="stable")
    ranked = other[order]
    right = np.clip(np.searchsorted(ranked, time), 0, len(ranked) - 1)
    left = np.maximum(right - 1, 0)
    nearer = np.where(np.abs(ranked[left] - time) < np.abs(ranked[right] - time), left, right)
    return np.where(np.abs(ranked[nearer] - time) <= within, order[nearer], -1)


def rotor_numbers(*proposals: Sequence[str | float]) -> list[int]:
    """Numbers of rotors from 1: the first proposal that has such numbers only, no two alike; else their order.

    >>> rotor_numbers(["2", "4"]), rotor_numbers([-100.0, -100.0], [3, 1]), rotor_numbers(["left", "right"])
    ([2, 4], [3, 1], [1, 2])
    """
    known = {str(number): number for number in range(1, ROTORS + 1)}
    for proposal in proposals:
        numbers = [known.get(item if isinstance(item, str) else f"{item:g}", 0) for item in proposal]
        if all(numbers) and len(set(numbers)) == len(numbers):
            return numbers
    return list(range(1, len(proposals[0]) + 1))


def euler_to_quaternion(roll: Array, pitch: Array, yaw: Array) -> dict[str, Array]:
    """Columns ``orientation_w`` … of angles in radians (yaw, then pitch, then roll).

    >>> [float(value[0].round(3)) for value in euler_to_quaternion(*np.deg2rad([[0.0], [0.0], [90.0]])).values()]
    [0.707, 0.0, 0.0, 0.707]
    """
    cr, sr, cp, sp, cy, sy = (function(angle / 2) for angle in (roll, pitch, yaw) for function in (np.cos, np.sin))
    return {
        "orientation_w": cr * cp * cy + sr * sp * sy,
        "orientation_x": sr * cp * cy - cr * sp * sy,
        "orientation_y": cr * sp * cy + sr * cp * sy,
        "orientation_z": cr * cp * sy - sr * sp * cy,
    }
