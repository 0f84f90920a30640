"""References for orientation on BROAD: the published filters and the trivial ones, all through one metric.

The metric is the set's own (https://github.com/dlaidig/broad, ``example_code``): the error quaternion
``q_estimate ⊗ q_optical⁻¹`` lives in the earth frame; its rotation about the vertical is the heading error, what is
left the inclination error, its whole angle the total error. The root mean square is taken over the samples the authors
flag as movement and whose optical orientation is known. Nothing is fitted or aligned: the authors have put the optical
frames onto the IMU's and onto east-north-up already. Every trial counts the same: ``all`` is the mean of the trials'
figures, as the authors average.

``*_6d`` methods see gyroscope and accelerometer only. Their heading is arbitrary, so they have an inclination error and
no orientation error. ``*_9d`` methods see the magnetometer too and have both.

What the published figures say. The 2.9° of D. Laidig, T. Seel: VQF, Information Fusion 91, 2023, is the 9D error
averaged over a collection of public sets: do not compare a figure from here with it. The authors
of BROAD publish Madgwick's and Mahony's 9D errors for each trial (``example_code/out``); at their gains, which are the
defaults here, the mean is 4.96° and 7.49° over all 39 trials, 4.30° and 7.12° over the ten trials 01 06 08 12 16 21 24
25 26 27, none of which has a magnet: a mean over part of the trials is no mean over all. This metric gives their
Madgwick figures to four digits with their variant of the filter, which halves the magnetic reference vector (a slip of
the original C code); ``ahrs`` has it whole, as in Madgwick's report, so its heading differs from theirs.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fwnkf.core import rotation
from fwnkf.data import broad, catalogue
from fwnkf.data.recording import Recording
from fwnkf.errors import ConfigError, DataError
from fwnkf.shapes import Float

Row = dict[str, Any]
Method = Callable[[Recording], Tensor]

MADGWICK_GAIN = 0.12
"""β: the best single setting for BROAD's 39 trials by its authors' grid search (9D, total error)."""
MAHONY_GAINS = (0.74, 0.0012)
"""Proportional and integral gain: likewise. The same gains serve without magnetometer."""


# ---- the metric -----------------------------------------------------------------------------------------------------


def scored(trial: Recording) -> Tensor:
    """Which samples count: those in movement whose optical orientation is known."""
    if trial.truth_mask is None or "movement" not in trial.extras:
        raise DataError(f"{trial.name}: no optical orientation or no movement flag to score against")
    counted = trial.extras["movement"].bool() & trial.truth_mask
    if not bool(counted.any()):
        raise DataError(f"{trial.name}: no sample is in movement with a known orientation; nothing can be scored")
    return counted


def score(trial: Recording, estimate: Float[Tensor, "T 4"]) -> dict[str, Any]:
    """RMSE in degrees of an estimate (IMU to east-north-up) of every sample of a BROAD trial.

    An estimate that is not finite where it counts gives NaN: it is never left out of the mean.
    """
    counted = scored(trial)
    assert trial.truth is not None
    if estimate.shape != trial.truth.shape:
        raise DataError(f"{trial.name}: the estimate is {tuple(estimate.shape)}; wanted {tuple(trial.truth.shape)}")
    error = error_quaternion(estimate.to(trial.truth)[counted], trial.truth[counted])
    return {
        "inclination_deg": _rms_degrees(inclination_error(error)),
        "heading_deg": _rms_degrees(heading_error(error)),
        "orientation_deg": _rms_degrees(total_error(error)),
        "samples": int(counted.sum()),
    }


def _rms_degrees(angle: Tensor) -> float:
    return math.degrees(float(angle.square().mean().sqrt()))


# ---- trivial references ---------------------------------------------------------------------------------------------


def tilt_6d(trial: Recording) -> Tensor:
    """Accelerometer only, every sample for itself."""
    return tilt(_imu(trial)[1])


def tilt_9d(trial: Recording) -> Tensor:
    """Accelerometer and magnetometer, every sample for itself."""
    _, accel, mag = _imu(trial)
    return compass(accel, mag)


def gyro_6d(trial: Recording) -> Tensor:
    """The gyroscope integrated from the tilt of the first sample; no bias taken off."""
    gyro, accel, _ = _imu(trial)
    return integrate(tilt(accel[0]), gyro, 1 / trial.rate)


def gyro_9d(trial: Recording) -> Tensor:
    """The gyroscope integrated from the first sample's tilt and magnetic heading; no bias taken off."""
    gyro, accel, mag = _imu(trial)
    return integrate(compass(accel[0], mag[0]), gyro, 1 / trial.rate)


