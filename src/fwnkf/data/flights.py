"""Simulated flights of a multirotor as an autopilot logs them, with faults whose cause is known.

The motion is smooth and consistent: the attitude follows from the acceleration (a multirotor thrusts along its own
axis), the speed of the rotors from the thrust. Vibration is simulated at a multiple of the sampling rate and averaged
over each sample, as inertial sensors integrate, so that lines above the Nyquist frequency fold as in a real log.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError

Array = NDArray[np.float64]
Generator = np.random.Generator

GRAVITY = 9.80665
INNER_RATE = 4000.0
"""Hz at which vibration is simulated, at least."""
STAMP_FAULTS = ("unit", "order", "jitter", "clock")
"""Faults of a time base: wrong unit, order, jitter, and a clock that disagrees with that of the recorder."""


@dataclass(frozen=True)
class Cause:
    """A fault of a flight: its name in :data:`fwnkf.diagnosis.finding.CAUSES`, and the figures that define it."""

    name: str
    figures: Mapping[str, float | str] = field(default_factory=dict)
    """Such as ``frequency_hz``, ``rotor`` (from 1), ``origin_hz``, ``factor``, ``share``."""


@dataclass(frozen=True, eq=False)
class Flight:
    """What a log of the flight holds. Stamps are as they are logged; missing samples are not in the arrays."""

    rate: float
    """Nominal sampling rate (Hz) of the inertial sensor."""
    imu_time: Array
    """Seconds, as logged: with the faults of the time base."""
    gyro: Array
    """rad/s, ``[samples, 3]``"""
    accel: Array
    """m/s², ``[samples, 3]``, gravity along +z at rest"""
    received: Array
    """Seconds, when the recorder received each inertial sample."""
    rotor_time: Array
    rotor: Array
    """Rotations per second, ``[samples, rotors]``; no samples where it is not logged."""
    motor_time: Array
    motor: Array
    """Commands from 0 to 1, ``[samples, rotors]``"""
    pose_time: Array
    position: Array
    orientation: Array
    """w, x, y, z, from the body to the world"""
    innovation_time: Array
    innovation: Array
    """Position innovations (m) of the autopilot's filter, ``[samples, 3]``"""
    innovation_variance: Array
    """As that filter states them."""
    clipped: Array
    """Count of clipped accelerometer samples up to each inertial sample."""
    causes: tuple[Cause, ...] = ()


@dataclass(frozen=True)
class Vehicle:
    """Sensors and rotors of a flight."""

    rate: float = 250.0
    rotors: int = 4
    hover: float = 75.0
    """Rotations per second at hover."""
    gyro_noise: float = 5e-4
    """rad/s/√Hz"""
    accel_noise: float = 5e-3
    """m/s²/√Hz"""
    rotor_rate: float = 20.0
    """Hz at which rotor speeds are logged; 0 where they are not."""


def flight(
    cause: str | None = None,
    *,
    seed: int = 0,
    seconds: float = 60.0,
    vehicle: Vehicle | None = None,
    fault: str = "unit",
) -> Flight:
    """A flight without a fault, or with one of :data:`FAULTS`. Equal arguments give equal bits.

    A seed draws the vehicle, unless it is given, the motion, and the figures of the fault. ``fault`` chooses among
    :data:`STAMP_FAULTS` where the cause is ``time_base``.

    >>> one = flight("vibration", seed=3, seconds=10.0)
    >>> one.gyro.shape == (len(one.imu_time), 3), one.causes[0].name
    (True, 'vibration')
    """
    if cause is not None and cause not in FAULTS:
        raise ConfigError(f"no fault named {cause!r}; there are: {', '.join(FAULTS)}")
    draws = [np.random.default_rng(stream) for stream in np.random.SeedSequence(seed).spawn(4)]
    vehicle = vehicle or random_vehicle(draws[0], cause)
    clean, speed = _clean(vehicle, seconds, draws[1], draws[2])
    if cause is None:
        return clean
    if cause == "time_base":
        return _time_base(clean, draws[3], fault)
    return _FAULTS[cause](clean, vehicle, speed, draws[3])


