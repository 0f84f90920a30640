"""What autopilots put in front of their estimators, with the settings they ship: notches and low-passes over a gyro.

Betaflight (RPM notches, dynamic notch, low-pass of first order), ArduPilot (harmonic notch, low-pass of second order)
and PX4 (notches at rotor speeds, low-pass of second order), to compare a filter with that models the lines. The first
sample is taken for the past.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from .notch import Array, low_pass

Autopilot = Literal["Betaflight", "ArduPilot", "PX4"]
ORDERS: dict[Autopilot, int] = {"Betaflight": 3, "ArduPilot": 2, "PX4": 3}
"""Harmonics of each rotor that have a notch."""
CUTOFF: dict[Autopilot, float] = {"Betaflight": 250.0, "ArduPilot": 20.0, "PX4": 40.0}
"""Of the low-pass behind the notches, in Hz: of first order in Betaflight, of second elsewhere."""
LOWEST_ROTOR, FADE, ROTOR_QUALITY, ROTOR_LAG = 100.0, 50.0, 5.0, 150.0
"""Betaflight's rotor notches: their lowest centre and the band above it over which they fade in, in Hz, their quality,
and the low-pass of rotor speeds in Hz."""
CENTRE, BANDWIDTH, ATTENUATION = 80.0, 40.0, 40.0
"""ArduPilot's harmonic notch: centre and bandwidth in Hz, whose ratio every notch has, and its depth in dB."""
NOTCH_WIDTH = 15.0
"""PX4's notch at half power, in Hz."""
POINTS, NOTCHES, LOWEST, HIGHEST, QUALITY, SMOOTH = 72, 3, 100.0, 600.0, 3.0, 4.0
"""Betaflight's dynamic notch: samples of its transform, notches, their band in Hz, quality, and smoothing in Hz."""
NYQUIST_SHARE = 0.48
"""Highest centre of a notch, as a share of the sampling rate."""


def rotor_notches(values: Array, speeds: Array, step: float, autopilot: Autopilot) -> Array:
    """What an autopilot makes of a gyro where rotor speeds are known: a notch for each rotor and harmonic, a low-pass.

    Args:
        values: samples ``[T, channels]``.
        speeds: of each rotor in Hz, ``[T, rotors]``.
        step: sampling interval in seconds.
        autopilot: whose filters.

    Returns:
        The filtered samples.

    >>> time = 1e-3 * np.arange(2000)
    >>> rotor = np.sin(2 * np.pi * 200 * time)[:, None]
    >>> left = rotor_notches(rotor, np.full((2000, 1), 200.0), 1e-3, "PX4")
    >>> bool(np.abs(left[1000:]).max() < 1e-6)
    True
    """
    if autopilot == "Betaflight":
        speeds = _lag(speeds, ROTOR_LAG, step)
    out = values
    for rotor in range(speeds.shape[1]):
        for order in range(1, ORDERS[autopilot] + 1):
            out = moving_notch(out, order * speeds[:, rotor], step, autopilot)
    return _lag(out, CUTOFF[autopilot], step) if autopilot == "Betaflight" else _smooth(out, autopilot, step)


def notches_without_speeds(values: Array, step: float, autopilot: Autopilot) -> Array:
    """What an autopilot makes of a gyro where no rotor speed is known.

    Betaflight has a low-pass and its dynamic notch, ArduPilot its notch at 80 Hz and twice that; PX4 ships no notch.

    Args:
        values: samples ``[T, channels]``.
        step: sampling interval in seconds.
        autopilot: whose filters.

    Returns:
        The filtered samples.

    >>> float(notches_without_speeds(np.ones((100, 3)), 1e-3, "ArduPilot").max().round(9))
    1.0
    """
    if autopilot == "Betaflight":
        return dynamic_notch(_lag(values, CUTOFF[autopilot], step), step)
    if autopilot == "ArduPilot":
        for order in (1, 2):
            values = moving_notch(values, np.full(len(values), order * CENTRE), step, autopilot)
    return _smooth(values, autopilot, step)


