"""Notches and low-passes of autopilots with their shipped settings, over the samples of a gyro."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import butter, lfilter

Array = NDArray[Any]
POINTS, NOTCHES, LOWEST, HIGHEST, QUALITY, SMOOTH = 72, 3, 100.0, 600.0, 3.0, 4.0
"""Betaflight's dynamic notch: samples of its transform, notches, their band in Hz, Q, and smoothing in Hz."""


def turning_notch(values: Array, hz: Array, step: float, kind: str) -> Array:
    """One notch that follows ``hz`` ``[T]``, over ``values`` ``[T, channels]``, as an autopilot computes it."""
    if kind == "Betaflight":  # state-variable form, crossfaded near its lowest frequency
        f = np.clip(hz, 100.0, 0.48 / step)
        share = np.clip((f - 100.0) / 50.0, 0, 1)
        g, q = np.tan(np.pi * f * step), 1 / 5.0
        a1 = 1 / (1 + g * (g + q))
        a2 = g * a1
        s1 = np.zeros(values.shape[1])
        s2, out = values[0].copy(), np.empty_like(values)
        for t, value in enumerate(values):
            v3 = value - s2
            v1 = a1[t] * s1 + a2[t] * v3
            v2 = s2 + a2[t] * s1 + g[t] * a2[t] * v3
            s1, s2 = 2 * v1 - s1, 2 * v2 - s2
            out[t] = value - share[t] * q * v1
        return out
    f = np.clip(hz, 1.0, 0.48 / step)
    w = 2 * np.pi * f * step
    if kind == "ArduPilot":
        octaves = 2 * math.log2(80.0 / (80.0 - 20.0))
        q, depth = math.sqrt(2**octaves) / (2**octaves - 1), 10 ** (-40.0 / 40)
        alpha = np.sin(w) / (2 * q)
        b = np.stack((1 + alpha * depth**2, -2 * np.cos(w), 1 - alpha * depth**2)) / (1 + alpha)
        a = np.stack((-2 * np.cos(w), 1 - alpha)) / (1 + alpha)
    else:
        alpha, beta = math.tan(math.pi * 15.0 * step), -np.cos(w)
        b = np.stack((np.ones_like(w), 2 * beta, np.ones_like(w))) / (1 + alpha)
        a = np.stack((2 * beta, np.full_like(w, 1 - alpha))) / (1 + alpha)
    return turning(values, b, a)


def turning(values: Array, b: Array, a: Array) -> Array:
    """Values ``[T, channels]`` behind a biquad whose coefficients ``[3, T]`` and ``[2, T]`` change with time."""
    out = np.empty_like(values)
    x1 = x2 = y1 = y2 = values[0]
    for t, value in enumerate(values):
        out[t] = b[0, t] * value + b[1, t] * x1 + b[2, t] * x2 - a[0, t] * y1 - a[1, t] * y2
        x2, x1, y2, y1 = x1, value, y1, out[t]
    return out


def autopilots(values: Array, speeds: Array, step: float) -> dict[str, Array]:
    """Values ``[T, channels]`` behind the rotor notches and the low-pass of three autopilots, as shipped."""
    results = {}
    smooth = -math.expm1(-2 * np.pi * 150.0 * step)
    followed = lfilter([smooth], [1, smooth - 1], speeds - speeds[0], axis=0) + speeds[0]
    for kind, orders, low in (("Betaflight", 3, 250.0), ("ArduPilot", 2, 20.0), ("PX4", 3, 40.0)):
        out = values
        for rotor in range(speeds.shape[1]):
            for order in range(1, orders + 1):
                out = turning_notch(out, order * (followed if kind == "Betaflight" else speeds)[:, rotor], step, kind)
        if kind == "Betaflight":
            share = -math.expm1(-2 * np.pi * low * step)
            out = lfilter([share], [1, share - 1], out - out[0], axis=0) + out[0]
        else:
            b, a = butter(2, low, fs=1 / step)
            out = lfilter(b, a, out - out[0], axis=0) + out[0]
        results[f"{kind}: rotor notches, low-pass {low:g} Hz"] = out
    return results