def random_vehicle(generator: Generator, cause: str | None = None) -> Vehicle:
    """Sampling rate, rotors and noise of a plausible vehicle; blade-pass above the Nyquist frequency for aliasing."""
    rate = float(generator.choice([200.0, 250.0, 400.0, 500.0]))
    share = generator.uniform(0.29, 0.40) if cause == "aliasing" else generator.uniform(0.2, 0.38)
    return Vehicle(
        rate=rate,
        rotors=int(generator.choice([4, 6])),
        hover=float(share * rate),
        gyro_noise=float(generator.uniform(3e-4, 1e-3)),
        accel_noise=float(generator.uniform(3e-3, 1e-2)),
        rotor_rate=20.0,
    )


# ---- a flight without faults ----------------------------------------------------------------------------------------


def _clean(vehicle: Vehicle, seconds: float, motion: Generator, noise: Generator) -> tuple[Flight, Array]:
    """The flight, and the speed of its rotors at each inertial sample."""
    time = np.arange(int(seconds * vehicle.rate)) / vehicle.rate
    position, acceleration = _path(time, motion)
    orientation, rates, force = _attitude(time, acceleration, motion)
    speed = _rotor_speeds(time, force[:, 2], vehicle, motion)
    gusts = _gusts(len(time), vehicle.rate, 0.03, noise)
    gyro, orientation = rates + gusts, _turned(orientation, np.cumsum(gusts, axis=0) / vehicle.rate)
    accel = force + _gusts(len(time), vehicle.rate, 0.15, noise)
    scale = math.sqrt(vehicle.rate / 2)
    weak = noise.uniform(0.1, 0.4, size=(vehicle.rotors, 6)) / math.sqrt(vehicle.rotors)
    gyro_vibration, accel_vibration = (
        _sampled_orders(speed, vehicle, [(number, 1, weak[number, part], noise) for number in range(vehicle.rotors)])
        for part in (slice(0, 3), slice(3, 6))
    )
    # weak vibration of every rotor, far below the noise of the sensor
    gyro += vehicle.gyro_noise * scale * (noise.normal(size=gyro.shape) + gyro_vibration)
    accel += vehicle.accel_noise * scale * (noise.normal(size=accel.shape) + accel_vibration)
    every = max(round(vehicle.rate / 50), 1)
    rotor_every = max(round(vehicle.rate / vehicle.rotor_rate), 1) if vehicle.rotor_rate else len(time) + 1
    innovation_time = np.arange(0, time[-1], 0.2)
    variance = 0.3**2 * noise.uniform(0.5, 2, size=3) * np.ones((len(innovation_time), 3))
    hover = vehicle.hover
    clean = Flight(
        vehicle.rate,
        time.copy(),
        gyro,
        accel,
        time + 0.002 + 2e-4 * noise.random(len(time)),
        time[::rotor_every] if vehicle.rotor_rate else time[:0],
        np.round(speed[::rotor_every] * 60) / 60 if vehicle.rotor_rate else speed[:0],
        time[::every],
        np.clip(0.4 * (speed[::every] / hover) ** 2, 0, 1),
        time[::every],
        position[::every] + 0.01 * noise.normal(size=(len(time[::every]), 3)),
        orientation[::every],
        innovation_time,
        np.sqrt(variance) * noise.normal(size=variance.shape),
        variance,
        np.zeros(len(time)),
    )
    return clean, speed


def _path(time: Array, generator: Generator) -> tuple[Array, Array]:
    """Position and acceleration of a sum of slow sines: accelerations of one to two m/s² along every axis."""
    frequency = generator.uniform(0.04, 0.35, size=(8, 3))
    peak = generator.uniform(0.3, 0.9, size=(8, 3))
    phase = 2 * np.pi * (frequency * time[:, None, None] + generator.random((8, 3)))
    wave = peak * np.sin(phase)
    return -(wave / (2 * np.pi * frequency) ** 2).sum(1), wave.sum(1)


