"""A log while it is simulated: signals to which faults are added one by one, and their labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...logs.log import Stream
from ...logs.memory import MemoryLog
from ...logs.roles import euler_to_quaternion
from .craft import Array, Craft, Generator
from .labels import ACCEL_FAULT, ACCEL_WEAK, GYRO_FAULT, GYRO_WEAK, Label, Line
from .motion import Motion
from .vibration import CHANNELS, Wave, audible, line, order_wave, resonant_noise, strength

FIELD = np.array([21.0, 0.0, -43.0])
"""Earth's field (µT): north, and down below the horizon; axes forward, left, up."""


@dataclass(eq=False)
class Draft:
    """What the sensors of a vehicle measure, before it is a log."""

    craft: Craft
    motion: Motion
    generator: Generator
    values: Array
    """Gyro and accelerometer, ``[samples, 6]``."""
    stamps: Array
    received: Array
    rows: NDArray[np.int64]
    """Samples that are logged, in their order."""
    labels: list[Label] = field(default_factory=list)
    pose_delay: float = 0.0
    gnss_delay: float = 0.1
    gnss_jumps: list[tuple[float, float, Array]] = field(default_factory=list)
    """Begin, end (s) and offset (m)."""
    mag_per_ampere: Array = field(default_factory=lambda: np.zeros(3))
    temperature: Array | None = None

    def add(self, waves: Sequence[Wave], gyro: float, accel: float) -> tuple[tuple[Wave, ...], Array]:
        """Add vibration to all channels; the strongest wave has these amplitudes in the strongest of them.

        Returns the waves with the strongest as one of unit amplitude in the air, and the amplitude in each channel.
        """
        top = max(strength(self.motion, wave.values) for wave in waves)
        scaled = tuple(wave.scaled(1 / top) for wave in waves)
        amplitudes = self.spread(gyro, accel)
        self.values += np.sum([wave.values for wave in scaled], axis=0)[:, None] * amplitudes
        return scaled, amplitudes

    def spread(self, gyro: float, accel: float) -> Array:
        """Amplitudes in six channels, with these in the strongest of each sensor."""
        shares = self.generator.uniform(0.3, 1.0, size=(2, 3))
        shares /= shares.max(1, keepdims=True)
        signs = self.generator.choice([-1, 1], size=(2, 3))
        result: Array = (shares * signs * np.array([[gyro], [accel]])).reshape(6)
        return result

    def lines(self, waves: Sequence[Wave], amplitudes: Array) -> tuple[Line, ...]:
        """Lines of a label, the strongest first."""
        named = dict(zip(CHANNELS, amplitudes.tolist(), strict=True))
        found = [line(self.craft, self.motion, wave, named) for wave in waves]
        return tuple(sorted(found, key=lambda one: -max(one.amplitude.values())))


def begin(craft: Craft, motion: Motion, generator: Generator) -> Draft:
    """A flight without faults: motion, noise, and errors and vibration that every vehicle has."""
    count = len(motion.time)
    # a sensor that is mounted a degree off, with a bias and a scale within its data sheet
    mounted = np.eye(3) + np.cross(np.eye(3), generator.normal(size=3) * 0.01)
    gyro = motion.rates @ mounted.T * (1 + 0.005 * generator.normal()) + 0.003 * generator.normal(size=3)
    accel = motion.force @ mounted.T * (1 + 0.003 * generator.normal()) + 0.05 * generator.normal(size=3)
    values = np.concatenate([gyro, accel], 1)
    stamps = motion.time + craft.jitter / craft.rate * generator.normal(size=count)
    delay = motion.time + 0.002 + float(generator.choice([1e-4, 2e-3])) * generator.exponential(size=count)
    draft = Draft(craft, motion, generator, values, stamps, delay, np.arange(count))
    draft.gnss_delay = float(generator.uniform(0.05, 0.15))
    draft.pose_delay = float(generator.uniform(0.0, 0.02))
    turning = motion.speed.mean(1) / craft.hover
    scale = math.sqrt(craft.rate / 2) * np.repeat([craft.gyro_noise, craft.accel_noise], 3)
    flow = 1 + float(generator.uniform(0.0, 2.0)) * turning[:, None] ** 2  # noise of the flow grows with the rotors
    values += generator.normal(size=values.shape) * scale * flow
    _weak_vibration(draft)
    if craft.acrobatic:
        _wash(draft)
    if craft.start in ("ground", "taxi") and generator.random() < 0.4:
        _shake_on_the_ground(draft)
    return draft


