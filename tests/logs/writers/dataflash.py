"""Minimal DataFlash files."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fwnkf.data.flights import Flight

from .vibration import vibration

HEAD = b"\xa3\x95"
TYPES = {
    "b": "<i1", "B": "<u1", "h": "<i2", "H": "<u2", "i": "<i4", "I": "<u4", "f": "<f4", "d": "<f8", "q": "<i8",
    "Q": "<u8", "c": "<i2", "C": "<u2", "e": "<i4", "E": "<u4", "L": "<i4", "n": "S4", "N": "S16", "Z": "S64",
    "a": "(32,)<i2",
}  # fmt: skip
UNITS = {"s": "s", "#": "instance", "E": "rad/s", "o": "m/s/s", "m": "m", "n": "m/s", "d": "deg", "q": "rpm", "-": ""}
MULTIPLIERS = {"F": 1e-6, "0": 1.0, "B": 1e-2, "-": 0.0}
START = 50_000_000


@dataclass
class Kind:
    """A kind of message: ``layout`` has a letter for each column."""

    name: str
    layout: str
    columns: Sequence[str]
    values: Sequence[Any]
    """Of each column; texts as bytes."""
    order: Any
    """When each message was written."""
    units: str = ""
    multipliers: str = ""

    def records(self) -> np.ndarray:
        dtype = [(f"c{i}", TYPES[letter]) for i, letter in enumerate(self.layout)]
        rows = np.zeros(len(self.order), np.dtype(dtype))
        for index, values in enumerate(self.values):
            rows[f"c{index}"] = values
        return rows


def write(path: Path, kinds: Sequence[Kind], parameters: Mapping[str, float] | None = None) -> None:
    """Write a file that describes its messages, in the order in which they were written."""
    first = [0.0]
    start = [np.array([START])]
    settings = parameters or {}
    names, numbers = [name.encode() for name in settings], list(settings.values())
    moment = np.full(max(len(numbers), 1), START)
    tables = [
        Kind("UNIT", "QbZ", ["TimeUS", "Id", "Label"],
             [START, [ord(u) for u in UNITS], [v.encode() for v in UNITS.values()]], np.zeros(len(UNITS))),
        Kind("MULT", "Qbd", ["TimeUS", "Id", "Mult"],
             [START, [ord(m) for m in MULTIPLIERS], np.float32([*MULTIPLIERS.values()])], np.zeros(len(MULTIPLIERS))),
    ]  # fmt: skip
    if numbers:
        tables.append(
            Kind("PARM", "QNf", ["TimeUS", "Name", "Value"], [moment, names, numbers], np.zeros(len(numbers)))
        )
    known = [*tables, *kinds]
    unit = Kind("FMTU", "QBNN", ["TimeUS", "FmtType", "UnitIds", "MultIds"], [*start, [0], [b""], [b""]], first)
    described = [*known, unit]
    numbered = {kind.name: index + 1 for index, kind in enumerate(described)}
    parts = [_format(128, "FMT", "BBnNZ", ["Type", "Length", "Name", "Format", "Columns"])]
    parts += [_format(numbered[kind.name], kind.name, kind.layout, kind.columns) for kind in described]
    parts += [data for kind in tables[:2] for data in _messages(kind, numbered[kind.name])]
    with_units = [kind for kind in known if kind.units]
    if with_units:
        ids = [kind.units.encode() for kind in with_units], [kind.multipliers.encode() for kind in with_units]
        values = [START, [numbered[kind.name] for kind in with_units], *ids]
        rows = Kind("FMTU", unit.layout, unit.columns, values, np.zeros(len(with_units)))
        parts += _messages(rows, numbered["FMTU"])
    parts += [data for kind in tables[2:] for data in _messages(kind, numbered[kind.name])]
    timed = [
        (float(time), data)
        for kind in kinds
        for time, data in zip(kind.order, _messages(kind, numbered[kind.name]), strict=True)
    ]
    timed.sort(key=lambda entry: entry[0])
    path.write_bytes(b"".join([*parts, *(data for _, data in timed)]))


def _format(kind: int, name: str, layout: str, columns: Sequence[str]) -> bytes:
    length = 3 + sum(np.dtype(TYPES[letter]).itemsize for letter in layout)
    body = struct.pack("<BB4s16s64s", kind, length, name.encode(), layout.encode(), ",".join(columns).encode())
    return HEAD + b"\x80" + body


def _messages(kind: Kind, number: int) -> list[bytes]:
    rows = kind.records()
    data, size = rows.tobytes(), rows.dtype.itemsize
    head = HEAD + bytes([number])
    return [head + data[i * size : (i + 1) * size] for i in range(len(rows))]


def ticks(seconds: np.ndarray) -> np.ndarray:
    return (START + np.round(1e6 * np.asarray(seconds))).astype(np.uint64)


def write_dataflash(folder: Path, flight: Flight) -> Path:
    """A flight as ArduPilot logs it."""
    path = folder / "flight.BIN"
    zero = np.zeros(len(flight.imu_time), np.uint8)
    kinds = [
        Kind(
            "IMU", "QBQffffff", ["TimeUS", "I", "SampleUS", *(f"{k}{a}" for k in ("Gyr", "Acc") for a in "XYZ")],
            [ticks(flight.received), zero, ticks(flight.imu_time), *flight.gyro.T, *flight.accel.T], flight.received,
            "s#sEEEooo", "F-F000000",
        )
    ]  # fmt: skip
    count = flight.rotor.shape[1]
    if len(flight.rotor_time):
        time = np.repeat(flight.rotor_time, count)
        instance = np.tile(np.arange(count), len(flight.rotor_time))
        kinds.append(
            Kind("ESC", "QBf", ["TimeUS", "Instance", "RPM"], [ticks(time), instance, 60 * flight.rotor.ravel()], time,
                 "s#q", "F--")
        )  # fmt: skip
    motors = flight.motor.shape[1]
    names = [f"C{index + 1}" for index in range(motors)]
    pulses = np.round(1000 + 1000 * flight.motor).T
    kinds.append(
        Kind("RCOU", "Q" + "H" * motors, ["TimeUS", *names], [ticks(flight.motor_time), *pulses], flight.motor_time)
    )
    w, x, y, z = flight.orientation.T
    roll, yaw = (
        np.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y)),
        np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)),
    )
    pitch = np.arcsin(np.clip(2 * (w * y - z * x), -1, 1))
    core = np.zeros(len(flight.pose_time), np.uint8)
    kinds.append(
        Kind(
            "XKF1", "QBffffff", ["TimeUS", "C", "Roll", "Pitch", "Yaw", "PN", "PE", "PD"],
            [ticks(flight.pose_time), core, *np.rad2deg([roll, pitch, yaw]), *flight.position.T], flight.pose_time,
            "s#dddmmm", "F-000000",
        )
    )  # fmt: skip
    core = np.zeros(len(flight.innovation_time), np.uint8)
    stamps = ticks(flight.innovation_time)
    none = np.zeros((3, len(stamps)))
    kinds.append(
        Kind("XKF3", "QBffffff", ["TimeUS", "C", "IVN", "IVE", "IVD", "IPN", "IPE", "IPD"],
             [stamps, core, *none, *flight.innovation.T], flight.innovation_time, "s#nnnmmm", "F-000000")
    )  # fmt: skip
    ratio = flight.innovation**2 / (25 * flight.innovation_variance)
    horizontal = np.sqrt(ratio[:, :2].mean(1))
    kinds.append(
        Kind("XKF4", "QBfff", ["TimeUS", "C", "SV", "SP", "SH"],
             [stamps, core, none[0], horizontal, np.sqrt(ratio[:, 2])],
             flight.innovation_time, "s#---", "F-000")
    )  # fmt: skip
    time, levels, clips = vibration(flight)
    kinds.append(
        Kind("VIBE", "QBfffI", ["TimeUS", "IMU", "VibeX", "VibeY", "VibeZ", "Clip"],
             [ticks(time), np.zeros(len(time)), *levels.T, clips], time, "s#ooo-", "F-000-")
    )  # fmt: skip
    ends = np.array([flight.received.min(), flight.received.max()])
    kinds.append(Kind("EV", "QB", ["TimeUS", "Id"], [ticks(ends), [28, 18]], ends))
    kinds.append(Kind("MSG", "QZ", ["TimeUS", "Message"], [ticks(ends[:1]), [b"ArduCopter V4.5.0 (test)"]], ends[:1]))
    settings = {f"SERVO{index + 1}_FUNCTION": 33.0 + index for index in range(motors)}
    write(path, kinds, settings | {"MOT_PWM_MIN": 1000.0, "MOT_PWM_MAX": 2000.0})
    return path
