"""Trials of BROAD, which of them train and which test, and the metric of the authors of the set.

The metric (https://github.com/dlaidig/broad, ``example_code``) splits the error into heading and inclination, see
``fwnkf.metrics.orientation``. The root mean square is taken over the samples that the authors flag as movement and
whose optical orientation is known. Nothing is fitted or aligned: the authors have aligned the optical frames with the
IMU and with east-north-up already. A mean over trials is the mean of the figures of the trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from fwnkf.data.recording import Recording
from fwnkf.data.sets import broad, catalogue
from fwnkf.errors import DataError
from fwnkf.metrics.orientation import error_quaternion, heading_error, inclination_error, rms_degrees, total_error
from fwnkf.shapes import Bool, Float

TRAIN = ("01", "06", "08", "12", "16", "21")
"""Undisturbed trials: rotation, translation and both, slow and fast."""
TEST = ("24", "25", "26", "27")
"""Tapping on the sensor, and a vibrating phone beside it."""
BLOCK = 24
"""Samples of one step of the filters: 84 ms."""
QUICK_BLOCKS = 700
"""The first minute of each test trial."""
SEARCH_BLOCKS = 1500
"""Of each training trial, the first two minutes: rest, then movement."""


def trials(names: Sequence[str], blocks: int | None = None, folder: Path | None = None) -> list[Recording]:
    """Trials by number, or the first blocks of them; ``folder`` is ``$FWNKF_DATA/broad`` unless given."""
    place = catalogue.folder_of("broad") if folder is None else folder
    paths = {name[:2]: path for name, path in broad.find(place).items()}
    missing = [name for name in names if name not in paths]
    if missing:
        raise DataError(f"{place}: trial {', '.join(missing)} is not there. {catalogue.info('broad').manual}")
    recordings = [broad.read(paths[name]) for name in names]
    return [item if blocks is None else item.slice(0, min(len(item), blocks * BLOCK)) for item in recordings]


def number_of(trial: Recording) -> str:
    """The two digits a trial's name begins with."""
    return trial.name[:2]


def side_by_side(recordings: Sequence[Recording]) -> Float[Tensor, "N T 9"]:
    """The samples of all trials; shorter ones are padded by their last sample, which no causal filter minds."""
    for trial in recordings:
        if trial.channels != broad.CHANNELS:
            raise DataError(f"{trial.name}: not a BROAD trial; its channels are {[c.name for c in trial.channels]}")
        if not bool(trial.mask.all()):
            missing = int((~trial.mask).any(-1).sum())
            raise DataError(f"{trial.name}: {missing} samples of the IMU are missing; the filters here need every one")
    length = max(len(trial) for trial in recordings)
    return torch.stack(
        [
            torch.cat((trial.observations, trial.observations[-1:].expand(length - len(trial), -1)))
            for trial in recordings
        ]
    )


def scored(trial: Recording) -> Bool[Tensor, " T"]:
    """Which samples count: those in movement whose optical orientation is known."""
    if trial.truth_mask is None or "movement" not in trial.extras:
        raise DataError(f"{trial.name}: no optical orientation or no movement flag to evaluate against")
    counted = trial.extras["movement"].bool() & trial.truth_mask
    if not bool(counted.any()):
        raise DataError(f"{trial.name}: no sample is in movement with a known orientation; nothing can be evaluated")
    return counted


def score(trial: Recording, estimate: Float[Tensor, "T 4"]) -> dict[str, float]:
    """RMSE in degrees of an estimate (IMU to east-north-up) for every sample of a trial.

    An estimate that is not finite where it counts gives NaN: it is never left out of the mean.
    """
    counted, truth = scored(trial), truth_of(trial)
    if estimate.shape != truth.shape:
        raise DataError(f"{trial.name}: the estimate is {tuple(estimate.shape)}; wanted {tuple(truth.shape)}")
    error = error_quaternion(estimate.to(truth)[counted], truth[counted])
    return {
        "inclination_deg": rms_degrees(inclination_error(error)),
        "heading_deg": rms_degrees(heading_error(error)),
        "orientation_deg": rms_degrees(total_error(error)),
    }


def errors(recordings: Sequence[Recording], paths: Sequence[Tensor] | Tensor, metric: str) -> list[float]:
    """One metric of each trial; estimates may be longer than their trial."""
    pairs = zip(recordings, paths, strict=True)
    return [score(trial, path[: len(trial)])[metric] for trial, path in pairs]


def scores(recordings: Sequence[Recording], paths: Sequence[Tensor] | Tensor, metric: str) -> dict[str, float]:
    """One metric of each trial by its number."""
    return dict(zip(map(number_of, recordings), errors(recordings, paths, metric), strict=True))


def truth_of(trial: Recording) -> Float[Tensor, "T 4"]:
    """The optical orientation."""
    if trial.truth is None:
        raise DataError(f"{trial.name}: no optical orientation")
    return trial.truth
