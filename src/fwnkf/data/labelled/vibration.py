"""Vibration as a sensor of a simulated vehicle samples it: orders of rotors, fixed lines, resonances.

A sine whose frequency hardly changes within a sample interval is sampled with the gain of the sensor at that frequency.
Waves are therefore computed at the samples themselves, at any frequency, and fold there as in a real log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from .craft import Array, Craft, Generator
from .labels import Line
from .motion import Motion

CHANNELS = ("gyro_x", "gyro_y", "gyro_z", "accel_x", "accel_y", "accel_z")


class Wave(NamedTuple):
    """A line in one channel: values, frequency before folding (Hz) and amplitude at each sample."""

    order: float
    values: Array
    frequency: Array
    amplitude: Array

    def scaled(self, factor: float) -> Wave:
        return self._replace(values=factor * self.values, amplitude=factor * self.amplitude)


def order_wave(craft: Craft, motion: Motion, rotor: int, order: float, generator: Generator, slip: float = 0.0) -> Wave:
    """An order of a rotor (from 0): grows with the square of the speed, as unbalance does.

    ``slip`` is the standard deviation of slow relative changes of its frequency, as rolling bearings have.
    """
    speed = motion.speed[:, rotor]
    frequency = order * speed
    if slip:
        walk = np.cumsum(generator.normal(size=len(speed))) / np.sqrt(craft.rate)
        frequency = frequency * (1 + slip * np.sin(walk))
    phase = 2 * np.pi * (np.cumsum(frequency) / craft.rate + generator.random())
    amplitude = (speed / craft.hover) ** 2 * craft.gain(frequency)
    return Wave(order, amplitude * np.sin(phase), frequency, amplitude)


def fixed_wave(craft: Craft, frequency: float, active: Array, generator: Generator) -> Wave:
    """A line at a frequency that wanders by a few hundredths of a hertz, with this amplitude over time."""
    count = len(active)
    width = float(generator.uniform(0.005, 0.05))
    wander = np.cumsum(generator.normal(size=count)) * np.sqrt(2 * np.pi * width / craft.rate)
    phase = 2 * np.pi * (frequency * np.arange(count) / craft.rate + generator.random()) + wander
    constant = np.full(count, frequency)
    amplitude = active * craft.gain(constant)
    return Wave(1.0, amplitude * np.sin(phase), constant, amplitude)


def resonance_gain(frequency: Array, centre: float, quality: float) -> Array:
    """Complex gain of a mode of the airframe, 1 at rest and ``quality`` at its centre (Hz)."""
    ratio = frequency / centre
    response: Array = 1 / (1 - ratio**2 + 1j * ratio / quality)
    return response


def resonant_wave(
    craft: Craft, motion: Motion, rotor: int, order: float, centre: float, quality: float, generator: Generator
) -> Wave:
    """An order of a rotor behind a resonance: amplitude and phase of the steady response at each moment."""
    wave = order_wave(craft, motion, rotor, order, generator)
    response = resonance_gain(wave.frequency, centre, quality)
    phase = 2 * np.pi * (np.cumsum(wave.frequency) / craft.rate + generator.random()) + np.angle(response)
    amplitude = wave.amplitude * np.abs(response)
    return Wave(order, amplitude * np.sin(phase), wave.frequency, amplitude)


def resonant_noise(craft: Craft, motion: Motion, centre: float, quality: float, generator: Generator) -> Array:
    """White noise behind a resonance, as strong as the rotors turn; unit variance in the air."""
    count = len(motion.time)
    frequency: Array = np.fft.rfftfreq(count, 1 / craft.rate).astype(np.float64)
    shaped = np.fft.rfft(generator.normal(size=count)) * resonance_gain(frequency, centre, quality)
    noise = np.fft.irfft(shaped * craft.gain(frequency), count) * (motion.speed.mean(1) / craft.hover) ** 2
    result: Array = noise / noise[motion.air].std()
    return result


def line(craft: Craft, motion: Motion, wave: Wave, amplitude: Mapping[str, float]) -> Line:
    """What a wave is in the air; ``amplitude`` by channel of a wave of unit amplitude."""
    size = strength(motion, wave.values)
    scaled = {name: size * abs(value) for name, value in amplitude.items()}
    return line_of(craft, wave.order, wave.frequency[motion.air], wave.amplitude[motion.air], scaled)


def line_of(craft: Craft, order: float, frequency: Array, amplitude: Array, channels: Mapping[str, float]) -> Line:
    """A line from frequencies before folding with their amplitudes, and the amplitude in each channel."""
    power = amplitude**2 / max(float((amplitude**2).sum()), 1e-30)
    seen = craft.folded(frequency)
    mean = float((power * seen).sum())
    spread = float(np.sqrt((power * (seen - mean) ** 2).sum()))
    return Line(order, mean, spread, channels, float(power[frequency > craft.rate / 2].sum()) > 0.5)


def audible(motion: Motion, wave: Wave) -> Wave:
    """A wave of unit amplitude in the air; what the sensor filters out is made up for by a factor of ten at most."""
    return wave.scaled(min(1 / max(strength(motion, wave.values), 1e-9), 10))


def strength(motion: Motion, values: Array) -> float:
    """Amplitude of a sine with the same power in the air."""
    return float(np.sqrt(2 * np.mean(values[motion.air] ** 2)))
