"""Names of state components and measurement channels, for axes and tables."""

from __future__ import annotations

from ..core.layout import Layout
from ..core.system import System


def stored_names(layout: Layout) -> list[str]:
    """One name for each component of the stored state.

    >>> stored_names(Layout.parse([("q", "quaternion", 4), ("bias", "euclidean", 2), ("theta", "angle", 1)]))
    ['q_w', 'q_x', 'q_y', 'q_z', 'bias1', 'bias2', 'theta']
    """
    names: list[str] = []
    for part in layout.parts:
        if part.kind == "quaternion":
            names += [f"{part.name}_{axis}" for axis in "wxyz"]
        else:
            names += _numbered(part.name, part.size)
    return names


def tangent_names(layout: Layout) -> list[str]:
    """One name for each tangent coordinate, as used by covariances.

    >>> tangent_names(Layout.parse([("q", "quaternion", 4), ("theta", "angle", 1)]))
    ['q about x', 'q about y', 'q about z', 'theta']
    """
    names: list[str] = []
    for part in layout.parts:
        if part.kind == "quaternion":
            names += [f"{part.name} about {axis}" for axis in "xyz"]
        else:
            names += _numbered(part.name, part.size)
    return names


def channel_names(system: System | None, channels: int) -> list[str]:
    """Names of the measurement channels: those of the system, or ``y1, y2, …`` without a system."""
    return _numbered("y", channels) if system is None else stored_names(system.observation_layout)


def units(layout: Layout) -> list[str]:
    """The unit of each component of the stored state: radians for angles, otherwise empty.

    >>> units(Layout.parse([("theta", "angle", 1), ("omega", "euclidean", 1)]))
    ['rad', '']
    """
    return [("rad" if part.kind == "angle" else "") for part in layout.parts for _ in range(part.size)]


def _numbered(name: str, size: int) -> list[str]:
    return [name] if size == 1 else [f"{name}{i + 1}" for i in range(size)]
