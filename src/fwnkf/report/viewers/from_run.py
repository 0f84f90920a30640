"""What a viewer shows of ``fwnkf run``: estimates, measurements and innovations, block by block."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...filters.base import Filter
from ...logs.results import AXES, component_names, rotation_matrices
from .scene import Array, Item, Track, around, split


class RunScene:
    """Turns blocks of estimates of one filter into items."""

    def __init__(self, model: Filter) -> None:
        parts = model.layout.describe()
        self.names, self.tangent = component_names(parts), component_names(parts, tangent=True)
        self.quaternion = next((name for name, kind, *_ in parts if kind == "quaternion"), None)
        self.channels = component_names(model.observation_layout.describe(), tangent=True)
        self.measures = model.preprocess is None and model.observes and not model.latent_innovations
        """Whether the innovations are those of the channels."""

    def estimates(self, time: Array, mean: Array, cov: Array) -> Iterator[Item]:
        """From means ``[T, n]`` and covariances ``[T, d, d]``."""
        std = np.sqrt(np.maximum(np.diagonal(cov, axis1=1, axis2=2), 0))
        columns = [place for place, name in enumerate(self.names) if name in self.tangent]  # all but orientations
        known = [self.names[place] for place in columns]
        values = mean[:, columns]
        spread = std[:, [self.tangent.index(name) for name in known]]
        yield from split("state", known, time, values, around(values, spread))
        turn = None
        if self.quaternion is not None:
            turn = mean[:, [self.names.index(f"{self.quaternion}_{axis}") for axis in "xyzw"]]
            angles = np.rad2deg(_angles(rotation_matrices(turn)))
            yield from split("attitude", ("roll", "pitch", "yaw"), time, angles, units=("°", "°", "°"))
        wanted = [f"position_{axis}" for axis in AXES]
        if all(name in self.names for name in wanted):
            place, error = ([names.index(name) for name in wanted] for names in (self.names, self.tangent))
            yield Track("estimate", time, mean[:, place], turn, cov[:, error][:, :, error], main=True)
        elif turn is not None:
            yield Track("estimate", time, np.zeros((len(time), 3)), turn, main=True)

    def innovations(self, time: Array, measured: Array, innovation: Array, std: Array) -> Iterator[Item]:
        """From measurements and innovations with their standard deviations, ``[T, m]``; NaN where nothing was used."""
        if not self.measures:
            return
        yield from split("measured", self.channels, time, measured, around(measured - innovation, std))
        yield from split("innovation", self.channels, time, innovation, around(0.0, std))


def _angles(matrices: Array) -> Array:
    """Roll, pitch and yaw (rad)."""
    roll = np.arctan2(matrices[:, 2, 1], matrices[:, 2, 2])
    yaw = np.arctan2(matrices[:, 1, 0], matrices[:, 0, 0])
    return np.stack((roll, -np.arcsin(np.clip(matrices[:, 2, 0], -1.0, 1.0)), yaw), 1)