# ---- published filters ----------------------------------------------------------------------------------------------


def vqf_6d(trial: Recording) -> Tensor:
    """VQF with its default parameters, causal, magnetometer not given."""
    gyro, accel, _ = _arrays(trial)
    return torch.from_numpy(_rival("vqf").VQF(1 / trial.rate).updateBatch(gyro, accel)["quat6D"])


def vqf_9d(trial: Recording) -> Tensor:
    """VQF with its default parameters, causal; its earth frame is east-north-up."""
    return torch.from_numpy(_rival("vqf").VQF(1 / trial.rate).updateBatch(*_arrays(trial))["quat9D"])


def madgwick_6d(trial: Recording) -> Tensor:
    """Madgwick's filter with β of :data:`MADGWICK_GAIN` from the tilt of the first sample."""
    gyro, accel, _ = _arrays(trial)
    made = _rival("ahrs").filters.Madgwick(frequency=trial.rate, gain=MADGWICK_GAIN)
    return _stepped(tilt_6d(trial)[0], lambda q, t: made.updateIMU(q, gyro[t], accel[t]), len(gyro))


def madgwick_9d(trial: Recording) -> Tensor:
    """The same with magnetometer.

    Its equations put the horizontal field on the earth's x axis, so the earth frame is north-west-up: a quarter turn
    about the vertical leads to east-north-up. The class, given arrays, would start in north-east-down whatever the
    caller says, so it is stepped from the right start here.
    """
    gyro, accel, mag = _arrays(trial)
    made = _rival("ahrs").filters.Madgwick(frequency=trial.rate, gain=MADGWICK_GAIN)
    quarter = rotation.exp(torch.tensor([0.0, 0.0, math.pi / 2], dtype=torch.float64))
    start = rotation.multiply(rotation.conjugate(quarter), tilt_9d(trial)[0])
    found = _stepped(start, lambda q, t: made.updateMARG(q, gyro[t], accel[t], mag[t]), len(gyro))
    return rotation.multiply(quarter, found)


def mahony_6d(trial: Recording) -> Tensor:
    """Mahony's filter with the gains :data:`MAHONY_GAINS` from the tilt of the first sample."""
    gyro, accel, _ = _arrays(trial)
    made = _rival("ahrs").filters.Mahony(frequency=trial.rate, k_P=MAHONY_GAINS[0], k_I=MAHONY_GAINS[1])
    return _stepped(tilt_6d(trial)[0], lambda q, t: made.updateIMU(q, gyro[t], accel[t]), len(gyro))


def mahony_9d(trial: Recording) -> Tensor:
    """The same with magnetometer; this implementation puts the horizontal field on y, which is east-north-up."""
    gyro, accel, mag = _arrays(trial)
    made = _rival("ahrs").filters.Mahony(frequency=trial.rate, k_P=MAHONY_GAINS[0], k_I=MAHONY_GAINS[1])
    return _stepped(tilt_9d(trial)[0], lambda q, t: made.updateMARG(q, gyro[t], accel[t], mag[t]), len(gyro))


def _stepped(start: Tensor, step: Callable[[np.ndarray, int], np.ndarray], count: int) -> Tensor:
    path = np.empty((count, 4))
    path[0] = start.numpy()
    for t in range(1, count):
        path[t] = step(path[t - 1], t)
    return torch.from_numpy(path)


