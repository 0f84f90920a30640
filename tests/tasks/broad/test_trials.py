"""Which samples count, and what is refused."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from fwnkf.core import rotation
from fwnkf.errors import DataError
from tasks.broad.trials import score, side_by_side, trials


def turn(*rotvec: float) -> torch.Tensor:
    return rotation.exp(torch.tensor(rotvec, dtype=torch.float64))


def test_only_moving_samples_with_known_truth_count(simulated_trial):
    trial = simulated_trial().slice(0, 4)
    truth = turn(0, 0, 0).repeat(4, 1)
    truth[3] = torch.nan
    known, movement = torch.tensor([True, True, True, False]), torch.tensor([False, True, True, True])
    trial = dataclasses.replace(trial, truth=truth, truth_mask=known, extras={"movement": movement})
    estimate = torch.stack((turn(2, 0, 0), turn(0.3, 0, 0), turn(0.4, 0, 0), turn(2, 0, 0)))
    figures = score(trial, estimate)
    assert figures["inclination_deg"] == pytest.approx(math.degrees(math.sqrt((0.09 + 0.16) / 2)))
    assert figures["heading_deg"] == pytest.approx(0.0, abs=1e-9)
    estimate[1, 2] = torch.nan
    assert math.isnan(score(trial, estimate)["inclination_deg"])
    with pytest.raises(DataError, match="wanted"):
        score(trial, estimate[:3])
    still = dataclasses.replace(trial, extras={"movement": torch.zeros(4, dtype=torch.bool)})
    with pytest.raises(DataError, match="nothing can be evaluated"):
        score(still, estimate)


def test_shorter_trials_repeat_their_last_sample(simulated_trial):
    long, short = simulated_trial(), simulated_trial().slice(0, 1000)
    samples = side_by_side([long, short])
    assert bool((samples[0] == long.observations).all())
    assert bool((samples[1, 1000:] == short.observations[-1]).all())


def test_missing_samples_and_other_recordings_are_refused(simulated_trial, tmp_path):
    trial = simulated_trial().slice(0, 10)
    mask = trial.mask.clone()
    mask[3, 0] = False
    with pytest.raises(DataError, match="1 samples of the IMU are missing"):
        side_by_side([dataclasses.replace(trial, mask=mask)])
    other = dataclasses.replace(
        trial, observations=trial.observations[:, :6], channels=trial.channels[:6], mask=trial.mask[:, :6]
    )
    with pytest.raises(DataError, match="not a BROAD trial"):
        side_by_side([other])
    with pytest.raises(DataError, match="dlaidig/broad"):
        trials(["24"], folder=tmp_path)