def moving_notch(values: Array, hz: Array, step: float, autopilot: Autopilot) -> Array:
    """One notch whose centre moves, as an autopilot computes it.

    Args:
        values: samples ``[T, channels]``.
        hz: centre of the notch at each sample, ``[T]``.
        step: sampling interval in seconds.
        autopilot: whose notch.

    Returns:
        The filtered samples.

    >>> time = 1e-3 * np.arange(2000)
    >>> tone = np.sin(2 * np.pi * 200 * time)[:, None]
    >>> bool(np.abs(moving_notch(tone, np.full(2000, 200.0), 1e-3, "Betaflight")[1000:]).max() < 1e-6)
    True
    """
    if autopilot == "Betaflight":
        return _state_variable_notch(values, hz, step)
    w = 2 * np.pi * np.clip(hz, 1.0, NYQUIST_SHARE / step) * step
    if autopilot == "ArduPilot":
        octaves = 2 * math.log2(CENTRE / (CENTRE - BANDWIDTH / 2))
        quality, depth = math.sqrt(2**octaves) / (2**octaves - 1), 10 ** (-ATTENUATION / 40)
        alpha = np.sin(w) / (2 * quality)
        b = np.stack((1 + alpha * depth**2, -2 * np.cos(w), 1 - alpha * depth**2)) / (1 + alpha)
        a = np.stack((-2 * np.cos(w), 1 - alpha)) / (1 + alpha)
    else:
        width, beta = math.tan(math.pi * NOTCH_WIDTH * step), -np.cos(w)
        b = np.stack((np.ones_like(w), 2 * beta, np.ones_like(w))) / (1 + width)
        a = np.stack((2 * beta, np.full_like(w, 1 - width))) / (1 + width)
    return _biquad(values, b, a)


def dynamic_notch(values: Array, step: float) -> Array:
    """Betaflight's dynamic notch: three notches of each channel at the largest peaks of a short sliding transform.

    Args:
        values: samples ``[T, channels]``.
        step: sampling interval in seconds.

    Returns:
        The filtered samples.

    >>> float(dynamic_notch(np.ones((100, 3)), 1e-3).max().round(9))
    1.0
    """
    out = values.copy()
    for channel in range(values.shape[1]):
        for hz in dynamic_peaks(values[:, channel], step).T:
            w = 2 * np.pi * hz * step
            alpha = np.sin(w) / (2 * QUALITY)
            ones = np.ones_like(w)
            b = np.stack((ones, -2 * np.cos(w), ones)) / (1 + alpha)
            a = np.stack((-2 * np.cos(w), 1 - alpha)) / (1 + alpha)
            out[:, channel] = _biquad(out[:, channel : channel + 1], b, a)[:, 0]
    return out


def dynamic_peaks(values: Array, step: float) -> Array:
    """Centres of Betaflight's dynamic notches.

    Peaks are local maxima above twice the mean power of the other bins, between two of which a parabola interpolates;
    a centre follows its peak with a low-pass of 4 Hz, up to ten times faster for a strong one.

    Args:
        values: samples ``[T]``.
        step: sampling interval in seconds.

    Returns:
        Centres in Hz at each sample, ``[T, 3]``.

    >>> float(dynamic_peaks(np.sin(2 * np.pi * 237 * 1e-3 * np.arange(2000)), 1e-3)[-1, 0].round())
    237.0
    """
    padded = np.concatenate((np.full(POINTS - 1, values[0]), values))
    frames = np.lib.stride_tricks.sliding_window_view(padded, POINTS)
    power = np.abs(np.fft.rfft(frames * np.hanning(POINTS), axis=1))
    width, highest = 1 / (POINTS * step), min(HIGHEST, NYQUIST_SHARE / step)
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


def _state_variable_notch(values: Array, hz: Array, step: float) -> Array:
    """Betaflight's form, which stays stable while its centre moves; it fades out towards its lowest centre."""
    f = np.clip(hz, LOWEST_ROTOR, NYQUIST_SHARE / step)
    share = np.clip((f - LOWEST_ROTOR) / FADE, 0, 1)
    g, q = np.tan(np.pi * f * step), 1 / ROTOR_QUALITY
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


def _biquad(values: Array, b: Array, a: Array) -> Array:
    """A section whose coefficients ``[3, T]`` and ``[2, T]`` change with time, in direct form as the autopilots'."""
    out = np.empty_like(values)
    x1 = x2 = y1 = y2 = values[0]
    for t, value in enumerate(values):
        out[t] = b[0, t] * value + b[1, t] * x1 + b[2, t] * x2 - a[0, t] * y1 - a[1, t] * y2
        x2, x1, y2, y1 = x1, value, y1, out[t]
    return out


def _lag(values: Array, cutoff: float, step: float) -> Array:
    """A low-pass of first order."""
    share, out = -math.expm1(-2 * np.pi * cutoff * step), np.empty_like(values)
    level = values[0]
    for t, value in enumerate(values):
        level = level + share * (value - level)
        out[t] = level
    return out


def _smooth(values: Array, autopilot: Autopilot, step: float) -> Array:
    return low_pass(CUTOFF[autopilot], 1 / step).apply(values)
