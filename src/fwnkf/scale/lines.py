"""Drift and vibration of each device from normalised innovations, for many devices at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

FRAME = 128
"""Steps of a periodogram; a shorter segment is filled up with zeros."""
LOWEST = 3
"""First bin that counts as a line: below it are drift and motion."""
SHORTEST = 16
"""Steps from which a spectrum is computed."""


class Lines(NamedTuple):
    """Of each segment: the mean of its innovations, and the strongest line of their spectrum."""

    drift: NDArray[np.float64]
    """Mean of the innovations of the channel with the largest, in stated standard deviations; 0 without drift."""
    drift_channel: NDArray[np.int64]
    peak: NDArray[np.float64]
    """Cycles per step."""
    ratio: NDArray[np.float64]
    """Power at the line over the median of the spectrum."""
    peak_channel: NDArray[np.int64]

    @staticmethod
    def empty(count: int) -> Lines:
        """Room for ``count`` segments."""
        numbers, places = np.full(count, np.nan), np.zeros(count, np.int64)
        return Lines(numbers.copy(), places.copy(), numbers.copy(), numbers.copy(), places.copy())


def innovation_lines(white: NDArray[Any], length: NDArray[np.int64]) -> Lines:
    """From innovations ``[B, T, m]`` in stated deviations, zero where nothing was measured, and their lengths.

    >>> generator = np.random.default_rng(0)
    >>> white = generator.normal(size=(2, 1000, 1))
    >>> white[1, :, 0] += 2 * np.sin(2 * np.pi * 0.2 * np.arange(1000))
    >>> lines = innovation_lines(white, np.array([1000, 1000]))
    >>> round(float(lines.peak[1]), 2), bool(lines.ratio[1] > 10 * lines.ratio[0])
    (0.2, True)
    """
    batch, steps, channels = white.shape
    found = Lines.empty(batch)
    if channels == 0 or steps == 0:
        return found
    values = torch.from_numpy(white)
    inside = torch.from_numpy(np.arange(steps) < length[:, None])
    values = torch.where(inside.unsqueeze(-1), values, 0.0)
    mean = (values.sum(1) / torch.from_numpy(length).unsqueeze(-1)).double()
    largest = mean.abs().argmax(1)
    found.drift[:], found.drift_channel[:] = mean.gather(1, largest[:, None])[:, 0].numpy(), largest.numpy()
    frames = -(-steps // FRAME)
    centred = values - mean.unsqueeze(1).to(values) * inside.unsqueeze(-1)
    values = torch.nn.functional.pad(centred, (0, 0, 0, frames * FRAME - steps))
    window = torch.hann_window(FRAME, periodic=True, dtype=values.dtype)
    spectra = torch.fft.rfft(values.reshape(batch, frames, FRAME, channels) * window[:, None], dim=2)
    power = spectra.abs().square().sum(1)[:, LOWEST:-1]
    floor = power.median(1, keepdim=True).values
    ratio = torch.where(floor > 0, power / floor.clamp_min(1e-30), 0.0)
    best, place = ratio.flatten(1).max(1)
    enough = (length >= SHORTEST) & (best.numpy() > 0)
    found.peak[enough] = ((place // channels + LOWEST) / FRAME).numpy()[enough]
    found.ratio[enough] = best.double().numpy()[enough]
    found.peak_channel[:] = (place % channels).numpy()
    return found
