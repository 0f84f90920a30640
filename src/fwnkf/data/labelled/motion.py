"""Motion of a simulated vehicle: attitude, rates, specific force and rotor speeds that agree with each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..flights import GRAVITY, smooth
from .craft import Array, Craft, Generator

EASE = 1.2
"""Seconds of a take-off and of a landing."""
SPREAD = {"steady": 0.008, "cruise": 0.03, "agile": 0.06}
"""Slow relative changes of the speed of all rotors, and half of them for each, by style."""


@dataclass(frozen=True, eq=False)
class Motion:
    """At each inertial sample, in the axes of the vehicle's logs."""

    time: Array
    air: NDArray[np.bool_]
    """Whether the vehicle flies."""
    begin: float
    """Seconds of the take-off and of the touchdown, or of the ends of the log."""
    end: float
    rotation: Array
    """From the body to the world, ``[samples, 3, 3]``."""
    angles: Array
    """Roll, pitch and yaw (rad) of the same."""
    rates: Array
    """rad/s"""
    force: Array
    """Specific force, m/s²"""
    velocity: Array
    position: Array
    speed: Array
    """Rotations per second, ``[samples, rotors]``"""
    command: Array
    """From 0 to 1, ``[samples, rotors]``; speeds follow commands with a lag and a falling voltage."""
    current: Array
    """A"""


def fly(craft: Craft, generator: Generator) -> Motion:
    """A flight."""
    count = craft.samples
    time = np.arange(count) / craft.rate
    begin = 0.0 if craft.start == "air" else craft.seconds * float(generator.uniform(0.12, 0.22))
    end = craft.seconds * float(generator.uniform(0.84, 0.93)) if craft.landing else craft.seconds
    rising = _step((time - begin) / EASE) if begin else np.ones(count)
    envelope = rising * (_step((end - time) / EASE) if craft.landing else 1.0)
    air = (time >= begin) & (time <= end)

    velocity = _wave(time, generator, (0.05, 0.3), 0.6 if craft.style == "steady" else 1.2) * envelope[:, None]
    throttle = 1 + SPREAD[craft.style] * smooth(count, craft.rate, 0.08, generator)
    climb = np.zeros(count)
    if craft.style == "agile":
        climb = _punches(time, begin, end, generator) * envelope
    velocity[:, 2] += np.cumsum(climb - climb.mean()) / craft.rate * envelope
    acceleration = np.gradient(velocity, 1 / craft.rate, axis=0)

    yaw = 0.6 * _wave(time, generator, (0.02, 0.1), 1.0)[:, 0] * envelope
    heading = np.stack([np.cos(yaw), np.sin(yaw)], -1)
    forward = (acceleration[:, :2] * heading).sum(1)
    left = acceleration[:, 1] * heading[:, 0] - acceleration[:, 0] * heading[:, 1]
    upward = GRAVITY + acceleration[:, 2]
    tilts = 0.01 * craft.gusts * np.stack([smooth(count, craft.rate, 1.5, generator) for _ in range(3)], -1)
    gusts = tilts * envelope[:, None]
    roll = -np.arctan2(left, upward) * envelope + gusts[:, 0]
    pitch = np.arctan2(forward, upward) * envelope + gusts[:, 1]
    for moment in np.linspace(begin + 2.5, end - 2.5, craft.flips + 2)[1:-1]:
        roll = roll + 2 * np.pi * _step((time - moment) / float(generator.uniform(0.8, 1.1)))
    ground = np.clip(1 - envelope, 0, 1)[:, None]
    shaking = np.zeros((count, 3))
    if craft.start == "hand":
        carried = ground * _step((begin - 0.8 - time) / 1.0)[:, None]
        angles = _wave(time, generator, (0.2, 0.9), 0.5) * carried
        roll, pitch, yaw = roll + angles[:, 0], pitch + angles[:, 1], yaw + angles[:, 2]
        shaking = 0.8 * np.stack([smooth(count, craft.rate, 3.0, generator) for _ in range(3)], -1) * carried
    elif craft.start == "taxi":
        rolling = ground * _step((begin - 0.3 - time) / 0.6)[:, None]
        shaking = np.stack([smooth(count, craft.rate, 12.0, generator) for _ in range(3)], -1) * rolling
        shaking *= np.array([0.5, 0.5, 1.2])
    angles = np.stack([roll, pitch, yaw + gusts[:, 2]], -1)
    rotation = _rotation(*angles.T)
    turn = np.einsum("tij,tik->tjk", rotation[:-1], rotation[1:])
    rates = np.stack([turn[:, 2, 1] - turn[:, 1, 2], turn[:, 0, 2] - turn[:, 2, 0], turn[:, 1, 0] - turn[:, 0, 1]], -1)
    rates = np.concatenate((rates, rates[-1:])) * craft.rate / 2
    force = np.einsum("tij,ti->tj", rotation, acceleration + np.array([0, 0, GRAVITY])) + shaking
    force += 0.15 * craft.gusts * _turbulence(count, craft.rate, generator) * envelope[:, None]
    rates += 0.02 * craft.gusts * _turbulence(count, craft.rate, generator, turns=True) * envelope[:, None]
    if craft.acrobatic:
        force[:, 2] = np.clip(force[:, 2] + GRAVITY * _load(time, generator) * envelope, -5.0, 45.0)
    speed, command = _rotors(craft, time, begin, end, force[:, 2], throttle, generator)
    axes = np.array([1.0, -1.0, -1.0]) if craft.down else np.ones(3)
    return Motion(
        time, air, begin, end, axes[:, None] * rotation * axes, axes * angles, axes * rates, axes * force,
        axes * velocity, axes * np.cumsum(velocity, axis=0) / craft.rate, speed, command,
        0.5 + 18.0 * ((speed / craft.hover) ** 3).mean(1),
    )  # fmt: skip


