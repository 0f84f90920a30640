"""A navigation filter beside others: fixes that it did not see, the truth, and an autopilot's own estimate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ..core import rotation
from ..metrics.consistency import nees
from .estimate import Estimate
from .recording import NavigationRecording, Pose
from .timeline import Array

GNSS = ("gnss_position", "gnss_velocity")


def alternate(begin: float, end: float, length: float = 10.0) -> list[tuple[float, float]]:
    """Every second window of a length, the first of which is seen.

    >>> alternate(0.0, 45.0)
    [(10.0, 20.0), (30.0, 40.0)]
    """
    starts = np.arange(begin + length, end - length + 1e-9, 2 * length)
    return [(float(start), float(start + length)) for start in starts]


@dataclass(frozen=True)
class Hidden:
    """Errors of predicted positions at fixes that were hidden, in windows."""

    error: Array
    """North, east, down (m), one for each hidden fix."""
    since: Array
    """Seconds since the last fix that was seen."""
    window: Array
    """The number of the window that a fix is in."""

    def rms(self, axes: slice = slice(0, 3)) -> float:
        """Root mean square of the length of the error."""
        return float(np.sqrt((self.error[:, axes] ** 2).sum(1).mean()))

    def by_window(self, axes: slice = slice(0, 3)) -> Array:
        """Mean squared error of each window, for paired comparisons."""
        squares = (self.error[:, axes] ** 2).sum(1)
        return np.array([squares[self.window == number].mean() for number in np.unique(self.window)])


def hidden_errors(recording: NavigationRecording, found: Estimate, windows: list[tuple[float, float]]) -> Hidden:
    """The difference between hidden fixes and the estimate of a run that did not see them.

    Args:
        recording: with all fixes.
        found: the run without those in the windows.
        windows: when fixes were hidden.

    Returns:
        The errors.
    """
    fixes = recording.sensors["gnss_position"]
    errors, since, number = [], [], []
    for count, (begin, end) in enumerate(windows):
        part = fixes.between(begin, end)
        good = np.isfinite(part.values).all(1) & (part.measured <= found.time[-1])
        errors.append(part.values[good] - interpolated(found.time, found.part("position"), part.measured[good]))
        since.append(part.measured[good] - begin)
        number.append(np.full(int(good.sum()), count))
    return Hidden(np.concatenate(errors), np.concatenate(since), np.concatenate(number))


def interpolated(time: Array, values: Array, wanted: Array) -> Array:
    """Each column by straight lines."""
    return np.stack([np.interp(wanted, time, column) for column in values.T], -1)


def turns(pose: Pose, time: Array, orientation: Array) -> Array:
    """Orientations relative to those of a pose at the same times (rad, body frame)."""
    assert pose.orientation is not None
    place = np.clip(np.searchsorted(pose.time, time), 1, len(pose.time) - 1)
    before, after = (torch.from_numpy(pose.orientation[rows]) for rows in (place - 1, place))
    share = torch.from_numpy((time - pose.time[place - 1]) / np.maximum(pose.time[place] - pose.time[place - 1], 1e-9))
    step = rotation.log(rotation.multiply(rotation.conjugate(before), after))
    there = rotation.multiply(before, rotation.exp(share[:, None] * step))
    mine = torch.from_numpy(np.ascontiguousarray(orientation))
    return rotation.log(rotation.multiply(rotation.conjugate(there), mine)).numpy()


def against(found: Estimate, pose: Pose) -> dict[str, tuple[Array, Array]]:
    """Errors against a trajectory: for each part that it has, times and differences."""
    inside = (found.time >= pose.time[0]) & (found.time <= pose.time[-1])
    time = found.time[inside]
    result = {}
    for name in ("position", "velocity"):
        other = getattr(pose, name)
        if other is not None:
            result[name] = time, found.part(name)[inside] - interpolated(pose.time, other, time)
    if pose.orientation is not None:
        result["orientation"] = time, turns(pose, time, found.part("orientation")[inside])
    return result


def consistency(found: Estimate, name: str, time: Array, error: Array) -> float:
    """Normalised estimation error squared of a part, divided by its dimensions: one where the covariance is right."""
    cov = found.covariance(name)[np.searchsorted(found.time, time)]
    return float(nees(torch.from_numpy(error), torch.from_numpy(cov)).mean())
