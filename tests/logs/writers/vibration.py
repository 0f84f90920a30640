"""Vibration and clipping as autopilots log them."""

from __future__ import annotations

import numpy as np

from fwnkf.data.flights import Flight


def vibration(flight: Flight, seconds: float = 0.5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times, standard deviations of the acceleration (m/s², per axis) and counts of clipped samples, twice a second."""
    order = np.argsort(flight.received, kind="stable")
    time = flight.received[order]
    bins = np.floor((time - time[0]) / seconds).astype(int)
    ends = np.append(np.flatnonzero(np.diff(bins)) + 1, len(time))
    starts = np.concatenate([[0], ends[:-1]])
    levels = np.array([flight.accel[order[a:b]].std(0) for a, b in zip(starts, ends, strict=True)])
    return time[ends - 1], levels, flight.clipped[order][ends - 1]