def _attitude(time: Array, acceleration: Array, generator: Generator) -> tuple[Array, Array, Array]:
    """Orientation (w, x, y, z), body rates and specific force of a vehicle that thrusts along its z axis."""
    thrust = acceleration + np.array([0, 0, GRAVITY])
    up = thrust / np.linalg.norm(thrust, axis=1, keepdims=True)
    yaw = np.cumsum(np.r_[0, np.diff(time)]) * generator.normal() * 0.05
    yaw = yaw + 0.5 * np.sin(2 * np.pi * generator.uniform(0.02, 0.08) * time)
    heading = np.stack([np.cos(yaw), np.sin(yaw), np.zeros_like(yaw)], -1)
    left = np.cross(up, heading)
    left /= np.linalg.norm(left, axis=1, keepdims=True)
    rotation = np.stack([np.cross(left, up), left, up], -1)  # columns are the axes of the body in the world
    turn = np.einsum("tij,tik->tjk", rotation[:-1], rotation[1:])  # from one sample to the next, in the body
    step = float(time[1] - time[0])
    rates = np.stack([turn[:, 2, 1] - turn[:, 1, 2], turn[:, 0, 2] - turn[:, 2, 0], turn[:, 1, 0] - turn[:, 0, 1]], -1)
    rates = np.concatenate((rates, rates[-1:])) / (2 * step)
    force = np.einsum("tij,ti->tj", rotation, thrust)
    return _quaternion(rotation), rates, force


def _quaternion(rotation: Array) -> Array:
    """Of rotations by less than half a turn about horizontal axes, continuous in time."""
    trace = np.trace(rotation, axis1=1, axis2=2)
    w = np.sqrt(np.maximum(1 + trace, 1e-9)) / 2
    parts = [rotation[:, 2, 1] - rotation[:, 1, 2], rotation[:, 0, 2] - rotation[:, 2, 0]]
    parts.append(rotation[:, 1, 0] - rotation[:, 0, 1])
    result = np.stack([w, *(part / (4 * w) for part in parts)], -1)
    return result / np.linalg.norm(result, axis=1, keepdims=True)


def _turned(orientation: Array, angle: Array) -> Array:
    """Orientations after a further small rotation (rad) about the axes of the body."""
    w, x, y, z = orientation.T
    p, q, r = angle.T / 2
    parts = [w - x * p - y * q - z * r, x + w * p + y * r - z * q, y + w * q + z * p - x * r, z + w * r + x * q - y * p]
    result = np.stack(parts, -1)
    return result / np.linalg.norm(result, axis=1, keepdims=True)


def _rotor_speeds(time: Array, thrust: Array, vehicle: Vehicle, generator: Generator) -> Array:
    """Speed grows with the root of thrust; every rotor has a trim and differences of its own."""
    trim = 1 + 0.09 * (generator.permutation(vehicle.rotors) / (vehicle.rotors - 1) - 0.5)
    rate = 1 / float(time[1] - time[0])
    own = np.stack([smooth(len(time), rate, 0.2, generator) for _ in range(vehicle.rotors)], -1)
    common = np.sqrt(np.maximum(thrust, 1) / GRAVITY) * (1 + 0.02 * smooth(len(time), rate, 0.05, generator))
    return vehicle.hover * trim * common[:, None] * (1 + 0.015 * own)


def smooth(count: int, rate: float, corner: float, generator: Generator) -> Array:
    """A smooth random process of unit variance: two sections of a low-pass with this corner frequency (Hz)."""
    frequency = np.fft.rfftfreq(2 * count, 1 / rate)
    shaped = np.fft.rfft(generator.normal(size=2 * count)) / (1 + (frequency / corner) ** 2) ** 2
    result = np.fft.irfft(shaped, 2 * count)[:count]
    return (result - result.mean()) / max(result.std(), 1e-12)


def _gusts(count: int, rate: float, size: float, generator: Generator) -> Array:
    """Turbulence below about 3 Hz in three axes."""
    return size * np.stack([smooth(count, rate, 3.0, generator) for _ in range(3)], -1)


# ---- vibration ------------------------------------------------------------------------------------------------------


def _sampled(wave: Array, amplitude: Array) -> Array:
    """A wave at the inner rate ``[samples, inner]`` as an integrating sensor sees it in each channel."""
    return wave.mean(1)[:, None] * amplitude


