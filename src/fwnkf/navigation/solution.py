"""A navigation solution: position, velocity, attitude and the other states over time, with covariances; its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..logs.results import result_file, rotation_matrices
from ..systems import Navigation, earth
from .estimate import Estimate
from .timeline import Array

PLACE = (("latitude", "euclidean", 1), ("longitude", "euclidean", 1), ("height", "euclidean", 1))
"""In front of the states in a file: degrees, degrees and metres."""


@dataclass(frozen=True, eq=False)
class Solution:
    """States with their names; positions are north, east and down of the origin."""

    time: Array
    """Seconds of the log."""
    mean: Array
    """``[T, n]``"""
    cov: Array
    """``[T, d, d]``; of the orientation in the body frame."""
    parts: tuple[tuple[Any, ...], ...]
    """Name, kind and size of the parts of the state."""
    origin: tuple[float, float, float]
    """Latitude and longitude (degrees), height (m)."""

    @classmethod
    def of(cls, found: Estimate, origin: tuple[float, float, float]) -> Solution:
        """From a run of the filter."""
        mean, cov = found.track.mean[0].numpy(), found.track.cov[0].numpy()
        return cls(found.time, mean, cov, Navigation(found.config).layout.describe(), origin)

    def part(self, name: str) -> tuple[Array, Array]:
        """A part of the state that is no orientation, and its standard deviations: both ``[T, size]``."""
        at = tangent = 0
        for title, kind, size, *_ in self.parts:
            if title == name:
                place = slice(tangent, tangent + size)
                variance = np.diagonal(self.cov, axis1=1, axis2=2)[:, place]
                return self.mean[:, at : at + size], np.sqrt(np.maximum(variance, 0.0))
            at, tangent = at + size, tangent + (3 if kind == "quaternion" else size)
        raise KeyError(name)

    @property
    def rotations(self) -> Array:
        """From forward, right, down to north, east, down: ``[T, 3, 3]``."""
        return rotation_matrices(self.mean[:, [7, 8, 9, 6]])

    def angles(self) -> tuple[Array, Array]:
        """Roll, pitch and heading, and their standard deviations (degrees), ``[T, 3]``."""
        matrix = self.rotations
        roll, yaw = np.arctan2(matrix[:, 2, 1], matrix[:, 2, 2]), np.arctan2(matrix[:, 1, 0], matrix[:, 0, 0])
        pitch = -np.arcsin(np.clip(matrix[:, 2, 0], -1.0, 1.0))
        # how the angles change with a rotation about the axes of the body
        one, zero = np.ones_like(roll), np.zeros_like(roll)
        cosine = np.maximum(np.cos(pitch), 1e-3)
        rows = (
            (one, np.sin(roll) * np.tan(pitch), np.cos(roll) * np.tan(pitch)),
            (zero, np.cos(roll), -np.sin(roll)),
            (zero, np.sin(roll) / cosine, np.cos(roll) / cosine),
        )
        change = np.stack([np.stack(row, -1) for row in rows], -2)
        cov = change @ self.cov[:, 6:9, 6:9] @ change.swapaxes(1, 2)
        std = np.sqrt(np.maximum(np.diagonal(cov, axis1=1, axis2=2), 0.0))
        return np.rad2deg(np.stack((roll, pitch, yaw), -1)), np.rad2deg(std)

    def columns(self) -> dict[str, Array]:
        """What others ask of it first, by name, with standard deviations; angles in degrees."""
        found = {"time": self.time}
        for name in ("position", "velocity"):
            found[name], found[f"{name}_std"] = self.part(name)
        found["angles"], found["angles_std"] = self.angles()
        return found

    def save(self, path: str | Path, start_ns: int, facts: Mapping[str, str]) -> Path:
        """Write a file: time, latitude, longitude, height, all states, and standard deviations.

        Args:
            path: ends in .csv, .parquet, .mcap or .tum.
            start_ns: the clock of the log at time zero.
            facts: how it was computed.

        Returns:
            The file.
        """
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        place = earth.geodetic(self.mean[:, :3], self.origin)
        # degrees and metres of a metre north, east, down; the same errors as those of the position
        one = earth.geodetic(np.eye(3), self.origin) - np.array(self.origin)
        states = self.cov.shape[-1]
        both = np.concatenate((np.pad(one.T, ((0, 0), (0, states - 3))), np.eye(states)))
        file = result_file(target, (*PLACE, *self.parts), start_ns)
        try:
            file.write(self.time, np.concatenate((place, self.mean), 1), both @ self.cov @ both.T)
        finally:
            file.close(facts)
        return target
