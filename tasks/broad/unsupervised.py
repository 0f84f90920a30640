"""The filter without magnetometer fitted to the IMU of training trials alone.

The position of the hand is observed as zero plus a displacement; what the integrated samples say of it is the data of
the likelihood. Nothing in it sees the optical orientation, nor the delay of the gyroscope against the optical clock.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fwnkf import Trajectory
from fwnkf.data.recording import Recording
from fwnkf.identify.likelihood import Predictions
from fwnkf.shapes import Float
from fwnkf.systems import HandheldConfig
from tasks.broad.filters import Numbers, blocks_of, trajectories_of
from tasks.broad.trials import BLOCK, TRAIN, side_by_side, trials
from tasks.innovations import Constants, fit_constants, measured_nis
from tasks.interface import Say

FITTED = (
    "oscillation_std", "oscillation_hertz", "oscillation_seconds", "drift_std", "drift_seconds", "speed_exponent",
    "gyro_density", "accelerometer_density", "rate_error_std", "position_std", "rest_rate_std",
)  # fmt: skip
"""Constants that half a minute of movement says something about; walks and the first bias keep their defaults."""
REST_VELOCITY = 1e-3
"""m/s. The velocity at rest is zero by assumption, not measured: its likelihood would only grow towards no noise."""
FIT_BLOCKS = (300, 800)
"""Of each training trial: 42 s that begin at rest, mostly movement."""
ITERATIONS = 9


def within(recordings: Sequence[Recording], weight: Float[Tensor, "N K 9"]) -> Float[Tensor, "N K 9"]:
    """Weights of the measurements, zero after the end of a trial."""
    steps = torch.arange(weight.shape[1])
    ends = torch.tensor([len(trial) // BLOCK for trial in recordings])
    return weight * (steps < ends.unsqueeze(-1)).unsqueeze(-1)


def training_parts() -> list[Recording]:
    """The part of each training trial that the fit reads."""
    begin, end = (BLOCK * count for count in FIT_BLOCKS)
    return [trial.slice(begin, end) for trial in trials(TRAIN)]


def fit(recordings: list[Recording], *, say: Say, iterations: int = ITERATIONS) -> Numbers:
    """Constants of the hand and of the sensors by the likelihood of the innovations, from the defaults on."""
    rate, fixed = recordings[0].rate, {"rest_velocity_std": REST_VELOCITY}
    blocks = blocks_of(side_by_side(recordings), rate)
    blocks = blocks._replace(weight=within(recordings, blocks.weight))

    def innovations(candidates: list[Constants]) -> Predictions:
        tracks = trajectories_of([candidate | fixed for candidate in candidates], blocks, rate)
        residual = torch.stack([track.innovation for track in tracks])
        return Predictions(residual, torch.stack([track.innovation_cov for track in tracks]), blocks.weight)

    start = {name: getattr(HandheldConfig(), name) for name in FITTED}
    return fit_constants(start, innovations, iterations=iterations, say=say) | fixed


def trial_nis(recordings: Sequence[Recording], trajectory: Trajectory) -> float:
    """NIS of a filter on trials side by side, over the position and, at rest, velocity and rate."""
    assert trajectory.weight is not None
    weight = within(recordings, trajectory.weight)
    return measured_nis(trajectory.innovation, trajectory.innovation_cov, weight)