def _sampled_orders(speed: Array, vehicle: Vehicle, lines: list[tuple[int, int, Array, Generator]]) -> Array:
    """Sum of lines at multiples of rotor speeds: ``(rotor, harmonic, amplitude per channel, random phase)``."""
    inner = _inner(vehicle)
    total = np.zeros((len(speed), len(lines[0][2])))
    for rotor, harmonic, amplitude, generator in lines:
        turns = np.cumsum(np.repeat(speed[:, rotor], inner)) / (vehicle.rate * inner)
        wave = np.sin(2 * np.pi * (harmonic * turns + generator.random()))
        total += _sampled(wave.reshape(-1, inner), amplitude)
    return total


def _inner(vehicle: Vehicle) -> int:
    return max(4, math.ceil(INNER_RATE / vehicle.rate))


def _amplitudes(vehicle: Vehicle, generator: Generator, low: float, high: float) -> Array:
    """Of a strong line in six channels: multiples of the noise of a sample, larger in some than in others."""
    scale = math.sqrt(vehicle.rate / 2) * np.repeat([vehicle.gyro_noise, vehicle.accel_noise], 3)
    return scale * generator.uniform(low, high) * generator.uniform(0.4, 1, size=6) * generator.choice([-1, 1], 6)


def _with_vibration(clean: Flight, vibration: Array, cause: Cause) -> Flight:
    gyro, accel = clean.gyro + vibration[:, :3], clean.accel + vibration[:, 3:]
    return replace(clean, gyro=gyro, accel=accel, causes=(cause,))


def _vibration(clean: Flight, vehicle: Vehicle, speed: Array, generator: Generator) -> Flight:
    """A line at a fixed frequency, whose phase wanders slowly."""
    inner, count = _inner(vehicle), len(speed)
    frequency = float(generator.uniform(15, 0.44 * vehicle.rate))
    wander = np.cumsum(generator.normal(size=count * inner)) * math.sqrt(2 * np.pi * 0.1 / (vehicle.rate * inner))
    wave = np.sin(2 * np.pi * frequency * np.arange(count * inner) / (vehicle.rate * inner) + wander)
    vibration = _sampled(wave.reshape(-1, inner), _amplitudes(vehicle, generator, 6, 25))
    return _with_vibration(clean, vibration, Cause("vibration", {"frequency_hz": frequency}))


def _rotor_vibration(clean: Flight, vehicle: Vehicle, speed: Array, generator: Generator) -> Flight:
    """One rotor out of balance: three harmonics that sweep with its speed."""
    rotor = int(generator.integers(vehicle.rotors))
    amplitude = _amplitudes(vehicle, generator, 6, 25)
    lines = [(rotor, harmonic, weight * amplitude, generator) for harmonic, weight in ((1, 1.0), (2, 0.5), (3, 0.3))]
    figures = {"rotor": rotor + 1, "frequency_hz": float(speed[:, rotor].mean()), "harmonic": 1}
    return _with_vibration(clean, _sampled_orders(speed, vehicle, lines), Cause("rotor_vibration", figures))


def _aliasing(clean: Flight, vehicle: Vehicle, speed: Array, generator: Generator) -> Flight:
    """Blade-pass of one rotor above the Nyquist frequency."""
    rotor = int(generator.integers(vehicle.rotors))
    gain = float(np.sinc(2 * vehicle.hover / vehicle.rate))
    lines = [(rotor, 2, _amplitudes(vehicle, generator, 6, 25) / gain, generator)]
    origin = 2 * float(speed[:, rotor].mean())
    figures = {"rotor": rotor + 1, "harmonic": 2, "origin_hz": origin, "frequency_hz": vehicle.rate - origin}
    return _with_vibration(clean, _sampled_orders(speed, vehicle, lines), Cause("aliasing", figures))


# ---- other faults ---------------------------------------------------------------------------------------------------


def _drift(clean: Flight, vehicle: Vehicle, speed: Array, generator: Generator) -> Flight:
    """The bias of one gyro axis wanders by several degrees per second."""
    axis = int(generator.integers(2))
    walk = smooth(len(speed), vehicle.rate, 1.0 / (len(speed) / vehicle.rate), generator)
    size = float(generator.uniform(0.08, 0.2))
    bias = size * (walk - walk[0]) / np.ptp(walk)
    gyro = clean.gyro.copy()
    gyro[:, axis] += bias
    return replace(clean, gyro=gyro, causes=(Cause("drift", {"channel": f"gyro_{'xyz'[axis]}", "change": size}),))


