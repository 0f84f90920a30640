"""Records of a wind vane, shared by the tests of learned filters."""

from __future__ import annotations

import numpy as np
import pytest

from .vane import MASKS, STEPS


@pytest.fixture
def records(rng):
    """Three trajectories across the seam of the angle: prior, measurements, controls, time steps, masks."""
    mean = np.array([[3.0, 1.5], [-3.1, -1.0], [0.3, 0.2]])
    P = np.array([[[0.5, 0.1], [0.1, 0.3]]] * 3)
    y = np.stack([rng.uniform(-np.pi, np.pi, (3, STEPS)), rng.standard_normal((3, STEPS))], -1)
    return mean, P, y, rng.standard_normal((3, STEPS)), rng.uniform(0.05, 0.2, (3, STEPS)), MASKS