def without_speeds(values: Array, step: float) -> dict[str, Array]:
    """Values ``[T, channels]`` behind what the autopilots have where no rotor speed is known, as shipped.

    Betaflight: low-pass and dynamic notch. ArduPilot: its notch at 80 Hz and twice that. PX4 ships no notch.
    """
    share = -math.expm1(-2 * np.pi * 250.0 * step)
    low = lfilter([share], [1, share - 1], values - values[0], axis=0) + values[0]
    fixed = values
    for hz in (80.0, 160.0):
        fixed = turning_notch(fixed, np.full(len(values), hz), step, "ArduPilot")
    slow = {}
    for cutoff, given in ((20.0, fixed), (40.0, values)):
        b, a = butter(2, cutoff, fs=1 / step)
        slow[cutoff] = lfilter(b, a, given - given[0], axis=0) + given[0]
    return {
        "Betaflight: low-pass 250 Hz, dynamic notch": dynamic_notch(low, step),
        "ArduPilot: notch at 80 Hz, low-pass 20 Hz": slow[20.0],
        "PX4: low-pass 40 Hz": slow[40.0],
    }


def dynamic_notch(values: Array, step: float) -> Array:
    """Betaflight's dynamic notch: three notches of each channel at the largest peaks of a short sliding transform."""
    out = values.copy()
    for channel in range(values.shape[1]):
        for hz in dynamic_peaks(values[:, channel], step).T:
            w = 2 * np.pi * hz * step
            alpha = np.sin(w) / (2 * QUALITY)
            ones = np.ones_like(w)
            b = np.stack((ones, -2 * np.cos(w), ones)) / (1 + alpha)
            a = np.stack((-2 * np.cos(w), 1 - alpha)) / (1 + alpha)
            out[:, channel] = turning(out[:, channel : channel + 1], b, a)[:, 0]
    return out


def dynamic_peaks(values: Array, step: float) -> Array:
    """Centres of the notches in Hz at each sample, ``[T, NOTCHES]``.

    Peaks are local maxima above twice the mean power of the other bins, between two of which a parabola interpolates;
    a centre follows its peak with a low-pass of 4 Hz, up to ten times faster for a strong one.
    """
    padded = np.concatenate((np.full(POINTS - 1, values[0]), values))
    frames = np.lib.stride_tricks.sliding_window_view(padded, POINTS)
    power = np.abs(np.fft.rfft(frames * np.hanning(POINTS), axis=1))
    width, highest = 1 / (POINTS * step), min(HIGHEST, 0.48 / step)
    first, last = max(1, round(LOWEST / width)), min(power.shape[1] - 2, round(highest / width))
    centres = np.linspace(LOWEST, highest, NOTCHES + 2)[1:-1]
    found = np.empty((len(values), NOTCHES))
    for t, row in enumerate(power):
        inside = np.arange(first, last + 1)
        peaks = inside[(row[inside] > row[inside - 1]) & (row[inside] >= row[inside + 1])]
        peaks = np.sort(peaks[np.argsort(row[peaks])[::-1][:NOTCHES]])
        floor = max((row[inside].sum() - row[peaks].sum()) / max(len(inside) - len(peaks), 1), 1e-12)
        for number, k in enumerate(peaks):
            if row[k] > 2 * floor:
                bend = row[k - 1] - 2 * row[k] + row[k + 1]
                offset = 0.5 * (row[k - 1] - row[k + 1]) / bend if bend else 0.0
                speed = SMOOTH * np.clip(row[k] / (2 * floor), 1, 10)
                wanted = np.clip((k + offset) * width, LOWEST, highest)
                centres[number] += -math.expm1(-2 * np.pi * speed * step) * (wanted - centres[number])
        found[t] = centres
    return found
