"""Constants that are integers times a scale, which generated code stores as integers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SMALLEST = 256
"""Entries of a matrix from which on it is rounded."""


class Grid(NamedTuple):
    """The integers that weights are stored as, and the scales that were used."""

    number: type[np.signedinteger]
    scales: tuple[float, ...] = ()

    def integers(self, data: np.ndarray) -> tuple[np.ndarray, float] | None:
        """``data`` as integers and their scale, if it is exactly that."""
        if data.dtype != np.float32 or data.size < SMALLEST:
            return None
        top = np.iinfo(self.number).max
        for scale in self.scales:
            found = np.rint(data / np.float32(scale))
            if np.abs(found).max() <= top and np.array_equal(found.astype(np.float32) * np.float32(scale), data):
                return found.astype(self.number), scale
        return None