def _gaps(clean: Flight, vehicle: Vehicle, speed: Array, generator: Generator) -> Flight:
    """Dropouts of up to two seconds, or single samples skipped throughout."""
    time = clean.imu_time
    present = np.ones(len(time), bool)
    if generator.random() < 0.5:
        share = float(generator.uniform(0.03, 0.12))
        present = generator.random(len(time)) > share
        figures: dict[str, float | str] = {"kind": "skipped", "share": float(1 - present.mean())}
    else:
        count = int(generator.integers(2, 6))
        for start in generator.uniform(0.05, 0.9, size=count) * time[-1]:
            present &= ~((time > start) & (time < start + generator.uniform(0.2, 2.0)))
        figures = {"kind": "dropouts", "share": float(1 - present.mean())}
    return _chosen(replace(clean, causes=(Cause("gaps", figures),)), present)


def _chosen(clean: Flight, present: NDArray[np.bool_]) -> Flight:
    names = ("imu_time", "gyro", "accel", "received", "clipped")
    return replace(clean, **{name: getattr(clean, name)[present] for name in names})


def _clipping(clean: Flight, vehicle: Vehicle, speed: Array, generator: Generator) -> Flight:
    """Accelerations beyond the range of the sensor: strong shaking against a limit."""
    shaking = generator.normal(size=clean.accel.shape) * generator.uniform(4, 8)
    accel = clean.accel + shaking
    limit = float(np.quantile(np.abs(accel[:, 2]), 1 - generator.uniform(0.003, 0.02)))
    clipped = np.cumsum((np.abs(accel) >= limit).any(1)).astype(np.float64)
    figures = {"limit": limit, "share": float((np.abs(accel[:, 2]) >= limit).mean())}
    return replace(clean, accel=np.clip(accel, -limit, limit), clipped=clipped, causes=(Cause("clipping", figures),))


def _confidence(clean: Flight, vehicle: Vehicle, speed: Array, generator: Generator) -> Flight:
    """The filter of the autopilot states variances that are wrong by a factor."""
    factor = float(generator.uniform(5, 20))
    name = "overconfident"
    if generator.random() < 0.5:
        factor, name = 1 / factor, "underconfident"
    # factor on the innovations squared over their stated variance
    variance = clean.innovation_variance / factor
    return replace(clean, innovation_variance=variance, causes=(Cause(name, {"factor": factor}),))


def _time_base(clean: Flight, generator: Generator, fault: str) -> Flight:
    if fault not in STAMP_FAULTS:
        raise ConfigError(f"no fault of the time base named {fault!r}; there are: {', '.join(STAMP_FAULTS)}")
    time, count = clean.imu_time, len(clean.imu_time)
    figures: dict[str, float | str] = {"kind": fault}
    if fault == "unit":
        figures["factor"] = factor = float(generator.choice([1e-3, 1e3]))
        stamps = time * factor
    elif fault == "order":
        stamps = time.copy()
        for start in generator.integers(0, count - 60, size=int(generator.integers(5, 20))):
            stamps[start : start + 20] = stamps[start + 20 : start + 40] + 1e-4
    elif fault == "jitter":
        figures["share"] = share = float(generator.uniform(0.25, 0.36))
        stamps = time + generator.uniform(-1, 1, size=count) * share * math.sqrt(1.5) / clean.rate
    else:
        figures["factor"] = factor = 1 + float(generator.uniform(0.015, 0.06) * generator.choice([-1, 1]))
        stamps = time * factor
    return replace(clean, imu_time=stamps, causes=(Cause("time_base", figures),))


_FAULTS: Mapping[str, Callable[[Flight, Vehicle, Array, Generator], Flight]] = {
    "vibration": _vibration,
    "rotor_vibration": _rotor_vibration,
    "aliasing": _aliasing,
    "drift": _drift,
    "gaps": _gaps,
    "clipping": _clipping,
    "confidence": _confidence,
}
FAULTS = (*_FAULTS, "time_base")
"""Faults by name; ``confidence`` makes the filter ``overconfident`` or ``underconfident``."""
