"""Minimal Betaflight blackbox files, with the encodings that firmwares use."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from fwnkf.data.flights import Flight

SCALE = 0.05
"""Degrees per second of one count of the gyro."""
INTERVAL = 32
POLES = 14


@lru_cache(1 << 16)
def unsigned(value: int) -> bytes:
    value &= 0xFFFFFFFF
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


@lru_cache(1 << 16)
def signed(value: int) -> bytes:
    return unsigned(value << 1 ^ value >> 31)


def three(values: Sequence[int]) -> bytes:
    """TAG2_3S32."""
    low, high = min(values), max(values)
    a, b, c = values
    if low >= -2 and high <= 1:
        return bytes([(a & 3) << 4 | (b & 3) << 2 | c & 3])
    if low >= -8 and high <= 7:
        return bytes([64 | a & 15, (b & 15) << 4 | c & 15])
    if low >= -32 and high <= 31:
        return bytes([128 | a & 63, b & 63, c & 63])
    tag, body = 192, b""
    for index, value in enumerate(values):
        size = next(size for size in (1, 2, 3, 4) if -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1)
        tag |= size - 1 << 2 * index
        body += value.to_bytes(size, "little", signed=True)
    return bytes([tag]) + body


def four(values: Sequence[int]) -> bytes:
    """TAG8_4S16."""
    tag, nibbles = 0, []
    for index, value in enumerate(values):
        sizes = {0: 0, 1: 1, 2: 2, 3: 4}
        kind = (
            0 if value == 0 else next(k for k in (1, 2, 3) if -(1 << 4 * sizes[k] - 1) <= value < 1 << 4 * sizes[k] - 1)
        )
        tag |= kind << 2 * index
        nibbles += [value >> 4 * place & 15 for place in reversed(range(sizes[kind]))]
    if len(nibbles) % 2:
        nibbles.append(0)
    return bytes([tag]) + bytes(a << 4 | b for a, b in zip(nibbles[::2], nibbles[1::2], strict=True))


def eight(values: Sequence[int]) -> bytes:
    """TAG8_8SVB."""
    tag = sum(1 << index for index, value in enumerate(values) if value)
    return bytes([tag]) + b"".join(signed(value) for value in values if value)


def write(
    path: Path,
    columns: Mapping[str, np.ndarray],
    *,
    rate: float,
    header: Mapping[str, str] | None = None,
    end: bool = True,
) -> None:
    """Write columns of integers; ``loopIteration`` and ``time`` (µs) come first, the rest in any order."""
    path.write_bytes(session(columns, rate=rate, header=header, end=end))


def session(
    columns: Mapping[str, np.ndarray], *, rate: float, header: Mapping[str, str] | None = None, end: bool = True
) -> bytes:
    """One session; time differences are encoded by those of the steps before, the others by kind."""
    tags = {"axisI": (7, 3), "rcCommand": (8, 4), "vbatLatest": (6, 3), "amperageLatest": (6, 3), "rssi": (6, 3)}
    order = ["loopIteration", "time"]
    bases = ["axisI", "rcCommand", "vbatLatest", "amperageLatest", "rssi"]
    order += [name for base in bases for name in columns if name.partition("[")[0] == base]
    order += [name for name in columns if name not in order]
    kinds = [tags.get(name.partition("[")[0], (0, 1))[0] for name in order]
    encodings = [9, 0, *kinds[2:]]
    predictors = [6, 2, *(1 if kind else 3 for kind in kinds[2:])]
    values = np.stack([np.asarray(columns[name], np.int64) for name in order], -1)
    lines = {
        "Product": "Blackbox flight data recorder by Nicholas Sherlock",
        "Data version": "2",
        "Field I name": ",".join(order),
        "Field I signed": ",".join(["0", "0"] + ["1"] * (len(order) - 2)),
        "Field I predictor": ",".join(["0"] * len(order)),
        "Field I encoding": ",".join(["1", "1"] + ["0"] * (len(order) - 2)),
        "Field P predictor": ",".join(map(str, predictors)),
        "Field P encoding": ",".join(map(str, encodings)),
        "Firmware type": "Cleanflight",
        "Firmware revision": "Betaflight 4.5.1 (test) TEST",
        "Craft name": "test",
        "I interval": str(INTERVAL),
        "P interval": "1",
        "gyro_scale": "0x" + struct.pack(">f", SCALE).hex(),
        "acc_1G": "2048",
        "looptime": str(round(1e6 / rate)),
        "pid_process_denom": "1",
        "motor_poles": str(POLES),
        "motorOutput": "0,2000",
        "debug_mode": "0",
    } | dict(header or {})
    parts = [f"H {key}:{value}\n".encode() for key, value in lines.items()]
    last = before = None
    for row in values.tolist():
        whole = last is None or row[0] % INTERVAL == 0 or row[0] != last[0] + 1
        if last is not None and (row[0] - last[0] > 4000 or row[1] - last[1] > 5_000_000):
            parts.append(b"E\x0e" + unsigned(row[0]) + unsigned(row[1]))
        if whole:
            parts.append(b"I" + unsigned(row[0]) + unsigned(row[1]) + b"".join(signed(value) for value in row[2:]))
            last = before = row
        else:
            parts.append(b"P" + _difference(row, last, before, encodings, predictors))
            before, last = last, row
    if end:
        parts.append(b"E\xffEnd of log\0")
    return b"".join(parts)


def _difference(
    row: list[int], last: list[int], before: list[int], encodings: list[int], predictors: list[int]
) -> bytes:
    rest = []
    for value, a, b, predictor in zip(row, last, before, predictors, strict=True):
        if predictor == 3:
            rest.append(value - int((a + b) / 2))
        else:
            rest.append(value - a if predictor == 1 else value - 2 * a + b if predictor == 2 else 0)
    parts, place = [], 0
    while place < len(row):
        code = encodings[place]
        count = {7: 3, 8: 4}.get(code, 1)
        if code == 6:
            while encodings[place + count : place + count + 1] == [6] and count < 8:
                count += 1
        if code == 0:
            parts.append(signed(rest[place]))
        elif code != 9:
            parts.append({7: three, 8: four, 6: eight}[code](rest[place : place + count]))
        place += count
    return b"".join(parts)


def write_blackbox(folder: Path, flight: Flight) -> Path:
    """A flight as Betaflight logs it: no pose and no innovations; a time base out of order cannot be written."""
    path = folder / "flight.bbl"
    time = flight.imu_time
    gyro = np.round(np.rad2deg(flight.gyro) / SCALE)
    accel = np.round(flight.accel / 9.80665 * 2048)
    steady = flight.received
    columns = {
        "loopIteration": np.round((steady - steady[0]) * flight.rate) + INTERVAL,
        "time": np.round(1e6 * (time - time[0])) + 1_000_000,
        "axisI[0]": 40 * np.sin(steady), "axisI[1]": 900 * np.sin(3 * steady), "axisI[2]": np.zeros(len(time)),
        "rcCommand[0]": 90 * np.sin(steady), "rcCommand[1]": 400 * np.sin(5 * steady),
        "rcCommand[2]": np.zeros(len(time)), "rcCommand[3]": 1500 + 5 * np.sin(20 * steady),
        "vbatLatest": 1600 - 2 * steady, "amperageLatest": 1000 + 100 * np.sin(steady), "rssi": np.full(len(time), 99),
        **{f"gyroADC[{i}]": gyro[:, i] for i in range(3)},
        **{f"gyroUnfilt[{i}]": gyro[:, i] for i in range(3)},
        **{f"accSmooth[{i}]": accel[:, i] for i in range(3)},
        **{
            f"motor[{i}]": np.round(2000 * np.interp(steady, flight.motor_time, flight.motor[:, i]))
            for i in range(flight.motor.shape[1])
        },
    }  # fmt: skip
    if len(flight.rotor_time):
        for index in range(flight.rotor.shape[1]):
            hertz = np.interp(steady, flight.rotor_time, flight.rotor[:, index])
            columns[f"eRPM[{index}]"] = np.round(hertz * 60 * (POLES / 2) / 100)
    # a count that repeats or goes back cannot be written: jitter of the receiver's clock
    columns["loopIteration"] = np.maximum.accumulate(columns["loopIteration"] + 1e-6 * np.arange(len(time)))
    write(path, {name: np.round(values).astype(np.int64) for name, values in columns.items()}, rate=flight.rate)
    return path