def _rival(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(
            f"the reference needs the package {package!r}, which is not here; pip install fwnkf[rivals]"
        ) from error


def _imu(trial: Recording) -> tuple[Tensor, Tensor, Tensor]:
    """Gyroscope, accelerometer, magnetometer; the filters here know no missing samples."""
    if trial.channels != broad.CHANNELS:
        raise DataError(f"{trial.name}: not a BROAD trial; its channels are {[c.name for c in trial.channels]}")
    missing = int((~trial.mask).any(-1).sum())
    if missing:
        raise DataError(f"{trial.name}: the IMU is missing at {missing} samples; these references need every one")
    return trial.observations[:, :3], trial.observations[:, 3:6], trial.observations[:, 6:]


def _arrays(trial: Recording) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    gyro, accel, mag = (np.ascontiguousarray(part.numpy()) for part in _imu(trial))
    return gyro, accel, mag


METHODS: dict[str, Method] = {
    "tilt_6d": tilt_6d,
    "gyro_6d": gyro_6d,
    "vqf_6d": vqf_6d,
    "mahony_6d": mahony_6d,
    "madgwick_6d": madgwick_6d,
    "tilt_9d": tilt_9d,
    "gyro_9d": gyro_9d,
    "vqf_9d": vqf_9d,
    "mahony_9d": mahony_9d,
    "madgwick_9d": madgwick_9d,
}
"""By name; each takes a trial and gives the quaternion from IMU to east-north-up for every sample."""


# ---- rows -----------------------------------------------------------------------------------------------------------


def broad_references(
    folder: Path | None = None, trials: Sequence[str] | None = None, methods: Sequence[str] | None = None
) -> Iterator[Row]:
    """Rows of the ladder: for each method every trial at hand, or those named, and at last ``all`` of them.

    ``folder`` is ``$FWNKF_DATA/broad`` unless given. A trial may be named by its number, ``"24"``.
    """
    recordings = [broad.read(path) for path in _chosen(folder, trials)]
    for name in METHODS if methods is None else methods:
        if name not in METHODS:
            raise ConfigError(f"no method is called {name!r}; there are: {', '.join(METHODS)}")
    for name in METHODS if methods is None else methods:
        rows: list[Row] = []
        for trial in recordings:
            begin = time.perf_counter()
            figures = score(trial, METHODS[name](trial))
            if name.endswith("_6d"):
                figures |= {"heading_deg": None, "orientation_deg": None}
            seconds = round(time.perf_counter() - begin, 2)
            rows.append({"method": name, "data": "broad", "trial": trial.name, **figures, "seconds": seconds})
            yield rows[-1]
        yield _overall(name, rows)


def _overall(name: str, rows: list[Row]) -> Row:
    """The mean of the trials' figures, each trial counting the same."""

    def mean(key: str) -> float | None:
        return None if rows[0][key] is None else sum(row[key] for row in rows) / len(rows)

    figures = {key: mean(key) for key in ("inclination_deg", "heading_deg", "orientation_deg")}
    total = {"samples": sum(row["samples"] for row in rows), "seconds": round(sum(row["seconds"] for row in rows), 2)}
    return {"method": name, "data": "broad", "trial": "all", "trials": len(rows), **figures, **total}


def _chosen(folder: Path | None, trials: Sequence[str] | None) -> list[Path]:
    place = catalogue.folder_of("broad") if folder is None else Path(folder)
    found = broad.find(place)
    if not found:
        raise DataError(f"{place}: no BROAD trial here. {catalogue.info('broad').manual}")
    if trials is None:
        return list(found.values())
    if not trials:
        raise ConfigError("no trial is named; leave trials out to take all that are here")
    chosen = []
    for wanted in trials:
        matches = [name for name in found if wanted in (name, name[:2])]
        if not matches:
            raise DataError(f"{place}: no trial {wanted!r}; there are: {', '.join(found)}")
        chosen.append(found[matches[0]])
    return chosen