def _weak_vibration(draft: Draft) -> None:
    """Orders of all rotors and some modes of the airframe, below the limit of an ordinary line together."""
    craft, motion, generator = draft.craft, draft.motion, draft.generator
    for rotor in range(craft.rotors):
        for order in (1.0, 2.0, 3.0):
            wave = audible(motion, order_wave(craft, motion, rotor, order, generator))
            size = float(generator.uniform(0.02, 0.7)) / math.sqrt(craft.rotors)
            draft.values += wave.values[:, None] * draft.spread(GYRO_WEAK * size, ACCEL_WEAK * size)
    for _ in range(int(generator.integers(1, 4))):
        centre = float(generator.uniform(0.08, 0.45)) * craft.rate
        mode = resonant_noise(craft, motion, centre, float(generator.uniform(3, 15)), generator)
        size = float(generator.uniform(0.02, 0.4)) / math.sqrt(2)
        draft.values += mode[:, None] * draft.spread(GYRO_WEAK * size, ACCEL_WEAK * size)


def _wash(draft: Draft) -> None:
    """Broad shaking of the gyro below 60 Hz in bursts of half a second: an aircraft in its own wash. No fault."""
    craft, motion, generator = draft.craft, draft.motion, draft.generator
    frequency = np.fft.rfftfreq(len(motion.time), 1 / craft.rate)
    shape = (frequency / 15) ** 2 / (1 + (frequency / 15) ** 2) / (1 + (frequency / 40) ** 4)
    noise = np.fft.irfft(np.fft.rfft(generator.normal(size=(3, len(motion.time)))) * shape, len(motion.time))
    bursts = np.exp(generator.normal(size=int(2 * craft.seconds) + 2))
    strengths = np.interp(motion.time, np.arange(len(bursts)) / 2, bursts) * motion.air
    noise = (noise / noise.std(1, keepdims=True)).T * (strengths / strengths[motion.air].std())[:, None]
    draft.values[:, :3] += float(generator.uniform(0.02, 0.12)) * noise / math.sqrt(2)
    draft.labels.append(Label("broadband", "wash", ("resonance",), required=False))


def _shake_on_the_ground(draft: Draft) -> None:
    """Idling rotors shake a vehicle that stands on its feet; this ends when it takes off."""
    motion, generator = draft.motion, draft.generator
    wave = order_wave(draft.craft, motion, int(generator.integers(draft.craft.rotors)), 1.0, generator)
    idle = (motion.time < motion.begin) & (motion.speed.mean(1) > 0)
    if idle.any():
        values = np.where(idle, wave.values, 0.0)
        values /= max(float(np.sqrt(2 * np.mean(values[idle] ** 2))), 1e-9)
        draft.values += values[:, None] * draft.spread(
            float(generator.uniform(0.01, 0.1)), float(generator.uniform(0.3, 2.0))
        )


def fault_size(generator: Generator) -> tuple[float, float]:
    """Amplitudes of a vibration that is a fault, in the strongest channel of gyro (rad/s) and accelerometer (m/s²).

    In a third of the cases one of the sensors hardly sees it: a mount that turns, or one that does not.
    """
    high = float(generator.random())
    gyro = GYRO_FAULT * 1.2 * math.exp(high * math.log(10))
    accel = ACCEL_FAULT * 1.2 * math.exp(np.clip(high + 0.2 * generator.normal(), 0, 1) * math.log(8))
    seen = generator.random()
    if seen < 0.17:
        gyro = GYRO_WEAK * float(generator.uniform(0.1, 1.0))
    elif seen < 0.34:
        accel = ACCEL_WEAK * float(generator.uniform(0.1, 1.0))
    return gyro, accel


# ---- as a log -------------------------------------------------------------------------------------------------------


def to_log(draft: Draft, name: str) -> MemoryLog:
    """The streams that the vehicle logs."""
    craft, motion = draft.craft, draft.motion
    streams = _inertial(draft)
    if craft.speeds:
        rows = _every(craft, craft.speeds)
        late = np.clip(rows - round(craft.lag * craft.rate), 0, None)
        speeds = craft.speed_step * np.round(motion.speed[late] / craft.speed_step)
        streams.append(_stream("rotor", motion.time[rows], "rotor", speeds, numbers=True))
    if craft.commands:
        rows = _every(craft, craft.commands)
        streams.append(_stream("motor", motion.time[rows], "motor", motion.command[rows], numbers=True))
    if craft.pose:
        streams.append(_pose(draft))
    if craft.gnss:
        streams.append(_gnss(draft))
    if craft.mag:
        streams += _magnetic(draft)
    if draft.temperature is not None:
        rows = _every(craft, 2.0)
        streams.append(
            Stream("temperature", motion.time[rows], {"temperature": draft.temperature[rows]}, role="temperature")
        )
    if craft.innovations:
        streams.append(_innovations(draft))
    airborne = [(motion.begin, motion.end)] if craft.states_air else []
    return MemoryLog(streams, name=name, airborne=airborne)


