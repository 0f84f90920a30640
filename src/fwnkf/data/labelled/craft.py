"""The vehicles of simulated logs: rotors, sensors, what is logged, and how the flight begins and ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Generator = np.random.Generator

RATES = {50: 3, 100: 6, 200: 16, 250: 18, 400: 12, 500: 12, 1000: 14, 2000: 9, 4000: 5, 8000: 5}
"""Sampling rates (Hz) of the inertial sensor, with weights."""
SAMPLES = 64_000
"""Of a log, at most: fast logs are short."""


@dataclass(frozen=True)
class Craft:
    """A vehicle and its logger."""

    rate: float
    """Hz of the inertial sensor."""
    seconds: float
    rotors: int
    hover: float
    """Rotations per second at hover."""
    gyro_noise: float
    """rad/s/√Hz"""
    accel_noise: float
    """m/s²/√Hz"""
    sensing: Literal["averaged", "filtered", "sampled"]
    """Samples are averages over their interval, outputs of a low-pass, or neither."""
    corner: float
    """Hz of that low-pass."""
    speeds: float
    """Hz at which rotor speeds are logged; 0 where they are not."""
    commands: float
    """Hz at which motor commands are logged; 0 where they are not."""
    lag: float
    """Seconds by which logged rotor speeds are late."""
    speed_step: float
    """Hz to which they are rounded."""
    law: float
    """Commands grow with this power of the speed: 1 for speed control, 2 for thrust."""
    style: Literal["steady", "cruise", "agile"]
    """How much the speed of the rotors changes."""
    flutter: float
    """Relative standard deviation of the fast changes of each rotor's speed that the controller makes."""
    gusts: float
    """Strength of the turbulence, 1 for a moderate one."""
    flips: int
    """Full turns in flight."""
    acrobatic: bool
    """Turns under load, falls, and the shaking of flight through the own wash; no position is logged."""
    start: Literal["air", "ground", "taxi", "hand"]
    """In the air, on the ground with idling rotors, rolling, or carried by hand."""
    landing: bool
    """Whether the log ends on the ground."""
    states_air: bool
    """Whether the log says when it was in the air."""
    down: bool
    """Axes forward, right, down (PX4) instead of forward, left, up (ROS)."""
    apart: bool
    """Gyro and accelerometer in two signals instead of one."""
    gyro_step: float
    """rad/s to which samples of the gyro are rounded."""
    accel_step: float
    """m/s²"""
    jitter: float
    """Standard deviation of stamps that is usual for the logger, over a step."""
    pose: float
    """Hz of position and orientation; 0 where they are not logged."""
    gnss: float
    mag: float
    innovations: bool
    two_clocks: bool
    """Whether the recorder stamps samples as well."""

    @property
    def samples(self) -> int:
        """Of the inertial sensor, a multiple of a power of two that transforms of this length are fast for."""
        count = int(self.seconds * self.rate)
        return count - count % (256 if count > 8192 else 16)

    def gain(self, frequency: Array) -> Array:
        """Of the sensor, for vibration at a frequency before folding (Hz)."""
        if self.sensing == "averaged":
            return np.abs(np.sinc(frequency / self.rate))
        if self.sensing == "filtered":
            return 1 / np.sqrt(1 + (frequency / self.corner) ** 4)
        return np.ones_like(frequency)

    def folded(self, frequency: Array) -> Array:
        """Where a frequency appears in the samples."""
        return np.abs(frequency - self.rate * np.round(frequency / self.rate))


def random_craft(generator: Generator, fastest: float = math.inf) -> Craft:
    """A plausible vehicle; equal generators give equal vehicles. ``fastest`` is the highest nominal rate (Hz)."""
    weights = np.array([weight if rate <= fastest else 0 for rate, weight in RATES.items()], float)
    rate = float(generator.choice(list(RATES), p=weights / weights.sum())) * float(generator.uniform(0.98, 1.02))
    fast = rate > 900
    hover = float(np.exp(generator.uniform(math.log(60 if fast else 35), math.log(280 if fast else 110))))
    commands = float(generator.choice([0.0, 25.0, 50.0, 100.0], p=[0.2, 0.2, 0.4, 0.2]))
    speeds = float(generator.choice([0.0, 4.0, 10.0, 20.0, 100.0], p=[0.5, 0.05, 0.15, 0.2, 0.1]))
    style: Literal["steady", "cruise", "agile"] = generator.choice(
        ["steady", "cruise", "agile"], p=[0.25, 0.45, 0.3]
    ).item()
    acrobatic = bool(style == "agile" and rate > 300 and generator.random() < 0.4)
    pose = 0.0 if acrobatic else float(generator.choice([0.0, 20.0, 50.0], p=[0.45, 0.2, 0.35]))
    return Craft(
        rate=rate,
        seconds=float(min(generator.uniform(18, 30), SAMPLES / rate)),
        rotors=int(generator.choice([2, 3, 4, 5, 6, 8], p=[0.06, 0.04, 0.5, 0.02, 0.2, 0.18])),
        hover=hover,
        gyro_noise=float(np.exp(generator.uniform(math.log(1e-4), math.log(1e-3)))),
        accel_noise=float(np.exp(generator.uniform(math.log(1e-3), math.log(1e-2)))),
        sensing=generator.choice(["averaged", "filtered", "sampled"], p=[0.5, 0.35, 0.15]).item(),
        corner=rate * float(generator.uniform(0.3, 0.8)),
        speeds=min(speeds, rate),
        commands=min(commands, rate),
        lag=float(generator.uniform(0.0, 0.04)),
        speed_step=float(generator.choice([1 / 60, 0.24, 1.0], p=[0.5, 0.35, 0.15])),
        law=float(generator.uniform(1.0, 2.2)),
        style=style,
        flutter=float(np.exp(generator.uniform(math.log(0.002), math.log(0.015)))),
        gusts=float(np.exp(generator.uniform(math.log(0.2), math.log(2.0)))),
        flips=int(generator.integers(1, 6)) if acrobatic or (style == "agile" and generator.random() < 0.2) else 0,
        acrobatic=acrobatic,
        start=generator.choice(["air", "ground", "taxi", "hand"], p=[0.45, 0.3, 0.1, 0.15]).item(),
        landing=bool(generator.random() < 0.4),
        states_air=bool(generator.random() < 0.6),
        down=bool(generator.random() < 0.5),
        # of 16 bits, of 20 bits, and whole degrees per second, as Betaflight logs them
        gyro_step=float(generator.choice([1.07e-3, 1.3e-4, 0.0174533], p=[0.55, 0.3, 0.15])),
        accel_step=float(generator.choice([4.8e-3, 3e-4], p=[0.7, 0.3])),
        jitter=float(generator.choice([0.0, 0.01, 0.05], p=[0.4, 0.3, 0.3])),
        apart=bool(fast and generator.random() < 0.4),
        pose=pose,
        gnss=float(generator.choice([0.0, 5.0, 10.0], p=[0.6, 0.25, 0.15])) if pose else 0.0,
        mag=25.0 if pose and generator.random() < 0.4 else 0.0,
        innovations=bool(pose and generator.random() < 0.5),
        two_clocks=bool(generator.random() < 0.5),
    )
