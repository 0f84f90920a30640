"""Minimal ULog files."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fwnkf.data.flights import Flight

from .vibration import vibration

CODES = {"uint64_t": "<u8", "uint32_t": "<u4", "uint8_t": "<u1", "float": "<f4", "int32_t": "<i4", "int16_t": "<i2"}
START = 100_000_000
"""Microseconds since the start of the autopilot at time zero."""


@dataclass
class Topic:
    """Samples of a topic: type and values of each field, arrays as ``[samples, length]``."""

    name: str
    fields: Mapping[str, tuple[str, Any]]
    order: Any
    """When each sample was written."""
    instance: int = 0
    nested: str = ""
    """Further definitions of formats, such as those of nested types."""
    layout: str = ""
    """Definition of the fields where it is not the plain one."""

    def records(self) -> np.ndarray:
        """One structured record for each sample."""
        arrays = {name: (kind, np.asarray(values)) for name, (kind, values) in self.fields.items()}
        dtype = [(name, CODES[kind], values.shape[1:]) for name, (kind, values) in arrays.items()]
        rows = np.zeros(len(self.order), np.dtype(dtype))
        for name, (_, values) in arrays.items():
            rows[name] = values
        return rows

    def definition(self) -> str:
        """As a format message has it."""
        parts = []
        for name, (kind, values) in self.fields.items():
            shape = np.asarray(values).shape[1:]
            parts.append(f"{kind}[{shape[0]}] {name}" if shape else f"{kind} {name}")
        return self.layout or ";".join(parts) + ";"


def message(kind: str, body: bytes) -> bytes:
    return struct.pack("<HB", len(body), ord(kind)) + body


def pair(key: str, value: float | str) -> bytes:
    if isinstance(value, str):
        name, data = f"char[{len(value)}] {key}".encode(), value.encode()
    elif isinstance(value, int):
        name, data = f"int32_t {key}".encode(), struct.pack("<i", value)
    else:
        name, data = f"float {key}".encode(), struct.pack("<f", value)
    return bytes([len(name)]) + name + data


def write(
    path: Path,
    topics: Sequence[Topic],
    *,
    parameters: Mapping[str, float] | None = None,
    information: Mapping[str, float | str] | None = None,
    texts: Sequence[tuple[float, str]] = (),
    dropouts: Sequence[tuple[float, float]] = (),
    start: int = START,
) -> None:
    """Write a file whose messages are in the order in which they were written."""
    parts = [b"ULog\x01\x12\x35\x01", struct.pack("<Q", start), message("B", bytes(40))]
    for topic in topics:
        for text in filter(None, (topic.nested, f"{topic.name}:{topic.definition()}")):
            parts.append(message("F", text.encode()))
    parts += [message("I", pair(key, value)) for key, value in (information or {}).items()]
    parts += [message("P", pair(key, value)) for key, value in (parameters or {}).items()]
    for identity, topic in enumerate(topics):
        parts.append(message("A", struct.pack("<BH", topic.instance, identity) + topic.name.encode()))
    timed: list[tuple[float, bytes]] = []
    for identity, topic in enumerate(topics):
        rows = topic.records()
        data, size = rows.tobytes(), rows.dtype.itemsize
        head = struct.pack("<HBH", size + 2, ord("D"), identity)
        timed += [(float(time), head + data[i * size : (i + 1) * size]) for i, time in enumerate(topic.order)]
    for time, text in texts:
        body = b"6" + struct.pack("<Q", start + round(1e6 * time)) + text.encode()
        timed.append((time, message("L", body)))
    timed += [(time, message("O", struct.pack("<H", round(1e3 * length)))) for time, length in dropouts]
    timed.sort(key=lambda entry: entry[0])
    path.write_bytes(b"".join([*parts, *(data for _, data in timed)]))


def ticks(seconds: np.ndarray) -> np.ndarray:
    """Stamps in microseconds; a wrong unit may make them huge."""
    return (START + np.round(1e6 * seconds)).astype(np.uint64)


def write_ulog(folder: Path, flight: Flight) -> Path:
    """A flight as PX4 logs it."""
    path = folder / "flight.ulg"
    received = ticks(flight.received)
    imu = {
        "timestamp": ("uint64_t", received),
        "timestamp_sample": ("uint64_t", ticks(flight.imu_time)),
        "gyro_rad": ("float", flight.gyro),
        "accelerometer_m_s2": ("float", flight.accel),
    }
    topics = [Topic("sensor_combined", imu, flight.received)]
    if len(flight.rotor_time):
        topics.append(_escs(flight))
    motors = np.full((len(flight.motor_time), 12), np.nan)
    motors[:, : flight.motor.shape[1]] = flight.motor
    topics.append(_topic("actuator_motors", flight.motor_time, {"control": motors}))
    pose = {"position": flight.position, "q": flight.orientation}
    topics.append(_topic("vehicle_odometry", flight.pose_time, pose))
    innovations = {"gps_hpos": flight.innovation[:, :2], "gps_vpos": flight.innovation[:, 2]}
    variances = {"gps_hpos": flight.innovation_variance[:, :2], "gps_vpos": flight.innovation_variance[:, 2]}
    ratio = flight.innovation**2 / (25 * flight.innovation_variance)
    ratios = {"gps_hpos": ratio[:, :2], "gps_vpos": ratio[:, 2]}
    for name, columns in (
        ("estimator_innovations", innovations),
        ("estimator_innovation_variances", variances),
        ("estimator_innovation_test_ratios", ratios),
    ):
        topics.append(_topic(name, flight.innovation_time, columns))
    time, levels, clips = vibration(flight)
    status = {
        "timestamp": ("uint64_t", ticks(time)),
        "accel_clipping": ("uint32_t", np.repeat(clips[:, None], 3, 1)),
        "accel_vibration_metric": ("float", np.linalg.norm(levels, axis=1)),
    }
    topics.append(Topic("vehicle_imu_status", status, time))
    begin, end = float(flight.received.min()), float(flight.received.max())
    landed = {"timestamp": ("uint64_t", ticks(np.array([begin, end]))), "landed": ("uint8_t", np.array([0, 1]))}
    topics.append(Topic("vehicle_land_detected", landed, [begin, end]))
    release = 1 << 24 | 15 << 16 | 255
    write(path, topics, parameters={"SYS_AUTOSTART": 4001}, information={"ver_hw": "TEST", "ver_sw_release": release})
    return path


def _topic(name: str, time: np.ndarray, columns: Mapping[str, np.ndarray]) -> Topic:
    fields: dict[str, tuple[str, Any]] = {"timestamp": ("uint64_t", ticks(time))}
    return Topic(name, fields | {key: ("float", values) for key, values in columns.items()}, time)


def _escs(flight: Flight, functions: np.ndarray | None = None) -> Topic:
    """Nested messages, as PX4 defines them; ``functions`` say which motor each output serves."""
    count = flight.rotor.shape[1]
    fields: dict[str, tuple[str, Any]] = {"timestamp": ("uint64_t", ticks(flight.rotor_time))}
    for index in range(count):
        fields[f"time{index}"] = ("uint64_t", ticks(flight.rotor_time))
        fields[f"rpm{index}"] = ("int32_t", np.round(60 * flight.rotor[:, index]))
        if functions is not None:
            fields[f"function{index}"] = ("uint8_t", np.full(len(flight.rotor), functions[index]))
        fields[f"pad{index}"] = ("uint8_t", np.zeros((len(flight.rotor), 4 if functions is None else 3)))
    layout = f"uint64_t timestamp;esc_report[{count}] esc;"
    rest = "uint8_t[4] _padding0;" if functions is None else "uint8_t actuator_function;uint8_t[3] _padding0;"
    nested = f"esc_report:uint64_t timestamp;int32_t esc_rpm;{rest}"
    return Topic("esc_status", fields, flight.rotor_time, nested=nested, layout=layout)
