"""The filter of rotor lines told the speeds, in numpy, and a search for its constants by likelihood.

A step costs a hundredth of that of an FW-NKF with ``Orders`` at batch 1, which is then run with what was found.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
BAND = 60.0
"""Hz, the band of the motion that the search starts from."""
POWER, WIDTH = (6.0, 2.0, 1.0), (0.6, 10.0, 30.0)
"""Logarithm of the power over that of the white noise, and width in Hz, of the first orders; also to start from."""
SWEEPS, FIRST_STEP, BAND_STEP = 4, 2.0, 0.3
"""Rounds over all constants; the first change of each logarithm, which is halved where neither direction helps."""


class Constants(NamedTuple):
    """Of each of ``A`` axes: logarithms of the power of each order and of its width, and the band of the motion."""

    power: Array
    width: Array
    band: Array


class Innovations(NamedTuple):
    """Innovations and their variances, ``[A, T]``."""

    value: Array
    variance: Array


def motion(step: float, band: Array) -> Array:
    """Covariance ``[A, 2, 2]`` of an integrated random walk that unit white noise lets pass up to ``band`` Hz."""
    unit = np.array([[step**3 / 3, step**2 / 2], [step**2 / 2, step]])
    return np.asarray(unit * ((2 * math.pi * band) ** 4 * step)[:, None, None])


def innovations(
    y: Array, hz: Array, step: float, orders: tuple[float, ...], given: Constants, time: float
) -> Innovations:
    """Filter each axis ``[A, T]`` by itself, told the speeds ``[T, rotors]``; ``time`` is that of the level."""
    axes, steps = y.shape
    count = hz.shape[1] * len(orders)
    size, at = 2 + 2 * count, 2 + 2 * np.arange(count)
    power, width = (np.tile(item, (1, hz.shape[1])) for item in (given.power, given.width))
    radius = np.exp(-math.pi * step * np.exp(width))
    H = np.zeros((axes, size))
    H[:, 0] = 1.0
    H[:, at] = np.exp(power / 2)
    F, Q = np.zeros((axes, size, size)), np.zeros((axes, size, size))
    F[:, 0, 0] = F[:, 1, 1] = 1.0
    F[:, 0, 1] = step
    Q[:, :2, :2] = motion(step, given.band)
    Q[:, at, at] = Q[:, at + 1, at + 1] = 1 - radius**2
    angle = 2 * math.pi * step * (hz[:, :, None] * np.array(orders)).reshape(steps, -1)
    cosine, sine = np.cos(angle), np.sin(angle)
    x, P = np.zeros((axes, size)), np.broadcast_to(np.eye(size), (axes, size, size)).copy()
    P[:, 1, 1] = 1e4
    level, learn = np.ones(axes), -math.expm1(-step / time)
    free = (2 - learn) / learn
    values, variances = np.empty(y.shape), np.empty(y.shape)
    for t in range(steps):
        F[:, at, at] = F[:, at + 1, at + 1] = radius * cosine[t]
        F[:, at + 1, at] = radius * sine[t]
        F[:, at, at + 1] = -F[:, at + 1, at]
        x = (F @ x[:, :, None])[:, :, 0]
        P = F @ P @ F.transpose(0, 2, 1) + Q
        cross = (P @ H[:, :, None])[:, :, 0]
        S = (cross * H).sum(1) + 1.0
        nu = y[:, t] - (x * H).sum(1)
        x = x + cross * (nu / S)[:, None]
        P = P - cross[:, :, None] * (cross / S[:, None])[:, None, :]
        values[:, t], variances[:, t] = nu, level * S
        level = level + learn * (nu**2 / S * free / (free - 2) - level)
    return Innovations(values, variances)


def density(found: Innovations, after: int) -> Array:
    """Negative log-likelihood of a sample of each axis, after so many of them."""
    value, variance = found.value[:, after:], found.variance[:, after:]
    return np.asarray(0.5 * (np.log(2 * np.pi * variance) + value**2 / variance).mean(-1))


def search(y: Array, hz: Array, step: float, orders: tuple[float, ...], time: float, settle: int) -> Constants:
    """Constants of each axis by likelihood: one after the other up or down, by less where neither helps."""
    count = len(orders)
    start = np.concatenate((POWER[:count], np.log(WIDTH[:count]), (math.log(BAND),)))
    best, change = np.tile(start, (len(y), 1)), np.full((len(y), 2 * count + 1), FIRST_STEP)
    change[:, -1] = BAND_STEP

    def score(candidates: Array) -> Array:
        flat = candidates.reshape(-1, candidates.shape[-1])
        repeated = np.tile(y, (len(candidates), 1))
        return density(innovations(repeated, hz, step, orders, unpack(flat), time), settle).reshape(-1, len(y))

    def unpack(flat: Array) -> Constants:
        return Constants(flat[:, :count], flat[:, count:-1], np.exp(flat[:, -1]))

    reached, rows = score(best[None])[0], np.arange(len(y))
    for _ in range(SWEEPS):
        for column in range(best.shape[1]):
            moved = np.stack((best, best, best))
            moved[1, :, column] += change[:, column]
            moved[2, :, column] -= change[:, column]
            scores = np.concatenate((reached[None], score(moved[1:])))
            chosen = scores.argmin(0)
            best, reached = moved[chosen, rows], scores[chosen, rows]
            change[chosen == 0, column] /= 2
    return unpack(best)
