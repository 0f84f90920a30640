"""A notch that follows the vibration, as autopilots have it: peaks of a sliding FFT set the centres.

After PX4's ``gyro_fft`` and dynamic notch filters: each axis has a window of the last 512 samples, of which the two
highest peaks above 20 Hz become the centres of two notches, smoothed and updated every 64 samples; a second-order
low-pass follows. The quality of the notches and the cutoff of the low-pass are tuned for each axis on training flights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from fwnkf.shapes import Float
from tasks.dido import classical
from tasks.dido.protocol import AXES, RATE

WINDOW, HOP, PEAKS = 512, 64, 2
LOWEST, APART = 20.0, 10.0
"""Hz: where peaks are looked for, and how far they are from each other."""
SIGNIFICANT = 20.0
"""Over the median of the spectrum: lower peaks are noise and move no notch."""
SMOOTHING = 0.5
START = (35.0, 80.0)
"""Hz: centres before the first window is full."""
QUALITIES = (1.0, 2.0, 4.0, 8.0, 16.0)
CUTOFFS = (1.0, 1.5, 2.5, 4.0)
"""Of the cutoff of the axis's tuned low-pass alone."""


def track_peaks(y: Float[Tensor, "N T c"]) -> Float[Tensor, "N T c p"]:
    """Centres in Hz at every sample, from samples up to that one."""
    frames = y.unfold(1, WINDOW, HOP)  # [N, frames, c, window]
    window = torch.hann_window(WINDOW, dtype=y.dtype)
    power = torch.fft.rfft((frames - frames.mean(-1, keepdim=True)) * window).abs().square()
    hertz = torch.arange(power.shape[-1], dtype=y.dtype) * RATE / WINDOW
    power = torch.where(hertz >= LOWEST, power, 0.0)
    floor = SIGNIFICANT * power[..., hertz >= LOWEST].median(-1).values
    frequencies, significant = [], []
    for _ in range(PEAKS):
        height, place = power[..., 1:-1].max(-1)
        frequencies.append(hertz[place + 1])
        significant.append(height > floor)
        power = torch.where((hertz - frequencies[-1].unsqueeze(-1)).abs() < APART, 0.0, power)
    peaks, clear = torch.stack(frequencies, -1), torch.stack(significant, -1)
    centre = torch.tensor(START, dtype=y.dtype).expand(len(y), y.shape[-1], PEAKS)
    path = [centre.unsqueeze(1).expand(-1, WINDOW - 1, -1, -1)]
    for frame, seen in zip(peaks.unbind(1), clear.unbind(1), strict=True):
        # the highest peak belongs to the notch next to it, so that peaks of changing height do not swap places
        swap = ((centre - frame[..., :1]).abs().argmin(-1, keepdim=True) == 1).expand_as(frame)
        frame, seen = torch.where(swap, frame.flip(-1), frame), torch.where(swap, seen.flip(-1), seen)
        centre = torch.where(seen, SMOOTHING * centre + (1 - SMOOTHING) * frame, centre)
        path.append(centre.unsqueeze(1).expand(-1, HOP, -1, -1))
    return torch.cat(path, 1)[:, : y.shape[1]]


def moving_notch(y: Float[Tensor, "N T c"], centre: Float[Tensor, "N T c"], quality: float) -> Float[Tensor, "N T c"]:
    """A second-order notch whose centre changes from sample to sample; unit gain at zero frequency."""
    omega = 2 * math.pi * centre / RATE
    gain = 1 / (1 + torch.tan(omega / quality / 2))
    middle, last = -2 * gain * omega.cos(), 2 * gain - 1
    first = y[:, :1]
    above = (y - first).unbind(1)
    one = two = torch.zeros_like(above[0])
    filtered = []
    # direct form II transposed, from rest at the first sample
    for x, b, a1, a2 in zip(above, gain.unbind(1), middle.unbind(1), last.unbind(1), strict=True):
        out = b * x + one
        one, two = a1 * (x - out) + two, b * x - a2 * out
        filtered.append(out)
    return torch.stack(filtered, 1) + first


def notched(y: Float[Tensor, "N T c"], centres: Float[Tensor, "N T c p"], quality: float) -> Tensor:
    for centre in centres.unbind(-1):
        y = moving_notch(y, centre, quality)
    return y


def low_passed(y: Float[Tensor, "N T"], cutoff: float) -> Tensor:
    value = torch.tensor(min(cutoff, 195.0), dtype=torch.float64)
    return classical.apply(classical.low_pass(value, classical.delays(y.shape[1])), y)


def tune(
    y: Float[Tensor, "N T 6"], truth: Float[Tensor, "N T 6"], cutoffs: Mapping[str, float]
) -> dict[str, list[float]]:
    """Quality and cutoff of each axis with the least error on training flights; ``cutoffs`` of the low-pass alone."""
    centres = track_peaks(y)
    best: dict[str, tuple[float, list[float]]] = {axis: (math.inf, []) for axis in AXES}
    for quality in QUALITIES:
        clean = notched(y, centres, quality)
        for i, axis in enumerate(AXES):
            for factor in CUTOFFS:
                cutoff = factor * cutoffs[axis]
                error = float((low_passed(clean[..., i], cutoff) - truth[..., i]).square().mean())
                best[axis] = min(best[axis], (error, [quality, cutoff]))
    return {axis: values for axis, (_, values) in best.items()}


def estimate(tuned: Mapping[str, list[float]], y: Float[Tensor, "N T 6"]) -> Float[Tensor, "N T 6"]:
    """The tuned filters on records."""
    centres = track_peaks(y)
    by_quality = {quality: notched(y, centres, quality) for quality in {tuned[axis][0] for axis in AXES}}
    columns = [low_passed(by_quality[tuned[axis][0]][..., i], tuned[axis][1]) for i, axis in enumerate(AXES)]
    return torch.stack(columns, -1)