def _every(craft: Craft, rate: float) -> NDArray[np.int64]:
    return np.arange(0, craft.samples, max(round(craft.rate / rate), 1))


def _stream(name: str, time: Array, prefix: str, values: Array, *, numbers: bool = False) -> Stream:
    suffixes = [str(k + 1) for k in range(values.shape[1])] if numbers else list("xyz")
    columns = {f"{prefix}_{suffix}": np.ascontiguousarray(values[:, k]) for k, suffix in enumerate(suffixes)}
    return Stream(name, time, columns, role=name)


def _inertial(draft: Draft) -> list[Stream]:
    steps = np.repeat([draft.craft.gyro_step, draft.craft.accel_step], 3)
    stamps, values = draft.stamps[draft.rows], steps * np.round(draft.values[draft.rows] / steps)
    received = draft.received[draft.rows] if draft.craft.two_clocks else None
    columns = dict(zip(CHANNELS, np.ascontiguousarray(values.T), strict=True))
    if not draft.craft.apart:
        return [Stream("imu", stamps, columns, received=received, role="imu")]
    parts = {role: {n: v for n, v in columns.items() if n.startswith(role)} for role in ("gyro", "accel")}
    return [Stream(role, stamps, part, received=received, role=role) for role, part in parts.items()]


def _pose(draft: Draft) -> Stream:
    craft, motion, generator = draft.craft, draft.motion, draft.generator
    rows = _every(craft, craft.pose)
    seen = np.clip(rows - round(draft.pose_delay * craft.rate), 0, None)
    exact = np.stack(list(euler_to_quaternion(*motion.angles[seen].T).values()), -1)
    orientation = exact + 5e-4 * generator.normal(size=exact.shape)
    orientation /= np.linalg.norm(orientation, axis=1, keepdims=True)
    position = motion.position[seen] + 0.01 * generator.normal(size=(len(rows), 3))
    columns = {f"position_{axis}": position[:, k] for k, axis in enumerate("xyz")}
    columns |= {f"orientation_{axis}": orientation[:, k] for k, axis in enumerate("wxyz")}
    return Stream("pose", motion.time[rows], columns, role="pose")


def _gnss(draft: Draft) -> Stream:
    craft, motion, generator = draft.craft, draft.motion, draft.generator
    rows = _every(craft, craft.gnss)
    seen = np.clip(rows - round(draft.gnss_delay * craft.rate), 0, None)
    walk = np.cumsum(generator.normal(size=(len(rows), 3)), axis=0) * 0.05 / math.sqrt(craft.gnss)
    position = motion.position[seen] + walk + 0.05 * generator.normal(size=walk.shape)
    for start, stop, offset in draft.gnss_jumps:
        position[(motion.time[rows] >= start) & (motion.time[rows] < stop)] += offset
    velocity = motion.velocity[seen] + 0.08 * generator.normal(size=walk.shape)
    columns = {f"position_{axis}": position[:, k] for k, axis in enumerate("xyz")}
    columns |= {f"velocity_{axis}": velocity[:, k] for k, axis in enumerate("xyz")}
    return Stream("gnss", motion.time[rows], columns, role="gnss")


def _magnetic(draft: Draft) -> list[Stream]:
    craft, motion, generator = draft.craft, draft.motion, draft.generator
    rows = _every(craft, craft.mag)
    axes = np.array([1.0, -1.0, -1.0]) if craft.down else np.ones(3)
    earth = np.einsum("tij,i->tj", motion.rotation[rows], axes * FIELD)
    current = motion.current[rows]
    usual = 0.05 * generator.normal(size=3)  # of the order of a microtesla at hover
    field = earth + generator.normal(size=3) * 2.0 + current[:, None] * (draft.mag_per_ampere + usual)
    field += 0.3 * generator.normal(size=field.shape)
    power = {"current": current + 0.1 * generator.normal(size=len(rows)), "voltage": 16.0 - 0.03 * current}
    return [_stream("mag", motion.time[rows], "mag", field), Stream("power", motion.time[rows], power, role="power")]


def _innovations(draft: Draft) -> Stream:
    """Of the position; autopilots state variances that are too large, by up to a hundred."""
    generator = draft.generator
    time = np.arange(0.5, draft.craft.seconds, 0.2)
    variance = 0.3**2 * generator.uniform(0.5, 2, size=3)
    stated = variance * float(np.exp(generator.uniform(0, math.log(100))))
    columns = {}
    for k, axis in enumerate("xyz"):
        columns[f"position_{axis}"] = math.sqrt(variance[k]) * generator.normal(size=len(time))
        columns[f"position_{axis}_variance"] = np.full(len(time), stated[k])
    return Stream("innovation", time, columns, role="innovation")