def _step(time: Array) -> Array:
    """From 0 to 1 while the argument goes from 0 to 1, with two continuous derivatives."""
    t = np.clip(time, 0, 1)
    return t**3 * (10 + t * (6 * t - 15))


def _wave(time: Array, generator: Generator, band: tuple[float, float], size: float) -> Array:
    """Sums of slow sines (Hz) in three axes with this standard deviation."""
    frequency = generator.uniform(*band, size=(6, 3))
    weight = generator.uniform(0.4, 1.0, size=(6, 3))
    weight *= size / np.sqrt((weight**2).sum(0) / 2)
    phase = generator.random((6, 3))
    return np.stack(
        [(weight[:, k] * np.sin(2 * np.pi * (time[:, None] * frequency[:, k] + phase[:, k]))).sum(1) for k in range(3)],
        -1,
    )


def _turbulence(count: int, rate: float, generator: Generator, *, turns: bool = False) -> Array:
    """Three axes of noise whose power falls with the 5/3rd power of the frequency above 1 Hz; unit variance.

    ``turns`` are rates that are too fast to be seen in an attitude: above 3 Hz alone, and falling more steeply.
    """
    frequency = np.fft.rfftfreq(count, 1 / rate)
    shape = 1 / (1 + frequency**2) ** (5 / 12)
    if turns:
        shape = shape * (frequency > 3) / np.maximum(frequency, 1.0)
    noise = np.fft.irfft(np.fft.rfft(generator.normal(size=(3, count))) * shape, count)
    result: Array = (noise / noise.std(1, keepdims=True)).T
    return result


def _punches(time: Array, begin: float, end: float, generator: Generator) -> Array:
    """Vertical acceleration (m/s²) of short bursts of throttle, and of the falls after them."""
    total = np.zeros(len(time))
    for _ in range(int(generator.integers(2, 5))):
        start, length = generator.uniform(begin + 1.5, end - 3), generator.uniform(0.4, 1.0)
        size = generator.uniform(3, 8)
        up = _step((time - start) / 0.15) * _step((start + length - time) / 0.15)
        fall = _step((time - start - length - 0.2) / 0.2) * _step((start + 2 * length + 0.6 - time) / 0.2)
        total += size * up - 0.5 * size * fall
    return np.clip(total, -6.0, 10.0)


def _load(time: Array, generator: Generator) -> Array:
    """Load (g) beyond that of level flight, of turns and falls of a second or two."""
    total, moment = np.zeros(len(time)), float(generator.uniform(0.5, 2))
    while moment < time[-1]:
        length = float(generator.uniform(0.6, 2.0))
        size = float(generator.choice([generator.uniform(0.3, 2.0), -generator.uniform(0.5, 0.95)]))
        total += size * _step((time - moment) / 0.2) * _step((moment + length - time) / 0.2)
        moment += length + float(generator.exponential(1.0))
    return total


def _rotation(roll: Array, pitch: Array, yaw: Array) -> Array:
    """Of the body in the world, by yaw, pitch, roll."""
    (sr, sp, sy), (cr, cp, cy) = ([function(angle) for angle in (roll, pitch, yaw)] for function in (np.sin, np.cos))
    rows = [
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ]
    return np.stack([np.stack(row, -1) for row in rows], -2)


def _rotors(
    craft: Craft, time: Array, begin: float, end: float, thrust: Array, throttle: Array, generator: Generator
) -> tuple[Array, Array]:
    """Speeds and commands: at rest before arming, idling, flying, idling for a moment after touchdown, at rest."""
    count, rotors = len(time), craft.rotors
    trim = 1 + 0.09 * (generator.permutation(rotors) / max(rotors - 1, 1) - 0.5)
    own = np.stack([smooth(count, craft.rate, 0.3, generator) for _ in range(rotors)], -1)
    corner = float(generator.uniform(2, 8))
    fine = np.stack([smooth(count, craft.rate, corner, generator) for _ in range(rotors)], -1)
    common = np.sqrt(np.clip(thrust, 2.0, 30.0) / GRAVITY) * throttle
    flying = trim * common[:, None] * (1 + 0.5 * SPREAD[craft.style] * own + craft.flutter * fine)
    idle = float(generator.uniform(0.3, 0.5)) * trim
    armed = begin - float(generator.uniform(0.8, 2.0)) if begin else -1.0
    if craft.start == "taxi":
        armed = -1.0
    stopped = end + float(generator.uniform(0.3, 1.0))
    target = np.where(((time >= begin) & (time <= end))[:, None], flying, idle)
    target = np.where(((time >= armed) & (time <= stopped))[:, None], target, 0.0)
    lag = max(int(0.06 * craft.rate), 1)
    padded = np.concatenate([np.repeat(target[:1], lag, 0), target])
    summed = np.cumsum(np.concatenate([np.zeros((1, rotors)), padded]), axis=0)
    followed = (summed[lag + 1 :] - summed[1:-lag]) / lag
    sag = 1 - float(generator.uniform(0.0, 0.06)) * time / time[-1]
    motors = generator.normal(1, 0.02, size=rotors)  # which are not alike
    return craft.hover * followed, np.clip(0.42 * (motors * target / sag[:, None]) ** craft.law, 0, 1)
