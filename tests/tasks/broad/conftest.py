"""Raw samples of the quick test records, and simulated trials."""

from __future__ import annotations

import os
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from fwnkf.data.recording import Recording
from fwnkf.data.sets import broad, catalogue
from tests.hand import swaying_hand


class QuickTrials(NamedTuple):
    """The first minute of the four disturbed trials: samples, true orientation, and which samples count."""

    samples: Tensor
    truth: Tensor
    counted: Tensor


@pytest.fixture(scope="session")
def trial_paths():
    """Files of the ten trials by number."""
    if not os.environ.get("FWNKF_DATA"):
        pytest.skip("FWNKF_DATA names no folder with recordings")
    paths = {name[:2]: path for name, path in broad.find(catalogue.folder_of("broad")).items()}
    if not {"24", "25", "26", "27"} <= set(paths):
        pytest.skip("trials 24 to 27 of BROAD are not all there")
    return paths


@pytest.fixture(scope="session")
def quick_trials(trial_paths) -> QuickTrials:
    parts = [broad.read(trial_paths[number]).slice(0, 700 * 24) for number in ("24", "25", "26", "27")]
    counted = [part.extras["movement"].bool() & part.truth_mask for part in parts]
    return QuickTrials(
        torch.stack([part.observations for part in parts]),
        torch.stack([part.truth for part in parts]),
        torch.stack(counted),
    )


@pytest.fixture
def simulated_trial():
    """A function that gives a trial of a swaying hand."""

    def make(name: str = "00_simulated", seconds: float = 6.0, magnetometer_delay: float = 0.0) -> Recording:
        motion = swaying_hand(seconds, magnetometer_delay)
        return Recording(
            name,
            motion.time,
            motion.samples,
            broad.CHANNELS,
            motion.samples.isfinite(),
            motion.truth,
            broad.LAYOUT,
            torch.ones(len(motion.time), dtype=torch.bool),
            extras={"movement": motion.moving},
        )

    return make
